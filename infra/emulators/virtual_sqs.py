"""Standard SQS queues in memory, on virtual time: delays, visibility, receive counts and dead letters, without waiting.

A Sender like the real one, so the functions do not know. Unlike the real one it is deterministic: messages come in the
order in which they become visible, then in the order in which they were sent. What SQS may do to a message at any time
(deliver it twice, late, in another order, or lose it as far as we can tell) is done by `tamper` and `pick` on request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from chalicelib.dispatch.errors import NotSent
from infra.emulators.aws import Queue
from infra.emulators.lambda_events import Json, sqs_record


class Message(msgspec.Struct, frozen=True):
    """One message. Instants in virtual epoch seconds; serial: the order of sending; receives: deliveries so far."""

    serial: int
    queue: str
    body: str
    sent_at: float
    visible_at: float
    receives: int = 0
    first_received_at: float = 0.0

    @property
    def id(self) -> str:
        """The messageId."""
        return f"{self.serial:08x}-0000-4000-8000-000000000000"

    def record(self) -> Json:
        """As Lambda gets it."""
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
"""What becomes of a message when it is sent: itself, several, later, or none."""
Pick = Callable[[Sequence[Message]], Message]
"""Which of the visible messages comes next; they are given in their ordinary order."""


def untouched(message: Message) -> Sequence[Message]:
    """A Tamper: nothing happens to it."""
    return (message,)


def twice(message: Message) -> Sequence[Message]:
    """A Tamper: at least once is more than once."""
    return (message, message)


def lost(message: Message) -> Sequence[Message]:
    """A Tamper: it never comes."""
    del message
    return ()


def late(seconds: float) -> Tamper:
    """A Tamper: it comes that much later."""
    return lambda message: (msgspec.structs.replace(message, visible_at=message.visible_at + seconds),)


def first(visible: Sequence[Message]) -> Message:
    """A Pick: in order."""
    return visible[0]


def last(visible: Sequence[Message]) -> Message:
    """A Pick: the newest first."""
    return visible[-1]


class VirtualQueues:
    """The queues of one deployment.

    tamper, pick: see above; tests set them. dead: dead letters by queue. refusing: queues that take nothing (NotSent).
    sent: every message that was ever sent, untampered. dead (as given): queues whose dead letters go to another one's.
    """

    def __init__(
        self, clock: Callable[[], float], queues: Mapping[str, Queue], dead: Mapping[str, str] = MappingProxyType({})
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
        """Sender."""
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
        """Messages of a queue, or of all, that are not deleted, in the order in which they become visible."""
        found = (each for each in self._messages.values() if queue in ("", each.queue))
        return tuple(sorted(found, key=lambda each: (each.visible_at, each.serial)))

    def next_due(self) -> float | None:
        """When the next message becomes visible; None: there is none."""
        return min((each.visible_at for each in self._messages.values()), default=None)

    def receive(self) -> Message | None:
        """The next visible message, now invisible for its queue's timeout; None when there is none.

        One that was received as often as its queue allows goes to the dead letters instead.
        """
        now = self._clock()
        while visible := [each for each in self.waiting() if each.visible_at <= now]:
            chosen = self.pick(visible)
            queue = self._queues[chosen.queue]
            if chosen.receives >= queue.max_receives:
                self.dead[self._dead_of.get(chosen.queue, chosen.queue)].append(self._messages.pop(chosen.serial))
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
        """It was dealt with; deleting it again does nothing."""
        self._messages.pop(message.serial, None)

    def visible_in(self, message: Message, seconds: float) -> None:
        """ChangeMessageVisibility of one that was received."""
        if message.serial in self._messages:
            self._messages[message.serial] = msgspec.structs.replace(
                self._messages[message.serial], visible_at=self._clock() + seconds
            )
