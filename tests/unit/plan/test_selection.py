"""Selection of the nodes removed now: timers, minimums, parallelism, and the order
in which limits are spent.

Upstream's limit on the number of candidates to simulate has no counterpart: every
node is simulated. A failed taint is handled by operations; the selection only sees
the cooldown that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.plan import Removal, ScaleUp
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal import removal_planner as planner
from chalicelib.plan.removal.candidates import Candidate, utilization_reason
from chalicelib.plan.removal.disruption_command import DisruptionCommand
from chalicelib.plan.removal.methods import DisruptionContext, MethodResult
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.simulation.cluster_builder import build as build_simulated
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.plan.tables import ResourceColumns
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.max_disruption import MaxDisruption
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
def test_unneeded_time_must_exceed_the_threshold_and_zero_means_at_once(
    needs: float, age: float, leaves: bool
) -> None:
    picked = (
        SelectionBuilderPool().group("g", 1).pick(since=NOW - age, scale_down_unneeded_time=needs)
    )
    assert goes(picked) == (["g-e00"] if leaves else [])
    if not leaves:
        assert picked.refused["g-e00"] == Reason.of(
            ReasonCode.NOT_UNNEEDED_LONG_ENOUGH, since=NOW - age, needs=needs
        )


@pytest.mark.parametrize(
    ("ready", "age", "own", "code"),
    [
        (True, 900.0, GroupOptions(), None),
        (False, 900.0, GroupOptions(), ReasonCode.NOT_UNREADY_LONG_ENOUGH),
        (False, 1201.0, GroupOptions(), None),
        (
            True,
            900.0,
            GroupOptions(scale_down_unneeded_time=901.0),
            ReasonCode.NOT_UNNEEDED_LONG_ENOUGH,
        ),
        (False, 900.0, GroupOptions(scale_down_unready_time=899.0), None),
        (True, 0.0, GroupOptions(scale_down_unneeded_time=0.0), None),
    ],
)
def test_ready_and_unready_nodes_have_separate_unneeded_times(
    ready: bool, age: float, own: GroupOptions, code: ReasonCode | None
) -> None:
    picked = (
        SelectionBuilderPool()
        .group("g", 1, node={"ready": ready}, options=own)
        .pick(since=NOW - age)
    )
    assert why(picked) == ({code} if code else set())


@pytest.mark.parametrize(
    ("drain", "target", "expected"), [(2, 10, (3, 2)), (5, 10, (3, 4)), (2, 5, (2, 0))]
)
def test_group_minimum_counts_leaving_and_selected_nodes(
    drain: int, target: int, expected: tuple[int, int]
) -> None:
    pool = SelectionBuilderPool().group("g", 3, drain, min=1, target=target).going("g", "x1", "x2")
    picked = pool.pick(max_drain_parallelism=10)
    assert counts(picked) == expected
    assert why(picked) == ({ReasonCode.GROUP_MIN_SIZE} if sum(expected) < 3 + drain else set())
    left = target - 2 - sum(expected)
    assert all(reason.params == {"min": 1, "target": left} for reason in picked.refused.values())


@pytest.mark.parametrize(("candidates", "expected"), [(7, 0), (8, 8)])
def test_zero_or_max_group_is_removed_whole_or_not_at_all(candidates: int, expected: int) -> None:
    picked = (
        SelectionBuilderPool().group("g", candidates, others=8 - candidates, options=ATOMIC).pick()
    )
    assert len(picked.chosen) == expected
    if not expected:
        assert (
            list(picked.refused.values())
            == [Reason.of(ReasonCode.ATOMIC_FAILED, nodes=7, of=8)] * 7
        )


@pytest.mark.parametrize(
    ("empty", "drain", "expected"),
    [
        (11, 0, (10, 0)),
        (0, 6, (0, 5)),
        (8, 8, (8, 2)),
        (2, 8, (2, 5)),
    ],
)
def test_empty_nodes_use_the_parallelism_limit_first(
    empty: int, drain: int, expected: tuple[int, int]
) -> None:
    picked = SelectionBuilderPool().group("g", empty, drain).pick()
    assert counts(picked) == expected
    assert why(picked) == {ReasonCode.PARALLELISM}


def test_zero_or_max_group_may_exceed_the_parallelism_limit() -> None:
    assert counts(SelectionBuilderPool().group("a", 11, options=ATOMIC).pick()) == (11, 0)


def test_zero_or_max_group_is_selected_before_other_empty_nodes() -> None:
    picked = SelectionBuilderPool().group("g", 8).group("z", 3, options=ATOMIC).pick()
    assert sorted(goes(picked)) == [*(f"g-e0{at}" for at in range(7)), "z-e00", "z-e01", "z-e02"]
    assert picked.refused == {"g-e07": Reason.of(ReasonCode.PARALLELISM, limit=10)}


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
def test_removals_in_progress_count_towards_parallelism(
    running: int, draining: int, empty: int, drain: int, atomic: int, expected: tuple[int, int]
) -> None:
    pool = (
        SelectionBuilderPool()
        .group("g", empty, drain, target=50)
        .group("a", atomic, options=ATOMIC)
    )
    pool.going("g", *(f"x{at}" for at in range(running))).going(
        "g", *(f"y{at}" for at in range(draining)), drained=True
    )
    assert counts(pool.pick()) == expected


def test_only_the_first_zero_or_max_group_may_exceed_parallelism() -> None:
    picked = (
        SelectionBuilderPool()
        .group("a", 3, options=ATOMIC)
        .group("b", 8, options=ATOMIC)
        .group("g", 9)
        .pick()
    )
    assert {each.group for each in picked.chosen} == {"a", "g"}
    assert len(picked.chosen) == 10


def test_nothing_more_is_selected_after_parallelism_is_exceeded() -> None:
    picked = (
        SelectionBuilderPool()
        .group("a", 11, options=ATOMIC)
        .group("b", 1, options=ATOMIC)
        .group("g", 3)
        .pick()
    )
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
def test_zero_or_max_group_of_empty_and_drained_nodes_is_removed_together(
    empty: int, drain: int, others: int, target: int, expected: tuple[int, int]
) -> None:
    picked = (
        SelectionBuilderPool()
        .group("a", empty, drain, others=others, target=target, options=ATOMIC)
        .pick()
    )
    assert counts(picked) == expected
    assert why(picked) <= {ReasonCode.ATOMIC_FAILED}


def test_rest_of_an_interrupted_zero_or_max_group_removal_is_selected() -> None:
    pool = (
        SelectionBuilderPool()
        .group("a", 2, others=6, options=ATOMIC)
        .going("a", *(f"a-o{at:02d}" for at in range(6)))
    )
    assert goes(pool.pick()) == ["a-e00", "a-e01"]


def test_zero_or_max_group_above_its_target_is_removed_only_down_to_zero() -> None:
    picked = SelectionBuilderPool().group("a", 9, target=8, options=ATOMIC).pick()
    assert len(picked.chosen) == 8
    assert why(picked) == {ReasonCode.GROUP_MIN_SIZE}


def test_zero_or_max_group_with_an_uncertain_target_is_not_removed_in_part() -> None:
    picked = SelectionBuilderPool().group("a", 2, options=ATOMIC).going("a", "gone").pick()
    assert picked.chosen == ()
    assert why(picked) == {ReasonCode.ATOMIC_FAILED, ReasonCode.GROUP_MIN_SIZE}


def test_failed_removal_start_is_followed_by_a_cooldown_of_three_minutes() -> None:
    pool = SelectionBuilderPool().group("g", 3)
    picked = pool.pick(Memory(last_scale_down_failure=NOW - 179))
    reason = Reason.of(ReasonCode.IN_COOLDOWN, which="scaleDownDelayAfterFailure", until=NOW + 1)
    assert (picked.paused, list(picked.refused.values())) == (reason, [reason] * 3)
    assert len(pool.pick(Memory(last_scale_down_failure=NOW - 180)).chosen) == 3


def test_cooldown_ends_at_its_end_and_unneeded_time_counts_during_it() -> None:
    noon = NOW - NOW % 86400 + 43200
    pool, grown = SelectionBuilderPool().group("g", 1), Memory(last_scale_up=noon)
    assert why(pool.pick(grown, now=noon + 599, since=noon - 900)) == {ReasonCode.IN_COOLDOWN}
    assert goes(pool.pick(grown, now=noon + 600, since=noon - 900)) == ["g-e00"]
    assert why(pool.pick(grown, now=noon + 630, since=noon + 30)) == {
        ReasonCode.NOT_UNNEEDED_LONG_ENOUGH
    }
    assert goes(pool.pick(grown, now=noon + 631, since=noon + 30)) == ["g-e00"]


def test_each_selected_node_reduces_room_above_the_cores_minimum() -> None:
    picked = SelectionBuilderPool().group("g", 2, others=4, cpu="2").pick(cores_total=(10, 100))
    assert goes(picked) == ["g-e00"]
    assert picked.refused == {
        "g-e01": Reason.of(ReasonCode.MINIMAL_RESOURCE_LIMIT, resources="cpu")
    }


def test_leaving_nodes_do_not_count_towards_a_cluster_minimum() -> None:
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
def test_cluster_minimums_of_gpus_and_memory(
    limits: dict[str, Any], expected: tuple[int, set[str]]
) -> None:
    picked = SelectionBuilderPool().group("g", 3, others=1, node=GPU).pick(**limits)
    short = {str(reason.params["resources"]) for reason in picked.refused.values()}
    assert (len(picked.chosen), short) == expected


def test_node_without_gpus_ignores_the_gpu_minimum() -> None:
    pool = SelectionBuilderPool().group("plain", 1).group("g", 0, others=1, node=GPU)
    assert goes(pool.pick(gpu_total=(("t4", 8, 100),))) == ["plain-e00"]


def test_zero_or_max_group_that_stays_uses_no_room_above_a_minimum() -> None:
    pool = SelectionBuilderPool().group("a", 2, others=1, options=ATOMIC).group("g", 2)
    picked = pool.pick(cores_total=(3, 100))
    assert goes(picked) == ["g-e00", "g-e01"]


def test_zero_or_max_group_partly_blocked_by_a_minimum_stays_whole() -> None:
    picked = SelectionBuilderPool().group("a", 3, options=ATOMIC, min=1).pick()
    assert goes(picked) == []
    assert sorted(reason.code for reason in picked.refused.values()) == [
        ReasonCode.ATOMIC_FAILED,
        ReasonCode.ATOMIC_FAILED,
        ReasonCode.GROUP_MIN_SIZE,
    ]


def test_first_blocking_reason_is_reported() -> None:
    young = GroupOptions(scale_down_cooldown=86400.0)
    pool = SelectionBuilderPool().group("g", 1, waits_for="default/job", options=young, min=1)
    known = Memory(last_scale_up=NOW)
    assert why(pool.pick(known, since=NOW)) == {ReasonCode.NOT_UNNEEDED_LONG_ENOUGH}
    assert pool.pick(known).refused["g-e00"] == Reason.of(
        ReasonCode.BLOCKED_BY_ON_COMPLETION_POD, pod="default/job"
    )
    pool = SelectionBuilderPool().group("g", 1, options=young, min=1)
    assert why(pool.pick(known)) == {ReasonCode.NODE_COOLDOWN}
    assert why(SelectionBuilderPool().group("g", 1, min=1).pick(known)) == {
        ReasonCode.GROUP_MIN_SIZE
    }


def test_removals_are_ordered_empty_then_drains_then_risky_drains() -> None:
    pool = SelectionBuilderPool().group("r", 0, 1, risky=True).group("b", 1, 1).group("a", 1, 1)
    assert goes(pool.pick()) == ["b-e00", "a-e00", "b-d00", "a-d00", "r-d00"]
    assert goes(pool.pick(max_scale_down_parallelism=2)) == ["b-e00", "a-e00"]
    assert goes(pool.pick(max_drain_parallelism=2)) == ["b-e00", "a-e00", "b-d00", "a-d00"]


def test_zero_or_max_groups_with_empty_nodes_precede_drained_ones() -> None:
    pool = (
        SelectionBuilderPool()
        .group("d", 0, 2, options=ATOMIC)
        .group("e", 1, 1, options=ATOMIC)
        .group("g", 5)
    )
    picked = pool.pick(max_scale_down_parallelism=2)
    assert {each.group for each in picked.chosen} == {"e"}


def test_zero_or_max_group_is_not_removed_where_no_drain_is_allowed() -> None:
    pool = (
        SelectionBuilderPool()
        .group("d", 0, 2, options=ATOMIC)
        .group("g", 1)
        .going("g", *"vwxyz", drained=True)
    )
    picked = pool.pick()
    assert goes(picked) == []
    assert {each: reason.params for each, reason in picked.refused.items() if each != "g-e00"} == {
        "d-d00": {"limit": DRAINS},
        "d-d01": {"limit": DRAINS},
    }


def test_reason_that_blocks_the_pass_is_reported_for_every_candidate() -> None:
    hold = Reason.of(ReasonCode.WAITING_FOR_MORE, age=1.0)
    picked = SelectionBuilderPool().group("g", 2).pick(hold=hold)
    assert (picked.paused, list(picked.refused.values()), picked.chosen) == (hold, [hold, hold], ())
    off = SelectionBuilderPool().group("g", 1).pick(hold=hold, scale_down_enabled=False)
    assert off.paused == Reason.of(ReasonCode.SCALE_DOWN_DISABLED)


@pytest.mark.parametrize(
    ("limits", "most", "trips"),
    [
        ({"max_scale_down_parallelism": 7}, 7, False),
        ({"max_disruption": MaxDisruption(nodes_per_hour=7)}, 7, False),
        ({"max_disruption": MaxDisruption(share=0.5)}, 5, True),
        ({"cores_total": (8, 100)}, 6, False),
        ({}, 9, False),
    ],
    ids=[
        "parallelism",
        "per hour",
        "share: the second draw trips the breaker",
        "cluster's minimum",
        "group's minimum",
    ],
)
def test_second_draw_of_a_pass_gets_what_the_first_has_left(
    limits: dict[str, Any], most: int, trips: bool
) -> None:
    pool = SelectionBuilderPool().group("g", 10, others=4, min=5)
    budgets = RemovalLimits(pool.world(**{"max_scale_down_parallelism": 50, **limits}))
    first, refused = budgets.draw(pool.candidates[:5], lambda _: None)
    assert (len(first), refused) == (5, {})
    second, refused = budgets.draw(pool.candidates[5:], lambda _: None)
    assert len(first) + len(second) == most
    assert len(refused) == 10 - most
    assert (budgets.paused is not None) is trips
    counted = budgets.breaker.after().removals
    assert counted == (((NOW, most, 0),) if "max_disruption" in limits else ())


def test_method_takes_no_node_from_a_group_in_which_an_earlier_command_buys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Buys:
        reason = DisruptionReason.UNNEEDED
        ineligible = staticmethod(utilization_reason)

        def propose(
            self, candidates: Sequence[Candidate], context: DisruptionContext
        ) -> MethodResult:
            assert [candidate.node.name for candidate in candidates] == ["g-0", "h-0"]
            assert context.removal_limits.paused is None
            gone = Removal("old", "g", "empty")
            return MethodResult(
                (DisruptionCommand(self.reason, (gone,), (ScaleUp("g", "test", 1, 2, 9),)),), {}, {}
            )

    build = cluster().node("g-0", group="g").node("h-0", group="h").group("g").group("h")
    assert [removal.node for removal in build.plan(unneeded=7200).removals] == ["g-0", "h-0"]
    monkeypatch.setattr(planner, "METHODS", (Buys(), *planner.METHODS))
    world = build_cluster_state(build.snapshot(), Policy("test"), Memory(), NOW)
    simulated = build_simulated(world, (), ResourceColumns(world.snapshot.classes))
    disruption = planner.plan_disruption(world, simulated, 7200.0)
    assert [removal.node for removal in disruption.removals] == ["old", "h-0"]
    assert disruption.unneeded == ("g-0", "h-0")
    assert [(verdict.node, verdict.reason.code) for verdict in disruption.unremovable] == [
        ("g-0", ReasonCode.GROUP_GROWING)
    ]


def test_selection_without_candidates_is_empty() -> None:
    picked = SelectionBuilderPool().group("g", 0, others=2).pick()
    assert (picked.chosen, picked.refused, picked.paused) == ((), {}, None)


# --- scenarios 12 to 14 of docs/rules.md


@pytest.mark.parametrize(
    ("memory", "age", "code"),
    [
        ("2460Mi", 7200, ReasonCode.NOT_UNDERUTILIZED),
        ("1200Mi", 599, ReasonCode.NOT_UNNEEDED_LONG_ENOUGH),
        ("1200Mi", 600.5, None),
    ],
)
def test_CCE_12_both_rates_must_stay_under_the_threshold_all_the_time(
    memory: str, age: float, code: ReasonCode | None
) -> None:
    """cpu is at 30 %. The vendor's document says "at 10:00"; here, as upstream, the node goes once
    it was unneeded for longer than the time."""
    build = cluster().node("home", "8", "64Gi").node("n", "1", "4Gi", group="g").group("g")
    build.running("n", 1, "300m", memory)
    plan = build.plan(Memory(nodes={"n": NodeMemory(NOW - age, NOW - 10)}))
    codes = {verdict.node: verdict.reason.code for verdict in plan.unremovable}
    assert codes.get("n") == code
    assert [removal.node for removal in plan.removals] == ([] if code else ["n"])


def test_CCE_13_idle_nodes_are_removed_in_parallel_and_busy_ones_one_by_one() -> None:
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
def test_CCE_14_young_node_stays_and_every_node_stays_during_a_cooldown(
    minutes: int, grown: float, delay: float, code: ReasonCode | None
) -> None:
    pool = SelectionBuilderPool().group(
        "p",
        1,
        node={"created": NOW - minutes * 60},
        options=GroupOptions(scale_down_cooldown=900.0),
    )
    picked = pool.pick(
        Memory(last_scale_up=grown), scale_down_delay_after_add=delay, scale_down_unneeded_time=0.0
    )
    assert why(picked) == ({code} if code else set())
    if code is ReasonCode.NODE_COOLDOWN:
        assert picked.refused["p-e00"].params == {"until": NOW + 420}


def test_policy_allows_twenty_parallel_drains() -> None:
    """The policy and disruption budgets limit parallel drains, not a constant
    (kubernetes/autoscaler issue 5079)."""
    pool = SelectionBuilderPool().group("g", 0, 20)
    assert counts(pool.pick(max_scale_down_parallelism=20, max_drain_parallelism=20)) == (0, 20)
