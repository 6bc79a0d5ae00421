"""Disruption budgets: how many nodes of a pool may be on their way out at once, by reason and time;
and the numbers that a search asks the budgets for before it draws."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import GroupOptions, Pool
from chalicelib.model.memory import (
    BreakerState,
    Memory,
    PurchasedNodes,
    Replacement,
    ReplacementState,
)
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.scaling_rules import Metric, Rule
from chalicelib.plan.demand.scaling_rules.allocation_rate import Rates, RuleRemovalGuard
from chalicelib.plan.demand.scaling_rules.sources import BoundRule
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.state.pools import pools
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.builders import NOW
from tests.cases import each_row
from tests.unit.plan.selection_builder import SelectionBuilderPool

CONSOLIDATION, DRIFTED, UNNEEDED = (
    DisruptionReason.CONSOLIDATION,
    DisruptionReason.DRIFTED,
    DisruptionReason.UNNEEDED,
)
MANY: dict[str, Any] = {"max_scale_down_parallelism": 100, "max_drain_parallelism": 100}
ATOMIC = GroupOptions(zero_or_max=True)


def share(percentage: int, **fields: Any) -> DisruptionBudget:
    return DisruptionBudget("budget", NodeLimit(share=percentage / 100), **fields)


def nodes(number: int, name: str = "budget", **fields: Any) -> DisruptionBudget:
    return DisruptionBudget(name, NodeLimit(nodes=number), **fields)


def refusal(limit: int, name: str = "budget", **until: float) -> Reason:
    return Reason.of(ReasonCode.DISRUPTION_BUDGET, budget=name, limit=limit, **until)


def budgets_of(
    pool: SelectionBuilderPool, *budgets: DisruptionBudget, **more: Any
) -> RemovalLimits:
    """The budgets of a pass. more: of the pass's state, such as its instant or memory."""
    return RemovalLimits(pool.world(budgets=budgets, **{**MANY, **more}))


def drawn(
    budgets: RemovalLimits,
    pool: SelectionBuilderPool,
    reason: DisruptionReason = CONSOLIDATION,
    only: Sequence[str] = (),
) -> tuple[list[str], dict[str, Reason]]:
    """The nodes that go, and why the others stay."""
    candidates = [removal for removal in pool.candidates if not only or removal.node.name in only]
    chosen, refused = budgets.draw(candidates, lambda _: None, reason)
    return [removal.node.name for removal in chosen], refused


def replacement(state: ReplacementState, *names: str) -> Memory:
    bought = (PurchasedNodes("g", 1, 100_000),)
    return Memory(
        replacements={
            "r": Replacement("r", state, names, bought, 200_000, 3.0, 1.0, NOW - 60, NOW - 60)
        }
    )


def rooms(budgets: RemovalLimits, pool: str = "g") -> list[tuple[int, Reason]]:
    return budgets.disruption_room(pool, CONSOLIDATION)


def breaker_rooms(budgets: RemovalLimits) -> dict[str, int]:
    """What the circuit breaker leaves, by the words of its reasons."""
    return {str(reason.params["what"]): left for _, left, reason in budgets.breaker.rooms()}


def zurich(text: str, fold: int = 0) -> float:
    return (
        datetime.fromisoformat(text)
        .replace(tzinfo=ZoneInfo("Europe/Zurich"), fold=fold)
        .timestamp()
    )


# --- sizes


@each_row(
    ("percentage", "limits"),
    [
        # of pools of 1, 3, 9, 14, 19 and 20 nodes
        (10, (1, 1, 1, 1, 1, 2)),
        (20, (1, 1, 1, 2, 3, 4)),
        (1, (1, 1, 1, 1, 1, 1)),
        (29, (1, 1, 2, 4, 5, 5)),
        (100, (1, 3, 9, 14, 19, 20)),
        (0, (0, 0, 0, 0, 0, 0)),
    ],
)
def test_cons_23_percentage_is_rounded_down_but_is_at_least_one_node(
    percentage: int, limits: tuple[int, ...]
) -> None:
    sizes = (1, 3, 9, 14, 19, 20)
    assert tuple(NodeLimit(share=percentage / 100).of(size) for size in sizes) == limits
    for size, limit in zip(sizes, limits, strict=True):
        pool = SelectionBuilderPool().group("g", size)
        budgets = budgets_of(pool, share(percentage))
        assert rooms(budgets) == [(limit, refusal(limit))]
        goes, refused = drawn(budgets, pool)
        assert len(goes) == limit
        assert list(refused.values()) == [refusal(limit)] * (size - limit)


