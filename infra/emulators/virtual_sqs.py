"""Standard SQS queues in memory, on virtual time: delays, visibility, receive counts and dead
letters, without waiting.

It implements Sender, so the functions need no change. Unlike SQS it is deterministic: messages
arrive in the order in which they become visible, then in the order of sending. What SQS may do to
any message (deliver it twice, late, in another order, or apparently lose it) is done by `tamper`
and `pick` on request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from chalicelib.runtime.senders import NotSent
from infra.emulators.aws import Queue
from infra.emulators.lambda_events import Json, sqs_record


class Message(msgspec.Struct, frozen=True):
    """One message. Times in virtual epoch seconds. serial: the order of sending.
    receives: deliveries so far."""

    serial: int
    queue: str
    body: str
    sent_at: float
    visible_at: float
    receives: int = 0
    first_received_at: float = 0.0

    @property
    def id(self) -> str:
        return f"{self.serial:08x}-0000-4000-8000-000000000000"

    def record(self) -> Json:
        return sqs_record(
            self.queue,
            self.id,
            f"receipt-{self.serial}-{self.receives}",
            self.body,
            {
                "ApproximateReceiveCount": str(self.receives),
                "SenderId": "local",
                "SentTimestamp": str(int(self.sent_at * 1000)),
                "ApproximateFirstReceiveTimestamp": str(int(self.first_received_at * 1000)),
            },
        )


Tamper = Callable[[Message], Sequence[Message]]
"""Transforms a message when it is sent: unchanged, several, delayed, or none."""
Pick = Callable[[Sequence[Message]], Message]
"""Selects the next message among the visible ones, which are given in their normal order."""


def untouched(message: Message) -> Sequence[Message]:
    return (message,)


def twice(message: Message) -> Sequence[Message]:
    return (message, message)


def lost(message: Message) -> Sequence[Message]:
    del message
    return ()


def late(seconds: float) -> Tamper:
    return lambda message: (
        msgspec.structs.replace(message, visible_at=message.visible_at + seconds),
    )


def first(visible: Sequence[Message]) -> Message:
    return visible[0]


def last(visible: Sequence[Message]) -> Message:
    return visible[-1]


class VirtualQueues:
    """The queues of one deployment.

    tamper, pick: see above; tests set them. dead: dead letters by queue. refusing: queues that
    accept nothing (NotSent). sent: every message that was sent, unchanged. dead (as argument):
    queues whose dead letters go to the queue of another one.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        queues: Mapping[str, Queue],
        dead: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._clock, self._queues, self._dead_of = clock, dict(queues), dict(dead)
        self._messages: dict[int, Message] = {}
        self._serial = 0
        self.tamper: Tamper = untouched
        self.pick: Pick = first
        self.refusing: set[str] = set()
        self.dead: dict[str, list[Message]] = {name: [] for name in queues if name not in dead}
        self.sent: list[Message] = []

    def send(self, queue: str, body: bytes, delay: int) -> None:
        if queue not in self._queues:
            raise NotSent(queue, "NonExistentQueue")
        if queue in self.refusing:
            raise NotSent(queue, "ServiceUnavailable")
        if not 0 <= delay <= 900:
            raise NotSent(queue, "InvalidParameterValue")
        now = self._clock()
        message = Message(self._serial + 1, queue, body.decode(), now, now + delay)
        self.sent.append(message)
        for each in self.tamper(message):
            self._serial += 1
            self._messages[self._serial] = msgspec.structs.replace(each, serial=self._serial)

    def waiting(self, queue: str = "") -> tuple[Message, ...]:
        """Return messages of a queue, or of all, that are not deleted, in the order in
        which they become visible."""
        found = (each for each in self._messages.values() if queue in ("", each.queue))
        return tuple(sorted(found, key=lambda each: (each.visible_at, each.serial)))

    def next_due(self) -> float | None:
        """Return when the next message becomes visible, None without messages."""
        return min((each.visible_at for each in self._messages.values()), default=None)

    def receive(self) -> Message | None:
        """Receive the next visible message and make it invisible for its queue's
        timeout; None if there is none.

        A message that was received as often as its queue allows is moved to
        the dead letters instead.
        """
        now = self._clock()
        while visible := [each for each in self.waiting() if each.visible_at <= now]:
            chosen = self.pick(visible)
            queue = self._queues[chosen.queue]
            if chosen.receives >= queue.max_receives:
                self.dead[self._dead_of.get(chosen.queue, chosen.queue)].append(
                    self._messages.pop(chosen.serial)
                )
                continue
            taken = msgspec.structs.replace(
                chosen,
                receives=chosen.receives + 1,
                visible_at=now + queue.visibility,
                first_received_at=chosen.first_received_at or now,
            )
            self._messages[chosen.serial] = taken
            return taken
        return None

    def delete(self, message: Message) -> None:
        """Delete a processed message. Deleting it again has no effect."""
        self._messages.pop(message.serial, None)

    def visible_in(self, message: Message, seconds: float) -> None:
        """Change the visibility of a received message (ChangeMessageVisibility)."""
        if message.serial in self._messages:
            self._messages[message.serial] = msgspec.structs.replace(
                self._messages[message.serial], visible_at=self._clock() + seconds
            )
