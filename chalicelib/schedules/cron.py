"""When cron came last and when it comes next, on the clock of a time zone (huaweicloud-cce.md A4).

What is asked here is asked of every rule in every pass, so that a pass works each pair of expression and zone out once.
What cron means where a clock is changed is cronsim's rule (plan/windows.py says which); whatever the clock does, each
occurrence is one instant, and the same one from wherever it is looked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

_CHANGE = 3 * 3600.0  # longer than any zone's clock is put back by
_FEW = 8  # occurrences that may lie behind one that is looked for, where a clock was put back


class CronTimes(msgspec.Struct, frozen=True):
    """last: the latest occurrence up to now; following: the first after it; 0.0: there is none. problem: why this is
    not known."""

    last: float = 0.0
    following: float = 0.0
    problem: str = ""


class LocalClock:
    """The times of one pass. now: epoch seconds."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._known: dict[tuple[str, str], CronTimes] = {}

    def times(self, cron: str, zone: str) -> CronTimes:
        """Of five fields of cron in a time zone. What is neither has a problem instead: never an exception."""
        found = self._known.get((cron, zone))
        if found is None:
            found = self._known[cron, zone] = self._find(cron, zone)
        return found

    def _find(self, cron: str, zone: str) -> CronTimes:
        try:
            place = ZoneInfo(zone)
            return CronTimes(_latest(cron, place, self._now), _following(cron, place, self._now))
        except (CronSimError, ValueError, KeyError, OSError, AssertionError, OverflowError) as error:
            return CronTimes(problem=f"{cron[:60]!r} in {zone[:60]!r} is not cron in a time zone: {error}"[:200])


def _latest(cron: str, zone: ZoneInfo, now: float) -> float:
    """Going back compares what the clock shows. Where it was put back a short while ago it shows an earlier time again,
    and what came in between would be passed over: there the last hours are gone through forwards."""
    back = next(_instants(cron, zone, math.floor(now) + 1.0, reverse=True), 0.0)
    if _shown(zone, now).utcoffset() == _shown(zone, now - _CHANGE).utcoffset():
        return back
    return max([back, *_until(_instants(cron, zone, now - _CHANGE), now)])


def _following(cron: str, zone: ZoneInfo, now: float) -> float:
    ahead = _instants(cron, zone, now)
    for _ in range(_FEW):
        at = next(ahead, 0.0)
        if at == 0.0 or at > now:
            return at
    return 0.0


def _until(instants: Iterator[float], last: float) -> Iterator[float]:
    for at in instants:
        if at > last:
            return
        yield at


def _instants(cron: str, zone: ZoneInfo, at: float, *, reverse: bool = False) -> Iterator[float]:
    return (each.timestamp() for each in CronSim(cron, _shown(zone, at), reverse=reverse))


def _shown(zone: ZoneInfo, at: float) -> datetime:
    """What the zone's clock shows; UTC goes by the name that cronsim knows to need no care."""
    shown = datetime.fromtimestamp(at, UTC)
    return shown if zone.key == "UTC" else shown.astimezone(zone)
