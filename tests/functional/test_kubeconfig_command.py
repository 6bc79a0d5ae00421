"""`outscaler kubeconfig` makes a kubeconfig of the service account's token, with which
the cluster can be read.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.commands.kubeconfig import TYPE
from chalicelib.cli.doctor.kubeconfig_checks import private_address
from chalicelib.cli.main import main
from tests.cases import each_row
from tests.functional.captured_clusters import saved_objects, served
from tests.functional.saved_cluster import shop

Said = pytest.CaptureFixture[str]


def secret(**fields: Any) -> dict[str, Any]:
    made = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "outscaler-token", "namespace": "kube-system"},
        "type": TYPE,
        "data": {"token": base64.b64encode(b"token-of-limited").decode()},
    }
    return made | fields


def test_kubeconfig_of_the_token_reads_the_same_cluster(tmp_path: Path, capsys: Said) -> None:
    with served(tmp_path, saved_objects(shop(tmp_path / "shop"))) as (server, kubeconfig):
        server.store.load(
            "secrets", [secret(data={"token": base64.b64encode(b"token-of-admin").decode()})]
        )
        assert main(["kubeconfig", "--kubeconfig", str(kubeconfig)]) == 0
        said = capsys.readouterr()
        made = tmp_path / "made"
        made.write_text(said.out)
        assert yaml.safe_load(said.out)["users"] == [
            {"name": "outscaler", "user": {"token": "token-of-admin"}}
        ]
        assert "token-of-admin" not in said.err
        assert main(["capture", str(tmp_path / "capture"), "--kubeconfig", str(made)]) == 0


@each_row(
    "fields, says",
    [
        (
            None,
            (
                "Secret kube-system/outscaler-token: does not exist; outscaler manifests rbac "
                "token | kubectl"
            ),
        ),
        ({"type": "Opaque"}, "is not of type kubernetes.io/service-account-token"),
        ({"data": {}}, "has no token yet"),
        ({"data": {"token": "%%%"}}, "has no token yet"),
    ],
)
def test_kubeconfig_without_a_token_says_what_to_do(
    fields: dict[str, Any] | None, says: str
) -> None:
    import contextlib
    import io
    import tempfile

    heard = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), ()) as (server, kubeconfig):
        if fields is not None:
            server.store.load("secrets", [secret(**fields)])
        with contextlib.redirect_stderr(heard):
            assert main(["kubeconfig", "--kubeconfig", str(kubeconfig)]) == 2
    assert says in heard.getvalue()


@each_row(
    "server, private",
    [
        ("https://10.2.0.1:6443", True),
        ("https://127.0.0.1:6443", True),
        ("https://[fd00::1]:6443", True),
        ("https://kubernetes.default.svc", True),
        ("https://master.local", True),
        ("https://1.1.1.1:6443", False),
        ("https://api.prod.example.com", False),
    ],
)
def test_private_addresses_of_api_servers_are_recognised(server: str, private: bool) -> None:
    assert bool(private_address(server)) is private
