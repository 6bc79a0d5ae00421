"""One fast clock for several processes: passed as text, it gives the same time in all of them.

It is based on the monotonic clock, which counts from the machine's start and is therefore the same in all processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from infra.emulators.controllers.clock import Clock

CLOCK = "OUTSCALER_LOCAL_CLOCK"


class Pact(msgspec.Struct, frozen=True):
    """Virtual time is `start` when the wall clock shows `began`, and advances `speed` times as fast."""

    start: float
    began: float
    speed: float

    def text(self) -> str:
        """Return the text for another process's environment."""
        return f"{self.start!r} {self.began!r} {self.speed!r}"

    def clock(self, wall: Callable[[], float] = time.monotonic) -> Clock:
        """Return a clock that follows it. A Clock counts from its creation, so this one starts at that time."""
        first = wall()
        return Clock(self.start + (first - self.began) * self.speed, self.speed, _since(first, wall))


def _since(first: float, wall: Callable[[], float]) -> Callable[[], float]:
    """Return the wall clock with `first` as its first reading, because time between two readings would be lost."""
    readings = iter((first,))
    return lambda: next(readings, None) or wall()


def clock_from(text: str) -> Clock:
    """Return the clock for a Pact's text."""
    start, began, speed = (float(part) for part in text.split())
    return Pact(start, began, speed).clock()
