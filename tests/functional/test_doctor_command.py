"""`outscaler doctor` as a command: its exit codes, its JSON, what it needs,
and what it never prints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.doctor.finding import Finding, Severity
from chalicelib.cli.doctor.registry import CHECKS, examine
from chalicelib.cli.main import main
from infra.emulators.kube.server import ApiServer
from tests.functional.captured_clusters import saved_objects, served
from tests.functional.doctor_cases import ACTIVE, cluster, context
from tests.functional.saved_cluster import node, shop
from tests.source_trees import ROOT

Said = pytest.CaptureFixture[str]
KEY = "hunter2-of-the-vendor"


@pytest.fixture
def shop_cluster(tmp_path: Path) -> Iterator[tuple[ApiServer, Path]]:
    with served(tmp_path, saved_objects(shop(tmp_path / "shop"))) as (server, kubeconfig):
        yield server, kubeconfig


def policy(folder: Path, mode: str = "shadow") -> Path:
    path = folder / "prod.yaml"
    document = {
        "apiVersion": "outscaler.dev/v1",
        "kind": "Cluster",
        "metadata": {"name": "prod"},
        "spec": {
            "mode": mode,
            "kubernetes": {"kubeconfigSecret": "outscaler/prod/kubeconfig"},
            "providers": {
                "exoscale": {"zone": "ch-gva-2", "credentialsSecret": "outscaler/prod/exoscale"}
            },
        },
    }
    path.write_text(yaml.safe_dump(document))
    return path


def run(capsys: Said, *arguments: str) -> tuple[int, Any, str]:
    capsys.readouterr()
    code = main(["doctor", *arguments, "-o", "json"])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else None, said.err


def test_doctor_needs_no_aws_and_names_each_finding(
    shop_cluster: tuple[ApiServer, Path], tmp_path: Path, capsys: Said
) -> None:
    code, found, _ = run(
        capsys, "--policy", str(policy(tmp_path)), "--kubeconfig", str(shop_cluster[1])
    )
    assert code == 1
    ids = {each["id"] for each in found}
    assert {"DR01", "DR11", "DR27"} <= ids
    assert all(
        set(each) == {"id", "severity", "subject", "message", "fix", "evidence", "url"}
        for each in found
    )
    order = ["error", "warn", "unknown", "info"]
    assert [order.index(each["severity"]) for each in found] == sorted(
        order.index(e["severity"]) for e in found
    )
    assert not [
        each for each in shop_cluster[0].requests if each.method in {"PATCH", "PUT", "DELETE"}
    ]


def test_doctor_prints_findings_fixes_and_the_next_command(
    shop_cluster: tuple[ApiServer, Path], tmp_path: Path, capsys: Said
) -> None:
    file = policy(tmp_path)
    assert main(["doctor", "--policy", str(file), "--kubeconfig", str(shop_cluster[1])]) == 1
    text = capsys.readouterr().out
    assert "SEVERITY" in text
    assert "What to do:" in text
    assert "Next: correct the errors, and repeat the command" in text


def test_doctor_without_errors_ends_with_apply(
    shop_cluster: tuple[ApiServer, Path], tmp_path: Path, capsys: Said
) -> None:
    file = policy(tmp_path)
    arguments = [
        "doctor",
        "--policy",
        str(file),
        "--kubeconfig",
        str(shop_cluster[1]),
        "--only",
        "pdb,clock",
    ]
    assert main(arguments) == 0
    assert f"Next: outscaler apply {file}" in capsys.readouterr().out


def test_doctor_only_takes_subjects_and_ids(
    shop_cluster: tuple[ApiServer, Path], tmp_path: Path, capsys: Said
) -> None:
    file, kubeconfig = str(policy(tmp_path)), str(shop_cluster[1])
    _, found, _ = run(capsys, "--policy", file, "--kubeconfig", kubeconfig, "--only", "DR01")
    assert {each["id"] for each in found} == {"DR01"}
    code, found, _ = run(
        capsys, "--policy", file, "--kubeconfig", kubeconfig, "--only", "connection"
    )
    assert (code, found) == (0, [])
    code, _, said = run(capsys, "--policy", file, "--kubeconfig", kubeconfig, "--only", "nonsense")
    assert code == 2
    assert "--only: 'nonsense' is not a check" in said


def test_DOC_27_secrets_of_a_wrong_form_are_told_without_their_values(
    shop_cluster: tuple[ApiServer, Path], tmp_path: Path, capsys: Said
) -> None:
    (tmp_path / "key").write_text(f'{{"apiKey": "{KEY}"}}')
    (tmp_path / "config").write_text(f"token: {KEY}")
    (tmp_path / "empty").write_text(" ")
    file, kubeconfig = str(policy(tmp_path)), str(shop_cluster[1])
    common = ("--policy", file, "--kubeconfig", kubeconfig)
    given = ("--secret", f"outscaler/prod/exoscale={tmp_path / 'key'}")
    code, found, said = run(
        capsys, *common, *given, "--secret", f"outscaler/prod/kubeconfig={tmp_path / 'config'}"
    )
    assert code == 1
    told = {each["evidence"]["path"]: each["message"] for each in found if each["id"] == "DR27"}
    assert set(told) == {
        "spec.kubernetes.kubeconfigSecret",
        "spec.providers.exoscale.credentialsSecret",
    }
    assert "apiSecret" in told["spec.providers.exoscale.credentialsSecret"]
    assert KEY not in json.dumps(found) + said
    _, found, _ = run(
        capsys,
        *common,
        "--secret",
        f"outscaler/prod/exoscale={tmp_path / 'empty'}",
        "--only",
        "DR27",
    )
    assert "secret outscaler/prod/exoscale is empty" in [each["message"] for each in found]


def test_DOC_11_secret_that_is_not_given_is_unknown_and_named_with_its_own_provider(
    shop_cluster: tuple[ApiServer, Path], tmp_path: Path, capsys: Said
) -> None:
    common = ("--kubeconfig", str(shop_cluster[1]), "--only", "DR11,DR27")
    code, found, _ = run(capsys, "--policy", str(policy(tmp_path)), *common)
    assert code == 0
    [unread] = [each for each in found if each["evidence"].get("names")]
    assert unread["severity"] == "unknown"
    assert (
        unread["message"]
        == "exoscale was not read, because its secret outscaler/prod/exoscale is not given"
    )
    assert "--secret outscaler/prod/exoscale=FILE" in unread["fix"]
    assert [each["message"] for each in found if each["id"] == "DR27"] == [
        "secret outscaler/prod/exoscale is not given"
    ]
    assert not [each for each in found if "nauthorized" in each["message"]]
    code, found, _ = run(capsys, "--policy", str(policy(tmp_path, "active")), *common)
    # nothing acts unchecked
    assert (code, found[0]["severity"], found[0]["id"]) == (1, "error", "DR11")


def test_DOC_27_parameter_of_a_wrong_form_is_told_with_the_command_for_parameters(
    shop_cluster: tuple[ApiServer, Path], tmp_path: Path, capsys: Said
) -> None:
    file = policy(tmp_path)
    file.write_text(file.read_text().replace("Secret: outscaler/", "Secret: ssm:/outscaler/"))
    (tmp_path / "empty").write_text(" ")
    given = ("--secret", f"ssm:/outscaler/prod/exoscale={tmp_path / 'empty'}", "--only", "DR27")
    code, [told], _ = run(
        capsys, "--policy", str(file), "--kubeconfig", str(shop_cluster[1]), *given
    )
    assert code == 1
    assert told["fix"].startswith(
        "aws ssm put-parameter --type SecureString --tier Intelligent-Tiering --overwrite --name "
        "/outscaler/prod/exo"
    )


def test_DOC_30_every_finding_has_an_anchor_in_the_runbook() -> None:
    page = (ROOT / "docs" / "runbook.md").read_text("utf-8")
    ids = {id_ for check in CHECKS for id_ in check.ids}
    rows = re.findall(r'^\| <a id="(dr\d+)"></a>(DR\d+) \| \S', page, re.MULTILINE)
    assert [anchor for anchor, id_ in rows if anchor != id_.lower()] == []
    assert {id_ for _, id_ in rows} == ids
    finding = Finding(id="DR04", severity=Severity.INFO, subject="rbac", message="", fix="")
    assert finding.url == "https://github.com/outscaler/outscaler/blob/main/docs/runbook.md#dr04"


def test_checks_after_the_limit_of_time_are_unknown() -> None:
    clock = iter(range(0, 10_000, 7))
    with cluster([node("a", "g")]) as (_, kube):
        found = examine(context(kube, ACTIVE), within=20.0, monotonic=lambda: float(next(clock)))
    late = [each for each in found if "the time for checks, 20 s, was over" in each.message]
    assert len(late) > 10
    assert {each.severity for each in late} == {Severity.UNASKED}


def test_one_failing_check_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster([node("a", "g")]) as (_, kube):
        given = context(kube, ACTIVE, snapshot=None)
        found = examine(given, ["autoscaler", "nodes", "versions"])
    assert {each.id for each in found if each.severity is Severity.UNASKED} == {
        "DR07",
        "DR09",
        "DR24",
        "DR25",
    }
