"""One fast clock for several processes: passed as text, it gives the same time in all of them.

It is based on the monotonic clock, which counts from the machine's start and is therefore the same in all processes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import msgspec

from infra.emulators.controllers.clock import Clock

CLOCK = "OUTSCALER_LOCAL_CLOCK"


class Pact(msgspec.Struct, frozen=True):
    """Virtual time is `start` when the wall clock shows `began`, and advances `speed` times as fast, until it reaches
    the real time, which is `present` (epoch seconds) when the wall clock shows `began`."""

    start: float
    began: float
    speed: float
    present: float = math.inf

    def text(self) -> str:
        """Return the text for another process's environment."""
        return " ".join(repr(part) for part in msgspec.structs.astuple(self))

    def clock(self, wall: Callable[[], float] = time.monotonic) -> Clock:
        """Return a clock that follows it."""
        return Clock(self.start, self.speed, wall, began=self.began, present=self.present)


def clock_from(text: str) -> Clock:
    """Return the clock for a Pact's text."""
    return Pact(*(float(part) for part in text.split())).clock()
