"""Cases S about who goes now: timers, minima, parallelism, and the order in which budgets are spent.

S1 (how many candidates upstream looks for before it stops simulating) has no counterpart: every node is looked at.
S14 (tainting fails) is the executors': what picking knows of it is the cooldown that follows.
"""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.reason import Reason, ReasonCode
from tests.builders import NOW, cluster
from tests.unit.plan.selection_builder import DRAINS, SelectionBuilderPool, counts, goes, why

ATOMIC = GroupOptions(zero_or_max=True)


@pytest.mark.parametrize(
    ("needs", "age", "leaves"),
    [
        (600.0, 600.0, False),
        (600.0, 601.0, True),
        (0.0, 0.0, True),
        (0.0, -5.0, True),
    ],
)
def test_S2_strictly_longer_than_the_threshold_and_zero_is_at_once(needs: float, age: float, leaves: bool) -> None:
    picked = SelectionBuilderPool().group("g", 1).pick(since=NOW - age, scale_down_unneeded_time=needs)
    assert goes(picked) == (["g-e00"] if leaves else [])
    if not leaves:
        assert picked.held["g-e00"] == Reason.of(ReasonCode.NOT_UNNEEDED_LONG_ENOUGH, since=NOW - age, needs=needs)


@pytest.mark.parametrize(
    ("ready", "age", "own", "code"),
    [
        (True, 900.0, GroupOptions(), None),
        (False, 900.0, GroupOptions(), ReasonCode.NOT_UNREADY_LONG_ENOUGH),
        (False, 1201.0, GroupOptions(), None),
        (True, 900.0, GroupOptions(scale_down_unneeded_time=901.0), ReasonCode.NOT_UNNEEDED_LONG_ENOUGH),
        (False, 900.0, GroupOptions(scale_down_unready_time=899.0), None),
        (True, 0.0, GroupOptions(scale_down_unneeded_time=0.0), None),
    ],
)
def test_S3_ready_and_unready_nodes_have_thresholds_of_their_own(
    ready: bool, age: float, own: GroupOptions, code: ReasonCode | None
) -> None:
    picked = SelectionBuilderPool().group("g", 1, node={"ready": ready}, options=own).pick(since=NOW - age)
    assert why(picked) == ({code} if code else set())


@pytest.mark.parametrize(("drain", "target", "expected"), [(2, 10, (3, 2)), (5, 10, (3, 4)), (2, 5, (2, 0))])
def test_S5_the_minimum_counts_nodes_on_their_way_out_and_those_picked(
    drain: int, target: int, expected: tuple[int, int]
) -> None:
    pool = SelectionBuilderPool().group("g", 3, drain, min=1, target=target).going("g", "x1", "x2")
    picked = pool.pick(max_drain_parallelism=10)
    assert counts(picked) == expected
    assert why(picked) == ({ReasonCode.GROUP_MIN_SIZE} if sum(expected) < 3 + drain else set())
    left = target - 2 - sum(expected)
    assert all(reason.params == {"min": 1, "target": left} for reason in picked.held.values())


@pytest.mark.parametrize(("candidates", "expected"), [(7, 0), (8, 8)])
def test_S6_a_zero_or_max_group_goes_whole_or_not_at_all(candidates: int, expected: int) -> None:
    picked = SelectionBuilderPool().group("g", candidates, others=8 - candidates, options=ATOMIC).pick()
    assert len(picked.chosen) == expected
    if not expected:
        assert list(picked.held.values()) == [Reason.of(ReasonCode.ATOMIC_FAILED, nodes=7, of=8)] * 7


@pytest.mark.parametrize(
    ("empty", "drain", "expected"),
    [
        (11, 0, (10, 0)),
        (0, 6, (0, 5)),
        (8, 8, (8, 2)),
        (2, 8, (2, 5)),
    ],
)
def test_S11_empty_nodes_spend_the_budget_first(empty: int, drain: int, expected: tuple[int, int]) -> None:
    picked = SelectionBuilderPool().group("g", empty, drain).pick()
    assert counts(picked) == expected
    assert why(picked) == {ReasonCode.PARALLELISM}


def test_S11_an_atomic_group_may_be_larger_than_the_budget() -> None:
    assert counts(SelectionBuilderPool().group("a", 11, options=ATOMIC).pick()) == (11, 0)


def test_S11_an_atomic_group_spends_before_other_empty_nodes() -> None:
    picked = SelectionBuilderPool().group("g", 8).group("z", 3, options=ATOMIC).pick()
    assert sorted(goes(picked)) == [*(f"g-e0{at}" for at in range(7)), "z-e00", "z-e01", "z-e02"]
    assert picked.held == {"g-e07": Reason.of(ReasonCode.PARALLELISM, limit=10)}


