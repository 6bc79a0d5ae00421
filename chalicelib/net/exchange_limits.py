"""Limits of one exchange: seconds, and bytes received.

The limit of the current exchange is a context variable of its thread, because the sockets that enforce it are created
and kept by urllib3, which passes nothing on to them. A socket that is used outside an exchange has no limit.

A second context variable limits all exchanges of one piece of work. It is asked immediately before each of them, so
that a process that was frozen sends nothing that it may no longer send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum

from chalicelib.net.time_limit import time_left


class Breach(Enum):
    """Why this side aborted an exchange."""

    TIME = "time"
    TASK = "task"
    SIZE = "size"
    ADDRESS = "address"


class ExchangeLimit:
    """seconds: for the whole exchange, from the construction on; less where `time_limit` leaves less. head: bytes
    received until the body begins, including interim responses and a proxy's response. monotonic: seconds of a clock
    that never goes back.

    breach: why the exchange was aborted, None if it was not.
    """

    def __init__(self, seconds: float, head: int, monotonic: Callable[[], float]) -> None:
        self.seconds, self._monotonic = seconds, monotonic
        self._until, self._rest = monotonic() + seconds, time_left
        self._room = head
        self.breach: Breach | None = None

    def left(self) -> float:
        """Return the remaining seconds, more than 0. Raises TimeoutError."""
        left = self._left()
        if left <= 0:
            raise TimeoutError("the time for the exchange is over")
        return left

    def timed_out(self) -> None:
        """Record that a wait on a socket timed out, if this limit shortened the wait."""
        self._left()

    def _left(self) -> float:
        """Return the remaining seconds, and record which limit has ended where there are none."""
        own, rest = self._until - self._monotonic(), self._rest()
        if min(own, rest) <= 0:
            self.breach = Breach.TIME if own <= rest else Breach.TASK
        return min(own, rest)

    def received(self, count: int) -> None:
        """Count bytes. Raises OSError when there are too many."""
        self._room -= count
        if self._room < 0:
            self.breach = Breach.SIZE
            raise OSError("the answer is too large")

    def allow(self, body: int) -> None:
        """Allow this many bytes of a body after the head has been read."""
        self._room = body

    def refuse(self) -> None:
        """Record that the address of the peer is not allowed."""
        self.breach = Breach.ADDRESS


_CURRENT: ContextVar[ExchangeLimit | None] = ContextVar("bound", default=None)

current = _CURRENT.get
"""() -> the limit of this thread's exchange; None outside an exchange."""


Allowance = Callable[[], float]
"""Returns the seconds that an exchange may take which begins now; none may begin where that is not more than 0. What it
raises ends the work."""

_ALLOWED: ContextVar[Allowance | None] = ContextVar("allowed", default=None)

allowance = _ALLOWED.get
"""() -> the Allowance of this context; None without one."""


@contextmanager
def allowed_by(allowance: Allowance) -> Iterator[None]:
    """Ask before every exchange inside the context."""
    token = _ALLOWED.set(allowance)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


@contextmanager
def within(limit: ExchangeLimit) -> Iterator[None]:
    """Apply the limit to all sockets of this package that this thread uses inside the context."""
    token = _CURRENT.set(limit)
    try:
        yield
    finally:
        _CURRENT.reset(token)
