"""Commands with a kubeconfig whose credential comes from an exec plugin, against an API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from chalicelib.cli.main import main
from tests.functional.captured_clusters import saved_objects, served
from tests.functional.saved_cluster import shop

pytest.importorskip("kubernetes", reason="the official client is not installed")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig of an API server, whose user runs the program `login` of the same folder."""
    with served(tmp_path, saved_objects(shop(tmp_path / "shop"))) as (_, path):
        document = yaml.safe_load(path.read_text())
        login = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(tmp_path / "login"),
        }
        document["users"][0]["user"] = {"exec": login}
        path.write_text(yaml.safe_dump(document))
        yield path


def plugin(kubeconfig: Path, script: str) -> None:
    program = kubeconfig.parent / "login"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)


def credential(token: str) -> str:
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token},
    }
    return f"echo '{json.dumps(answer)}'"


def test_capture_and_plan_use_the_token_of_an_exec_plugin(
    kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin(kubeconfig, credential("token-of-admin"))
    assert main(["capture", str(tmp_path / "copy"), "--kubeconfig", str(kubeconfig)]) == 0
    manifest = str(tmp_path / "shop" / "manifest.json")
    assert main(["plan", "--kubeconfig", str(kubeconfig), "--node-groups", manifest]) == 0
    assert "token-of-admin" not in "".join(capsys.readouterr())


def test_token_that_the_cluster_refused_is_renewed_once(kubeconfig: Path, tmp_path: Path) -> None:
    first, then = credential("token-of-yesterday"), credential("token-of-admin")
    plugin(
        kubeconfig, f"if [ -e {tmp_path}/ran ]; then {then}; else touch {tmp_path}/ran; {first}; fi"
    )
    assert main(["capture", str(tmp_path / "copy"), "--kubeconfig", str(kubeconfig)]) == 0


def test_failed_exec_plugin_ends_the_command_with_its_message(
    kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin(kubeconfig, "echo 'session has ended' >&2; exit 4")
    assert main(["capture", str(tmp_path / "copy"), "--kubeconfig", str(kubeconfig)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "users[0].user.exec: " in line
    assert "process returned 4. session has ended" in line
