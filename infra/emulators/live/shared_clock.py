"""One fast clock for several processes: it is handed on as text, and all of them read the same instants.

The wall's part of it is the monotonic clock, which counts from the machine's start and so is the same in all processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from infra.emulators.controllers.clock import Clock

CLOCK = "OUTSCALER_LOCAL_CLOCK"


class Pact(msgspec.Struct, frozen=True):
    """Virtual time is `start` when the wall's clock says `began`, and passes `speed` times as fast."""

    start: float
    began: float
    speed: float

    def text(self) -> str:
        """For another process's environment."""
        return f"{self.start!r} {self.began!r} {self.speed!r}"

    def clock(self, wall: Callable[[], float] = time.monotonic) -> Clock:
        """A clock that keeps it. A Clock counts from its own making, so that is where this one begins."""
        first = wall()
        return Clock(self.start + (first - self.began) * self.speed, self.speed, _since(first, wall))


def _since(first: float, wall: Callable[[], float]) -> Callable[[], float]:
    """The wall's clock, whose first reading is `first`: between two readings time would be lost."""
    readings = iter((first,))
    return lambda: next(readings, None) or wall()


def clock_from(text: str) -> Clock:
    """The clock of a Pact's text."""
    start, began, speed = (float(part) for part in text.split())
    return Pact(start, began, speed).clock()
