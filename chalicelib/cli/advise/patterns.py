"""Times of the day at which a group buys nodes for waiting pods again and again
(docs/advise.md "Patterns").

Nothing but shares and quantiles: a quarter of an hour is busy on a weekday if nodes were bought
around it on at least half of those days. Busy quarters of several weekdays become one pattern, if
they are at the same time of the day and need about as many nodes, so that there are as few
schedules as possible.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec

from chalicelib.cli.advise.history import (
    GroupFacts,
    GroupHistory,
    GroupPurchase,
    RecordSpan,
    instant_of,
    local_dates,
    local_time,
)
from chalicelib.policy.settings.schedules import Schedule

QUANTILE = 0.75
"""Of the days of a pattern, the share on which the proposed size suffices; the same
for its begin and its end."""
REPETITIONS = 3
"""Days with purchases that a pattern needs at least."""
SHARE = 0.6
"""The share of its days on which nodes must have been bought."""
SLACK = 15
"""Minutes that a schedule stays open after the usual end of the purchases."""
_BUSY = 0.5
_QUARTERS, _DAY_MINUTES, _STEP = 96, 1440, 5
# sizes of weekdays that are one pattern: the factor, and the difference that never matters
_ALIKE, _FEW = 1.5, 2
_NEAR = 30  # minutes between times of the day that are the same
_MOST_PERCENT = 100
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Pattern(msgspec.Struct, frozen=True):
    """Purchases at the same time of several days. weekdays: 0 is Monday. first, last: minutes of
    the local day of the usual first and last purchase. size: nodes that the group usually needs in
    that time; percent: by how much more it usually grows. days: that were observed, hits: those
    with purchases; weeks, hit_weeks: the same of weeks. bought, pods: sums of all these days."""

    weekdays: tuple[int, ...]
    first: int
    last: int
    size: int
    percent: int
    days: int
    hits: int
    weeks: int
    hit_weeks: int
    bought: int
    pods: int

    @property
    def quarters(self) -> tuple[str, str]:
        """Return the begin of the first quarter of an hour and the end of the
        last, `08:00` and `08:45`."""
        begin, end = self.first // 15 * 15, self.last // 15 * 15 + 15
        return _clock(begin), _clock(end)

    def is_like(self, other_pattern: Pattern) -> bool:
        """Return whether both are about the same time of the same days."""
        begins, ends = max(self.first, other_pattern.first), min(self.last, other_pattern.last)
        return bool({*self.weekdays} & {*other_pattern.weekdays}) and begins <= ends + _NEAR


class _Day(msgspec.Struct, frozen=True):
    """A local date. purchases: with the minute of the day."""

    date: date
    purchases: tuple[tuple[int, GroupPurchase], ...]

    def within(self, begin: int, end: int) -> list[tuple[int, GroupPurchase]]:
        """Return the purchases from one minute to another."""
        return [(minute, purchase) for minute, purchase in self.purchases if begin <= minute < end]


class _Run(msgspec.Struct, frozen=True):
    """Busy quarters of an hour of one or several weekdays, from the first to the last."""

    weekdays: tuple[int, ...]
    first: int
    last: int


def quantile(values: Iterable[float], share: float) -> float:
    """Return the smallest of the values (at least one) that is not exceeded by this share of
    them."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


def fit(history: GroupHistory, span: RecordSpan, zone: ZoneInfo) -> tuple[list[Pattern], list[str]]:
    """Return the patterns of a group in the order of the day, and why busy times are none."""
    patterns: list[Pattern] = []
    refusals: list[str] = []
    if len(history.purchases_between(span.since, span.until)) < 2:
        return patterns, refusals
    calendar = _Calendar(history, span, zone)
    for run in calendar.runs():
        candidates = calendar.patterns(run)
        for pattern in candidates:
            problem = _problem(pattern)
            if problem and pattern.hits > 1:
                refusals.append(
                    f"{days_text(pattern.weekdays)} {'-'.join(pattern.quarters)}: {problem}"
                )
            elif not problem:
                patterns.append(pattern)
    return sorted(patterns, key=lambda pattern: (pattern.weekdays, pattern.first)), refusals


def _problem(pattern: Pattern) -> str:
    if pattern.hits < REPETITIONS:
        return (
            f"too few repetitions: nodes were bought on {pattern.hits} of at least {REPETITIONS} "
            "days"
        )
    if pattern.hits < SHARE * pattern.days:
        return (
            f"not regular: nodes were bought on {pattern.hits} of {pattern.days} days, below "
            f"{SHARE:.0%}"
        )
    return ""