def test_percentage_of_an_empty_pool_is_no_node() -> None:
    assert NodeLimit(share=0.1).of(0) == 0
    assert NodeLimit(nodes=3).of(0) == 3


def test_cons_24_draining_and_unready_nodes_are_taken_off() -> None:
    pool = SelectionBuilderPool().group("g", 17).going("g", "g-e00", "g-e01")
    pool.build.node("unready", group="g", ready=False, created=NOW - 7200)
    pool.build.node("starting", group="g", ready=False, created=NOW - 60)
    pool.build.node("tainted-only", group="g")
    pool.build.groups.clear()
    pool.build.group("g")
    budgets = budgets_of(pool, share(20))
    assert rooms(budgets) == [(1, refusal(4))]
    goes, refused = drawn(budgets, pool, only=["g-e02", "g-e03"])
    assert goes == ["g-e02"]
    assert refused == {"g-e03": refusal(4)}
    assert rooms(budgets) == [(0, refusal(4))]


def test_node_with_the_taint_of_a_removal_takes_room_of_its_budget() -> None:
    pool = SelectionBuilderPool().group("g", 4, others=1)
    leaving = pool.build.nodes[-1]
    pool.build.nodes.remove(leaving)
    pool.build.node("g-o00", group="g", taints=(Taint(TO_BE_DELETED, "", "NoSchedule"),))
    assert leaving.name == "g-o00"
    assert rooms(budgets_of(pool, nodes(3))) == [(2, refusal(3))]


# --- reasons


def test_cons_25_each_reason_has_its_limit_and_all_share_the_room() -> None:
    pool = SelectionBuilderPool().group("g", 10)
    every, own = nodes(5, "all"), share(20, reasons=(CONSOLIDATION,))
    budgets = budgets_of(pool, every, own)
    assert len(drawn(budgets, pool, CONSOLIDATION)[0]) == 2
    rest = [f"g-e{number:02d}" for number in range(2, 10)]
    goes, refused = drawn(budgets, pool, DRIFTED, rest)
    assert len(goes) == 3
    assert list(refused.values()) == [refusal(5, "all")] * 5
    assert rooms(budgets) == [(0, refusal(5, "all")), (0, refusal(2))]
    fresh = budgets_of(pool, every, own)
    assert len(drawn(fresh, pool, DRIFTED)[0]) == 5
    assert drawn(fresh, pool, CONSOLIDATION, rest[3:])[0] == [], "five are out already"


def test_policy_without_budgets_lets_a_tenth_of_a_pool_go_but_all_unneeded_nodes() -> None:
    pool = SelectionBuilderPool().group("g", 20)
    for reason in (CONSOLIDATION, DRIFTED, DisruptionReason.EXPIRED, DisruptionReason.REPAIR):
        goes, refused = drawn(budgets_of(pool), pool, reason)
        assert len(goes) == 2
        assert list(refused.values()) == [refusal(2, "default")] * 18
    assert len(drawn(budgets_of(pool), pool, UNNEEDED)[0]) == 20
    assert budgets_of(pool).disruption_room("g", UNNEEDED) == []


def test_budget_limits_unneeded_nodes_only_if_it_names_them() -> None:
    pool = SelectionBuilderPool().group("g", 5)
    assert len(drawn(budgets_of(pool, nodes(0)), pool, UNNEEDED)[0]) == 5
    goes, refused = drawn(budgets_of(pool, nodes(2, reasons=(UNNEEDED,))), pool, UNNEEDED)
    assert goes == ["g-e00", "g-e01"]
    assert list(refused.values()) == [refusal(2)] * 3


def test_budget_of_another_reason_replaces_the_default() -> None:
    pool = SelectionBuilderPool().group("g", 5)
    assert len(drawn(budgets_of(pool, nodes(0, reasons=(DRIFTED,))), pool)[0]) == 5


def test_the_open_budget_with_the_least_room_is_the_reason() -> None:
    pool = SelectionBuilderPool().group("g", 5)
    budgets = budgets_of(pool, nodes(3, "three"), nodes(1, "one"), nodes(1, "other"))
    goes, refused = drawn(budgets, pool)
    assert goes == ["g-e00"]
    assert list(refused.values()) == [refusal(1, "one")] * 4, "of equals the first in the document"


