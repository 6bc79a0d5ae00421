"""The apply, get and history commands against a table (moto's DynamoDB in the same process)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from chalicelib.cli.main import main
from chalicelib.model.memory import Backoff, GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.operation import OperationKind
from chalicelib.policy.load import digest
from chalicelib.store import Store
from infra.emulators.aws import create_table
from tests.operations import new_operation
from tests.unit.policy.policy_documents import ARCHITECTURE, GOOD

Said = pytest.CaptureFixture[str]
NOW = 1_795_000_000.0
TABLE = "outscaler-cli"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name, value in {
        "AWS_DEFAULT_REGION": "eu-central-2",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "OUTSCALER_TABLE": TABLE,
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        create_table(boto3.client("dynamodb"), TABLE)
        yield Store(TABLE, clock=lambda: NOW)


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD, encoding="utf-8")
    return path


def answer(capsys: Said, *arguments: str) -> Any:
    """The JSON that the command prints."""
    capsys.readouterr()
    assert main([*arguments, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_apply_stores_a_version(store: Store, document: Path, capsys: Said) -> None:
    assert main(["apply", str(document)]) == 0
    assert capsys.readouterr().out == "prod-geneva: created, version 1\n"
    stored = store.policies.current("prod-geneva")
    assert stored is not None
    assert (stored.text, stored.digest, stored.version) == (GOOD, digest(GOOD), 1)


def test_apply_of_an_unchanged_document_stores_no_version(
    store: Store, document: Path, capsys: Said
) -> None:
    main(["apply", str(document)])
    assert answer(capsys, "apply", str(document)) == {
        "name": "prod-geneva",
        "result": "unchanged",
        "version": 1,
    }
    assert len(store.policies.history("prod-geneva")) == 1


def test_apply_of_a_changed_document_stores_the_next_version(
    store: Store, document: Path, capsys: Said
) -> None:
    main(["apply", str(document)])
    document.write_text(GOOD.replace("active", "shadow"), encoding="utf-8")
    assert answer(capsys, "apply", str(document)) == {
        "name": "prod-geneva",
        "result": "changed",
        "version": 2,
    }
    assert [entry.facts["version"] for entry in store.journal.recent("prod-geneva")] == [2, 1]


def test_apply_dry_run_shows_the_difference_and_stores_nothing(
    store: Store, document: Path, capsys: Said
) -> None:
    main(["apply", str(document)])
    document.write_text(GOOD.replace("active", "shadow"), encoding="utf-8")
    capsys.readouterr()
    assert main(["apply", "--dry-run", str(document)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("prod-geneva: would change, version 2\n")
    assert "\n-  mode: active\n+  mode: shadow\n" in said
    assert len(store.policies.history("prod-geneva")) == 1


@pytest.mark.usefixtures("store")
def test_apply_does_not_store_an_invalid_document(document: Path, capsys: Said) -> None:
    document.write_text(GOOD.replace("active", "on"), encoding="utf-8")
    assert main(["apply", str(document)]) == 2
    reported = capsys.readouterr().err.splitlines()
    assert reported[-1] == f"{document}:5: spec.mode: 'on' is unknown; write off, shadow or active"
    assert answer(capsys, "get", "clusters") == []


@pytest.mark.usefixtures("store")
def test_warnings_do_not_prevent_an_apply(document: Path, capsys: Said) -> None:
    document.write_text(ARCHITECTURE + "  scaleUp: {rules: false}\n", encoding="utf-8")
    assert main(["apply", str(document)]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("warning: ")
    assert said.out == "prod-geneva: created, version 1\n"


def test_get_clusters_lists_the_clusters(store: Store, document: Path, capsys: Said) -> None:
    assert main(["get"]) == 0
    assert capsys.readouterr() == ("", "no cluster has a policy yet\n")
    store.policies.put("prod-geneva", GOOD, digest(GOOD), None)
    store.scan_states.passed("prod-geneva", NOW)
    (row,) = answer(capsys, "get")
    assert row.pop("status")["word"] == "no passes"
    assert [row] == [
        {
            "name": "prod-geneva",
            "version": 1,
            "storedAt": "2026-11-18T11:06:40Z",
            "digest": digest(GOOD),
            "lastPass": "2026-11-18T11:06:40Z",
            "lastSuccess": None,
            "lastError": None,
            "health": "late",
            "problem": None,
            "pauses": [],
            "mode": "active",
            "nodes": None,
            "coming": None,
            "waiting": None,
            "withoutNode": None,
        }
    ]
    assert main(["get"]) == 0
    head = capsys.readouterr().out.splitlines()[0]
    assert re.split(" {3,}", head) == ["CLUSTER", "MODE", "HEALTH", "NODES", "WAITING", "LAST PASS"]


def test_get_policy_returns_the_original_text(store: Store, capsys: Said) -> None:
    store.policies.put("prod-geneva", f"# mine\n{GOOD}", "d", None)
    for form in ("table", "yaml"):
        assert main(["get", "policy", "prod-geneva", "-o", form]) == 0
        assert capsys.readouterr().out == f"# mine\n{GOOD}"
    assert answer(capsys, "get", "policy", "prod-geneva") == {
        "name": "prod-geneva",
        "version": 1,
        "storedAt": "2026-11-18T11:06:40Z",
        "digest": "d",
        "text": f"# mine\n{GOOD}",
    }


@pytest.mark.parametrize("what", ["policy", "operations", "groups"])
def test_unknown_cluster_is_rejected_with_the_nearest_name(
    what: str, store: Store, capsys: Said
) -> None:
    assert main(["get", what, "prod-genva"]) == 2
    assert (
        capsys.readouterr().err == "prod-genva: no such cluster; store one with outscaler apply\n"
    )
    store.policies.put("prod-geneva", GOOD, "d", None)
    assert main(["get", what, "prod-genva"]) == 2
    assert capsys.readouterr().err == "prod-genva: no such cluster; did you mean prod-geneva?\n"


def test_get_operations_and_groups_lists_them(store: Store, capsys: Said) -> None:
    store.policies.put("prod-geneva", GOOD, "d", None)
    assert answer(capsys, "get", "operations", "prod-geneva") == []
    operation = new_operation(
        id="grow-1",
        cluster="prod-geneva",
        provider="clusterapi",
        group="g",
        kind=OperationKind.SCALE_UP,
        plan="p",
        created_at=NOW,
        from_size=1,
        to_size=3,
    )
    group = GroupMemory(
        target=3,
        request=ScaleUpRequest(2, NOW, NOW + 900),
        last_add=NOW,
        backoff=Backoff(300.0, NOW + 300, NOW, cls="OutOfStock"),
    )
    lease = store.leases.acquire("prod-geneva", "test", 60.0)
    before = store.memory.load("prod-geneva")
    after = Memory(groups={"g": group}, operations=(operation,))
    store.memory.save("prod-geneva", before, after, (operation,), lease)

    (shown,) = answer(capsys, "get", "operations", "prod-geneva")
    assert (shown["id"], shown["kind"], shown["from"], shown["to"], shown["state"]) == (
        "grow-1",
        "grow",
        1,
        3,
        "planned",
    )
    (shown,) = answer(capsys, "get", "groups", "prod-geneva")
    assert (shown["group"], shown["target"]) == ("g", 3)
    assert shown["request"] == {
        "increase": 2,
        "since": "2026-11-18T11:06:40Z",
        "expectedAt": "2026-11-18T11:21:40Z",
    }
    assert shown["backoff"]["class"] == "OutOfStock"

    for what, row in (
        ("operations", ["grow-1", "grow", "g", "1", "to", "3", "planned"]),
        ("groups", ["g", "-", "-", "-", "-", "-", "2", "nodes", "on"]),
    ):
        assert main(["get", what, "prod-geneva"]) == 0
        assert capsys.readouterr().out.splitlines()[1].split()[: len(row)] == row


@pytest.mark.usefixtures("store")
def test_history_lists_journal_entries(document: Path, capsys: Said) -> None:
    main(["apply", str(document)])
    document.write_text(GOOD.replace("active", "shadow"), encoding="utf-8")
    main(["apply", str(document)])
    shown = answer(capsys, "history", "prod-geneva")
    assert [each["version"] for each in shown["versions"]] == [2, 1]
    assert [(each["kind"], each["facts"]["version"]) for each in shown["journal"]] == [
        ("policy", 2),
        ("policy", 1),
    ]
    assert main(["history", "prod-geneva", "--limit", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["WHEN", "WHAT", "HAPPENED", "RESULT"]
    assert [line.split("   ")[1].split(",")[0] for line in lines[1:]] == [
        "stored version 2 of the policy"
    ]


def test_missing_table_is_a_one_line_error(store: Store, capsys: Said) -> None:
    del store
    assert main(["get", "--table", "another"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("DynamoDB table: ResourceNotFoundException: ")
    assert "OUTSCALER_TABLE" in said
    assert said.count("\n") == 1
