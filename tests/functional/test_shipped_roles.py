"""Each shipped role with its documented policy passes `outscaler doctor`, `apply` and `uninstall`; and each rule that
is taken out of one is a single finding that prints the rule and its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from chalicelib.cli.main import main
from chalicelib.store import Store
from infra.emulators.aws import create_table
from tests.functional.role_cases import CASES, RoleCase, stage
from tests.source_trees import ROOT

Said = pytest.CaptureFixture[str]
TABLE = "outscaler-roles"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name, value in {
        "AWS_DEFAULT_REGION": "eu-central-2",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "OUTSCALER_TABLE": TABLE,
        "KUBECONFIG": "none",
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        create_table(boto3.client("dynamodb"), TABLE)
        yield Store(TABLE, clock=lambda: 1_795_000_000.0)


def ran(capsys: Said, *words: str) -> tuple[int, Any]:
    """Run a command; return its exit code and its JSON, with what it said on standard error as a note of a failure."""
    capsys.readouterr()
    code = main([*words, "-o", "json"])
    said = capsys.readouterr()
    assert said.out, said.err
    return code, json.loads(said.out)


def test_every_file_with_roles_has_a_case() -> None:
    folder = ROOT / "infra" / "kubernetes"
    shipped = {path.name for path in folder.glob("*.yaml") if "kind: RoleBinding" in path.read_text()}
    shipped |= {path.name for path in folder.glob("*.yaml") if "kind: ClusterRoleBinding" in path.read_text()}
    assert shipped == {file for case in CASES.values() for file in case.files}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_shipped_role_suffices_for_doctor_apply_and_uninstall(
    case: RoleCase, store: Store, tmp_path: Path, capsys: Said
) -> None:
    with stage(case, tmp_path) as there:
        common = (*there.clusters, *there.given, "--vpc")
        code, found = ran(capsys, "doctor", "--policy", str(there.policy), *common)
        assert [each for each in found if each["severity"] == "error"] == []
        assert [each for each in found if each["id"] in ("DR04", "DR27") and each["severity"] == "warn"] == []
        assert code == 0
        assert ran(capsys, "apply", str(there.policy), *common)[0] == 0
        there.refused()
        code, said = ran(capsys, "uninstall", "prod", *there.clusters, "--yes")
        assert code == 0, said
    assert said["failures"] == []
    # A token may be ended with the shipped role, and not deleted.
    assert [each for each in there.refused() if "DELETE /api/v1/namespaces/kube-system/secrets" not in each] == []
    assert {each["name"] for each in said["cluster"]} >= {"n-0"}
    assert store.policies.current("prod") is None
    for file in case.files:
        assert [line for line in said["remains"] if f"infra/kubernetes/{file}" in line], file
