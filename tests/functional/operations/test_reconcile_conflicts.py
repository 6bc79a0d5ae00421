"""Operations end during every attempt of a pass: it makes no changes and
requests the next pass itself.
"""

from __future__ import annotations

import itertools
import logging

import msgspec
import pytest

from chalicelib.model.memory import GroupMemory
from chalicelib.model.operation import OperationKind, OperationState
from chalicelib.passes.reconciler import handle
from chalicelib.runtime.messages import ReconcileMessage, encode
from chalicelib.runtime.senders import NotSent
from tests.functional.operations.harness import OperationHarness

OBSERVED = "reconcile:observed"


@pytest.fixture
def busy(stage: OperationHarness) -> OperationHarness:
    """After each read of a pass, an operation ends and writes the group's row, which the pass wants
    to write too: the failed instance recorded there no longer exists."""
    stage.policy()
    stage.group(1)
    stage.pod("one", "g-1")
    numbers = itertools.count(1)

    def one_ends() -> None:
        stage.clock.advance(1)
        name, now = f"grow-{next(numbers)}", stage.clock()
        operation = stage.store.operations.claim(stage.name, name, "act", 60.0)
        stage.store.operations.advance(
            operation,
            operation.with_status(state=OperationState.SUCCEEDED),
            "act",
            lambda group: _asked(group, now),
        )

    for number in range(1, 8):
        stage.planned(OperationKind.SCALE_UP, id=f"grow-{number}", from_size=0, to_size=1)
    one_ends()
    stage.at_checkpoint[OBSERVED] = one_ends
    return stage


def _asked(group: GroupMemory, now: float) -> GroupMemory:
    return msgspec.structs.replace(group, target=1, last_add=now, failed_instances=("long-gone",))


def _pass(stage: OperationHarness, reason: str) -> None:
    stage.clock.advance(30)
    handle(encode(ReconcileMessage(stage.name, reason, stage.clock())).decode(), stage.runtime)


@pytest.mark.parametrize("reason", ["schedule", "webhook"])
def test_pass_whose_memory_changes_in_every_attempt_is_requeued(
    busy: OperationHarness, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        _pass(busy, reason)
    assert busy.checkpoints.count(OBSERVED) == 3
    assert "reconcile:saved" not in busy.checkpoints
    (again,) = busy.wakes
    assert again["cluster"] == busy.name
    assert [record.levelname for record in caplog.records] == ["WARNING"]

    del busy.at_checkpoint[OBSERVED]
    busy.clock.advance(5)
    handle(msgspec.json.encode(again).decode(), busy.runtime)
    assert "reconcile:saved" in busy.checkpoints
    assert len(busy.wakes) == 1


def test_pass_overtaken_by_memory_changes_counts_as_done_and_releases_its_lease(
    busy: OperationHarness,
) -> None:
    _pass(busy, "webhook")
    assert busy.store.scan_states.due(busy.name).last_pass == pytest.approx(busy.clock(), abs=4.0)
    lease = busy.store.leases.acquire(busy.name, "another", 60.0)
    busy.store.leases.release(lease)


def test_two_passes_overtaken_within_seconds_request_one_reconcile(busy: OperationHarness) -> None:
    _pass(busy, "webhook")
    handle(encode(ReconcileMessage(busy.name, "webhook", busy.clock())).decode(), busy.runtime)
    assert busy.checkpoints.count(OBSERVED) == 6
    assert len(busy.wakes) == 1


def test_overtaken_pass_that_cannot_requeue_fails_its_message(busy: OperationHarness) -> None:
    class Silent:
        def send(self, queue: str, body: bytes, delay: int) -> None:
            raise NotSent(queue, "nobody listens")

    busy.replace(sender=Silent())
    with pytest.raises(NotSent):
        _pass(busy, "webhook")
    assert busy.store.leases.acquire(busy.name, "another", 60.0).token > 0


@pytest.mark.parametrize(
    ("reason", "passes"), [("schedule", 1), ("webhook", 2), ("operation", 2), ("person", 2)]
)
def test_only_a_scheduled_message_is_satisfied_by_a_pass_that_began_later(
    stage: OperationHarness, reason: str, passes: int
) -> None:
    late = encode(ReconcileMessage(stage.name, reason, stage.clock())).decode()
    _pass(stage, "schedule")
    assert stage.checkpoints.count(OBSERVED) == 1
    handle(late, stage.runtime)
    assert stage.checkpoints.count(OBSERVED) == passes
    _pass(stage, "schedule")  # meant for half a minute later
    assert stage.checkpoints.count(OBSERVED) == passes + 1


@pytest.mark.parametrize(
    ("reason", "sent", "clears_marker"), [("schedule", [], True), ("webhook", ["webhook"], False)]
)
def test_only_a_wake_up_that_meets_another_pass_is_queued_again(
    stage: OperationHarness, reason: str, sent: list[str], *, clears_marker: bool
) -> None:
    stage.store.leases.acquire(stage.name, "another", 60.0)
    assert stage.store.scan_states.mark_queued(stage.name, stage.clock() + 300.0)
    _pass(stage, reason)
    assert OBSERVED not in stage.checkpoints
    assert [message["reason"] for message in stage.wakes] == sent
    assert stage.store.scan_states.mark_queued(stage.name, stage.clock() + 300.0) is clears_marker
