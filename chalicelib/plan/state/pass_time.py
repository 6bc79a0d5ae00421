"""Measures the time of a pass. The clock is a parameter: without one no time
passes, and a replay is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum

# Shares of the time of a pass: until then new nodes are packed and pods are placed on them.
# The rest is for removals.
_PACKING, _GROWTH = 0.5, 0.75


class PlanStage(Enum):
    """The share of the time of a pass by which a stage must have ended. A stage without a limit
    completes what the pass has, whatever the time is."""

    SCALE_UP = 0.9
    SCALE_DOWN = 1.0
    UNLIMITED = math.inf


class OutOfTime(Exception):
    """A stage has not ended in its time although its searches have: what it has found is not used,
    and the pass says so. Only PassTime raises it, and only `plan_cluster` catches it."""


class PassTime:
    """clock: monotonic seconds (time.monotonic), None: a replay, in which no time passes. within:
    seconds after which the pass must end, even if work is left."""

    def __init__(self, clock: Callable[[], float] | None = None, within: float = math.inf) -> None:
        self._clock, self._within = clock, within
        self._started = clock() if clock is not None else 0.0
        self._stage_share = math.inf

    def begin(self, stage: PlanStage) -> None:
        """Begin a stage, after whose time `check` raises."""
        self._stage_share = stage.value

    def spent(self) -> float:
        """Return the seconds since it was created."""
        return self._clock() - self._started if self._clock is not None else 0.0

    def over(self, limit: float) -> bool:
        """Return whether strictly more than `limit` seconds have passed."""
        return self.spent() > limit

    def packed(self) -> bool:
        """Return whether no more new nodes are packed: pods must still be
        placed on those that are."""
        return self._after(_PACKING)

    def late(self) -> bool:
        """Return whether the scale-up search must end: the rest of the pass is for removals."""
        return self._after(_GROWTH)

    def ended(self) -> bool:
        """Return whether the whole pass must end."""
        return self._after(1.0)

    def check(self) -> None:
        """Raise OutOfTime where the stage takes the time of the stages after it."""
        if self._after(self._stage_share):
            raise OutOfTime

    def _after(self, share: float) -> bool:
        return self._within < math.inf and self.spent() > self._within * share
