"""Whether two schedules can be open at once: a policy in which two of them set the same thing has no answer then.

Instants are real: both crons run on the clocks of their own zones over fourteen months from a fixed day, which hold
every month, a leap day and two changes of the clock. The work is bounded: of crons that open very often, the first
2,000 openings of the one that opens less often are looked at.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim

_FIRST = date(2023, 12, 1)  # a month before 2024, a leap year: what is open by then
_LAST = date(2025, 2, 1)
_DAY = 86400.0
_STEPS = 2000


class Span(msgspec.Struct, frozen=True):
    """When something is open: from each match of cron on the clock of time_zone, for `duration` seconds."""

    cron: str
    time_zone: str
    duration: float


@lru_cache(maxsize=1024)
def both_open(one: Span, other: Span) -> float | None:
    """An instant (epoch seconds) at which both are open, the first that is found; None where there is none.

    Crons and zones have been checked (plan/windows.py). An instant at which one ends and the other begins is none.
    """
    rare, dense = sorted((one, other), key=lambda span: len(starts(span.cron, span.time_zone)))
    known, length = starts(dense.cron, dense.time_zone), rare.duration
    many, before = len(known), dense.duration
    for start in starts(rare.cron, rare.time_zone):  # in one loop: fifty dense crons have a thousand pairs
        found = bisect_right(known, start - before)
        if found < many:
            after = known[found]
        elif many < _STEPS:  # all of them are known
            break
        else:
            after = next(_openings(dense.cron, dense.time_zone, start - before), start + length)
        if after < start + length:
            return max(start, after)
    return None


def by_change_of_clock(one: Span, other: Span) -> bool:
    """Whether two spans of one zone that do meet would not on a clock that is never changed. Of day and night, each of
    which ends when the other begins, the night ends an hour late when the clock is put forward: it lasts as it does."""
    if one.time_zone != other.time_zone:
        return False
    steady = (Span(span.cron, "UTC", span.duration) for span in (one, other))
    return both_open(*steady) is None


@lru_cache(maxsize=256)
def starts(cron: str, time_zone: str) -> tuple[float, ...]:
    """Its openings within the fourteen months, ascending, at most _STEPS of them.

    A policy is read whenever a function starts, so this must be fast: on the days on which the clock is not changed,
    which are nearly all, the hours and minutes are counted from midnight; cronsim goes through the others.
    """
    sim = CronSim(cron, datetime(_FIRST.year, _FIRST.month, _FIRST.day, tzinfo=UTC))
    minutes = [hour * 3600.0 + minute * 60.0 for hour in sorted(sim.hours) for minute in sorted(sim.minutes)]
    found: list[float] = []
    for day, midnight, length in _days(time_zone):
        if len(found) >= _STEPS:
            break
        if day.month not in sim.months or not sim.match_day(day):
            continue
        if length == _DAY:
            found += [midnight + seconds for seconds in minutes]
        else:
            found += _until(_openings(cron, time_zone, midnight - 1), midnight + length)
    return tuple(sorted(found)[:_STEPS])


@lru_cache(maxsize=64)
def _days(time_zone: str) -> tuple[tuple[date, float, float], ...]:
    """(day, the instant it begins at, seconds that it lasts) of the fourteen months."""
    zone = ZoneInfo(time_zone)
    days = [_FIRST + timedelta(days=number) for number in range((_LAST - _FIRST).days + 1)]
    instants = [datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() for day in days]
    return tuple((day, at, after - at) for day, at, after in zip(days, instants, instants[1:], strict=False))


def _until(instants: Iterator[float], end: float) -> Iterator[float]:
    return takewhile(lambda at: at < end, instants)


def _openings(cron: str, time_zone: str, at: float) -> Iterator[float]:
    """Openings strictly after an instant, as plan/windows.py has them."""
    clock = datetime.fromtimestamp(at, UTC).astimezone(ZoneInfo(time_zone))
    return (start.timestamp() for start in CronSim(cron, clock))