@pytest.mark.parametrize(
    ("running", "draining", "empty", "drain", "atomic", "expected"),
    [
        pytest.param(1, 1, 10, 0, 0, (8, 0), id="1+1"),
        pytest.param(5, 5, 10, 0, 0, (0, 0), id="5+5"),
        pytest.param(3, 3, 0, 0, 8, (8, 0), id="overflow"),
        pytest.param(5, 5, 0, 0, 3, (0, 0), id="no-overflow-of-nothing"),
        pytest.param(5, 3, 1, 2, 0, (1, 1), id="drains-within-what-is-left"),
        pytest.param(9, 6, 1, 1, 2, (0, 0), id="more-than-allowed-is-running"),
    ],
)
def test_S12_removals_in_progress_count(
    running: int, draining: int, empty: int, drain: int, atomic: int, expected: tuple[int, int]
) -> None:
    pool = SelectionBuilderPool().group("g", empty, drain, target=50).group("a", atomic, options=ATOMIC)
    pool.going("g", *(f"x{at}" for at in range(running))).going(
        "g", *(f"y{at}" for at in range(draining)), drained=True
    )
    assert counts(pool.pick()) == expected


def test_S12_only_the_first_atomic_group_may_overflow() -> None:
    picked = SelectionBuilderPool().group("a", 3, options=ATOMIC).group("b", 8, options=ATOMIC).group("g", 9).pick()
    assert {each.group for each in picked.chosen} == {"a", "g"}
    assert len(picked.chosen) == 10


def test_S12_after_an_overflow_nothing_else_fits() -> None:
    picked = SelectionBuilderPool().group("a", 11, options=ATOMIC).group("b", 1, options=ATOMIC).group("g", 3).pick()
    assert {each.group for each in picked.chosen} == {"a"}
    assert why(picked) == {ReasonCode.PARALLELISM}


@pytest.mark.parametrize(
    ("empty", "drain", "others", "target", "expected"),
    [
        pytest.param(5, 3, 0, 8, (5, 3), id="all"),
        pytest.param(2, 2, 4, 8, (0, 0), id="four-more-are-registered"),
        pytest.param(2, 2, 0, 8, (2, 2), id="only-these-ever-registered"),
        pytest.param(2, 2, 1, 4, (2, 2), id="the-target-size"),
    ],
)
def test_S13_a_zero_or_max_group_of_empty_and_drained_nodes(
    empty: int, drain: int, others: int, target: int, expected: tuple[int, int]
) -> None:
    picked = SelectionBuilderPool().group("a", empty, drain, others=others, target=target, options=ATOMIC).pick()
    assert counts(picked) == expected
    assert why(picked) <= {ReasonCode.ATOMIC_FAILED}


def test_S13_what_is_left_of_a_zero_or_max_group_whose_removal_was_interrupted_goes_too() -> None:
    pool = (
        SelectionBuilderPool().group("a", 2, others=6, options=ATOMIC).going("a", *(f"a-o{at:02d}" for at in range(6)))
    )
    assert goes(pool.pick()) == ["a-e00", "a-e01"]


def test_a_zero_or_max_group_with_more_nodes_than_its_target_goes_down_to_nothing_and_no_further() -> None:
    picked = SelectionBuilderPool().group("a", 9, target=8, options=ATOMIC).pick()
    assert len(picked.chosen) == 8
    assert why(picked) == {ReasonCode.GROUP_MIN_SIZE}


def test_a_zero_or_max_group_whose_target_may_be_lowered_already_is_not_taken_in_part() -> None:
    picked = SelectionBuilderPool().group("a", 2, options=ATOMIC).going("a", "gone").pick()
    assert picked.chosen == ()
    assert why(picked) == {ReasonCode.ATOMIC_FAILED, ReasonCode.GROUP_MIN_SIZE}


def test_S14_a_failed_start_is_followed_by_a_cooldown_of_three_minutes() -> None:
    pool = SelectionBuilderPool().group("g", 3)
    picked = pool.pick(Memory(last_scale_down_failure=NOW - 179))
    reason = Reason.of(ReasonCode.IN_COOLDOWN, which="scaleDownDelayAfterFailure", until=NOW + 1)
    assert (picked.paused, list(picked.held.values())) == (reason, [reason] * 3)
    assert len(pool.pick(Memory(last_scale_down_failure=NOW - 180)).chosen) == 3


def test_S19_a_cooldown_is_over_at_its_end_and_timers_ran_meanwhile() -> None:
    noon = NOW - NOW % 86400 + 43200
    pool, grown = SelectionBuilderPool().group("g", 1), Memory(last_scale_up=noon)
    assert why(pool.pick(grown, now=noon + 599, since=noon - 900)) == {ReasonCode.IN_COOLDOWN}
    assert goes(pool.pick(grown, now=noon + 600, since=noon - 900)) == ["g-e00"]
    assert why(pool.pick(grown, now=noon + 630, since=noon + 30)) == {ReasonCode.NOT_UNNEEDED_LONG_ENOUGH}
    assert goes(pool.pick(grown, now=noon + 631, since=noon + 30)) == ["g-e00"]


