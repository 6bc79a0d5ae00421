"""What one exchange may take in all: seconds, and bytes received.

The bound of the exchange under way is a context variable of its thread, because the sockets that have to keep it are
made and kept by urllib3, which passes nothing on to them. A socket that is used outside of an exchange has no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum


class Breach(Enum):
    """Why an exchange was broken off by this side."""

    TIME = "time"
    SIZE = "size"
    ADDRESS = "address"


class ExchangeLimit:
    """seconds: for the whole exchange, from the construction on. head: bytes received until the body begins, interim
    answers and a proxy's answer included. monotonic: seconds of a clock that never goes back.

    breach: why the exchange was broken off, None if it was not.
    """

    def __init__(self, seconds: float, head: int, monotonic: Callable[[], float]) -> None:
        self.seconds, self._monotonic = seconds, monotonic
        self._until = monotonic() + seconds
        self._room = head
        self.breach: Breach | None = None

    def left(self) -> float:
        """Seconds that are left, more than 0. Raises TimeoutError."""
        left = self._until - self._monotonic()
        if left <= 0:
            self.breach = Breach.TIME
            raise TimeoutError("the time for the exchange is over")
        return left

    def timed_out(self) -> None:
        """A wait on a socket timed out: note it if it was this bound that cut the wait."""
        if self._until - self._monotonic() <= 0:
            self.breach = Breach.TIME

    def received(self, count: int) -> None:
        """Count bytes. Raises OSError when there are too many."""
        self._room -= count
        if self._room < 0:
            self.breach = Breach.SIZE
            raise OSError("the answer is too large")

    def allow(self, body: int) -> None:
        """The head has been read; so many bytes of a body may follow."""
        self._room = body

    def refuse(self) -> None:
        """Note that the address of the peer is not allowed."""
        self.breach = Breach.ADDRESS


_CURRENT: ContextVar[ExchangeLimit | None] = ContextVar("bound", default=None)

current = _CURRENT.get
"""() -> the bound of this thread's exchange; None outside of one."""


@contextmanager
def within(bound: ExchangeLimit) -> Iterator[None]:
    """All sockets of this package that this thread uses inside keep the bound."""
    token = _CURRENT.set(bound)
    try:
        yield
    finally:
        _CURRENT.reset(token)
