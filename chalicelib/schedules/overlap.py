"""Checks whether two schedules can be open at the same time: if both set the same value,
the policy is ambiguous.

Both crons are evaluated on the clocks of their own zones over fourteen months from a fixed day,
which include every month, a leap day and two clock changes. The work is bounded: for crons that
open very often, only the first 2,000 openings of the one that opens less often are checked, or of
the one that begins to open later if both open that often.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim

from chalicelib.schedules.cron import occurrences

# a month before the leap year 2024, to include what is open when it begins
_FIRST = date(2023, 12, 1)
_LAST = date(2025, 2, 1)
_DAY = 86400.0
_STEPS = 2000


class Span(msgspec.Struct, frozen=True):
    """The times when something is open: from each match of cron on the clock of
    time_zone, for `duration` seconds."""

    cron: str
    time_zone: str
    duration: float


@lru_cache(maxsize=1024)
def both_open(first_span: Span, second_span: Span) -> float | None:
    """Return an instant (epoch seconds) at which both are open, the first that is
    found; None if there is none.

    Crons and zones have been validated (schedules/maintenance_windows.py). An instant at which one
    ends and the other begins does not count.
    """
    rare, dense = sorted((first_span, second_span), key=_number_and_end)
    openings, length = starts(dense.cron, dense.time_zone), rare.duration
    many, before = len(openings), dense.duration
    # in one loop: fifty dense crons have a thousand pairs
    for start in starts(rare.cron, rare.time_zone):
        place = bisect_right(openings, start - before)
        if place < many:
            after = openings[place]
        elif many < _STEPS:  # all openings are known
            break
        else:
            after = next(
                occurrences(dense.cron, ZoneInfo(dense.time_zone), start - before), start + length
            )
        if after < start + length:
            return max(start, after)
    return None


def _number_and_end(span: Span) -> tuple[int, float]:
    """Return the number of known openings, and of equal numbers the smaller value for
    the ones that end later."""
    openings = starts(span.cron, span.time_zone)
    return len(openings), -max(openings, default=0.0)


def by_change_of_clock(first_span: Span, second_span: Span) -> bool:
    """Return whether two spans of one zone that overlap would not overlap on a clock that never
    changes. For example, of day and night schedules that begin when the other ends, the night ends
    an hour late when the clock is set forward, because its duration does not change."""
    if first_span.time_zone != second_span.time_zone:
        return False
    steady = (Span(span.cron, "UTC", span.duration) for span in (first_span, second_span))
    return both_open(*steady) is None


@lru_cache(maxsize=256)
def starts(cron: str, time_zone: str) -> tuple[float, ...]:
    """Return its openings within the fourteen months, ascending, at most _STEPS of them.

    A policy is parsed on every cold start, so this must be fast: on days without a clock
    change, which are nearly all, hours and minutes are computed from midnight; cronsim
    evaluates the other days.
    """
    sim = CronSim(cron, datetime(_FIRST.year, _FIRST.month, _FIRST.day, tzinfo=UTC))
    minutes = [
        hour * 3600.0 + minute * 60.0
        for hour in sorted(sim.hours)
        for minute in sorted(sim.minutes)
    ]
    instants: list[float] = []
    for day, midnight, length in _days(time_zone):
        if len(instants) >= _STEPS:
            break
        if day.month not in sim.months or not sim.match_day(day):
            continue
        if length == _DAY:
            instants += [midnight + seconds for seconds in minutes]
        else:
            for at in occurrences(cron, ZoneInfo(time_zone), midnight - 1):
                if at >= midnight + length:
                    break
                instants.append(at)
    return tuple(sorted(instants)[:_STEPS])


@lru_cache(maxsize=64)
def _days(time_zone: str) -> tuple[tuple[date, float, float], ...]:
    """Return (day, start instant, length in seconds) for the fourteen months."""
    zone = ZoneInfo(time_zone)
    days = [_FIRST + timedelta(days=number) for number in range((_LAST - _FIRST).days + 1)]
    instants = [datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() for day in days]
    return tuple(
        (day, at, after - at) for day, at, after in zip(days, instants, instants[1:], strict=False)
    )