def test_S20_a_minimum_of_cores_is_used_up_by_each_pick() -> None:
    picked = SelectionBuilderPool().group("g", 2, others=4, cpu="2").pick(cores_total=(10, 100))
    assert goes(picked) == ["g-e00"]
    assert picked.held == {"g-e01": Reason.of(ReasonCode.MINIMAL_RESOURCE_LIMIT, resources="cpu")}


def test_nodes_on_their_way_out_are_no_part_of_a_minimum() -> None:
    pool = SelectionBuilderPool().group("g", 2, others=4, cpu="2").going("g", "g-o00")
    assert why(pool.pick(cores_total=(10, 100))) == {ReasonCode.MINIMAL_RESOURCE_LIMIT}


GPU = {"extra": {"nvidia.com/gpu": 2}, "labels": {"accelerator": "t4"}}


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"gpu_total": (("t4", 6, 100),)}, (1, {"t4"})),
        ({"gpu_total": (("nvidia.com/gpu", 5, 100),)}, (1, {"nvidia.com/gpu"})),
        ({"gpu_total": (("a100", 6, 100),)}, (3, set())),
        ({"memory_total": (13 * 2**30, 2**50)}, (0, {"memory"})),
        ({"memory_total": (8 * 2**30, 2**50), "cores_total": (4, 9)}, (0, {"cpu"})),
        ({"memory_total": (16 * 2**30, 2**50), "cores_total": (4, 9)}, (0, {"cpu, memory"})),
    ],
)
def test_minima_of_gpus_and_memory(limits: dict[str, Any], expected: tuple[int, set[str]]) -> None:
    picked = SelectionBuilderPool().group("g", 3, others=1, node=GPU).pick(**limits)
    short = {str(reason.params["resources"]) for reason in picked.held.values()}
    assert (len(picked.chosen), short) == expected


def test_a_node_without_gpus_does_not_matter_to_their_minimum() -> None:
    pool = SelectionBuilderPool().group("plain", 1).group("g", 0, others=1, node=GPU)
    assert goes(pool.pick(gpu_total=(("t4", 8, 100),))) == ["plain-e00"]


def test_a_zero_or_max_group_that_stays_leaves_its_room_to_others() -> None:
    pool = SelectionBuilderPool().group("a", 2, others=1, options=ATOMIC).group("g", 2)
    picked = pool.pick(cores_total=(3, 100))
    assert goes(picked) == ["g-e00", "g-e01"]


def test_a_zero_or_max_group_that_a_minimum_keeps_in_part_stays_whole() -> None:
    picked = SelectionBuilderPool().group("a", 3, options=ATOMIC, min=1).pick()
    assert goes(picked) == []
    assert sorted(reason.code for reason in picked.held.values()) == [
        ReasonCode.ATOMIC_FAILED,
        ReasonCode.ATOMIC_FAILED,
        ReasonCode.GROUP_MIN_SIZE,
    ]


def test_the_first_reason_is_told() -> None:
    young = GroupOptions(scale_down_cooldown=86400.0)
    pool = SelectionBuilderPool().group("g", 1, waits_for="default/job", options=young, min=1)
    known = Memory(last_scale_up=NOW)
    assert why(pool.pick(known, since=NOW)) == {ReasonCode.NOT_UNNEEDED_LONG_ENOUGH}
    assert pool.pick(known).held["g-e00"] == Reason.of(ReasonCode.BLOCKED_BY_ON_COMPLETION_POD, pod="default/job")
    pool = SelectionBuilderPool().group("g", 1, options=young, min=1)
    assert why(pool.pick(known)) == {ReasonCode.NODE_COOLDOWN}
    assert why(SelectionBuilderPool().group("g", 1, min=1).pick(known)) == {ReasonCode.GROUP_MIN_SIZE}


def test_the_order_is_empty_then_drains_then_risky_drains_and_else_as_found() -> None:
    pool = SelectionBuilderPool().group("r", 0, 1, risky=True).group("b", 1, 1).group("a", 1, 1)
    assert goes(pool.pick()) == ["b-e00", "a-e00", "b-d00", "a-d00", "r-d00"]
    assert goes(pool.pick(max_scale_down_parallelism=2)) == ["b-e00", "a-e00"]
    assert goes(pool.pick(max_drain_parallelism=2)) == ["b-e00", "a-e00", "b-d00", "a-d00"]


def test_atomic_groups_with_empty_nodes_come_before_those_that_are_only_drained() -> None:
    pool = SelectionBuilderPool().group("d", 0, 2, options=ATOMIC).group("e", 1, 1, options=ATOMIC).group("g", 5)
    picked = pool.pick(max_scale_down_parallelism=2)
    assert {each.group for each in picked.chosen} == {"e"}


