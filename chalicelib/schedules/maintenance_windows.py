"""Maintenance windows: when removals are allowed at all (Policy.maintenance_windows).

A window opens when its cron expression matches on the clock of its time zone, and lasts so many real seconds, also over
a night in which clocks are changed. What cron means on such a night is cronsim's (and Debian's) rule: an hour and
minute that the clock skips are the first minute after the gap, and of two that it shows the first counts; expressions
with a star for the hour or the minute match in real time, as often as the clock shows it.

A window that forbids wins over any that allows. Timers of nodes run on outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import Window
from chalicelib.model.reason import Reason, ReasonCode

_YEAR = 366 * 86400.0
_AMBIGUOUS = 3 * 3600.0  # longer than any zone's clock is put back by
_STEPS = 400  # openings and closings, times windows, that are looked at before "not known"
_MANY_STEPS = 3000  # the same where nothing waits for the answer
_SAMPLE = 100
_SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)  # the beginning of a leap year


def outside(windows: Sequence[Window], now: float) -> Reason | None:
    """Why nothing is removed just now, None if it may be.

    window: the one that forbids, or else all that would allow; until: when removals are allowed next, absent where that
    is not known or over a year away.
    """
    forbidding = next((each for each in windows if not each.removals and _closes(each, now) is not None), None)
    allowing = [each for each in windows if each.removals]
    if forbidding is None and (not allowing or any(_closes(each, now) is not None for each in allowing)):
        return None
    name = called(forbidding) if forbidding is not None else ", ".join(called(each) for each in allowing)
    until = next_allowed(windows, now)
    return Reason.of(ReasonCode.OUTSIDE_WINDOW, window=name, **({} if until is None else {"until": until}))


def is_open(window: Window, now: float) -> bool:
    """Whether a window is open, whatever it is for. Its ends count as a maintenance window's do: open at the instant it
    opens, closed at the one it closes. Schedules (plan/timetable.py) ask the same."""
    return _closes(window, now) is not None


def called(window: Window) -> str:
    """What people know a window by."""
    return window.name or window.cron


def next_allowed(windows: Sequence[Window], now: float) -> float | None:
    """The first instant from now on at which removals are allowed; None: not within a year, or too far to be found."""
    at = _next(windows, now, _STEPS)
    return None if at is None or math.isinf(at) else at


def never_allowed(windows: Sequence[Window]) -> bool:
    """Whether these windows surely leave no room for any removal, looked at over some year."""
    return _next(windows, _SOME_DAY.timestamp(), _MANY_STEPS) == math.inf


def _next(windows: Sequence[Window], now: float, steps: int) -> float | None:
    """The first instant from now on at which removals are allowed. inf: not within a year; None: not found in time."""
    at = now
    allowing = [each for each in windows if each.removals]
    for _ in range(steps // max(1, len(windows))):
        if at > now + _YEAR:
            return math.inf
        ends = [end for each in windows if not each.removals and (end := _closes(each, at)) is not None]
        if ends:
            at = max(ends)
        elif not allowing or any(_closes(each, at) is not None for each in allowing):
            return at
        else:
            starts = [start for each in allowing if (start := next(_openings(each, at), None)) is not None]
            if not starts:
                return math.inf
            at = min(starts)
    return None


def check_cron(cron: str) -> None:
    """Raises BadInput, without a place, for what is not five fields of cron or never comes."""
    if len(cron.split()) != 5:
        raise BadInput("", f"{cron[:60]!r} is not five fields of cron", 'write it like "0 22 * * 1-5"')
    try:
        comes = next(CronSim(cron, _SOME_DAY), None)
    except (CronSimError, ValueError, AssertionError) as error:
        detail = str(error)
        raise BadInput(
            "",
            f"{cron[:60]!r} is not cron{f' ({detail[:60]})' if detail else ''}",
            'write minute, hour, day of the month, month, day of the week, like "0 22 * * 1-5"',
        ) from None
    if comes is None:
        raise BadInput("", f"{cron[:60]!r} never comes", 'write a day that exists, like "0 22 * * 1-5"')


def check_zone(name: str) -> None:
    """Raises BadInput, without a place, for a time zone that the zone database does not have."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: a folder of zones, such as America
        raise BadInput("", f"{name[:60]!r} is not a time zone", "write it like Europe/Zurich or UTC") from None


def shortest_gap(cron: str) -> float:
    """Seconds between openings where they are closest, by a clock that is never changed. cron: one that was checked."""
    soon = _until((start.timestamp() for start in CronSim(cron, _SOME_DAY)), _SOME_DAY.timestamp() + 5 * _YEAR)
    starts = list(islice(soon, _SAMPLE))
    return min((b - a for a, b in pairwise(starts)), default=_YEAR)


def _closes(window: Window, now: float) -> float | None:
    """When the window that is open now will have closed, None if it is not open.

    Going back from now may miss an opening of the last hours where the clock was put back meanwhile: cronsim compares
    what the clock shows, and it shows an earlier time again. So the last hours are gone through forwards.
    """
    start = next(_openings(window, math.floor(now) + 1, back=True), -math.inf)
    if start + window.duration <= now:
        start = max(_until(_openings(window, now - _AMBIGUOUS), now), default=start)
    return start + window.duration if start + window.duration > now else None


def _until(instants: Iterator[float], last: float) -> Iterator[float]:
    for at in instants:
        if at > last:
            return
        yield at


def _openings(window: Window, at: float, *, back: bool = False) -> Iterator[float]:
    """Instants at which it opens, strictly after (or before) that one."""
    clock = datetime.fromtimestamp(at, UTC).astimezone(ZoneInfo(window.time_zone))
    return (start.timestamp() for start in CronSim(window.cron, clock, reverse=back))
