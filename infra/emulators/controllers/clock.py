"""Clocks for the simulated cluster: the wall clock, accelerated, or a manual one.

A node takes minutes to boot and ten more to become unneeded, which is too long to wait for. Every part of the
simulation gets one of these two clocks and never reads the wall clock itself. The same code therefore serves the live
emulation at 60 minutes per minute and scenarios without real time.
"""

from __future__ import annotations

from collections.abc import Callable


class Clock:
    """Epoch seconds that begin at `start` and advance `speed` times as fast as `wall` (which must not go backwards)."""

    def __init__(self, start: float, speed: float, wall: Callable[[], float]) -> None:
        if speed <= 0:
            raise ValueError(f"speed {speed}: time must pass")
        self._start, self._speed, self._wall = start, speed, wall
        self._began = wall()

    def now(self) -> float:
        """Return the virtual time, epoch seconds."""
        return self._start + (self._wall() - self._began) * self._speed

    def wall_seconds(self, virtual_seconds: float) -> float:
        """Return how much real time such a virtual duration takes."""
        return virtual_seconds / self._speed

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
