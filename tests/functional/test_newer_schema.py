"""A table written by a newer release is refused by every function and every
command of this release.
"""

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
from chalicelib.store.tables import SCHEMA_ITEM, SCHEMA_PARTITION
from infra.emulators.aws import create_table
from infra.emulators.controllers import objects
from infra.emulators.lambda_events import sqs_event, sqs_record
from infra.emulators.local_world import MINUTE, LocalWorld
from tests.functional.legacy_policies import store_as_before
from tests.scenario.policies import WEBHOOK, document
from tests.unit.policy.policy_documents import GOOD

EVENT = {"kind": "Event", "apiVersion": "v1", "reason": "FailedScheduling", "involvedObject": {}}
REFUSAL = (
    "the table was written by a newer release (schema 2, release 0.4.0); this code knows schema 1; "
    "deploy that "
    "release again"
)
NEWER = {
    "cluster": {"S": SCHEMA_PARTITION},
    "item": {"S": SCHEMA_ITEM},
    "schema": {"N": "2"},
    "release": {"S": "0.4.0"},
    "a_new_attribute": {"S": "of a release to come"},
}
KEY = {"cluster": NEWER["cluster"], "item": NEWER["item"]}
TABLE, NAME = "outscaler", "prod-geneva"


@pytest.fixture
def world() -> Iterator[LocalWorld]:
    with LocalWorld(quick=True) as made:
        made.apply_policy(document(webhook=WEBHOOK))
        made.seed(
            objects.machine_deployment("workers", 1, 1, 4),
            objects.deployment("web", replicas=3, cpu="1"),
        )
        made.step(2 * MINUTE)
        yield made


def upgrade(world: LocalWorld, *, warm: bool = False) -> None:
    """Lets a newer release write the table. warm: this release's processes
    live on for up to a minute."""
    world.services.dynamodb.put_item(TableName=world.services.table, Item=NEWER)
    if not warm:
        world.restart()


def roll_forward(world: LocalWorld) -> None:
    world.services.dynamodb.delete_item(TableName=world.services.table, Key=KEY)
    world.restart()


def rows(world: LocalWorld) -> list[Any]:
    return [
        list(world.store.table.query(partition, ""))
        for partition in (world.name, "!web", "!claims", "!paces")
    ]


def deliver(world: LocalWorld, function: str, **message: str) -> Any:
    body = json.dumps({"cluster": world.name, **message})
    return world.invoke(
        function,
        sqs_event(sqs_record(function, "m-1", "r", body, {"ApproximateReceiveCount": "1"})),
    )


def test_first_pass_of_a_deployment_writes_the_schema(world: LocalWorld) -> None:
    item = world.services.dynamodb.get_item(TableName=world.services.table, Key=KEY)["Item"]
    assert item["schema"] == {"N": "1"}
    assert "expires_at" not in item


@pytest.mark.parametrize("warm", [False, True])
def test_no_function_works_on_a_newer_table_or_changes_it(
    world: LocalWorld, warm: bool, caplog: pytest.LogCaptureFixture
) -> None:
    upgrade(world, warm=warm)
    world.clock.advance(MINUTE)
    before, sent = rows(world), len(world.queues.sent)
    assert REFUSAL in world.tick().error
    for function, message in (
        ("reconcile", {"reason": "webhook"}),
        ("reconcile", {}),
        ("act_clusterapi", {"operation": "grow-1"}),
        ("act_exoscale", {"operation": "grow-1"}),
    ):
        assert deliver(world, function, **message).failed_messages == ("m-1",), (
            "it goes back to its queue"
        )
    assert REFUSAL in world.invoke("reconcile_large", {"cluster": world.name}).error
    assert world.post([EVENT])["statusCode"] == 503
    for route in (
        "/clusters",
        f"/clusters/{world.name}",
        f"/clusters/{world.name}/decisions",
        "/metrics",
    ):
        answer = world.get(route)
        assert (answer["statusCode"], json.loads(answer["body"])) == (503, {"error": REFUSAL})
    assert rows(world) == before
    assert len(world.queues.sent) == sent
    assert any(REFUSAL in str(vars(record)) for record in caplog.records)


def test_webhook_does_not_reveal_the_release_and_strangers_get_401(world: LocalWorld) -> None:
    upgrade(world)
    answer = world.post([EVENT])
    assert answer["statusCode"] == 503
    assert "0.4.0" not in answer["body"]
    assert world.post([EVENT], key="a-key-that-is-not-the-clusters")["statusCode"] == 401


def test_health_route_answers_with_a_newer_table(world: LocalWorld) -> None:
    upgrade(world)
    assert world.get("/healthz")["statusCode"] == 200


def test_release_that_knows_the_table_continues_where_it_stopped(world: LocalWorld) -> None:
    plans = world.plan_ids()
    upgrade(world)
    world.step(3 * MINUTE)
    assert world.plan_ids() == plans
    roll_forward(world)
    last = world.store.scan_states.due(world.name).last_pass
    world.step(5 * MINUTE)
    assert world.store.scan_states.due(world.name).last_pass > last
    assert not any(world.queues.dead.values())


def test_newer_rows_in_a_table_with_our_schema_are_skipped(world: LocalWorld) -> None:
    """A row of another type in the schema's partition is not a cluster:
    lists and passes skip it."""
    world.services.dynamodb.put_item(
        TableName=world.services.table,
        Item={**KEY, "item": {"S": "schema#next"}, "schema": {"N": "9"}},
    )
    world.restart()
    world.step(2 * MINUTE)
    answer = json.loads(world.get("/clusters")["body"])
    assert [each["name"] for each in answer["clusters"]] == [world.name]


# -- commands


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Both tables with a cluster, one cluster of an older release, and a newer schema."""
    for name, value in {
        "AWS_DEFAULT_REGION": "eu-central-2",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "OUTSCALER_TABLE": TABLE,
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        client = boto3.client("dynamodb")
        create_table(client, TABLE)
        made = Store(TABLE, clock=lambda: 1_795_000_000.0)
        store_as_before(made, NAME, GOOD)
        client.put_item(TableName=TABLE, Item=NEWER)
        yield made


@pytest.mark.parametrize(
    "command",
    [
        ["get", "clusters"],
        ["get", "policy", NAME],
        ["get", "operations", NAME],
        ["get", "groups", NAME],
        ["get", "breaker", NAME],
        ["get", "claims"],
        ["history", NAME],
        ["migrate"],
        ["migrate", "--delete-old"],
        ["release", NAME],
        ["apply", "POLICY"],
    ],
)
def test_no_command_reads_or_writes_a_newer_table(
    tables: Store, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(GOOD)
    before = boto3.client("dynamodb").scan(TableName=TABLE)["Items"]
    assert main([str(policy) if part == "POLICY" else part for part in command]) == 2
    said = capsys.readouterr()
    assert said.err == f"outscaler: {REFUSAL}\n"
    assert said.out == ""
    assert boto3.client("dynamodb").scan(TableName=TABLE)["Items"] == before
    assert boto3.client("dynamodb").scan(TableName=f"{TABLE}-policies")["Items"] == []


def test_migrate_does_not_change_the_schema(
    tables: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    client = boto3.client("dynamodb")
    client.put_item(TableName=TABLE, Item=NEWER | {"schema": {"N": "1"}})
    assert main(["migrate", "--delete-old", "-o", "json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == [NAME]
    assert client.get_item(TableName=TABLE, Key=KEY)["Item"]["schema"] == {"N": "1"}
