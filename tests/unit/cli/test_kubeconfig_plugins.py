"""Exec plugins and auth providers of a person's kubeconfig, with real programs."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.kubeconfig_files import EARLY, plugin_logins
from chalicelib.cluster.connect import connect
from chalicelib.cluster.credentials import CredentialProvider
from chalicelib.cluster.kubeconfig import from_kubeconfig
from chalicelib.model.errors import BadInput
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.emulators.certificates import CertificateAuthority
from tests.cases import each_row
from tests.unit.cluster.support import kubeconfig

pytest.importorskip("kubernetes", reason="the official client is not installed")
NOW = 1_795_000_000.0
API = "client.authentication.k8s.io/v1"


class ScriptedPlugin:
    """A plugin as a shell script, which counts its runs in a file and prints numbered tokens."""

    def __init__(self, folder: Path, script: str) -> None:
        self.path, self._runs = folder / "login-plugin", folder / "runs"
        self.path.write_text(
            f"#!/bin/sh\necho run >> {self._runs}\nN=$(wc -l < {self._runs} | tr -d ' ')\n"
            f"{script}\n"
        )
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().splitlines()) if self._runs.exists() else 0


def answer(**status: Any) -> str:
    return (
        "cat <<END\n"
        + json.dumps({"apiVersion": API, "kind": "ExecCredential", "status": status})
        + "\nEND"
    )


def login(
    folder: Path, user: dict[str, Any], clock: Callable[[], float] = lambda: NOW
) -> CredentialProvider:
    path = folder / "kubeconfig"
    path.write_text(json.dumps(kubeconfig(user=user)))
    made: list[CredentialProvider] = []

    def plugins(parse: Any) -> CredentialProvider:
        made.append(plugin_logins(clock)(parse))
        return made[0]

    connect(
        KubernetesAccess(kubeconfig_file=str(path)),
        lambda name: name,
        clock=clock,
        files=True,
        plugins=plugins,
    )
    return made[0]


def exec_user(plugin: ScriptedPlugin, **settings: Any) -> dict[str, Any]:
    return {
        "exec": {
            "apiVersion": API,
            "command": str(plugin.path),
            "interactiveMode": "Never",
            **settings,
        }
    }


def test_exec_plugin_runs_once_and_again_before_its_token_ends(tmp_path: Path) -> None:
    ends = datetime.fromtimestamp(NOW + 600, UTC).isoformat().replace("+00:00", "Z")
    plugin, now = (
        ScriptedPlugin(tmp_path, answer(token="token-$N", expirationTimestamp=ends)),
        [NOW],
    )
    made = login(tmp_path, exec_user(plugin), lambda: now[0])
    assert [made.current().token.reveal() for _ in range(3)] == ["token-1"] * 3
    now[0] = NOW + 600 - EARLY
    assert made.current().token.reveal() == "token-2"


def test_exec_plugin_runs_again_after_the_cluster_refused_its_token(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(tmp_path, answer(token="token-$N"))
    made = login(tmp_path, exec_user(plugin))
    made.renew()
    assert (made.current().token.reveal(), plugin.runs) == ("token-2", 2)


def test_exec_plugin_gets_the_arguments_and_variables_of_the_kubeconfig(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(tmp_path, answer(token="$1-$STAGE"))
    made = login(tmp_path, exec_user(plugin, args=["prod"], env=[{"name": "STAGE", "value": "eu"}]))
    assert made.current().token.reveal() == "prod-eu"


def test_exec_plugin_may_return_a_client_certificate(tmp_path: Path) -> None:
    pair = CertificateAuthority().client("me")
    certificate, key = pair.certificate, pair.key
    (tmp_path / "status").write_text(
        json.dumps(
            {
                "apiVersion": API,
                "kind": "ExecCredential",
                "status": {
                    "clientCertificateData": certificate.decode(),
                    "clientKeyData": key.decode(),
                },
            }
        )
    )
    made = login(tmp_path, exec_user(ScriptedPlugin(tmp_path, f"cat {tmp_path}/status"))).current()
    assert (made.certificate, made.key.reveal()) == (certificate, key.decode())


@each_row(
    ("script", "says"),
    [
        (
            "echo 'session has ended, run login' >&2; exit 1",
            "process returned 1. session has ended, run login",
        ),
        ("echo nonsense", "failed to decode process output"),
        (answer(), "neither a token nor a client certificate"),
        (answer(token="a b"), "the token contains invalid characters"),
        (answer(token="t", expirationTimestamp="soon"), "expirationTimestamp that is not a time"),
        (answer(token="t", expirationTimestamp="2026-11-23T10:00:00"), "without a time zone"),
    ],
)
def test_failing_exec_plugin_is_a_one_line_error_with_its_message(
    script: str, says: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("plugin")
    with pytest.raises(BadInput) as raised:
        login(folder, exec_user(ScriptedPlugin(folder, script)))
    assert says in str(raised.value)
    assert "users[0].user.exec" in raised.value.place
    assert "\n" not in str(raised.value)


def test_missing_exec_plugin_error_shows_the_install_hint(tmp_path: Path) -> None:
    user = {
        "exec": {
            "apiVersion": API,
            "command": "no-such-login",
            "installHint": "install it from\nthe portal",
        }
    }
    with pytest.raises(
        BadInput, match=r"no-such-login cannot be run: .*; install it from the portal"
    ):
        login(tmp_path, user)


def test_token_of_an_oidc_provider_is_used_while_it_is_valid(tmp_path: Path) -> None:
    claims = (
        base64.urlsafe_b64encode(json.dumps({"exp": 4_000_000_000}).encode()).decode().rstrip("=")
    )
    token = f"e30.{claims}.c2ln"
    provider = {
        "name": "oidc",
        "config": {"id-token": token, "client-id": "c", "idp-issuer-url": "https://id.invalid"},
    }
    made = login(tmp_path, {"auth-provider": provider})
    assert made.current().token.reveal() == token


def test_functions_refuse_an_exec_plugin() -> None:
    text = json.dumps(kubeconfig(user={"exec": {"apiVersion": API, "command": "true"}}))
    with pytest.raises(BadInput, match="exec plugin, which a Lambda function cannot run"):
        from_kubeconfig(text, place="kubeconfig", hosted=True)
