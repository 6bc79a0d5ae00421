"""An unusable kubeconfig is refused with the path and the remedy; its contents are never quoted."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cluster.connect import connect, from_kubeconfig
from chalicelib.model.errors import BadInput
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.emulators.certificates import CertificateAuthority
from tests.cases import each_row
from tests.unit.cluster.support import TOKEN, ScriptedSecrets, b64, kubeconfig

OURS, OTHER = CertificateAuthority(), CertificateAuthority()
ME, SOMEONE = OURS.client("me"), OTHER.client("someone")
PLACE = "kubeconfig secret prod"
USER, CLUSTER = f"{PLACE}: users[0].user", f"{PLACE}: clusters[0].cluster"


def read(config: dict[str, Any] | str, **arguments: Any) -> Any:
    text = config if isinstance(config, str) else json.dumps(config)
    return from_kubeconfig(text, place=PLACE, **arguments)


def with_user(**user: Any) -> dict[str, Any]:
    return kubeconfig(user={key.replace("_", "-"): value for key, value in user.items()})


def with_cluster(**cluster: Any) -> dict[str, Any]:
    return kubeconfig(cluster={key.replace("_", "-"): value for key, value in cluster.items()})


def changed(key: str, value: Any) -> dict[str, Any]:
    return {**copy.deepcopy(kubeconfig()), key: value}


REFUSED: dict[str, tuple[dict[str, Any] | str, str, str, str]] = {
    # name of the error: (kubeconfig, path, problem, remedy)
    "empty": (" \n", PLACE, "is empty", "kubectl config view --raw --flatten"),
    "text": ("hello", PLACE, "is not a YAML mapping", "kubectl config view"),
    "yaml": ("a: [1\nb: }", PLACE, "is not a YAML mapping (line 2)", "kubectl config view"),
    "no-context": (
        changed("current-context", ""),
        f"{PLACE}: current-context",
        "names no context",
        "contexts: main",
    ),
    "lost-context": (
        changed("current-context", "x"),
        f"{PLACE}: current-context",
        "'x' is not among contexts",
        "main",
    ),
    "no-contexts": (
        changed("contexts", None),
        f"{PLACE}: current-context",
        "'main' is not among contexts",
        "none",
    ),
    "lost-user": (
        changed("users", []),
        f"{PLACE}: contexts[0].context.user",
        "'me' is not among users",
        "none",
    ),
    "lost-cluster": (
        changed("clusters", [{"name": "a"}]),
        f"{PLACE}: contexts[0].context.cluster",
        "'there'",
        ": a",
    ),
    "twice": (
        changed("users", kubeconfig()["users"] * 2),
        f"{PLACE}: users[1].name",
        "is given twice",
        "of its own",
    ),
    "not-a-mapping": (
        changed("users", [{"name": "me", "user": "x"}]),
        USER,
        "is not a mapping",
        "as kubectl does",
    ),
    "exec": (
        with_user(exec={"command": "kubelogin"}),
        f"{USER}.exec",
        "exec plugin",
        "kubectl -n kube-system create token",
    ),
    "exec-aws": (
        with_user(exec={"command": "/usr/bin/aws"}),
        f"{USER}.exec",
        "exec plugin",
        "kubernetes.eksCluster",
    ),
    "exec-and-token": (
        with_user(exec={"command": "x"}, token=TOKEN),
        f"{USER}.exec",
        "exec plugin",
        "create token",
    ),
    "auth-provider": (
        with_user(auth_provider={"name": "gcp"}),
        f"{USER}.auth-provider",
        "removed",
        "kubernetes.io/service-account-token",
    ),
    "basic": (
        with_user(username="admin", password="hidden-word"),
        f"{USER}.username",
        "basic",
        "create token",
    ),
    "impersonation": (
        with_user(token=TOKEN, **{"as": "root"}),
        f"{USER}.as",
        "acts as another",
        "create token",
    ),
    "no-credential": (with_user(), USER, "has no credential", "create token"),
    "token-number": (with_user(token=12345678), f"{USER}.token", "is not text", "quotes"),
    "token-lines": (with_user(token="a b"), f"{USER}.token", "invalid characters", "one line"),
    "token-file": (
        changed("users", [{"name": "me", "user": {"tokenFile": "t"}}]),
        f"{USER}.tokenFile",
        "names a file",
        "create token",
    ),
    "cert-file": (
        with_user(client_certificate="me.pem", client_key="k"),
        f"{USER}.client-certificate",
        "names a file",
        "`client-certificate-data`: kubectl config view --raw --flatten",
    ),
    "ca-file": (
        with_cluster(certificate_authority="ca.pem"),
        f"{CLUSTER}.certificate-authority",
        "names a file",
        "certificate-authority-data",
    ),
    "bad-base64": (
        with_user(client_certificate_data=b64(ME.certificate), client_key_data="hidden-word!"),
        f"{USER}.client-key-data",
        "is not base64",
        "base64",
    ),
    "no-key": (
        with_user(client_certificate_data=b64(ME.certificate)),
        f"{USER}.client-key-data",
        "is missing",
        "together",
    ),
    "bad-pem": (
        with_user(client_certificate_data=b64(b"hidden-word"), client_key_data=b64(b"hidden-word")),
        f"{USER}.client-certificate-data",
        "not a PEM",
        "PEM",
    ),
    "other-key": (
        with_user(client_certificate_data=b64(ME.certificate), client_key_data=b64(SOMEONE.key)),
        f"{USER}.client-certificate-data",
        "the key that belongs to it",
        "PEM",
    ),
    "bad-ca": (
        with_cluster(certificate_authority_data=b64(b"hidden-word")),
        f"{CLUSTER}.certificate-authority-data",
        "is not a PEM certificate",
        "CA",
    ),
    "no-server": (with_cluster(server=""), f"{CLUSTER}.server", "is missing", "kubectl"),
    "server-name": (
        with_cluster(server="cluster.test:6443"),
        f"{CLUSTER}.server",
        "is not the URL",
        "https://HOST",
    ),
    "server-user": (
        with_cluster(server="https://a:hidden-word@c.test"),
        f"{CLUSTER}.server",
        "is not the URL",
        "without",
    ),
    "server-query": (
        with_cluster(server="https://c.test?"),
        f"{CLUSTER}.server",
        "is not the URL",
        "a query",
    ),
    "server-port": (
        with_cluster(server="https://c.test:99999"),
        f"{CLUSTER}.server",
        "is not the URL",
        "https://HOST",
    ),
    "plain-http": (
        with_cluster(server="http://c.test"),
        f"{CLUSTER}.server",
        "plain http",
        "allowInsecureTls",
    ),
    "insecure": (
        with_cluster(insecure_skip_tls_verify=True),
        f"{CLUSTER}.insecure-skip-tls-verify",
        "any server",
        "certificate-authority-data",
    ),
    "insecure-text": (
        with_cluster(insecure_skip_tls_verify="yes"),
        f"{CLUSTER}.insecure-skip-tls-verify",
        "neither true nor false",
        "without quotes",
    ),
    "proxy": (
        with_cluster(proxy_url="socks5://p.test"),
        f"{CLUSTER}.proxy-url",
        "not an http",
        "http://HOST:PORT",
    ),
}


@each_row("case", REFUSED)
def test_kubeconfig_unusable_settings_are_refused(case: str) -> None:
    config, place, problem, remedy = REFUSED[case]
    with pytest.raises(BadInput) as caught:
        read(config)
    error = caught.value
    assert error.place.startswith(place)
    assert problem in error.problem
    assert remedy in error.remedy
    assert "\n" not in str(error)
    assert "hidden-word" not in str(error)
    assert TOKEN not in str(error)


@each_row("text", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000])
def test_kubeconfig_deep_nesting_does_not_end_the_process(text: str) -> None:
    with pytest.raises(BadInput, match="is not a YAML mapping"):
        from_kubeconfig(text, place="secret outscaler/kubeconfig")


def test_kubeconfig_insecure_together_with_a_ca_is_refused_even_if_allowed() -> None:
    config = with_cluster(insecure_skip_tls_verify=True, certificate_authority_data=b64(OURS.pem))
    with pytest.raises(BadInput, match="contradicts"):
        read(config, allow_insecure_tls=True)


def test_kubeconfig_context_of_the_policy_overrides_the_current_one() -> None:
    config = kubeconfig()
    config["contexts"].append({"name": "second", "context": {"cluster": "other", "user": "you"}})
    config["clusters"].append({"name": "other", "cluster": {"server": "https://other.test/"}})
    config["users"].append({"name": "you", "user": {"token": "another"}})
    assert read(config).server == "https://cluster.test"
    credential = read(config, context="second")
    assert (credential.server, credential.token.reveal()) == ("https://other.test", "another")
    with pytest.raises(BadInput, match="'third' is not among contexts") as caught:
        read(config, context="third")
    assert "main, second" in caught.value.remedy


def test_kubeconfig_unusable_user_of_another_context_is_ignored() -> None:
    config = kubeconfig()
    config["users"].append({"name": "you", "user": {"exec": {"command": "x"}}})
    assert read(config).token.reveal() == TOKEN


def test_kubeconfig_context_without_a_user_is_anonymous() -> None:
    config = kubeconfig("http://127.0.0.1:8001")
    del config["contexts"][0]["context"]["user"]
    assert not read(config).token


def test_kubeconfig_credential_repr_shows_no_secret() -> None:
    credential = read(
        with_user(
            token=TOKEN, client_certificate_data=b64(ME.certificate), client_key_data=b64(ME.key)
        )
    )
    assert TOKEN not in repr(credential)
    assert "PRIVATE" not in repr(credential)
    assert "***" in repr(credential)


def test_kubeconfig_data_takes_precedence_over_a_file(tmp_path: Path) -> None:
    config = with_cluster(
        certificate_authority="no-such-file", certificate_authority_data=b64(OURS.pem)
    )
    assert read(config, base_dir=tmp_path).ca == OURS.pem


def test_kubeconfig_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"certificate-authority: .*/pki/ca\.pem cannot be read: No such file"
    ):
        read(with_cluster(certificate_authority="pki/ca.pem"), base_dir=tmp_path)


@each_row(
    "access",
    [
        KubernetesAccess(),
        KubernetesAccess(kubeconfig_secret="config", eks_cluster="b"),
    ],
)
def test_kubeconfig_policy_must_name_exactly_one_source(access: KubernetesAccess) -> None:
    with pytest.raises(
        BadInput, match="exactly one of kubeconfigSecret, kubeconfigFile, eksCluster"
    ):
        connect(access, ScriptedSecrets(config="x"), clock=lambda: 0.0)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file"),
        (b"\xff\xfe", "is not text"),
        (b"", "is empty"),
    ],
)
def test_kubeconfig_unreadable_file_is_reported(
    content: bytes | None, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=problem) as caught:
        connect(
            KubernetesAccess(kubeconfig_file=str(path)),
            ScriptedSecrets(),
            clock=lambda: 0.0,
            files=True,
        )
    assert caught.value.place == f"kubeconfig file {path}"
