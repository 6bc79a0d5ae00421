"""Patterns of purchases, their schedules, and what these would have done on days
that they have not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest
import yaml

from chalicelib.cli.advise.backtest import (
    MOST_PROPOSALS,
    Advice,
    ScheduleOutcome,
    advise,
    outcome_of,
)
from chalicelib.cli.advise.history import (
    GroupFacts,
    GroupHistory,
    GroupPurchase,
    RecordSpan,
    gaps_between,
    group_histories,
    instant_of,
    local_time,
    together,
)
from chalicelib.cli.advise.output import entry_of
from chalicelib.cli.advise.patterns import Pattern, days_text, fit, quantile, schedule_of
from chalicelib.model.operation import Operation, OperationKind, OperationState, RemovalTarget
from chalicelib.policy.load import load
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.schedules import Schedule
from chalicelib.schedules.cron import check_cron, occurrences
from chalicelib.store.gauge_ring import GaugePoint
from tests.operations import new_operation
from tests.unit.policy.policy_documents import with_spec

DAY, HOUR = 86400.0, 3600.0
ZURICH = ZoneInfo("Europe/Zurich")
MONDAY = date(2026, 11, 2)
WORKERS = GroupFacts("workers", "workers", 300.0, learned=True, price=0.5, currency="EUR")


def span(days: float, zone: ZoneInfo = ZURICH, first: date = MONDAY) -> RecordSpan:
    begin = instant_of(first, 0, zone)
    return RecordSpan(begin, begin + days * DAY)


def history(
    mornings: Iterable[tuple[date, int]],
    facts: GroupFacts = WORKERS,
    *,
    zone: ZoneInfo = ZURICH,
    base: int = 2,
    nodes: int = 4,
) -> GroupHistory:
    """A group of `base` nodes that grows by `nodes` for eight pods at a minute of some
    days and shrinks at 18:00."""
    purchases, sizes = [], []
    for day, minute in mornings:
        at = instant_of(day, minute, zone)
        purchases.append(GroupPurchase(at, nodes, 8, base + nodes))
        sizes += [(at, base + nodes), (instant_of(day, 18 * 60, zone), base)]
    return GroupHistory(facts, tuple(purchases), tuple(sizes), base)


def mornings(
    days: int,
    weekdays: Sequence[int] = range(5),
    *,
    first: date = MONDAY,
    without: Sequence[int] = (),
) -> list[tuple[date, int]]:
    """Eight o'clock on these weekdays, a few minutes later on some. without: numbers
    of days that are left out."""
    dates = [(number, first + timedelta(days=number)) for number in range(days)]
    return [
        (day, 8 * 60 + number * 7 % 11)
        for number, day in dates
        if day.weekday() in weekdays and number not in without
    ]


def patterns(
    own_history: GroupHistory, own_span: RecordSpan, zone: ZoneInfo = ZURICH
) -> list[Pattern]:
    return fit(own_history, own_span, zone)[0]


def one(own_history: GroupHistory, own_span: RecordSpan) -> Pattern:
    [pattern] = patterns(own_history, own_span)
    return pattern


# -- patterns


def test_working_mornings_are_one_pattern() -> None:
    pattern = one(history(mornings(14)), span(14))
    assert (pattern.weekdays, pattern.size, pattern.quarters) == (
        (0, 1, 2, 3, 4),
        6,
        ("08:00", "08:15"),
    )
    assert (pattern.hits, pattern.days, pattern.hit_weeks, pattern.weeks) == (10, 10, 2, 2)
    assert (pattern.bought, pattern.pods) == (40, 80)


@pytest.mark.parametrize(
    ("weekdays", "text", "cron"),
    [
        (range(5), "Mon-Fri", "1-5"),
        (range(7), "every day", "*"),
        ((5, 6), "Sat, Sun", "0,6"),
        ((0, 2, 4), "Mon, Wed, Fri", "1,3,5"),
        ((0, 1, 2, 5), "Mon-Wed, Sat", "1-3,6"),
    ],
)
def test_weekdays_at_the_same_time_are_one_schedule(
    weekdays: Sequence[int], text: str, cron: str
) -> None:
    pattern = one(history(mornings(14, weekdays)), span(14))
    schedule = schedule_of(pattern, WORKERS, "Europe/Zurich")
    assert (days_text(pattern.weekdays), schedule.cron.split()[-1]) == (text, cron)
    check_cron(schedule.cron)


def test_weekdays_that_need_other_sizes_are_patterns_of_their_own() -> None:
    small, large = history(mornings(28, (0, 1, 2, 3))), history(mornings(28, (4,)), nodes=14)
    both = msgspec.structs.replace(
        small,
        purchases=tuple(
            sorted((*small.purchases, *large.purchases), key=lambda purchase: purchase.at)
        ),
        sizes=tuple(sorted((*small.sizes, *large.sizes))),
    )
    assert [(row.weekdays, row.size) for row in patterns(both, span(28))] == [
        ((0, 1, 2, 3), 6),
        ((4,), 16),
    ]
    assert [row.weekdays for row in patterns(both, span(14))] == [(0, 1, 2, 3, 4)], (
        "two Fridays are too few alone"
    )


@pytest.mark.parametrize("holiday", [0, 2, 4])
def test_a_holiday_does_not_take_its_weekday_out(holiday: int) -> None:
    pattern = one(history(mornings(14, without=(holiday,))), span(14))
    assert (pattern.weekdays, pattern.size, pattern.hits, pattern.days) == (
        (0, 1, 2, 3, 4),
        6,
        9,
        10,
    )


def test_a_single_weekday_needs_three_weeks() -> None:
    tuesdays = history(mornings(28, (1,)))
    few, refusals = fit(tuesdays, span(14), ZURICH)
    assert (few, refusals) == (
        [],
        ["Tue 08:00-08:15: too few repetitions: nodes were bought on 2 of at least 3 days"],
    )
    assert one(tuesdays, span(28)).weekdays == (1,)


def test_purchases_at_any_time_are_no_pattern() -> None:
    at_any_time = [(MONDAY + timedelta(days=number), (number * 397) % 1440) for number in range(28)]
    assert patterns(history(at_any_time), span(28)) == []


def test_days_without_passes_are_not_observed() -> None:
    without = msgspec.structs.replace(
        span(14), gaps=((span(14).since + 7 * DAY, span(14).since + 9 * DAY),)
    )
    pattern = one(history(mornings(14, without=(7, 8))), without)
    assert (pattern.hits, pattern.days) == (8, 8)


def test_size_suffices_on_three_quarters_of_the_days() -> None:
    assert [
        quantile(values, 0.75) for values in ([1, 2, 3, 4], [5], [1, 9], list(range(1, 11)))
    ] == [3, 5, 9, 8]


# -- schedules


def test_schedule_opens_before_the_demand_by_the_lead_time() -> None:
    pattern = one(history([(day, 8 * 60) for day, _ in mornings(14)]), span(14))
    slow = msgspec.structs.replace(WORKERS, lead=840.0)
    opened = [schedule_of(pattern, facts, "Europe/Zurich") for facts in (WORKERS, slow)]
    assert [(item.cron, item.duration) for item in opened] == [
        ("55 7 * * 1-5", 1200.0),
        ("45 7 * * 1-5", 1800.0),
    ]
    assert (opened[0].name, opened[0].groups, opened[0].min) == (
        "advised-workers-mon-fri-0755",
        ("workers",),
        6,
    )


def test_schedule_of_midnight_opens_on_the_day_before() -> None:
    pattern = one(history([(day, 1) for day, _ in mornings(14, (0, 1, 2))]), span(14))
    assert schedule_of(pattern, WORKERS, "Europe/Zurich").cron == "55 23 * * 0-2"


def test_schedule_does_not_exceed_the_maximum_of_the_group() -> None:
    facts = msgspec.structs.replace(WORKERS, max=5)
    assert schedule_of(one(history(mornings(14), facts), span(14)), facts, "UTC").min == 5


@pytest.mark.parametrize("first", [date(2026, 10, 19), date(2026, 3, 23)])
def test_pattern_and_schedule_follow_the_local_clock_when_it_changes(first: date) -> None:
    """The clock changes on the first Sunday of both spans."""
    own = span(14, first=first)
    pattern = one(history(mornings(14, first=first)), own)
    assert (pattern.weekdays, pattern.quarters, pattern.hits) == (
        (0, 1, 2, 3, 4),
        ("08:00", "08:15"),
        10,
    )
    schedule = schedule_of(pattern, WORKERS, "Europe/Zurich")
    outcome = outcome_of(schedule, history(mornings(14, first=first)), own)
    assert (outcome.openings, outcome.needless, outcome.missing) == (10, 0, 0)
    in_utc = fit(history(mornings(14, first=first)), own, ZoneInfo("UTC"))[0]
    assert not any(
        len(other.weekdays) == 5 and other.hits == 10
        for other in in_utc
        if other.first == pattern.first
    )


def test_local_time_is_that_of_the_clock_on_days_with_23_and_25_hours() -> None:
    spring, autumn = date(2026, 3, 29), date(2026, 10, 25)
    assert [
        (instant_of(day + timedelta(days=1), 0, ZURICH) - instant_of(day, 0, ZURICH)) / HOUR
        for day in (spring, autumn)
    ] == [23, 25]
    assert [local_time(instant_of(day, 8 * 60, ZURICH), ZURICH) for day in (spring, autumn)] == [
        (spring, 480),
        (autumn, 480),
    ]


# -- one schedule on recorded days


def opening(size: int, *purchases: tuple[float, int, int]) -> ScheduleOutcome:
    """What min 6 for an hour from 08:00 UTC does. size: of the group at that time. purchases:
    minutes after it, nodes and pods."""
    at = datetime(2026, 11, 2, 8, tzinfo=UTC).timestamp()
    bought = tuple(
        GroupPurchase(at + minutes * 60, nodes, pods, 0) for minutes, nodes, pods in purchases
    )
    schedule = Schedule("morning", "0 8 * * 1", 3600.0, groups=("workers",), min=6)
    return outcome_of(
        schedule, GroupHistory(WORKERS, bought, (), size), RecordSpan(at - HOUR, at - HOUR + DAY)
    )


def test_nodes_that_are_ready_before_the_demand_save_the_lead_time() -> None:
    outcome = opening(2, (10, 4, 8))
    assert (outcome.saved, outcome.waited) == (40.0, 40.0)
    assert outcome.node_hours == pytest.approx(4 / 6)
    assert (outcome.needless, outcome.unneeded_share, outcome.missing_share) == (0, 0.0, 0.0)
    assert outcome.cost == pytest.approx(2 / 6)


def test_nodes_that_come_too_late_save_a_part_of_the_lead_time() -> None:
    assert opening(2, (2, 4, 8)).saved == 16.0


def test_nodes_that_nobody_needs_are_paid_until_they_go() -> None:
    outcome = opening(2)
    assert (outcome.openings, outcome.needless, outcome.unneeded_share) == (1, 1, 1.0)
    assert outcome.node_hours == pytest.approx(4 * (1 + 600 / 3600))


def test_purchases_beyond_the_schedule_are_missing() -> None:
    outcome = opening(2, (10, 3, 6), (20, 3, 6))
    assert (outcome.saved, outcome.waited) == (30.0 + 10.0, 60.0)
    assert (outcome.missing, outcome.quarters) == (1, 4)


def test_a_group_that_is_large_already_gets_nothing() -> None:
    outcome = opening(7)
    assert (outcome.openings, outcome.needless, outcome.held, outcome.node_hours) == (1, 0, 0, 0.0)


# -- advice


def advice(
    *histories: GroupHistory, days: float = 14, schedules: Sequence[Schedule] = (), **more: object
) -> Advice:
    return advise(histories, span(days), "Europe/Zurich", schedules, **more)  # type: ignore[arg-type]


def why(result: Advice) -> list[str]:
    assert not result.proposals
    return [refusal.problem for refusal in result.refusals]


def test_advice_is_fitted_to_the_first_days_and_tested_on_the_last() -> None:
    result = advice(history(mornings(14)))
    [proposal] = result.proposals
    assert result.split == span(14).since + 10 * DAY
    assert (proposal.tested.openings, proposal.tested.days) == (2, 4.0)  # Thursday and Friday
    assert (proposal.recorded.openings, proposal.recorded.days) == (10, 14.0)
    assert advice(history(mornings(14))) == result


@pytest.mark.parametrize(("days", "text"), [(3, "3 of 14"), (13.98, "13 of 14")])
def test_too_little_history_is_said(days: float, text: str) -> None:
    assert why(advice(history(mornings(14)), days=days)) == [f"too little history: {text} days"]


def test_a_younger_group_has_too_little_history() -> None:
    young = msgspec.structs.replace(WORKERS, since=span(14).since + 5 * DAY)
    assert why(advice(history(mornings(14), young))) == ["too little history: 9 of 14 days"]


def test_a_pattern_that_has_ended_is_not_proposed() -> None:
    [problem] = why(advice(history(mornings(14, without=(10, 11)))))
    assert problem == "Mon-Thu 08:00-08:15: on the tested days it would have saved no waiting time"


def test_a_pattern_that_the_first_days_do_not_show_is_not_proposed() -> None:
    [problem] = why(advice(history(mornings(14, (3, 4)))))
    assert problem == (
        "Thu, Fri 08:00-08:15: the first days alone do not show it, so that it cannot be tested on "
        "the last"
    )


def test_a_pattern_of_half_of_the_days_is_not_regular() -> None:
    """Of four weeks, Mondays of three, and the days around them of two."""
    [problem] = why(advice(history(mornings(28, (6, 0, 1), without=(6, 0, 1, 8, 13))), days=28))
    assert (
        problem
        == "Mon, Tue, Sun 08:00-08:15: not regular: nodes were bought on 7 of 12 days, below 60%"
    )


def test_a_group_whose_minimum_suffices_gets_no_schedule() -> None:
    facts = msgspec.structs.replace(WORKERS, min=6)
    [problem] = why(advice(history(mornings(14), facts)))
    assert problem.endswith("the group's minimum of 6 is as large as the 6 that were needed")


@pytest.mark.parametrize(
    ("schedule", "clashes"),
    [
        (Schedule("day", "0 7 * * *", 7200.0, "Europe/Zurich", groups=("workers",), min=3), True),
        (Schedule("all", "0 7 * * *", 7200.0, "Europe/Zurich", max=4), True),
        (Schedule("wide", "0 7 * * *", 7200.0, "Europe/Zurich", max=40), False),
        (Schedule("night", "0 20 * * *", 7200.0, "Europe/Zurich", min=1), False),
        (Schedule("other", "0 7 * * *", 7200.0, "Europe/Zurich", groups=("batch",), min=3), False),
    ],
)
def test_advice_does_not_contradict_schedules_of_the_policy(
    schedule: Schedule, clashes: bool
) -> None:
    result = advice(history(mornings(14)), schedules=[schedule])
    assert len(result.proposals) == (not clashes)
    assert [schedule.name in refusal.problem for refusal in result.refusals] == [True] * clashes


def test_purchases_of_changing_groups_become_headroom_of_them_together() -> None:
    every = mornings(28)
    groups = [
        history(every[number::4], msgspec.structs.replace(WORKERS, group=name, name=name), base=5)
        for number, name in enumerate("abcd")
    ]
    [proposal] = advice(*groups, days=28).proposals
    assert (proposal.schedule.headroom, proposal.schedule.min, proposal.schedule.groups) == (
        20,
        None,
        ("a", "b", "c", "d"),
    )
    assert proposal.schedule.cron.endswith("* * 1-5")
    load(
        with_spec(yaml.safe_dump({"schedules": [entry_of(proposal.schedule)]}, sort_keys=False)),
        place="policy",
    )
    for headroom in (Headroom("spare", percent=10), Headroom("spare", ("c",), percent=10)):
        refusals = advice(*groups, days=28, headroom=[headroom]).refusals
        assert refusals[-1].problem.endswith("the policy has the headroom spare there already")
    elsewhere = Headroom("spare", ("z",), percent=10)
    assert advice(*groups, days=28, headroom=[elsewhere]).proposals[0].schedule == proposal.schedule


def test_advice_without_any_pattern_says_how_often_nodes_were_bought() -> None:
    at_any_time = history(
        [(MONDAY + timedelta(days=number), (number * 397) % 1440) for number in range(14)]
    )
    assert why(advice(at_any_time)) == [
        "nodes were bought for waiting pods 14 times, and at no time of the day again and again"
    ]
    assert why(advice(history([]))) == ["no nodes were bought for waiting pods"]


def test_only_the_schedules_that_save_most_are_proposed() -> None:
    groups = [
        history(mornings(14), GroupFacts(f"g{number}", f"g{number}", 60.0 + number))
        for number in range(MOST_PROPOSALS + 2)
    ]
    result = advice(*groups)
    assert len(result.proposals) == MOST_PROPOSALS
    assert result.proposals[0].history.facts.name == f"g{MOST_PROPOSALS + 1}"
    assert {refusal.name for refusal in result.refusals} == {"g0", "g1"}


# -- the record


def operation(
    at: float, kind: OperationKind = OperationKind.SCALE_UP, **fields: object
) -> Operation:
    values = {"state": OperationState.SUCCEEDED, "updated_at": at + 5, **fields}
    return new_operation(f"{kind.value}-{at}", "shop", "test", "workers", kind, "p", at, **values)


def test_history_has_purchases_for_pods_and_the_size_of_the_group() -> None:
    pods = ("a/b",) * 3
    operations = [
        operation(10.0, from_size=2, to_size=5, pods=pods),
        operation(20.0, from_size=5, to_size=6),  # for a schedule or headroom
        operation(30.0, from_size=6, to_size=8, pods=pods, replacement="r"),
        operation(40.0, from_size=8, to_size=9, pods=pods, state=OperationState.FAILED),
        operation(50.0, OperationKind.DELETE_NODES, targets=(RemovalTarget("n", "i"),) * 3),
        operation(60.0, OperationKind.DECREASE_TARGET, from_size=5, to_size=4),
    ]
    [result] = group_histories(reversed(operations), {"workers": WORKERS})
    assert result.purchases == (GroupPurchase(10.0, 3, 3, 5),)
    assert [result.size_at(at) for at in (5, 10, 11, 25, 35, 56, 70)] == [2, 2, 5, 6, 8, 5, 4]


def test_size_before_removals_alone_follows_from_todays_nodes() -> None:
    facts = msgspec.structs.replace(WORKERS, ready=3)
    [result] = group_histories(
        [operation(50.0, OperationKind.DELETE_NODES, targets=(RemovalTarget("n", "i"),) * 2)],
        {"workers": facts},
    )
    assert [result.size_at(at) for at in (0, 60)] == [5, 3]


def test_groups_together_have_the_sum_of_their_sizes() -> None:
    slow = msgspec.structs.replace(WORKERS, lead=600.0, price=1.0)
    groups = [
        GroupHistory(WORKERS, (GroupPurchase(10.0, 2, 4, 3),), ((10.0, 3),), 1),
        GroupHistory(slow, (GroupPurchase(20.0, 2, 4, 4),), ((20.0, 4),), 2),
    ]
    result = together(groups)
    assert [(purchase.at, purchase.size) for purchase in result.purchases] == [(10.0, 5), (20.0, 7)]
    assert [result.size_at(at) for at in (0, 15, 25)] == [3, 5, 7]
    assert (result.facts.lead, result.facts.price) == (600.0, 0.75)
    other = msgspec.structs.replace(
        groups[1], facts=msgspec.structs.replace(WORKERS, currency="USD")
    )
    assert together([groups[0], other]).facts.price == 0.0


def test_hours_without_points_of_the_charts_are_gaps() -> None:
    hours = [GaugePoint(number * HOUR, 1, 0) for number in (0, 1, 2, 7, 8)]
    assert gaps_between(hours) == ((3 * HOUR, 7 * HOUR),)
    whole = RecordSpan(0, DAY, gaps_between(hours))
    covered = [number for number in range(9) if whole.covers(number * HOUR, (number + 1) * HOUR)]
    assert covered == [0, 1, 2, 7, 8]


def test_occurrences_of_a_proposed_schedule_are_those_of_its_pattern() -> None:
    schedule = schedule_of(one(history(mornings(14)), span(14)), WORKERS, "Europe/Zurich")
    following = occurrences(schedule.cron, ZURICH, span(14).until)
    assert datetime.fromtimestamp(next(following), ZURICH).strftime("%a %H:%M") == "Mon 07:55"
