"""A refused credential is read again once; then the call is repeated once, including writes."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chalicelib.cluster import errors
from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.cluster.credentials import EksLogin, KubeCredential
from chalicelib.model.errors import BadInput
from chalicelib.model.secret import Secret, SecretUnavailable
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.emulators.scripted_http_server import HttpScript, Reply, Seen, fingerprint
from tests.cases import each_row
from tests.unit.cluster.support import ScriptedSecrets, Waits, file_client, kubeconfig, status

REFUSED = Reply(401, status(401, "Unauthorized", "Unauthorized"))


def only(token: str) -> Callable[[Seen], Reply]:
    """A server that accepts exactly one token."""
    return lambda seen: (
        Reply(body={}) if seen.credential == fingerprint(f"Bearer {token}") else REFUSED
    )


def config(server: HttpScript, token: str) -> str:
    return json.dumps(kubeconfig(server.url, user={"token": token}))


def by_secret(secrets: ScriptedSecrets) -> KubeClient:
    access = KubernetesAccess(kubeconfig_secret="config")
    return connect(access, secrets, clock=lambda: 0.0, sleep=Waits(), jitter=lambda: 0.5)


@each_row("method", ["GET", "POST", "PATCH"])
def test_kube_rotated_secret_is_read_past_the_cache(method: str) -> None:
    with HttpScript(only("new")) as server:
        secrets = ScriptedSecrets(config=config(server, "old"))
        cluster = by_secret(secrets)
        secrets.now["config"] = config(server, "new")
        assert cluster.request(method, "/n") == b"{}"
        assert cluster.request(method, "/n") == b"{}"
    assert len(server.requests) == 3


def test_kube_renewed_secret_may_name_another_server() -> None:
    with HttpScript([REFUSED]) as before, HttpScript(only("new")) as after:
        secrets = ScriptedSecrets(config=config(before, "old"))
        cluster = by_secret(secrets)
        secrets.now["config"] = config(after, "new")
        cluster.get("/n")
    assert len(after.requests) == 1


def test_kube_second_refusal_after_a_renewal_is_final() -> None:
    with (
        HttpScript([REFUSED, REFUSED, REFUSED]) as server,
        pytest.raises(errors.Unauthorized, match="Unauthorized"),
    ):
        by_secret(ScriptedSecrets(config=config(server, "old"))).get("/n")
    assert len(server.requests) == 2


def test_kube_refusal_reports_a_secret_that_became_unusable() -> None:
    with HttpScript([REFUSED]) as server:
        secrets = ScriptedSecrets(config=config(server, "old"))
        cluster = by_secret(secrets)
        secrets.now["config"] = ""
        with pytest.raises(errors.Unauthorized, match="kubeconfig secret config: is empty"):
            cluster.get("/n")


def test_kube_concurrent_threads_renew_once_and_all_succeed() -> None:
    with HttpScript(only("new")) as server:
        secrets = ScriptedSecrets(config=config(server, "old"))
        cluster = by_secret(secrets)
        secrets.now["config"] = config(server, "new")
        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(lambda _: cluster.get("/n"), range(12))) == {b"{}"}


def token_file_client(server: HttpScript, path: Path) -> KubeClient:
    return file_client(
        path.parent / "config",
        kubeconfig(server.url, user={"tokenFile": path.name, "token": "unused"}),
    )


def test_kube_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    with HttpScript([Reply(body={})] * 3) as server:
        cluster = token_file_client(server, path)
        cluster.get("/n")
        path.write_text("second-one\n")
        cluster.get("/n")
        cluster.get("/n")
    first, *later = [seen.credential for seen in server.requests]
    assert first == fingerprint("Bearer first")
    assert set(later) == {fingerprint("Bearer second-one")}


def test_kube_token_file_is_read_again_after_401_even_if_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    before = path.stat()
    with HttpScript(only("new")) as server:
        cluster = token_file_client(server, path)
        path.write_text("new")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        cluster.get("/n")
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "cannot be read"), ("", "is empty"), ("a b", "characters")]
)
def test_kube_token_file_without_a_token_is_refused(
    content: str | None, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with HttpScript() as server, pytest.raises(BadInput, match=problem) as caught:
        token_file_client(server, path)
    assert caught.value.place.endswith("users[0].user.tokenFile")


def test_kube_token_file_that_vanishes_later_is_unauthorized(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    with HttpScript([Reply(body={})] * 3) as server:
        cluster = token_file_client(server, path)
        path.unlink()
        with pytest.raises(errors.Unauthorized, match="tokenFile"):
            cluster.get("/n")
    assert server.requests == []


class Eks:
    """A signer that counts calls, and a clock that the test sets."""

    def __init__(self, server: HttpScript) -> None:
        self.now, self.signed, self.described = 1000.0, 0, 0
        self._server = server

    def describe(self) -> KubeCredential:
        self.described += 1
        return KubeCredential(server=self._server.url)

    def sign(self) -> Secret:
        self.signed += 1
        return Secret(f"token-{self.signed}")

    def cluster(self) -> KubeClient:
        login = EksLogin(self.describe, self.sign, lambda: self.now)
        return KubeClient(login, sleep=Waits(), jitter=lambda: 0.5)


def test_kube_eks_token_is_signed_again_after_ten_minutes() -> None:
    with HttpScript([Reply(body={})] * 4) as server:
        eks = Eks(server)
        cluster = eks.cluster()
        for now in (1000.0, 1600.0, 1601.0, 1700.0):
            eks.now = now
            cluster.get("/n")
    assert [seen.credential for seen in server.requests] == [
        fingerprint(f"Bearer token-{number}") for number in (1, 1, 2, 2)
    ]
    assert eks.described == 1


def test_kube_refused_eks_token_is_signed_again_at_once() -> None:
    with HttpScript(only("token-2")) as server:
        eks = Eks(server)
        eks.cluster().get("/n")
    assert (eks.signed, eks.described) == (2, 2)


def test_kube_unreachable_aws_is_a_temporary_error_and_reads_retry() -> None:
    class Flaky(Eks):
        def sign(self) -> Secret:
            if super().sign() and self.signed == 2:
                raise SecretUnavailable("no answer from AWS")
            return Secret(f"token-{self.signed}")

    with HttpScript([Reply(body={})] * 3) as server:
        eks = Flaky(server)
        cluster = eks.cluster()
        eks.now += 1000
        assert cluster.get("/n") == b"{}"
        eks.signed, eks.now = 1, eks.now + 1000
        with pytest.raises(errors.Unavailable, match="no answer from AWS"):
            cluster.request("POST", "/n")
    assert len(server.requests) == 1


def test_kube_renewal_does_not_disturb_calls_in_flight() -> None:
    gate = threading.Event()

    def script(seen: Seen) -> Reply:
        return Reply(body={}, held=gate) if seen.path == "/slow" else only("new")(seen)

    with HttpScript(script) as server:
        secrets = ScriptedSecrets(config=config(server, "old"))
        cluster = by_secret(secrets)
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(cluster.get, "/slow")
            secrets.now["config"] = config(server, "new")
            cluster.get("/n")
            gate.set()
            assert slow.result() == b"{}"
