"""A wake-up that fails in a short outage is retried after half a minute instead of after the
queue's visibility timeout."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from chalicelib.cluster.errors import Unavailable
from chalicelib.functions.lambda_entry import each_record
from chalicelib.model.errors import BadInput
from chalicelib.passes.reconciler import handle
from chalicelib.runtime.messages import ReconcileMessage, encode
from chalicelib.runtime.runtime import install
from chalicelib.runtime.senders import NotSent
from infra.emulators.aws_faults import AwsFaults, busy
from tests.functional.operations.harness import OperationHarness


def deliver(stage: OperationHarness, message: ReconcileMessage | bytes) -> bool:
    """Whether the queue may delete the message."""
    body = message if isinstance(message, bytes) else encode(message)
    install(stage.runtime)
    try:
        answer = each_record({"Records": [{"messageId": "m-1", "body": body.decode()}]}, handle)
    finally:
        install(None)
    return not answer["batchItemFailures"]


class Outage:
    """Providers that raise while `error` is set, and the delays of sent reconcile messages."""

    def __init__(self, stage: OperationHarness) -> None:
        self.error: Exception | None = Unavailable("no answer")
        self.sent: list[tuple[dict[str, Any], int]] = []
        self.full = False
        working, stage.providers = stage.providers, self._build
        self._working = working
        stage.replace(sender=self)

    def _build(self) -> Any:
        if self.error is not None:
            raise self.error
        return self._working()

    def send(self, queue: str, body: bytes, delay: int) -> None:
        """Records a message."""
        if self.full:
            raise NotSent(queue, "Full")
        if queue == "reconcile":
            message = json.loads(body)
            if "reason" in message:  # others look after the pass
                self.sent.append((message, delay))


@pytest.fixture
def outage(stage: OperationHarness) -> Outage:
    stage.group(1)
    return Outage(stage)


@pytest.mark.parametrize("reason", ["webhook", "operation", "person"])
def test_failed_wake_up_is_retried_after_thirty_seconds(
    reason: str, stage: OperationHarness, outage: Outage
) -> None:
    assert deliver(stage, ReconcileMessage(stage.name, reason, stage.clock()))
    [(message, delay)] = outage.sent
    assert (message["reason"], delay) == (reason, 30)
    stage.clock.advance(30.0)
    outage.error = None
    assert deliver(stage, json.dumps(message).encode())
    assert len(outage.sent) == 1
    assert stage.store.scan_states.due(stage.name).failure is None


def test_failed_scheduled_pass_waits_for_the_next_tick(
    stage: OperationHarness, outage: Outage
) -> None:
    assert not deliver(stage, ReconcileMessage(stage.name, "schedule", stage.clock()))
    assert outage.sent == []


def test_long_outage_is_left_to_the_queue_and_its_dead_letters(
    stage: OperationHarness, outage: Outage
) -> None:
    forgotten = []
    body = encode(ReconcileMessage(stage.name, "webhook", stage.clock()))
    for _ in range(6):
        forgotten.append(deliver(stage, body))
        body = json.dumps(outage.sent[-1][0]).encode()
        stage.clock.advance(30.0)
    assert forgotten == [True] * 5 + [False]


def test_many_wake_ups_in_one_outage_become_one_message(
    stage: OperationHarness, outage: Outage
) -> None:
    for _ in range(5):
        assert deliver(stage, ReconcileMessage(stage.name, "webhook", stage.clock()))
        stage.clock.advance(1.0)
    assert len(outage.sent) == 1


@pytest.mark.parametrize(
    "error", [BadInput("policy", "is wrong", "correct it"), RuntimeError("a defect")]
)
def test_permanent_error_is_left_to_the_queue(
    error: Exception, stage: OperationHarness, outage: Outage
) -> None:
    outage.error = error
    assert not deliver(stage, ReconcileMessage(stage.name, "webhook", stage.clock()))
    assert outage.sent == []


def test_wake_up_that_cannot_be_resent_stays_in_the_queue(
    stage: OperationHarness, outage: Outage
) -> None:
    outage.full = True
    assert not deliver(stage, ReconcileMessage(stage.name, "webhook", stage.clock()))


def test_failing_table_does_not_prevent_the_retry_of_a_wake_up(
    stage: OperationHarness, outage: Outage
) -> None:
    # writes the row of the schema
    assert deliver(stage, ReconcileMessage(stage.name, "webhook", stage.clock()))
    stage.clock.advance(60.0)
    outage.sent.clear()
    faults = AwsFaults()
    stage.runtime = dataclasses.replace(stage.runtime, store=stage.new_store(wrap=faults.wrap))
    faults.instead("update_item", *[busy("ValidationException")] * 9)
    faults.instead("put_item", *[busy("ValidationException")] * 9)
    assert deliver(stage, ReconcileMessage(stage.name, "webhook", stage.clock()))
    assert [delay for _, delay in outage.sent] == [30]