@lru_cache(maxsize=16)
def _observed_quarters(span: RecordSpan, zone: ZoneInfo) -> dict[date, frozenset[int]]:
    """Return the quarters of each day during which passes were made; the same for most groups."""

    def is_observed(day: date, quarter: int) -> bool:
        since = instant_of(day, quarter * 15, zone)
        return span.covers(since, max(since, instant_of(day, quarter * 15 + 15, zone)))

    return {
        day: frozenset(quarter for quarter in range(_QUARTERS) if is_observed(day, quarter))
        for day in local_dates(span, zone)
    }


class _Calendar:
    """The purchases of a group by local day."""

    def __init__(self, history: GroupHistory, span: RecordSpan, zone: ZoneInfo) -> None:
        self._history, self._zone = history, zone
        by_date: dict[date, list[tuple[int, GroupPurchase]]] = {}
        for purchase in history.purchases_between(span.since, span.until):
            day, minute = local_time(purchase.at, zone)
            by_date.setdefault(day, []).append((minute, purchase))
        self._days = [_Day(day, tuple(by_date.get(day, ()))) for day in local_dates(span, zone)]
        self._observed = _observed_quarters(span, zone)
        # One window may hold its last quarter until the next one opens.
        self._join = math.ceil((history.facts.lead / 60 + SLACK) / 15) + 1

    def runs(self) -> Iterator[_Run]:
        """Yield the busy times of weekdays that overlap, as one run."""
        alone = [
            _Run((weekday,), *ends)
            for weekday in range(7)
            for ends in _spans(self._busy([weekday], _BUSY), self._join)
        ]
        clusters: list[_Run] = []
        for run in sorted(alone, key=lambda run: (run.first, run.last, run.weekdays)):
            for at, cluster in enumerate(clusters):
                if run.first <= cluster.last + 1 and cluster.first <= run.last + 1:
                    weekdays = tuple(sorted({*cluster.weekdays, *run.weekdays}))
                    first, last = min(cluster.first, run.first), max(cluster.last, run.last)
                    clusters[at] = _Run(weekdays, first, last)
                    break
            else:
                clusters.append(run)
        for cluster in clusters:
            # Weekdays that were observed once or twice are busy by chance;
            # all together they are not.
            busy = self._busy(cluster.weekdays, _BUSY) & set(range(cluster.first, cluster.last + 1))
            for first, last in _spans(busy, self._join):
                yield _Run(cluster.weekdays, first, last)

    def _busy(self, weekdays: Iterable[int], share: float) -> set[int]:
        """Return the quarters around which nodes were bought on at least this
        share of these weekdays."""
        days = [day for day in self._days if day.date.weekday() in weekdays]
        bought = {day.date: {minute // 15 for minute, _ in day.purchases} for day in days}
        result = set()
        for quarter in range(_QUARTERS):
            observed = [day for day in days if quarter in self._observed[day.date]]
            hits = sum(
                bool(bought[day.date] & {quarter - 1, quarter, quarter + 1}) for day in observed
            )
            if hits and hits >= share * len(observed):
                result.add(quarter)
        return result

    def patterns(self, run: _Run) -> list[Pattern]:
        """Return the patterns of a run: one, or several of weekdays that need other sizes,
        if each has enough days."""
        by_weekday: dict[int, list[_Day]] = {}
        for day in self._observed_days(run):
            by_weekday.setdefault(day.date.weekday(), []).append(day)
        ends = run.first * 15, run.last * 15 + 15
        shares = {
            weekday: sum(bool(day.within(*ends)) for day in days) / len(days)
            for weekday, days in by_weekday.items()
        }
        # A weekday of which one of two was a holiday is as the day before or after it.
        regular = {
            weekday: days
            for weekday, days in by_weekday.items()
            if shares[weekday] > _BUSY
            or (
                shares[weekday] == _BUSY
                and any(shares.get((weekday + by) % 7, 0.0) > _BUSY for by in (-1, 1))
            )
        }
        if not regular:
            return []
        sizes = {
            weekday: quantile((self._needed(day, *ends) for day in days), QUANTILE)
            for weekday, days in regular.items()
        }
        parts: list[list[int]] = []
        for weekday in sorted(sizes, key=lambda weekday: (sizes[weekday], weekday)):
            least = sizes[parts[-1][0]] if parts else 0
            if parts and sizes[weekday] <= max(least * _ALIKE, least + _FEW):
                parts[-1].append(weekday)
            else:
                parts.append([weekday])
        patterns = [
            self._pattern([day for weekday in part for day in regular[weekday]], run)
            for part in map(sorted, parts)
        ]
        if any(_problem(pattern) for pattern in patterns):
            return [
                self._pattern([day for weekday in sorted(regular) for day in regular[weekday]], run)
            ]
        return patterns

    def _observed_days(self, run: _Run) -> list[_Day]:
        return [
            day
            for day in self._days
            if day.date.weekday() in run.weekdays
            and self._observed[day.date].issuperset(range(run.first, run.last + 1))
        ]

    def _needed(self, day: _Day, begin: int, end: int) -> int:
        """Return the size that a day needed: the largest that was bought, or what the
        group had if nothing was."""
        bought = [purchase.size for _, purchase in day.within(begin, end)]
        return (
            max(bought)
            if bought
            else self._history.size_at(instant_of(day.date, begin, self._zone))
        )

    def _pattern(self, days: Sequence[_Day], run: _Run) -> Pattern:
        begin, end = run.first * 15, run.last * 15 + 15
        by_day = [(day, day.within(begin, end)) for day in days]
        hits = [(day, purchases) for day, purchases in by_day if purchases]
        first = -quantile((-purchases[0][0] for _, purchases in hits), QUANTILE)
        last = quantile((purchases[-1][0] for _, purchases in hits), QUANTILE)
        growth = []
        for day in days:
            size = self._history.size_at(instant_of(day.date, begin, self._zone))
            growth.append(max(0, self._needed(day, begin, end) - size) / max(1, size))
        return Pattern(
            tuple(sorted({day.date.weekday() for day in days})),
            int(first),
            int(max(first, last)),
            int(quantile((self._needed(day, begin, end) for day in days), QUANTILE)),
            min(_MOST_PERCENT, math.ceil(100 * quantile(growth, QUANTILE) - 1e-9)),
            len(days),
            len(hits),
            len({day.date.isocalendar()[:2] for day in days}),
            len({day.date.isocalendar()[:2] for day, _ in hits}),
            sum(purchase.nodes for _, purchases in hits for _, purchase in purchases),
            sum(purchase.pods for _, purchases in hits for _, purchase in purchases),
        )


def _spans(quarters: set[int], join: int) -> list[tuple[int, int]]:
    """Return (first, last) of the quarters; a break shorter than `join` quarters is none."""
    spans: list[tuple[int, int]] = []
    for quarter in sorted(quarters):
        if spans and quarter - spans[-1][1] <= join:
            spans[-1] = (spans[-1][0], quarter)
        else:
            spans.append((quarter, quarter))
    return spans


# -- schedules


def schedule_of(pattern: Pattern, facts: GroupFacts, zone: str) -> Schedule:
    """Return the schedule that has the nodes ready when a pattern begins: it opens
    earlier by the group's lead time and sets the minimum of the group, or the headroom of
    several groups together."""
    opens = (pattern.first - math.ceil(facts.lead / 60)) // _STEP * _STEP
    closes = -(-(pattern.last + SLACK) // _STEP) * _STEP
    before = -(opens // _DAY_MINUTES)  # days by which it opens before the pattern's
    weekdays = tuple(sorted((weekday - before) % 7 for weekday in pattern.weekdays))
    minute = opens % _DAY_MINUTES
    label = re.sub(r"[^A-Za-z0-9.-]+", "-", facts.name).strip("-")[:60] or "group"
    name = f"advised-{label}-{_days_label(weekdays)}-{minute // 60:02}{minute % 60:02}"
    cron = f"{minute % 60} {minute // 60} * * {_cron_days(weekdays)}"
    size = min(pattern.size, facts.max) if facts.max >= 0 else pattern.size
    return Schedule(
        name,
        cron,
        (closes - opens) * 60.0,
        zone,
        groups=facts.ids,
        min=size if facts.group else None,
        headroom=None if facts.group else pattern.percent,
    )


def days_text(weekdays: Sequence[int]) -> str:
    """Return `Mon-Fri`, `Sat, Sun` or `every day`."""
    return "every day" if len(weekdays) == 7 else ", ".join(_grouped(weekdays)).title()


def _days_label(weekdays: Sequence[int]) -> str:
    return "daily" if len(weekdays) == 7 else "-".join(_grouped(weekdays))


def _grouped(weekdays: Sequence[int]) -> list[str]:
    spans = (range(first, last + 1) for first, last in _spans({*weekdays}, 1))
    return [
        text
        for span in spans
        for text in (
            [f"{_DAYS[span[0]]}-{_DAYS[span[-1]]}"]
            if len(span) > 2
            else [_DAYS[day] for day in span]
        )
    ]


def _cron_days(weekdays: Sequence[int]) -> str:
    """Return the days for cron, in which Sunday is 0."""
    if len(weekdays) == 7:
        return "*"
    numbers = {(weekday + 1) % 7 for weekday in weekdays}
    return ",".join(
        str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}"
        for first, last in _spans(numbers, 1)
    )


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