# --- pools


def test_budget_holds_for_each_pool_by_itself() -> None:
    pool = SelectionBuilderPool().group("a", 3).group("b", 3)
    assert drawn(budgets_of(pool, nodes(1)), pool)[0] == ["a-e00", "b-e00"]


def test_groups_of_a_pool_share_its_budget() -> None:
    shared = Pool("p", "workers")
    pool = (
        SelectionBuilderPool().group("a", 3, pool=shared).group("b", 3, pool=shared).group("c", 1)
    )
    assert drawn(budgets_of(pool, nodes(1)), pool)[0] == ["a-e00", "c-e00"]
    budgets = budgets_of(pool, share(50, groups=("workers",)))
    assert rooms(budgets, "p") == [(3, refusal(3))]
    assert drawn(budgets, pool)[0] == ["a-e00", "a-e01", "a-e02", "c-e00"]


@pytest.mark.parametrize("name", ["b", "second"])
def test_budget_that_names_one_group_of_a_pool_holds_for_that_group(name: str) -> None:
    shared = Pool("p", "workers")
    pool = (
        SelectionBuilderPool()
        .group("a", 2, pool=shared)
        .group("b", 2, pool=shared, aliases=("second",))
    )
    budgets = budgets_of(pool, nodes(1, groups=(name,)))
    assert drawn(budgets, pool)[0] == ["a-e00", "a-e01", "b-e00"]
    assert rooms(budgets, "p") == [(0, refusal(1))]


def test_budget_of_a_pool_that_does_not_exist_limits_nothing() -> None:
    pool = SelectionBuilderPool().group("a", 2)
    budgets = budgets_of(pool, nodes(0, groups=("other",)))
    assert drawn(budgets, pool)[0] == ["a-e00", "a-e01"]
    assert rooms(budgets, "other") == []


def test_zero_or_max_group_beyond_its_budget_goes_when_nothing_else_is_out() -> None:
    pool = SelectionBuilderPool().group("a", 3, options=ATOMIC)
    assert len(drawn(budgets_of(pool, nodes(1)), pool)[0]) == 3
    assert drawn(budgets_of(pool, nodes(0)), pool)[1]["a-e00"] == refusal(0)
    shared = Pool("p")
    busy = SelectionBuilderPool().group("b", 1, pool=shared).going("b", "b-e00")
    busy.group("a", 3, options=ATOMIC, pool=shared)
    assert drawn(budgets_of(busy, nodes(1)), busy, only=["a-e00", "a-e01", "a-e02"])[0] == []


# --- replacements and dead nodes


@each_row(
    ("state", "left"),
    [
        (ReplacementState.PROPOSED, 2),
        (ReplacementState.BUYING, 1),
        (ReplacementState.WAITING, 1),
        (ReplacementState.DRAINING, 1),
        (ReplacementState.FAILED, 2),
    ],
)
def test_old_nodes_of_replacements_under_way_take_room(state: ReplacementState, left: int) -> None:
    pool = SelectionBuilderPool().group("g", 5)
    budgets = budgets_of(pool, nodes(2), memory=replacement(state, "g-e04"))
    assert rooms(budgets) == [(left, refusal(2))]


def test_node_of_a_replacement_does_not_wait_for_its_own_room() -> None:
    pool = SelectionBuilderPool().group("g", 5)
    memory = replacement(ReplacementState.WAITING, "g-e04")
    assert drawn(budgets_of(pool, nodes(1), memory=memory), pool, only=["g-e04"])[0] == ["g-e04"]
    assert drawn(budgets_of(pool, nodes(1), memory=memory), pool, only=["g-e03"])[0] == []
    assert drawn(budgets_of(pool, nodes(0), memory=memory), pool, only=["g-e04"])[0] == []


def test_dead_nodes_do_not_wait_for_room_that_they_fill_themselves() -> None:
    pool = SelectionBuilderPool().group("g", 3, node={"ready": False}).group("h", 9)
    budget = nodes(1, reasons=(UNNEEDED,))
    assert len(drawn(budgets_of(pool, budget), pool, UNNEEDED, ["g-e00", "g-e01", "g-e02"])[0]) == 3
    closed = budgets_of(pool, nodes(0, reasons=(UNNEEDED,)))
    assert drawn(closed, pool, UNNEEDED, ["g-e00"])[1] == {"g-e00": refusal(0)}


