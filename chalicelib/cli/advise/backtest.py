"""What schedules would have cost and saved on days that they have not seen, and which of them are
therefore proposed (docs/advise.md "Backtest").

A schedule opens at the same instants as in a pass. The nodes that it adds to the size of that time
are used by the recorded purchases in their order, and each of these nodes is ready earlier than the
bought one was. Nodes that no purchase uses until it closes were not needed. Purchases beyond them
are missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import takewhile
from zoneinfo import ZoneInfo

import msgspec

from chalicelib.cli.advise.history import (
    DAY,
    QUARTER,
    GroupHistory,
    RecordSpan,
    local_time,
    together,
)
from chalicelib.cli.advise.patterns import Pattern, days_text, fit, schedule_of
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.schedules import Schedule
from chalicelib.schedules.cron import occurrences
from chalicelib.schedules.overlap import Span as OpenTimes
from chalicelib.schedules.overlap import both_open

MOST_PROPOSALS = 40
"""A policy has at most 50 schedules."""
LEAST_DAYS = 14
"""Days of history without which nothing is proposed: each weekday must have come twice."""
TESTED = 2 / 7
"""The share of the history, its end, on which schedules are tested that are fitted to the rest."""
WRONG = 0.5
"""The share of tested openings, above which a schedule is not proposed, that opened for nothing."""


class ScheduleOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """What a schedule would have done. openings: that are within the record; needless: at which
    none of the nodes that it added was needed. quarters: of an hour in which it was open, missing:
    those in which nodes were bought for pods beyond it. held: quarters of all
    added nodes, unneeded: those of nodes that were not needed until it closed. node_hours: paid in
    addition. waited: minutes of pods that waited for nodes bought while it is open; saved: those
    that they would not have waited. cost: of the node_hours, None where the price is not known."""

    openings: int = 0
    needless: int = 0
    quarters: int = 0
    missing: int = 0
    held: int = 0
    unneeded: int = 0
    node_hours: float = 0.0
    waited: float = 0.0
    saved: float = 0.0
    days: float = 0.0
    cost: float | None = None

    @property
    def unneeded_share(self) -> float:
        """The share of proposed quarters, by nodes, in which they were not needed."""
        return self.unneeded / self.held if self.held else 0.0

    @property
    def missing_share(self) -> float:
        """The share of proposed quarters in which nodes were needed beyond the proposed ones."""
        return self.missing / self.quarters if self.quarters else 0.0

    def per_day(self, amount: float) -> float:
        """Return an amount of the whole time by day."""
        return amount / self.days if self.days else 0.0


class Proposal(msgspec.Struct, frozen=True):
    """A schedule. tested: the one that was fitted to the first days, on the last days. recorded:
    the proposed one on all days. history: of its group."""

    schedule: Schedule
    pattern: Pattern
    history: GroupHistory
    tested: ScheduleOutcome
    recorded: ScheduleOutcome


class Refusal(msgspec.Struct, frozen=True):
    """Something that looks like a pattern, or a group without any. name: of the group."""

    name: str
    problem: str


class Advice(msgspec.Struct, frozen=True):
    """The result. days: of history. split: the end of the days of the fit, the
    beginning of the tested ones."""

    days: float
    split: float
    proposals: tuple[Proposal, ...] = ()
    refusals: tuple[Refusal, ...] = ()


def advise(
    histories: Sequence[GroupHistory],
    span: RecordSpan,
    zone: str,
    existing_schedules: Sequence[Schedule] = (),
    headroom: Sequence[Headroom] = (),
) -> Advice:
    """Return the schedules that pay, and why others do not. existing_schedules, headroom: of the
    policy, which no proposal may contradict. zone: name of the time zone of schedules."""
    split = span.until - max(1.0, round(span.days * TESTED)) * DAY
    advice = Advice(span.days, split)
    if (days := _whole_days(span)) < LEAST_DAYS:
        refusal = Refusal("", f"too little history: {days} of {LEAST_DAYS} days")
        return msgspec.structs.replace(advice, refusals=(refusal,))
    proposals: list[Proposal] = []
    refusals: list[Refusal] = []
    names = {history.facts.group: history.facts.name for history in histories}
    present = _Present(list(existing_schedules), tuple(headroom), names)
    for history in histories:
        _advise_group(history, span, zone, present, proposals, refusals)
    if len(histories) > 1:
        rest = together([_uncovered(history, proposals, ZoneInfo(zone)) for history in histories])
        _advise_group(rest, span, zone, present, proposals, refusals)
    proposals.sort(key=lambda proposal: -proposal.tested.per_day(proposal.tested.saved))
    refusals += [
        Refusal(
            item.history.facts.name,
            f"{item.schedule.name}: saves less than the {MOST_PROPOSALS} best",
        )
        for item in proposals[MOST_PROPOSALS:]
    ]
    if not proposals and not refusals:
        count = sum(len(history.purchases_between(span.since, span.until)) for history in histories)
        times = "once" if count == 1 else f"{count} times"
        text = (
            f"nodes were bought for waiting pods {times}, and at no time of the day again and again"
        )
        refusals.append(Refusal("", text if count else "no nodes were bought for waiting pods"))
    return msgspec.structs.replace(
        advice, proposals=tuple(proposals[:MOST_PROPOSALS]), refusals=tuple(refusals)
    )


class _Present(msgspec.Struct, frozen=True):
    """What no further proposal may contradict. names: of groups, by their ids; schedules
    and headroom may use both."""

    schedules: list[Schedule]
    headroom: tuple[Headroom, ...]
    names: dict[str, str]

    def shares_group(self, schedule: Schedule, others: Sequence[str]) -> bool:
        """Return whether a schedule and others are about the same group; no others are all of
        them."""
        own = {name for group in schedule.groups for name in (group, self.names.get(group, group))}
        return not others or bool(own & {*others})

    def contrary_schedule(self, schedule: Schedule) -> str:
        """Return the name of a schedule that sets the same value of a group at
        the same time, "" for none."""
        times = OpenTimes(schedule.cron, schedule.time_zone, schedule.duration)
        for present in self.schedules:
            most = present.max
            if schedule.min is not None:
                is_contrary = present.min is not None or (most is not None and most < schedule.min)
            else:
                is_contrary = present.headroom is not None
            own_times = OpenTimes(present.cron, present.time_zone, present.duration)
            is_contrary = is_contrary and self.shares_group(schedule, present.groups)
            if is_contrary and both_open(times, own_times) is not None:
                return present.name
        return ""

    def replaced_headroom(self, schedule: Schedule) -> str:
        """Return the name of the headroom that a schedule with headroom would
        replace or add to, "" for none."""
        if schedule.headroom is None:
            return ""
        return next(
            (entry.name for entry in self.headroom if self.shares_group(schedule, entry.groups)), ""
        )


def _whole_days(span: RecordSpan) -> int:
    """Return the whole days of a span; passes are not made at the same second."""
    return int(span.days + 0.01)


def _advise_group(
    history: GroupHistory,
    span: RecordSpan,
    zone: str,
    present: _Present,
    proposals: list[Proposal],
    refusals: list[Refusal],
) -> None:
    """Add the proposals and refusals of one group; proposals are present
    for the groups after it."""
    facts, place = history.facts, ZoneInfo(zone)
    own = span.after(facts.since)
    if (days := _whole_days(own)) < LEAST_DAYS:
        if facts.group:
            refusals.append(Refusal(facts.name, f"too little history: {days} of {LEAST_DAYS} days"))
        return
    split = own.until - max(1.0, round(own.days * TESTED)) * DAY
    earlier, _ = fit(history, own.before(split), place)
    patterns, problems = fit(history, own, place)
    refusals += [Refusal(facts.name, problem) for problem in problems]
    for pattern in patterns:
        schedule = schedule_of(pattern, facts, zone)
        likely = next((other for other in earlier if other.is_like(pattern)), None)
        tested = ScheduleOutcome()
        if likely is not None:
            tested = outcome_of(schedule_of(likely, facts, zone), history, own.after(split))
        proposal = Proposal(schedule, pattern, history, tested, outcome_of(schedule, history, own))
        problem = next(_problems(proposal, present, tried=likely is not None), "")
        if problem:
            times = f"{days_text(pattern.weekdays)} {'-'.join(pattern.quarters)}"
            refusals.append(Refusal(facts.name, f"{times}: {problem}"))
        else:
            proposals.append(proposal)
            present.schedules.append(schedule)


def _problems(proposal: Proposal, present: _Present, *, tried: bool) -> Iterator[str]:
    """Yield why a schedule is not proposed. tried: the first days have the same pattern."""
    schedule, facts, tested = proposal.schedule, proposal.history.facts, proposal.tested
    if schedule.min is not None and schedule.min <= facts.min:
        yield (
            f"the group's minimum of {facts.min} is as large as the {schedule.min} that were needed"
        )
    if name := present.replaced_headroom(schedule):
        yield f"the policy has the headroom {name} there already"
    if name := present.contrary_schedule(schedule):
        yield f"schedule {name} sets the same at the same time"
    if not tried:
        yield "the first days alone do not show it, so that it cannot be tested on the last"
    if not tested.openings:
        yield "none of its days is among the tested ones"
    if not tested.saved:
        yield "on the tested days it would have saved no waiting time"
    if tested.needless > WRONG * tested.openings:
        yield (
            f"it would have opened for nothing on {tested.needless} of {tested.openings} tested "
            "days"
        )


def _uncovered(
    history: GroupHistory, proposals: Sequence[Proposal], zone: ZoneInfo
) -> GroupHistory:
    """Return a history without the purchases at the times of the group's proposals."""
    patterns = [
        item.pattern for item in proposals if item.history.facts.group == history.facts.group
    ]

    def is_covered(at: float) -> bool:
        day, minute = local_time(at, zone)
        return any(
            day.weekday() in pattern.weekdays and pattern.first - 30 <= minute <= pattern.last + 30
            for pattern in patterns
        )

    purchases = tuple(purchase for purchase in history.purchases if not is_covered(purchase.at))
    return msgspec.structs.replace(history, purchases=purchases)


