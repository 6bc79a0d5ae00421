"""Maintenance windows: when removals are allowed (Policy.maintenance_windows).

A window opens when its cron expression matches on the clock of its time zone, and lasts a fixed
number of real seconds, even over a night with a clock change. On such a night cronsim's (and
Debian's) rules apply: a skipped hour and minute match the first minute after the gap, and a
repeated one matches the first time; expressions with a star for the hour or the minute match in
real time, as often as the clock shows it.

A window that forbids removals overrides any that allows them. Unneeded timers continue outside
windows. See docs/reference/schedules.md "Windows".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Protocol
from zoneinfo import ZoneInfo

from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.schedules.cron import SOME_DAY, YEAR, occurrences


class WindowTimes(Protocol):
    """What opens when `cron` matches on the clock of time_zone, for `duration` seconds."""

    @property
    def cron(self) -> str:
        """Return five valid fields of cron."""

    @property
    def duration(self) -> float:
        """Return seconds."""

    @property
    def time_zone(self) -> str:
        """Return a valid name of a time zone."""


class Window(WindowTimes, Protocol):
    """A maintenance window."""

    @property
    def removals(self) -> bool:
        """Return whether nodes are removed inside such windows, or not inside this one."""

    @property
    def name(self) -> str:
        """Return its name in messages; empty where it has none."""


_AMBIGUOUS = 3 * 3600.0  # longer than any zone's clock is set back
# openings and closings, times windows, that are checked before the answer is "unknown"
_STEPS = 400
_MANY_STEPS = 3000  # the same limit where nothing waits for the answer


def outside(windows: Sequence[Window], now: float) -> Reason | None:
    """Return why removals are not allowed now, None if they are.

    window: the one that forbids, otherwise all that would allow; until: when removals are allowed
    next, absent if that is unknown or over a year away.
    """
    forbidding = next(
        (window for window in windows if not window.removals and closes(window, now) is not None),
        None,
    )
    allowing = [window for window in windows if window.removals]
    if forbidding is None and (
        not allowing or any(closes(window, now) is not None for window in allowing)
    ):
        return None
    name = (
        called(forbidding)
        if forbidding is not None
        else ", ".join(called(window) for window in allowing)
    )
    until = next_allowed(windows, now)
    return Reason.of(
        ReasonCode.OUTSIDE_WINDOW, window=name, **({} if until is None else {"until": until})
    )


def allowed_for(windows: Sequence[Window], now: float, seconds: float) -> bool:
    """Return whether removals are allowed from now on for so many seconds without a break."""
    if outside(windows, now) is not None:
        return False
    end = now + seconds
    if any(next(_openings(window, now), end) < end for window in windows if not window.removals):
        return False
    allowing, at = [window for window in windows if window.removals], now
    for _ in range(_STEPS // max(1, len(windows)) if allowing else 0):
        closings = [closing for window in allowing if (closing := closes(window, at)) is not None]
        if not closings:
            return False
        at = max(closings)
        if at >= end:
            break
    return True


def is_open(window: WindowTimes, now: float) -> bool:
    """Return whether a window is open, whatever its purpose: open at the instant it opens, closed
    at the instant it closes. Schedules (policy/open_schedules.py) use it too."""
    return closes(window, now) is not None


def last_span(window: WindowTimes, now: float) -> tuple[float, float] | None:
    """Return when the window opened last, and when it closes or has closed; None: it never
    opened."""
    start = next(_openings(window, math.floor(now) + 1, reverse=True), None)
    return None if start is None else (start, start + window.duration)


def called(window: Window) -> str:
    """Return the name of a window for messages."""
    return window.name or window.cron


def next_allowed(windows: Sequence[Window], now: float) -> float | None:
    """Return the first instant from now on at which removals are allowed; None: not within a year,
    or not found within the search limit."""
    at = _next(windows, now, _STEPS)
    return None if at is None or math.isinf(at) else at


def never_allowed(windows: Sequence[Window]) -> bool:
    """Return whether these windows certainly never allow a removal, checked over one year."""
    return _next(windows, SOME_DAY.timestamp(), _MANY_STEPS) == math.inf


def _next(windows: Sequence[Window], now: float, steps: int) -> float | None:
    """Return the first instant from now on at which removals are allowed. inf: not within a year;
    None: not found within the search limit."""
    at = now
    allowing = [window for window in windows if window.removals]
    for _ in range(steps // max(1, len(windows))):
        if at > now + YEAR:
            return math.inf
        ends = [
            end
            for window in windows
            if not window.removals and (end := closes(window, at)) is not None
        ]
        if ends:
            at = max(ends)
        elif not allowing or any(closes(window, at) is not None for window in allowing):
            return at
        else:
            starts = [
                start
                for window in allowing
                if (start := next(_openings(window, at), None)) is not None
            ]
            if not starts:
                return math.inf
            at = min(starts)
    return None


def closes(window: WindowTimes, now: float) -> float | None:
    """Return when the currently open window will close, None if it is not open.
    Disruption budgets use it too.

    A backward search from now may miss an opening of the last hours if the clock was set
    back meanwhile: cronsim compares local times, and an earlier time is shown again. The last hours
    are therefore searched forwards.
    """
    start = next(_openings(window, math.floor(now) + 1, reverse=True), -math.inf)
    if start + window.duration <= now:
        start = max(
            takewhile(lambda at: at <= now, _openings(window, now - _AMBIGUOUS)), default=start
        )
    return start + window.duration if start + window.duration > now else None


def _openings(window: WindowTimes, at: float, *, reverse: bool = False) -> Iterator[float]:
    return occurrences(window.cron, ZoneInfo(window.time_zone), at, reverse=reverse)
