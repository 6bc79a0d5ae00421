"""The emulated AWS loses nothing under concurrent transactions and needs no global settings."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from threading import Barrier, BrokenBarrierError

import pytest

from infra.emulators.aws import LocalAws, Queue
from infra.emulators.aws_server import one_at_a_time
from infra.emulators.controllers import objects
from infra.emulators.dynamodb_local import ACCOUNT, VARIABLE, main
from infra.emulators.local_world import LocalWorld
from infra.tools.loopback_only import alone, can_be_alone
from tests.scenario.policies import document
from tests.unit.store.support import all_at_once


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    with LocalAws() as local:
        yield local


@pytest.mark.parametrize(
    ("target", "together"), [("DynamoDB_20120810.PutItem", False), ("AmazonSQS.SendMessage", True)]
)
def test_local_aws_serializes_only_dynamodb_requests(target: str, *, together: bool) -> None:
    met = Barrier(2)

    def app(environ: object, start_response: object) -> list[bytes]:
        try:
            met.wait(timeout=600 if together else 0.2)
        except BrokenBarrierError:
            return [b"alone"]
        return [b"together"]

    locked = one_at_a_time(app)

    def call() -> list[bytes]:
        return list(locked({"HTTP_X_AMZ_TARGET": target}, lambda *_: lambda _: None))

    assert all_at_once([call, call]) == [[b"together" if together else b"alone"]] * 2


def test_local_aws_client_disconnect_during_a_request_is_not_an_error(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with LocalAws() as local:
        host, _, port = local.endpoint.removeprefix("http://").partition(":")
        before = set(threading.enumerate())
        with socket.create_connection((host, int(port)), timeout=600) as cut:
            cut.sendall(
                b"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: DynamoDB_20120810.PutItem\r\n"
                b"Content-Length: 400\r\n\r\n{"
            )
            cut.shutdown(socket.SHUT_WR)
            assert b"400" in cut.recv(100)
        for thread in set(threading.enumerate()) - before:
            thread.join(5)
        assert "TableNames" in local.client("dynamodb").list_tables()
    assert (capfd.readouterr().err, caplog.text) == ("", "")


def test_local_aws_concurrent_transactions_lose_no_update(aws: LocalAws) -> None:
    dynamodb = aws.client("dynamodb")
    aws.create_table("counted")
    key = {"cluster": {"S": "c"}, "item": {"S": "counter"}}
    dynamodb.put_item(TableName="counted", Item=key | {"v": {"N": "0"}})
    up = {
        "TableName": "counted",
        "Key": key,
        "UpdateExpression": "SET v = v + :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }

    def count(worker: int) -> None:
        for turn in range(10):
            row = {"cluster": {"S": "c"}, "item": {"S": f"{worker}-{turn}"}}
            dynamodb.transact_write_items(
                TransactItems=[{"Update": up}, {"Put": {"TableName": "counted", "Item": row}}]
            )

    results = all_at_once([partial(count, worker) for worker in range(8)])
    assert results == [None] * 8
    assert dynamodb.get_item(TableName="counted", Key=key)["Item"]["v"] == {"N": "80"}
    assert dynamodb.scan(TableName="counted", Select="COUNT")["Count"] == 81


def test_local_aws_cancelled_transaction_drops_no_foreign_rows(aws: LocalAws) -> None:
    dynamodb = aws.client("dynamodb")
    aws.create_table("cancelled")
    impossible = {
        "ConditionCheck": {
            "TableName": "cancelled",
            "Key": {"cluster": {"S": "c"}, "item": {"S": "x"}},
            "ConditionExpression": "attribute_exists(#item)",
            "ExpressionAttributeNames": {"#item": "item"},
        }
    }

    # Created once here: botocore creates these classes on first use, and two threads
    # would create two of each.
    cancelled = dynamodb.exceptions.TransactionCanceledException

    def fail() -> None:
        for _ in range(40):
            with pytest.raises(cancelled):
                dynamodb.transact_write_items(TransactItems=[impossible])

    def put() -> None:
        for number in range(80):
            row = {"cluster": {"S": "c"}, "item": {"S": f"row-{number}"}}
            dynamodb.put_item(TableName="cancelled", Item=row)

    assert all_at_once([fail, fail, put]) == [None] * 3
    assert dynamodb.scan(TableName="cancelled", Select="COUNT")["Count"] == 80


def test_local_aws_queues_have_a_dead_letter_queue_each(aws: LocalAws) -> None:
    urls = aws.create_queues(
        {"reconcile": Queue(visibility=90, max_receives=3), "act_clusterapi": Queue()}
    )
    assert set(urls) == {"reconcile", "act_clusterapi"}
    sqs = aws.client("sqs")
    attributes = sqs.get_queue_attributes(QueueUrl=urls["reconcile"], AttributeNames=["All"])[
        "Attributes"
    ]
    redrive = json.loads(attributes["RedrivePolicy"])
    assert (attributes["VisibilityTimeout"], int(redrive["maxReceiveCount"])) == ("90", 3)
    assert redrive["deadLetterTargetArn"].endswith(":reconcile-dead")


def test_local_aws_secret_can_be_created_and_changed(aws: LocalAws) -> None:
    for text in ("first", "second"):
        aws.put_secret("outscaler/geneva/webhook", text)
        secrets = aws.client("secretsmanager")
        assert secrets.get_secret_value(SecretId="outscaler/geneva/webhook")["SecretString"] == text


def test_local_aws_is_found_by_another_process_through_the_environment(aws: LocalAws) -> None:
    aws.create_table("found")
    program = (
        "import time; from chalicelib.store import Store; "
        "print(Store('found', clock=time.time).leases.acquire('c', 'me', 60).token)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | aws.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "1"
    assert os.environ.get("AWS_ENDPOINT_URL") != aws.endpoint


def test_strict_run_without_npm_is_skipped_with_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv(ACCOUNT, "yes")
    assert main(["--", "true"]) == 0
    assert capsys.readouterr().out == "skipped: npm is not installed\n"


def test_strict_run_without_an_aws_account_is_skipped_and_cites_the_licence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(ACCOUNT, raising=False)
    assert main(["--", "true"]) == 0
    assert "requires an AWS account in good standing" in capsys.readouterr().out


def test_server_in_a_loopback_network_is_reached_from_inside_only() -> None:
    if not can_be_alone():
        pytest.skip("this system does not permit networks of one's own")
    program = (
        "import socket; from infra.tools.loopback_only import is_alone; server = "
        "socket.create_server(('', 0)); "
        "client = socket.create_connection(('127.0.0.1', server.getsockname()[1]), 5); "
        "print(is_alone())"
    )
    ran = subprocess.run(
        alone([sys.executable, "-c", program]),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.strip() == "True"


def test_quick_world_on_another_engine_does_what_it_does_in_memory(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """moto's server takes the place of DynamoDB Local."""

    def plans() -> tuple[str, ...]:
        with LocalWorld() as world:
            world.apply_policy(document())
            world.seed(
                objects.machine_deployment("workers", 1, 1, 5),
                objects.deployment("web", replicas=6, cpu="1"),
            )
            world.step(180.0)
            assert world.size("workers") > 1
            return world.plan_ids()

    in_memory = plans()
    monkeypatch.setenv(VARIABLE, aws.endpoint)
    assert plans() == in_memory


def test_strict_run_without_a_command_prints_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--"]) == 2
    assert "usage:" in capsys.readouterr().err
