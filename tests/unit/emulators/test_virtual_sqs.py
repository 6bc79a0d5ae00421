"""Virtual queues behave as standard SQS queues, on a clock that the test sets."""

from __future__ import annotations

import pytest

from chalicelib.runtime.senders import NotSent
from infra.emulators.aws import Queue
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.virtual_sqs import VirtualQueues, last, late, lost, twice

VISIBILITY = 30


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def queues(clock: ManualClock) -> VirtualQueues:
    return VirtualQueues(clock, {"a": Queue(VISIBILITY, 2), "b": Queue(VISIBILITY, 2)})


def _bodies(queues: VirtualQueues) -> list[str]:
    """Receives and deletes everything that is visible now."""
    bodies = []
    while (message := queues.receive()) is not None:
        queues.delete(message)
        bodies.append(message.body)
    return bodies


def test_virtual_queue_delivers_due_messages_in_sending_order(
    queues: VirtualQueues, clock: ManualClock
) -> None:
    queues.send("a", b"later", 20)
    queues.send("b", b"one", 0)
    queues.send("a", b"two", 0)
    assert (queues.next_due(), _bodies(queues)) == (1000.0, ["one", "two"])
    clock.advance(19)
    assert _bodies(queues) == []
    clock.advance(1)
    assert (_bodies(queues), queues.next_due()) == (["later"], None)


def test_virtual_queue_received_message_returns_unless_deleted(
    queues: VirtualQueues, clock: ManualClock
) -> None:
    queues.send("a", b"x", 0)
    first = queues.receive()
    assert first is not None
    assert queues.receive() is None
    clock.advance(VISIBILITY)
    again = queues.receive()
    assert again is not None
    assert (again.id, again.receives, again.first_received_at) == (first.id, 2, 1000.0)
    queues.delete(again)
    queues.delete(again)
    clock.advance(VISIBILITY)
    assert (queues.receive(), queues.waiting()) == (None, ())


def test_virtual_queue_dead_letters_a_message_received_too_often(
    queues: VirtualQueues, clock: ManualClock
) -> None:
    queues.send("a", b"x", 0)
    for _ in range(2):
        assert queues.receive() is not None
        clock.advance(VISIBILITY)
    assert queues.receive() is None
    assert [message.body for message in queues.dead["a"]] == ["x"]


def test_virtual_queue_visibility_timeout_can_be_changed(queues: VirtualQueues) -> None:
    queues.send("a", b"x", 0)
    message = queues.receive()
    assert message is not None
    queues.visible_in(message, 0.0)
    assert queues.receive() is not None


def test_virtual_queue_record_has_the_form_of_sqs(queues: VirtualQueues) -> None:
    queues.send("a", b"x", 0)
    message = queues.receive()
    assert message is not None
    record = message.record()
    assert record["attributes"]["ApproximateReceiveCount"] == "1"
    assert record["attributes"]["SentTimestamp"] == "1000000"
    assert record["eventSourceARN"].endswith(":a")
    assert (record["messageId"], record["body"]) == (message.id, "x")


def test_virtual_queue_can_duplicate_lose_and_delay_messages(
    queues: VirtualQueues, clock: ManualClock
) -> None:
    queues.tamper = twice
    queues.send("a", b"twice", 0)
    queues.tamper = lost
    queues.send("a", b"lost", 0)
    queues.tamper = late(5)
    queues.send("a", b"late", 0)
    ids = {message.id for message in queues.waiting()}
    assert (len(ids), _bodies(queues)) == (3, ["twice", "twice"])
    clock.advance(5)
    assert _bodies(queues) == ["late"]
    assert [message.body for message in queues.sent] == ["twice", "lost", "late"]


def test_virtual_queue_can_reorder_messages(queues: VirtualQueues) -> None:
    queues.pick = last
    for body in (b"1", b"2", b"3"):
        queues.send("a", body, 0)
    assert _bodies(queues) == ["3", "2", "1"]


@pytest.mark.parametrize(("queue", "delay"), [("nowhere", 0), ("full", 0), ("a", 901), ("a", -1)])
def test_virtual_queue_refuses_what_sqs_refuses(
    queues: VirtualQueues, queue: str, delay: int
) -> None:
    queues.refusing.add("full")
    with pytest.raises(NotSent):
        queues.send(queue, b"x", delay)
    assert queues.sent == []
