"""Time for the simulated cluster: either the wall's, run faster, or moved by hand.

Why: a node takes minutes to boot and ten more to become unneeded, and nobody watches that long. Every part of the
simulation is given one of these two and never reads the wall itself, so the live emulation can run at 60 minutes a
minute and a scenario at none at all, with the same code.
"""

from __future__ import annotations

from collections.abc import Callable


class Clock:
    """Epoch seconds that begin at `start` and pass `speed` times as fast as `wall` (which must not go backwards)."""

    def __init__(self, start: float, speed: float, wall: Callable[[], float]) -> None:
        if speed <= 0:
            raise ValueError(f"speed {speed}: time must pass")
        self._start, self._speed, self._wall = start, speed, wall
        self._began = wall()

    def now(self) -> float:
        """The virtual time, epoch seconds."""
        return self._start + (self._wall() - self._began) * self._speed

    def wall_seconds(self, virtual_seconds: float) -> float:
        """How long a person waits until so much virtual time has passed."""
        return virtual_seconds / self._speed

    def __call__(self) -> float:
        """The same as now(): a clock is a parameter of type Callable[[], float]."""
        return self.now()


class ManualClock:
    """Epoch seconds that stand still until told to advance."""

    def __init__(self, start: float) -> None:
        self._now = start

    def now(self) -> float:
        """The virtual time, epoch seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass; it never goes back."""
        if seconds < 0:
            raise ValueError(f"{seconds} s: time does not go back")
        self._now += seconds

    def __call__(self) -> float:
        """The same as now()."""
        return self._now