# --- schedules

OFFICE: dict[str, Any] = {"cron": "0 8 * * 1-5", "duration": 36000.0, "time_zone": "Europe/Zurich"}


@each_row(
    ("now", "goes"),
    [
        ("2026-11-30 07:59:59", True),  # a Monday
        ("2026-11-30 08:00", False),
        ("2026-11-30 17:59:59", False),
        ("2026-11-30 18:00", True),
        ("2026-11-29 12:00", True),  # a Sunday
    ],
)
def test_cons_26_budget_of_office_hours_holds_from_eight_to_six(now: str, goes: bool) -> None:
    pool = SelectionBuilderPool().group("g", 1).group("h", 1).going("h", "h-e00")
    budgets = budgets_of(pool, nodes(0, **OFFICE), now=zurich(now))
    chosen, refused = drawn(budgets, pool, only=["g-e00"])
    assert chosen == (["g-e00"] if goes else [])
    assert refused == ({} if goes else {"g-e00": refusal(0, until=zurich("2026-11-30 18:00"))})
    assert rooms(budgets) == ([] if goes else [(0, refusal(0, until=zurich("2026-11-30 18:00")))])


def test_cons_26_running_drain_goes_on_when_its_budget_closes() -> None:
    pool = SelectionBuilderPool().group("g", 3).going("g", "g-e00", drained=True)
    state = pool.world(budgets=(nodes(0, **OFFICE),), now=zurich("2026-11-30 09:00"))
    assert [operation.is_open for operation in state.memory.operations] == [True]
    assert rooms(RemovalLimits(state)) == [(0, refusal(0, until=zurich("2026-11-30 18:00")))]


@each_row(
    ("now", "fold", "until"),
    [
        ("2026-11-30 21:59:59", 0, None),
        ("2026-11-30 22:00", 0, "2026-12-01 06:00"),
        ("2026-12-01 00:00", 0, "2026-12-01 06:00"),
        ("2026-12-01 05:59:59", 0, "2026-12-01 06:00"),
        ("2026-12-01 06:00", 0, None),
        # Eight hours are real time: the night with 23 hours ends at seven, the
        # one with 25 hours at five.
        ("2026-03-29 06:59:59", 0, "2026-03-29 07:00"),
        ("2026-03-29 07:00", 0, None),
        ("2026-10-25 02:30", 0, "2026-10-25 05:00"),
        ("2026-10-25 02:30", 1, "2026-10-25 05:00"),
        ("2026-10-25 04:59:59", 0, "2026-10-25 05:00"),
        ("2026-10-25 05:00", 0, None),
    ],
)
def test_budget_of_a_night_holds_across_midnight_and_clock_changes(
    now: str, fold: int, until: str | None
) -> None:
    pool = SelectionBuilderPool().group("g", 2)
    night = nodes(0, cron="0 22 * * *", duration=28800.0, time_zone="Europe/Zurich")
    budgets = budgets_of(pool, night, now=zurich(now, fold))
    assert rooms(budgets) == ([] if until is None else [(0, refusal(0, until=zurich(until)))])


def test_smallest_budget_counts_only_while_it_is_open() -> None:
    pool = SelectionBuilderPool().group("g", 5)
    always = nodes(3, "always")
    assert (
        len(
            drawn(
                budgets_of(pool, always, nodes(0, **OFFICE), now=zurich("2026-11-30 07:00")), pool
            )[0]
        )
        == 3
    )
    assert (
        len(
            drawn(
                budgets_of(pool, always, nodes(0, **OFFICE), now=zurich("2026-11-30 09:00")), pool
            )[0]
        )
        == 0
    )


# --- the circuit breaker, for reasons other than unneeded


def test_cons_30_share_limits_consolidation_and_the_breaker_is_not_tripped() -> None:
    pool = SelectionBuilderPool().group("g", 0, 3, others=5)
    budgets = budgets_of(pool, share(100), max_disruption=MaxDisruption(share=0.25))
    assert breaker_rooms(budgets) == {"share": 2}
    goes, refused = drawn(budgets, pool)
    assert goes == ["g-d00", "g-d01"]
    assert refused == {"g-d02": Reason.of(ReasonCode.DISRUPTION_LIMIT, what="share", limit=2)}
    assert (budgets.paused, budgets.breaker.after().tripped_at) == (None, 0.0)
    assert breaker_rooms(budgets) == {"share": 0}


