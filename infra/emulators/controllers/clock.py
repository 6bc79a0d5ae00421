"""Clocks for the simulated cluster: the wall clock, accelerated, or a manual one.

A node takes minutes to boot and ten more to become unneeded, which is too long to wait for. Every part of the
simulation gets one of these two clocks and never reads the wall clock itself. The same code therefore serves the live
emulation at 60 minutes per minute and scenarios without real time.
"""

from __future__ import annotations

import math
from collections.abc import Callable


class Clock:
    """Epoch seconds that begin at `start` and advance `speed` times as fast as `wall` (which must not go backwards).

    began: the reading of `wall` at the beginning, now if not given. present: epoch seconds of the real time at the
    beginning. The clock does not pass the real time: as soon as it reaches it, it is it.
    """

    def __init__(
        self,
        start: float,
        speed: float,
        wall: Callable[[], float],
        *,
        began: float | None = None,
        present: float = math.inf,
    ) -> None:
        if speed <= 0:
            raise ValueError(f"speed {speed}: time must pass")
        self._start, self._speed, self._wall, self._present = start, speed, wall, present
        self._began = wall() if began is None else began

    def now(self) -> float:
        """Return the virtual time, epoch seconds."""
        passed = self._wall() - self._began
        return min(self._start + passed * self._speed, self._present + passed)

    def wall_seconds(self, virtual_seconds: float) -> float:
        """Return how much real time such a virtual duration takes from now on."""
        passed = self._wall() - self._began
        ahead = self._start + passed * self._speed, self._present + passed
        due = min(ahead) + virtual_seconds
        return max((due - ahead[0]) / self._speed, due - ahead[1])

    def until_present(self) -> float:
        """Return the real seconds until the clock shows the real time: 0.0 if it does, infinity if it never will."""
        behind = self._present - self._start
        if behind <= 0.0:
            return 0.0
        passed = self._wall() - self._began
        return max(0.0, behind / (self._speed - 1.0) - passed) if self._speed > 1.0 else math.inf

    def __call__(self) -> float:
        """Same as now(), because a clock is a parameter of type Callable[[], float]."""
        return self.now()


class ManualClock:
    """Epoch seconds that advance only by `advance`."""

    def __init__(self, start: float) -> None:
        self._now = start

    def now(self) -> float:
        """Return the virtual time, epoch seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Advance the time; it never goes back."""
        if seconds < 0:
            raise ValueError(f"{seconds} s: time does not go back")
        self._now += seconds

    def __call__(self) -> float:
        """The same as now()."""
        return self._now
