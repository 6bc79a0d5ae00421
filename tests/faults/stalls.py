"""Checks that an operation whose executor was killed goes on soon: its next step
begins within LIMIT seconds.

A kill is not counted where another fault hit the same operation in the same time: a message that
was lost or delayed, a refusal of the table or of a queue, a paused process. A process that was
killed before it sent a message has begun no step; SQS or the tick delivers its message again.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.operation import Operation, OperationState
from chalicelib.runtime.messages import decode_act
from infra.emulators.virtual_sqs import Message
from tests.faults.io_interceptor import Process

LIMIT = 30.0
"""Seconds from a kill to the next step, or from the instant at which it is due."""


class Kill(msgspec.Struct, frozen=True):
    """A killed executor: its operation's attempt, when it was killed, and when the
    next step must have begun."""

    attempt: int
    at: float
    until: float


class Stalls:
    """operation: id -> the stored operation. messages: all that were sent.
    Instants are true epoch seconds.

    busy: seconds that functions have lasted so far: the emulation runs one at a time, so that
    others are late by them. skew: the largest error of a clock so far.
    """

    def __init__(
        self,
        now: Callable[[], float],
        operation: Callable[[str], Operation | None],
        messages: Callable[[], list[Message]],
        fault: Callable[[str], None],
        count: Callable[[str], None],
    ) -> None:
        self._now, self._operation, self._messages = now, operation, messages
        self._fault, self._count = fault, count
        self._kills: dict[str, Kill] = {}
        self._disturbed: dict[str, float] = {}
        self.busy = self.skew = 0.0

    def disturb(self, operation: str) -> None:
        """Note another fault of this operation."""
        self._disturbed[operation] = self._now()
        self._kills.pop(operation, None)

    def ended(self, process: Process, lasted: float, *, killed: bool) -> None:
        """Judge the end of an invocation. lasted: seconds in which no other function could run."""
        name = process.operation
        if process.disturbed:
            self.disturb(name)
        self._judge(name, process.began)
        self.busy += lasted
        if not name or not killed or self._disturbed.get(name, 0.0) >= process.began:
            return
        if not any(
            _about(message) == name for message in self._messages()[process.first_message :]
        ):
            self._kills.pop(name, None)
            return
        found, now = self._operation(name), self._now()
        if found is None or not found.is_open:
            return
        due = now if found.status.state is OperationState.RUNNING else max(now, found.status.due_at)
        self._kills[name] = Kill(
            found.status.attempt, now, due + LIMIT + 2.0 * self.skew - self.busy
        )

    def check(self) -> None:
        """Report operations whose next step has not begun in time."""
        for name in list(self._kills):
            self._judge(name, self._now())

    def _judge(self, name: str, began: float) -> None:
        kill = self._kills.get(name)
        if kill is None:
            return
        found, late = self._operation(name), began > kill.until + self.busy
        if late:
            self._fault(
                f"{name} was killed in attempt {kill.attempt}; {began - kill.at:.0f} s later there "
                "is no other"
            )
        elif found is not None and found.is_open and found.status.attempt == kill.attempt:
            return
        else:
            self._count("continued in time after a kill")
        del self._kills[name]


def _about(message: Message) -> str:
    try:
        return decode_act(message.body).operation
    except BadInput:
        return ""
