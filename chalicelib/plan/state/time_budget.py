"""How long a pass has been at it. The clock is a parameter: without one no time passes, and a replay is exact."""

from __future__ import annotations

import math
from collections.abc import Callable

_GROWTH = 0.75  # of the time of a pass


class TimeBudget:
    """clock: seconds that never go back (time.monotonic), None: a replay, in which no time passes. within: seconds
    after which the pass must come to its end, whatever is left to do."""

    def __init__(self, clock: Callable[[], float] | None = None, within: float = math.inf) -> None:
        self._clock, self._within = clock, within
        self._started = clock() if clock is not None else 0.0

    def spent(self) -> float:
        """Seconds since it was made."""
        return self._clock() - self._started if self._clock is not None else 0.0

    def over(self, limit: float) -> bool:
        """Whether more than `limit` seconds have passed, strictly (case E15)."""
        return self.spent() > limit

    def late(self) -> bool:
        """Whether the search for growth must come to its end: what is left of the pass is for removals."""
        return self._after(_GROWTH)

    def ended(self) -> bool:
        """Whether the whole pass must come to its end."""
        return self._after(1.0)

    def _after(self, share: float) -> bool:
        return self._within < math.inf and self.spent() > self._within * share
