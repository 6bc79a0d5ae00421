"""Which notifications are due: openings, ends, reminders, limits and quiet hours."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from chalicelib.model.notification import NoticeSeverity
from chalicelib.notify.conditions import NoticeCondition
from chalicelib.notify.notices import (
    CLOSED,
    MOST_NOTICES,
    ONCE,
    OPEN,
    OPENINGS_AN_HOUR,
    REMINDER,
    NoticeMessage,
    NoticeRules,
    NoticeState,
    decide,
    delivered,
)
from chalicelib.policy.settings.notifications import Notifications

NOW = 1_795_000_000.0
ALL = Notifications(
    topic="arn:aws:sns:eu-central-2:123456789012:outscaler-events", min_severity=NoticeSeverity.INFO
)
RULES = NoticeRules("prod", ALL)


def condition(
    name: str = "group.failed/gpu",
    severity: NoticeSeverity = NoticeSeverity.WARNING,
    **fields: object,
) -> NoticeCondition:
    return msgspec.structs.replace(
        NoticeCondition(name.partition("/")[0], name, severity, "text"), **fields
    )


def play(
    steps: list[tuple[float, list[NoticeCondition]]], rules: NoticeRules = RULES
) -> tuple[NoticeState, list[NoticeMessage]]:
    """The state and all messages after these ticks, each of which delivers everything."""
    state, sent = NoticeState(), list[NoticeMessage]()
    for at, applying in steps:
        state = decide(state, applying, (), rules, NOW + at)
        sent += state.messages
        state = msgspec.structs.replace(state, messages=())
    return state, sent


def states(sent: list[NoticeMessage]) -> list[tuple[str, float]]:
    return [(each.state, each.at - NOW) for each in sent]


def test_OPS_6_group_that_fails_for_two_hours_is_one_opening_and_one_end() -> None:
    failing = condition()
    _, sent = play([(60.0 * minute, [failing] if minute < 120 else []) for minute in range(150)])
    assert states(sent) == [(OPEN, 0.0), (CLOSED, 7200.0)]
    assert sent[0].since == sent[1].since == NOW


def test_condition_opens_after_its_time_and_closes_after_its_own() -> None:
    slow = condition(opens_after=600.0, closes_after=300.0)
    steps: list[tuple[float, list[NoticeCondition]]] = [(0.0, [slow]), (300.0, []), (360.0, [slow])]
    steps += [
        (960.0, [slow]),
        (1000.0, []),
        (1200.0, [slow]),
        (1260.0, []),
        (1500.0, []),
        (1560.0, []),
    ]
    assert states(play(steps)[1]) == [(OPEN, 960.0), (CLOSED, 1560.0)]


def test_open_condition_stays_open_when_it_is_less_severe_than_the_policy_wants() -> None:
    """A back-off that hurts no pod for a while is still the same back-off."""
    bad, mild = condition(), condition(severity=NoticeSeverity.INFO)
    rules = NoticeRules("prod", Notifications())
    changing = [(3600.0 * hour, [mild if hour % 2 else bad]) for hour in range(50)]
    _, sent = play([*changing, (180_000.0, [mild]), (180_060.0, [])], rules)
    assert states(sent) == [
        (OPEN, 0.0),
        (REMINDER, 86400.0),
        (REMINDER, 172_800.0),
        (CLOSED, 180_060.0),
    ]
    _, sent = play([(0.0, [bad]), (90_000.0, [mild]), (90_060.0, [mild])], rules)
    assert states(sent) == [(OPEN, 0.0), (REMINDER, 90_000.0)]
    assert {each.condition.severity for each in sent} == {NoticeSeverity.WARNING}


def test_condition_opens_only_once_it_is_as_severe_as_the_policy_wants() -> None:
    bad, mild = condition(), condition(severity=NoticeSeverity.INFO)
    rules = NoticeRules("prod", Notifications())
    _, sent = play([(0.0, [mild]), (60.0, [bad]), (120.0, []), (180.0, [mild])], rules)
    assert states(sent) == [(OPEN, 60.0), (CLOSED, 120.0)]


def test_condition_that_lasts_is_reminded_of_once_a_day() -> None:
    _, sent = play([(3600.0 * hour, [condition()]) for hour in range(50)])
    assert states(sent) == [(OPEN, 0.0), (REMINDER, 86400.0), (REMINDER, 172800.0)]
    assert len({each.id for each in sent}) == 3


def test_OPS_8_openings_beyond_20_an_hour_become_one_message() -> None:
    many = [condition(f"pods.unhelped/{at}") for at in range(25)]
    _, sent = play([(0.0, many), (60.0, many), (3700.0, many), (3760.0, many), (4000.0, [])])
    assert Counter(each.state for each in sent) == {OPEN: 20, ONCE: 1, CLOSED: 20}
    more = next(each for each in sent if each.state == ONCE)
    assert more.condition.message.startswith("5 more conditions")


def test_same_decision_gives_the_same_ids() -> None:
    first = decide(NoticeState(), [condition()], [condition("policy.changed/3")], RULES, NOW)
    assert [
        each.id
        for each in decide(
            NoticeState(), [condition()], [condition("policy.changed/3")], RULES, NOW
        ).messages
    ] == [each.id for each in first.messages]
    other = decide(NoticeState(), [condition()], (), NoticeRules("shop", ALL), NOW)
    assert other.messages[0].id != first.messages[0].id
    assert decide(first, [condition()], (), RULES, NOW).messages == first.messages


def test_quiet_hours_hold_information_back_and_nothing_else() -> None:
    info, bad = (
        condition("paused/all", NoticeSeverity.INFO),
        condition("brake.pulled", NoticeSeverity.CRITICAL),
    )
    quiet = NoticeRules("prod", ALL, quiet=True)
    state = decide(NoticeState(), [info, bad], (), quiet, NOW)
    assert [each.condition.type for each in state.messages] == ["brake.pulled"]
    later = decide(state, [info, bad], (), RULES, NOW + 3600)
    assert [each.condition.type for each in later.messages] == ["brake.pulled", "paused"]
    # it ended unnoticed
    assert decide(state, [bad], (), RULES, NOW + 3600).messages == state.messages


@pytest.mark.parametrize(
    ("settings", "acts", "kinds"),
    [
        (Notifications(), True, {"group.failed", "cluster.late"}),
        (Notifications(min_severity=NoticeSeverity.CRITICAL), True, {"cluster.late"}),
        (
            Notifications(min_severity=NoticeSeverity.INFO),
            True,
            {"group.failed", "cluster.late", "paused"},
        ),
        (Notifications(types=("paused", "scaled.up")), True, {"paused", "scaled.up"}),
        (Notifications(min_severity=NoticeSeverity.INFO), False, {"cluster.late"}),
    ],
)
def test_policy_selects_types_severities_and_modes(
    settings: Notifications, acts: bool, kinds: set[str]
) -> None:
    every = [
        condition(),
        condition("cluster.late", NoticeSeverity.CRITICAL),
        condition("paused/all", NoticeSeverity.INFO),
        condition("scaled.up/x", NoticeSeverity.INFO),
    ]
    state = decide(NoticeState(), every, (), NoticeRules("prod", settings, acts=acts), NOW)
    assert {each.condition.type for each in state.messages} == kinds


def test_number_and_length_of_what_is_kept_are_bounded() -> None:
    many = [condition(f"removal.blocked/{at}", message="x" * 9000) for at in range(1000)]
    state = decide(NoticeState(), many, many, RULES, NOW)
    assert len(state.notices) == MOST_NOTICES
    assert len(msgspec.json.encode(state)) < 600_000


def test_undelivered_message_is_tried_with_growing_waits_and_then_dead() -> None:
    settings = msgspec.structs.replace(ALL, chat_topic=ALL.topic)
    state = decide(NoticeState(), [condition()], (), NoticeRules("prod", settings), NOW)
    name, waits = state.messages[0].id, []
    while state.messages:
        state = delivered(
            state, {name: {"topic": True, "chatTopic": False}}, NOW, attempts=4, backoff=60.0
        )
        waits += [each.next_at - NOW for each in state.messages]
        assert all(each.left == ("chatTopic",) for each in state.messages)
    assert (waits, [each.attempts for each in state.dead]) == ([60.0, 120.0, 240.0], [4])
    done = decide(NoticeState(), [condition()], (), NoticeRules("prod", settings), NOW)
    result = {done.messages[0].id: {"topic": True, "chatTopic": True}}
    assert delivered(done, result, NOW, attempts=4, backoff=60.0).messages == ()


@pytest.mark.parametrize("seed", range(20))
def test_openings_and_ends_alternate_for_any_history(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"group.failed/{at}" for at in range(30)]
    kinds = {
        name: condition(
            name, opens_after=chance.choice((0.0, 120.0)), closes_after=chance.choice((0.0, 180.0))
        )
        for name in names
    }
    steps = [
        (60.0 * at, [kinds[name] for name in names if chance.random() < 0.4]) for at in range(200)
    ]
    _, sent = play(steps)
    for name in names:
        mine = [
            each.state
            for each in sent
            if each.condition.key == name and each.state in (OPEN, CLOSED)
        ]
        assert mine == [OPEN, CLOSED] * (len(mine) // 2) + [OPEN] * (len(mine) % 2)
    openings = [each.at for each in sent if each.state == OPEN]
    assert all(
        sum(at <= other < at + 3600 for other in openings) <= OPENINGS_AN_HOUR for at in openings
    )
    assert len({each.id for each in sent}) == len(sent)
