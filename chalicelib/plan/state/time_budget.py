"""Measures the time of a pass. The clock is a parameter: without one no time passes, and a replay is exact."""

from __future__ import annotations

import math
from collections.abc import Callable

_GROWTH = 0.75  # share of the time of a pass


class TimeBudget:
    """clock: monotonic seconds (time.monotonic), None: a replay, in which no time passes. within: seconds after which
    the pass must end, even if work is left."""

    def __init__(self, clock: Callable[[], float] | None = None, within: float = math.inf) -> None:
        self._clock, self._within = clock, within
        self._started = clock() if clock is not None else 0.0

    def spent(self) -> float:
        """Return the seconds since it was created."""
        return self._clock() - self._started if self._clock is not None else 0.0

    def over(self, limit: float) -> bool:
        """Return whether strictly more than `limit` seconds have passed."""
        return self.spent() > limit

    def late(self) -> bool:
        """Return whether the scale-up search must end: the rest of the pass is for removals."""
        return self._after(_GROWTH)

    def ended(self) -> bool:
        """Return whether the whole pass must end."""
        return self._after(1.0)

    def _after(self, share: float) -> bool:
        return self._within < math.inf and self.spent() > self._within * share
