"""Checks cron expressions, and computes their last and next occurrence on the clock of a time zone.

Every pass evaluates every rule, so each pair of expression and zone is computed once per pass.
Around clock changes cronsim's rules apply (see schedules/maintenance_windows.py). Whatever the
clock does, each occurrence is one instant, independent of the instant from which it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from chalicelib.model.errors import BadInput

YEAR = 366 * 86400.0  # seconds
SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)  # the beginning of a leap year
_SAMPLE = 100  # occurrences whose gaps are compared

_CHANGE = 3 * 3600.0  # longer than any zone's clock is set back
_FEW = 8  # occurrences that may lie behind the one found, where a clock was set back


class CronTimes(msgspec.Struct, frozen=True):
    """last: the latest occurrence up to now; following: the first after it; 0.0: there is none.
    problem: why they are unknown."""

    last: float = 0.0
    following: float = 0.0
    problem: str = ""


class LocalClock:
    """The occurrence times of one pass. now: epoch seconds."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._known: dict[tuple[str, str], CronTimes] = {}

    def times(self, cron: str, zone: str) -> CronTimes:
        """Return the times of a five-field cron expression in a time zone. An invalid expression or
        zone is reported in `problem`, never as an exception."""
        times = self._known.get((cron, zone))
        if times is None:
            times = self._known[cron, zone] = self._find(cron, zone)
        return times

    def _find(self, cron: str, zone: str) -> CronTimes:
        try:
            place = ZoneInfo(zone)
            return CronTimes(_latest(cron, place, self._now), _following(cron, place, self._now))
        except (
            CronSimError,
            ValueError,
            KeyError,
            OSError,
            AssertionError,
            OverflowError,
        ) as error:
            return CronTimes(
                problem=f"{cron[:60]!r} in {zone[:60]!r} is not cron in a time zone: {error}"[:200]
            )


def _latest(cron: str, zone: ZoneInfo, now: float) -> float:
    """Search backwards by the local clock. Where the clock was set back a short while ago, it
    shows an earlier time again, and occurrences in between would be missed; there, the last
    hours are searched forwards."""
    back = next(occurrences(cron, zone, math.floor(now) + 1.0, reverse=True), 0.0)
    if _shown(zone, now).utcoffset() == _shown(zone, now - _CHANGE).utcoffset():
        return back
    return max([back, *takewhile(lambda at: at <= now, occurrences(cron, zone, now - _CHANGE))])


def _following(cron: str, zone: ZoneInfo, now: float) -> float:
    ahead = occurrences(cron, zone, now)
    for _ in range(_FEW):
        at = next(ahead, 0.0)
        if at == 0.0 or at > now:
            return at
    return 0.0


def occurrences(cron: str, zone: ZoneInfo, at: float, *, reverse: bool = False) -> Iterator[float]:
    """Yield the instants of a validated expression strictly after `at`; reverse: strictly
    before, the latest first."""
    return (time.timestamp() for time in CronSim(cron, _shown(zone, at), reverse=reverse))


def check_cron(cron: str) -> None:
    """Raise BadInput, without a place, for an expression that is not five cron
    fields or never matches."""
    if len(cron.split()) != 5:
        raise BadInput(
            "", f"{cron[:60]!r} is not five fields of cron", 'write it like "0 22 * * 1-5"'
        )
    try:
        comes = next(CronSim(cron, SOME_DAY), None)
    except (CronSimError, ValueError, AssertionError) as error:
        detail = str(error)
        raise BadInput(
            "",
            f"{cron[:60]!r} is not cron{f' ({detail[:60]})' if detail else ''}",
            'write minute, hour, day of the month, month, day of the week, like "0 22 * * 1-5"',
        ) from None
    if comes is None:
        raise BadInput(
            "", f"{cron[:60]!r} never comes", 'write a day that exists, like "0 22 * * 1-5"'
        )


def check_zone(name: str) -> None:
    """Raise BadInput, without a place, for a time zone that is not in the zone database."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: a directory of zones, such as America
        raise BadInput(
            "", f"{name[:60]!r} is not a time zone", "write it like Europe/Zurich or UTC"
        ) from None


def shortest_gap(cron: str) -> float:
    """Return the shortest time in seconds between openings, on a clock that never changes.
    cron: a validated expression."""
    begin = SOME_DAY.timestamp()
    soon = takewhile(lambda at: at <= begin + 5 * YEAR, occurrences(cron, ZoneInfo("UTC"), begin))
    starts = list(islice(soon, _SAMPLE))
    return min((b - a for a, b in pairwise(starts)), default=YEAR)


def _shown(zone: ZoneInfo, at: float) -> datetime:
    """Return the zone's local time; UTC uses the name for which cronsim skips clock changes."""
    shown = datetime.fromtimestamp(at, UTC)
    return shown if zone.key == "UTC" else shown.astimezone(zone)