def test_an_atomic_group_does_not_go_where_no_drain_may() -> None:
    pool = SelectionBuilderPool().group("d", 0, 2, options=ATOMIC).group("g", 1).going("g", *"vwxyz", drained=True)
    picked = pool.pick()
    assert goes(picked) == []
    assert {each: reason.params for each, reason in picked.held.items() if each != "g-e00"} == {
        "d-d00": {"limit": DRAINS},
        "d-d01": {"limit": DRAINS},
    }


def test_what_holds_the_pass_back_is_told_of_all() -> None:
    hold = Reason.of(ReasonCode.WAITING_FOR_MORE, age=1.0)
    picked = SelectionBuilderPool().group("g", 2).pick(hold=hold)
    assert (picked.paused, list(picked.held.values()), picked.chosen) == (hold, [hold, hold], ())
    off = SelectionBuilderPool().group("g", 1).pick(hold=hold, scale_down_enabled=False)
    assert off.paused == Reason.of(ReasonCode.SCALE_DOWN_DISABLED)


def test_an_empty_list_is_an_answer() -> None:
    picked = SelectionBuilderPool().group("g", 0, others=2).pick()
    assert (picked.chosen, picked.held, picked.paused) == ((), {}, None)


# --- huaweicloud-cce.md, rows 12 to 14 of its table


@pytest.mark.parametrize(
    ("memory", "age", "code"),
    [
        ("2460Mi", 7200, ReasonCode.NOT_UNDERUTILIZED),
        ("1200Mi", 599, ReasonCode.NOT_UNNEEDED_LONG_ENOUGH),
        ("1200Mi", 600.5, None),
    ],
)
def test_CCE_12_both_rates_under_the_threshold_for_all_of_the_time(
    memory: str, age: float, code: ReasonCode | None
) -> None:
    """cpu is at 30 %. The vendor says "at 10:00"; ours, as upstream, once it is longer than that."""
    build = cluster().node("home", "8", "64Gi").node("n", "1", "4Gi", group="g").group("g")
    build.running("n", 1, "300m", memory)
    plan = build.plan(Memory(nodes={"n": NodeMemory(NOW - age, NOW - 10)}))
    codes = {verdict.node: verdict.reason.code for verdict in plan.unremovable}
    assert codes.get("n") == code
    assert [removal.node for removal in plan.removals] == ([] if code else ["n"])


def test_CCE_13_idle_nodes_in_parallel_and_busy_ones_one_by_one() -> None:
    pool = SelectionBuilderPool().group("p", 12, 3)
    first = pool.pick(max_drain_parallelism=1)
    assert counts(first) == (10, 0)
    gone = set(goes(first))
    rest = [each.node.name for each in pool.candidates if each.node.name not in gone]
    pool.going("p", *gone)
    assert goes(pool.pick(only=rest, max_drain_parallelism=1)) == []
    pool.operations.clear()
    pool.candidates = [each for each in pool.candidates if each.node.name in rest]
    assert counts(pool.pick(max_drain_parallelism=1)) == (2, 1)
    pool.going("p", "p-d00", drained=True)
    assert counts(pool.pick(only=["p-d01", "p-d02"], max_drain_parallelism=1)) == (0, 0)


@pytest.mark.parametrize(
    ("minutes", "grown", "delay", "code"),
    [
        (8, 0.0, 0.0, ReasonCode.NODE_COOLDOWN),
        (16, NOW - 180, 600.0, ReasonCode.IN_COOLDOWN),
        (16, NOW - 600, 600.0, None),
        (15, 0.0, 0.0, None),
    ],
)
def test_CCE_14_a_young_node_stays_and_so_does_every_node_in_a_cooldown_of_the_cluster(
    minutes: int, grown: float, delay: float, code: ReasonCode | None
) -> None:
    pool = SelectionBuilderPool().group(
        "p", 1, node={"created": NOW - minutes * 60}, options=GroupOptions(scale_down_cooldown=900.0)
    )
    picked = pool.pick(Memory(last_scale_up=grown), scale_down_delay_after_add=delay, scale_down_unneeded_time=0.0)
    assert why(picked) == ({code} if code else set())
    if code is ReasonCode.NODE_COOLDOWN:
        assert picked.held["p-e00"].params == {"until": NOW + 420}


def test_CA_5079_twenty_drains_go_at_once_where_the_policy_lets_them() -> None:
    """demands.md 25: what bounds drains is the policy and disruption budgets, not a constant."""
    pool = SelectionBuilderPool().group("g", 0, 20)
    assert counts(pool.pick(max_scale_down_parallelism=20, max_drain_parallelism=20)) == (0, 20)