# -- one schedule on recorded days


def outcome_of(schedule: Schedule, history: GroupHistory, span: RecordSpan) -> ScheduleOutcome:
    """Return what a schedule would have done in a span."""
    zone, outcome = ZoneInfo(schedule.time_zone), ScheduleOutcome(days=span.days)
    openings = occurrences(schedule.cron, zone, span.since - 1.0)
    for at in takewhile(lambda at: at + schedule.duration <= span.until, openings):
        if span.covers(at, at + schedule.duration):
            outcome = _with_opening(outcome, schedule, history, at)
    facts = history.facts
    cost = outcome.node_hours * facts.price if facts.price else None
    return msgspec.structs.replace(outcome, cost=cost)


def _with_opening(
    outcome: ScheduleOutcome, schedule: Schedule, history: GroupHistory, at: float
) -> ScheduleOutcome:
    """Return an outcome with one more opening of the schedule."""
    facts, end = history.facts, at + schedule.duration
    size = history.size_at(at)
    target = (
        math.ceil(size * (1 + (schedule.headroom or 0) / 100))
        if schedule.min is None
        else schedule.min
    )
    added = free = max(0, target - size)
    # nodes that are not needed when it closes go after that time, and are used meanwhile
    stay = facts.unneeded
    seconds = waited = saved = 0.0
    missing: set[int] = set()
    for purchase in history.purchases_between(at, end + stay):
        used = min(free, purchase.nodes)
        free -= used
        seconds += used * (purchase.at - at)
        saved += purchase.pods * used / purchase.nodes * min(facts.lead, purchase.at - at)
        if purchase.at < end:
            waited += purchase.pods * facts.lead
            if used < purchase.nodes:
                missing.add(int((purchase.at - at) // QUARTER))
    quarters = math.ceil(schedule.duration / QUARTER)
    seconds += free * (schedule.duration + stay)
    return msgspec.structs.replace(
        outcome,
        openings=outcome.openings + 1,
        needless=outcome.needless + (added > 0 and free == added),
        quarters=outcome.quarters + quarters,
        missing=outcome.missing + len(missing),
        held=outcome.held + added * quarters,
        unneeded=outcome.unneeded + free * quarters,
        node_hours=outcome.node_hours + seconds / 3600,
        waited=outcome.waited + waited / 60,
        saved=outcome.saved + saved / 60,
    )
