"""`outscaler migrate`: policies of older releases are copied once and completely, and never
replace the policy in force."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from chalicelib.cli.main import main
from chalicelib.policy.load import digest
from chalicelib.store import Store
from chalicelib.store.errors import StoreUnavailable
from chalicelib.store.policies import StoredWebhook
from chalicelib.store.tables import POLICIES, POLICY
from infra.emulators.aws import create_table
from infra.emulators.aws_faults import AwsFaults, lost_answer
from tests.functional.legacy_policies import store_as_before
from tests.unit.policy.policy_documents import GOOD

TABLE, NAME = "outscaler", "prod-geneva"
Said = pytest.CaptureFixture[str]
VERSIONS = (f"# one\n{GOOD}", f"# two\n{GOOD}", GOOD)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Two tables, and a cluster with three versions in the old table."""
    for name, value in {
        "AWS_DEFAULT_REGION": "eu-central-2",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "OUTSCALER_TABLE": TABLE,
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        create_table(boto3.client("dynamodb"), TABLE)
        made = Store(TABLE, clock=lambda: 1_795_000_000.0)
        store_as_before(made, NAME, *VERSIONS)
        yield made


def _answer(capsys: Said, *arguments: str) -> Any:
    capsys.readouterr()
    assert main(["migrate", *arguments, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def _is_moved(store: Store) -> bool:
    current = store.policies.current(NAME)
    return (
        current is not None
        and (current.version, current.text, current.stored_at) == (3, GOOD, 1_790_000_000.0)
        and [one.text for one in store.policies.history(NAME)] == list(reversed(VERSIONS))
    )


def _old_rows(store: Store) -> int:
    return len(list(store.table.query(NAME, POLICY))) + len(list(store.table.query(POLICIES, "")))


def test_migrate_copies_every_version_unchanged_and_deletes_nothing(
    store: Store, capsys: Said
) -> None:
    [row] = _answer(capsys)
    assert row == {
        "name": NAME,
        "version": 3,
        "digest": digest(GOOD),
        "result": "copied",
        "copied": 3,
        "deleted": 0,
        "conflict": False,
    }
    assert _is_moved(store)
    assert store.policies.webhooks()[NAME] == StoredWebhook(3, _secret())
    assert _old_rows(store) == 4
    assert store.moving.not_moved(store.policies.all_current()) == ()


def _secret() -> str:
    from chalicelib.policy.load import load

    return load(GOOD, place="policy")[0].webhook.secret


def test_migrate_dry_run_copies_nothing(store: Store, capsys: Said) -> None:
    [row] = _answer(capsys, "--dry-run")
    assert (row["result"], row["copied"]) == ("would be copied", 0)
    assert store.policies.current(NAME) is None
    assert store.policies.history(NAME) == ()


def test_second_migrate_run_changes_nothing(store: Store, capsys: Said) -> None:
    _answer(capsys)
    [row] = _answer(capsys)
    assert (row["result"], row["copied"], row["conflict"]) == ("is there", 0, False)
    assert _is_moved(store)


@pytest.mark.parametrize(
    ("method", "which"),
    [("put_item", 0), ("put_item", 1), ("put_item", 2), ("transact_write_items", 0)],
)
@pytest.mark.parametrize("written", [True, False])
def test_interrupted_migrate_is_completed_by_the_next_run(
    store: Store, method: str, which: int, written: bool, capsys: Said
) -> None:
    faults = AwsFaults()
    stopped = Store(TABLE, clock=lambda: 0.0, client=store.table.client, wrap=faults.wrap)
    faults.instead(method, *[None] * which, *([] if written else [lost_answer()]))
    if written:
        faults.after(method, lost_answer())
    with pytest.raises(StoreUnavailable):
        stopped.moving.copy(NAME, lambda _: "")
    if method == "put_item":
        assert store.policies.current(NAME) is None, "in force before all its versions are there"
    _answer(capsys)
    assert _is_moved(store)


def test_migrate_deletes_old_rows_only_on_request_and_only_if_copied(
    store: Store, capsys: Said
) -> None:
    assert store.moving.delete_old(NAME) == 0
    [row] = _answer(capsys, "--delete-old")
    assert row["deleted"] == 4
    assert _old_rows(store) == 0
    assert _is_moved(store)
    assert _answer(capsys) == []


def test_policy_planted_in_the_old_table_never_replaces_the_one_in_force(
    store: Store, capsys: Said
) -> None:
    _answer(capsys)
    planted = GOOD.replace("prod-geneva/", "other/")
    store_as_before(store, NAME, *VERSIONS, planted)
    assert store.moving.not_moved(store.policies.all_current()) == (NAME,)
    assert main(["migrate"]) == 2
    assert f"{NAME}: is left as it is: version 4 differs" in capsys.readouterr().err
    assert _is_moved(store)
    assert _old_rows(store) == 5


def test_migrate_reports_and_keeps_a_different_text_under_the_same_version(
    store: Store, capsys: Said
) -> None:
    store.policies.put(NAME, f"# mine\n{GOOD}", "mine", None)
    assert main(["migrate", "--delete-old"]) == 2
    assert "version 3 differs" in capsys.readouterr().err
    current = store.policies.current(NAME)
    assert current is not None
    assert current.digest == "mine"
    assert _old_rows(store) == 4


def test_policy_applied_after_the_upgrade_stays_in_force_over_the_old_one(
    store: Store, capsys: Said
) -> None:
    store_as_before(store, "paris", GOOD)
    _answer(capsys)
    store.policies.put(NAME, f"# four\n{GOOD}", "four", 3)
    rows = {row["name"]: row for row in _answer(capsys, "--delete-old")}
    assert rows[NAME]["result"] == "version 4 is there, which is newer"
    assert rows[NAME]["deleted"] == 4
    current = store.policies.current(NAME)
    assert current is not None
    assert current.version == 4


def test_migrate_copies_an_unusable_document_with_a_warning(store: Store, capsys: Said) -> None:
    store_as_before(store, "old-words", "kind: Cluster\n")
    assert main(["migrate"]) == 0
    assert (
        "warning: this release cannot use it, apply a corrected document: old-words"
        in capsys.readouterr().err
    )
    assert store.policies.webhooks()["old-words"].secret is None
    assert _is_moved(store)


def test_get_clusters_warns_of_unmigrated_policies(store: Store, capsys: Said) -> None:
    assert main(["get", "clusters"]) == 0
    said = capsys.readouterr()
    assert (
        f"warning: policies in the state table are not used, clusters {NAME}; run outscaler migrate"
        in said.err
    )
    assert "no cluster has a policy yet" in said.err
    assert main(["migrate"]) == 0
    capsys.readouterr()
    assert main(["get", "clusters"]) == 0
    assert capsys.readouterr().err == ""


def test_policy_table_may_have_its_own_name(
    store: Store, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_table(boto3.client("dynamodb"), "elsewhere")
    assert main(["migrate", "--table", TABLE, "--policy-table", "elsewhere"]) == 0
    assert store.policies.current(NAME) is None
    monkeypatch.setenv("OUTSCALER_POLICY_TABLE", "elsewhere")
    capsys.readouterr()
    assert main(["get", "policy", NAME]) == 0
    assert capsys.readouterr().out == GOOD
    assert main(["get", "policy", NAME, "--table", TABLE]) == 2, (
        "the environment's policy table is another table's"
    )
    assert main(["get", "policy", NAME, "--policy-table", "no-such-table"]) == 2
    assert "DynamoDB table" in capsys.readouterr().err