def test_tripped_breaker_stops_consolidation_too() -> None:
    pool = SelectionBuilderPool().group("g", 0, 1, others=7)
    memory = Memory(breaker=BreakerState(tripped_at=NOW - 60, wanted=5))
    budgets = budgets_of(pool, share(100), memory=memory, max_disruption=MaxDisruption(share=0.25))
    assert drawn(budgets, pool)[1]["g-d00"].code is ReasonCode.DISRUPTION_BRAKE
    assert breaker_rooms(budgets) == {"share": 0}


def test_cons_31_nodes_removed_within_the_hour_count() -> None:
    pool = SelectionBuilderPool().group("g", 0, 2, others=1)
    memory = Memory(breaker=BreakerState(((NOW - 600, 4, 9),)))
    budgets = budgets_of(
        pool, share(100), memory=memory, max_disruption=MaxDisruption(nodes_per_hour=5)
    )
    assert breaker_rooms(budgets) == {"nodes per hour": 1}
    goes, refused = drawn(budgets, pool)
    assert goes == ["g-d00"]
    expected = Reason.of(
        ReasonCode.DISRUPTION_LIMIT, what="nodes per hour", limit=5, until=NOW + 3000
    )
    assert refused == {"g-d01": expected}
    assert breaker_rooms(budgets) == {"nodes per hour": 0}


def test_refused_node_leaves_its_room_above_the_minimums_to_the_next() -> None:
    pool = SelectionBuilderPool().group("a", 0, 2, min=1, pods=9).group("b", 0, 1)
    limits = {"cores_total": (2, 100), "max_disruption": MaxDisruption(pods_per_hour=5)}
    busy = Memory(breaker=BreakerState(((NOW - 600, 1, 1),)))
    budgets = budgets_of(pool, share(100), memory=busy, **limits)
    goes, refused = drawn(budgets, pool, only=["a-d00"])
    assert (goes, refused["a-d00"].code) == ([], ReasonCode.DISRUPTION_LIMIT)
    assert (budgets.size_of("a"), budgets.minimums.room) == (2, {"cpu": 1})
    kept = budgets_of(pool, share(100), memory=busy, **limits)
    assert drawn(kept, pool, UNNEEDED, ["a-d00"])[0] == []
    assert (kept.size_of("a"), kept.minimums.room) == (1, {"cpu": 0}), "an unneeded node goes later"


def test_refused_node_leaves_its_room_for_metric_rules_to_the_next() -> None:
    pool = SelectionBuilderPool().group("g", 1, 1, pods=9, others=2)
    for name in ("g-o00", "g-o01"):
        pool.build.running(name, 1, "900m", "1Gi", owner=name)
    busy = Memory(breaker=BreakerState(((NOW - 600, 1, 1),)))
    state = pool.world(
        busy, budgets=(share(100),), max_disruption=MaxDisruption(pods_per_hour=5), **MANY
    )
    # 1.8 cores are 60 % of three nodes, 90 % of two
    rule = Rule("busy", ("g",), metric=Metric.CPU, above=60)
    guard = RuleRemovalGuard(state, [BoundRule(rule=rule, pool=pools(state)["g"])], Rates(state))
    budgets = RemovalLimits(state, guard=guard)
    assert drawn(budgets, pool, only=["g-d00"])[1]["g-d00"].code is ReasonCode.DISRUPTION_LIMIT
    assert drawn(budgets, pool, only=["g-e00"])[0] == ["g-e00"]
    assert drawn(budgets, pool, only=["g-d00"])[1]["g-d00"].code is ReasonCode.RULE_NEEDS_NODE


def test_node_that_waits_for_its_budget_does_not_hold_back_others_in_the_hour() -> None:
    pool = SelectionBuilderPool().group("a", 0, 2, pods=9).group("b", 0, 1, pods=1)
    budgets = budgets_of(
        pool, nodes(0, groups=("a",)), max_disruption=MaxDisruption(pods_per_hour=5)
    )
    assert drawn(budgets, pool)[0] == ["b-d00"]


# --- numbers for a search


