"""Reasons for the parts of a cluster that an operator has paused (`outscaler pause`, model/pause.py).

A paused part is planned as before up to the point of acting: timers go on, and each pod, node and group that the pause
affects has this reason. Repairs belong to removals.
"""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.model.pause import Pause, of_growth, of_removals
from chalicelib.model.reason import Reason, ReasonCode


def growth_pause(pauses: Iterable[Pause], group: str) -> Reason | None:
    """Return why the group is not scaled up; None where no pause says so."""
    return _reason(of_growth(pauses, group), "growth")


def removals_pause(pauses: Iterable[Pause], group: str = "") -> Reason | None:
    """Return why no node of the group is removed, of any group for ""; None where no pause says so."""
    return _reason(of_removals(pauses, group), "removals")


def _reason(pause: Pause | None, what: str) -> Reason | None:
    if pause is None:
        return None
    paused = f"group {pause.group}" if pause.group else what
    return Reason.of(ReasonCode.PAUSED, what=paused, until=pause.until, detail=pause.reason)
