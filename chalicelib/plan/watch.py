"""How long a pass has been at it. The clock is a parameter: without one no time passes, and a replay is exact."""

from __future__ import annotations

from collections.abc import Callable


class Watch:
    """clock: seconds that never go back (time.monotonic), None: a replay, in which no time passes."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._started = clock() if clock is not None else 0.0

    def spent(self) -> float:
        """Seconds since it was made."""
        return self._clock() - self._started if self._clock is not None else 0.0

    def over(self, limit: float) -> bool:
        """Whether more than `limit` seconds have passed, strictly (case E15)."""
        return self.spent() > limit