def test_breaker_says_what_is_left_and_when_more_is() -> None:
    pool = SelectionBuilderPool().group("g", 2, 6, pods=2)
    memory = Memory(breaker=BreakerState(((NOW - 600, 1, 4), (NOW - 300, 1, 1))))
    allowed = MaxDisruption(nodes_per_hour=4, pods_per_hour=9, share=0.5)
    budgets = budgets_of(pool, share(100), memory=memory, max_disruption=allowed)
    per_hour = {"limit": 4, "until": NOW + 3000}
    beyond_share = Reason.of(ReasonCode.DISRUPTION_LIMIT, what="share", limit=4)
    assert budgets.breaker.rooms() == [
        ("nodes", 2, Reason.of(ReasonCode.DISRUPTION_LIMIT, what="nodes per hour", **per_hour)),
        (
            "pods",
            4,
            Reason.of(ReasonCode.DISRUPTION_LIMIT, what="pods per hour", limit=9, until=NOW + 3000),
        ),
        ("nodes", 4, beyond_share),
    ]
    assert drawn(budgets, pool, only=["g-d00"])[0] == ["g-d00"]
    assert breaker_rooms(budgets) == {"nodes per hour": 1, "pods per hour": 2, "share": 3}


def test_nothing_is_left_in_the_hour_where_a_node_waits_for_room() -> None:
    pool = SelectionBuilderPool().group("g", 0, 2, pods=8)
    memory = Memory(breaker=BreakerState(((NOW - 600, 1, 4),)))
    budgets = budgets_of(
        pool, share(100), memory=memory, max_disruption=MaxDisruption(pods_per_hour=9)
    )
    assert breaker_rooms(budgets) == {"pods per hour": 5}
    waiting = drawn(budgets, pool, UNNEEDED, ["g-d00"])[1]["g-d00"]
    assert budgets.breaker.rooms() == [("pods", 0, waiting)]


def test_breaker_without_limits_or_released_says_nothing() -> None:
    pool = SelectionBuilderPool().group("a", 4)
    assert RemovalLimits(pool.world()).breaker.rooms() == []
    released = Memory(released_until=NOW + 60)
    allowed = MaxDisruption(nodes_per_hour=1, pods_per_hour=1, share=0.1)
    assert RemovalLimits(pool.world(released, max_disruption=allowed)).breaker.rooms() == []


# --- at random


def random_budget(draw: random.Random, number: int) -> DisruptionBudget:
    limit = (
        NodeLimit(nodes=draw.randint(0, 4))
        if draw.random() < 0.5
        else NodeLimit(share=draw.randint(0, 100) / 100)
    )
    groups = tuple(draw.sample(("a", "b", "c", "shared"), draw.randint(0, 2)))
    reasons = tuple(draw.sample((CONSOLIDATION, DRIFTED, UNNEEDED), draw.randint(0, 2)))
    return DisruptionBudget(f"b{number}", limit, groups=groups, reasons=reasons)


def test_no_order_of_draws_exceeds_a_budget_that_holds() -> None:
    taken = 0
    for seed in range(150):
        draw = random.Random(seed)
        pool, shared = SelectionBuilderPool(), Pool("p", "shared")
        sizes = {name: draw.randint(1, 9) for name in ("a", "b", "c")}
        for name, size in sizes.items():
            pool.group(name, size, pool=None if name == "c" else shared)
        held = tuple(random_budget(draw, number) for number in range(draw.randint(1, 4)))
        budgets = budgets_of(pool, *held)
        gone: dict[str, int] = dict.fromkeys(sizes, 0)
        for removal in draw.sample(pool.candidates, len(pool.candidates)):
            reason = draw.choice((CONSOLIDATION, DRIFTED, UNNEEDED))
            goes, _ = drawn(budgets, pool, reason, [removal.node.name])
            gone[removal.group] += len(goes)
            taken += len(goes)
            for budget in held if goes else ():
                named = set(budget.groups) or {"shared", "c"}
                scopes = [("a", "b")] * ("shared" in named) + [
                    (name,) for name in ("a", "b", "c") if name in named
                ]
                for scope in (scope for scope in scopes if removal.group in scope):
                    if reason in budget.reasons if budget.reasons else reason is not UNNEEDED:
                        limit = budget.nodes.of(sum(sizes[name] for name in scope))
                        assert sum(gone[name] for name in scope) <= limit, (seed, budget)
    assert taken > 500
