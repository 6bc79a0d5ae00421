"""Which nodes a horizon lets go, and when another one takes its place
(docs/reference/consolidation.md "Horizon")."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from chalicelib.model.group import Pool
from chalicelib.model.node import Taint
from chalicelib.model.reason import ReasonCode
from chalicelib.model.snapshot import PodDisruptionBudget
from chalicelib.policy.settings.consolidation import ConsolidationMode, Steering
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.benchmarks.consolidation_clusters import small_clusters
from tests.benchmarks.consolidation_ends import ONLY_OURS
from tests.benchmarks.consolidation_world import Outscaler, World, run_to_the_end
from tests.builders import NOW, ClusterBuilder, having
from tests.builders import node as node_of
from tests.cases import each_row
from tests.unit.plan.consolidation_fixture import (
    TYPE,
    TYPES,
    Machine,
    P,
    decide,
    grouped,
    machines,
    pods,
)
from tests.unit.plan.steering_stage import (
    HALF,
    ONE_AT_A_TIME,
    SteeringStage,
    halves,
    marks_of,
    pool_of,
    report_of,
    steering,
)

GIB = 2**30
HOUR = 3600.0
SEARCH_DUE = 660.0
SEARCHED_ANEW = 0.0
Types = dict[str, Machine]
DEAR: Types = {
    "m": ("4", "16Gi", 0.20),
    "d": ("4", "16Gi", 0.60),
    "c": ("4", "16Gi", 0.20),
}


def going_of(build: ClusterBuilder, *args: Any, **more: Any) -> set[str]:
    """The nodes that leave by the horizon of a first pass."""
    report = decide(build, steering(*args, **more)).report.horizon
    return set(report.going) if report is not None else set()


# --- 9: what another horizon must save


@each_row("price, replaced", [(0.016, False), (0.05, True)], ids=["0.4%", "1.2%"])
def test_steer_9_another_horizon_takes_the_place_of_one_if_it_saves_half_a_percent(
    price: float, replaced: bool
) -> None:
    types: Types = {**TYPES, "t": ("1", "1Gi", price)}
    nodes = halves() | {"tiny": ("t", ())}
    kept = pool_of(nodes, types)
    kept.running("tiny", 1, "100m", "100Mi", owner="tiny", safe_to_evict="false")
    first = decide(kept, steering(types))
    before = first.memory.consolidation
    due = msgspec.structs.replace(before, searched=(), horizon_at=SEARCHED_ANEW)
    memory = msgspec.structs.replace(first.memory, consolidation=due)
    second = decide(pool_of(nodes, types), steering(types), memory, now=NOW + SEARCH_DUE)
    assert before.horizon is not None
    assert second.memory.consolidation.horizon is not None
    assert second.memory.consolidation.searched, "it was searched"
    assert (second.memory.consolidation.horizon.id != before.horizon.id) is replaced
    assert ("tiny" in second.memory.consolidation.horizon.going) is replaced


def test_steer_9_one_empty_node_among_many_is_worth_a_horizon() -> None:
    names = [f"n-{at:03d}" for at in range(200)]
    build = machines(dict.fromkeys([*names, "empty"], ("m", ())))
    for name in names:
        build.running(name, 8, *P, owner="db", kind="StatefulSet")
    assert len(going_of(grouped(build, grows=()))) == 1


def test_nodes_leave_where_no_pod_requests_anything() -> None:
    going = going_of(pool_of({f"n-{at:02d}": ("m", ()) for at in range(40)}))
    assert len(going) == 40


# --- 10: few candidates


def test_steer_10_thirty_candidates_are_consolidated_without_marks() -> None:
    result = decide(pool_of(halves(30)), steering())
    without = decide(pool_of(halves(30)), steering(steering=Steering.OFF))
    assert (result.report.horizon, marks_of(result.plan)) == (None, {})
    assert result.removed == without.removed
    assert len(result.removed) == 15
    assert decide(pool_of(halves(31)), steering()).removed == []


def never_dearer(count: int) -> None:
    off = msgspec.structs.replace(ONLY_OURS.consolidation, steering=Steering.OFF)
    today = msgspec.structs.replace(ONLY_OURS, consolidation=off)
    compared = 0
    for snapshot in small_clusters(count):
        ends = [
            run_to_the_end(World(snapshot), Outscaler(document), quiet=12).last.price
            for document in (ONLY_OURS, today)
        ]
        assert ends[0] <= ends[1]
        compared += 1
    assert compared == count


def test_steer_10_first_pass_of_small_clusters_is_the_same_as_without_marks() -> None:
    off = msgspec.structs.replace(ONLY_OURS.consolidation, steering=Steering.OFF)
    today = msgspec.structs.replace(ONLY_OURS, consolidation=off)
    snapshots = small_clusters(10)
    pairs = [
        [decide(snapshot, document) for document in (ONLY_OURS, today)] for snapshot in snapshots
    ]
    assert [ours.report.moves for ours, _ in pairs] == [other.report.moves for _, other in pairs]
    assert [marks_of(ours.plan) for ours, _ in pairs] == [{}] * 10
    assert sum(len(ours.goes) for ours, _ in pairs) > 10


@pytest.mark.slow
def test_steer_10_two_hundred_small_clusters_end_as_cheap_as_without_marks() -> None:
    never_dearer(200)


# --- 11: headroom


def test_steer_11_horizon_keeps_the_room_of_headroom() -> None:
    headroom = (Headroom("spare", pods=5, cpu=2000, memory=8 * GIB),)
    more = {"headroom": headroom, **ONE_AT_A_TIME}
    build = pool_of(halves(80), grows=("m",), groups={"m": {"max": 200}})
    without = going_of(build)
    stage = SteeringStage(build, steering(mode=ConsolidationMode.FULL, more=more)).play()
    assert len(stage.going) <= len(without) - 3
    stage.play(80)
    counts = Counter(pod.node for pod in stage.world.snapshot().pods)
    free = [8 - counts[node.name] for node in stage.world.snapshot().nodes]
    assert sum(room // 4 for room in free) >= 5
    assert (stage.world.bought, stage.world.pending_minutes) == ([], 0)


# --- 12: PodDisruptionBudgets


def with_db(allowed: int) -> tuple[ClusterBuilder, str]:
    """Half-empty nodes; the last ones have a pod of db each."""
    build = machines(halves())
    for name in ("n-37", "n-38", "n-39"):
        build.running(name, 1, *P, owner="db")
    return grouped(build, grows=()).budget("db", allowed, having(app="db")), "n-39"


def test_steer_12_node_whose_pods_no_budget_ever_lets_go_is_not_marked() -> None:
    build, _ = with_db(0)
    stage = SteeringStage(build, steering(more=ONE_AT_A_TIME)).play(60).play(24, HOUR)
    names = {"n-37", "n-38", "n-39"}
    assert not names & {name for update in stage.updates for name in update}
    assert not names & {name for nodes in stage.removals for name in nodes}
    assert sum(map(len, stage.removals)) >= 15


@each_row("passes, seconds", [(180, 60.0), (144, 600.0)], ids=["three hours", "a day"])
def test_steer_12_node_that_a_budget_has_held_for_an_hour_stays_unmarked(
    passes: int, seconds: float
) -> None:
    build, _ = with_db(3)
    stage = SteeringStage(build, steering(more=ONE_AT_A_TIME)).play()
    held = {"n-37", "n-38", "n-39"} & set(stage.going)
    assert held
    stage.world.set_budgets(PodDisruptionBudget("default", "db", having(app="db"), 0))
    stage.play(passes, seconds)
    assert not held & set(stage.marked)
    assert not held & {name for nodes in stage.removals for name in nodes}
    hours = 1 + passes * seconds / HOUR
    assert len(set(stage.ids) - {""}) <= hours, "at most one horizon an hour"


# --- 16: shadow


def test_steer_16_shadow_shows_what_would_go_and_writes_nothing() -> None:
    stage = SteeringStage(pool_of(halves()), steering(mode=ConsolidationMode.SHADOW)).play(30)
    reports = [report_of(plan) for plan in stage.plans]
    assert len(reports) == 30
    assert [len(report.going) for report in reports if report is not None] == [19] * 30
    assert {report.id for report in reports if report is not None} == {stage.ids[0]}
    assert reports[0] is not None
    assert (round(reports[0].price, 6), round(reports[0].end, 6)) == (8.0, 4.2)
    assert (reports[0].levels, reports[0].marked) == ({}, 0)
    assert (stage.updates, stage.removals) == ([{}] * 30, [[]] * 30)
    assert stage.outscaler.memory.consolidation.moves == {}


# --- 18: purchases


def with_dear_ones() -> ClusterBuilder:
    """Half-empty nodes, and full ones whose pods may only be on them or on nodes that cost a
    third."""
    dear = {f"d-{at:02d}": ("d", ()) for at in range(12)}
    build = machines(halves() | dear, DEAR)
    for node in build.nodes[-12:]:
        node.labels["disk"] = "fast"
        build.running(node.name, 8, *P, owner="db", kind="StatefulSet",
                      node_selector={"disk": "fast"})  # fmt: skip
    template = node_of("new-c", "4", "16Gi", labels={TYPE: "c", "disk": "fast"})
    groups = {"c": {"max": 50, "template": template}}
    return grouped(build, DEAR, grows=("c",), groups=groups)


def test_steer_18_bought_node_is_no_part_of_a_horizon_that_stood_before_it() -> None:
    document = steering(DEAR, mode=ConsolidationMode.FULL, min_node_age=0.0, more=ONE_AT_A_TIME)
    stage = SteeringStage(with_dear_ones(), document)
    stood: dict[str, str] = {}
    marked: list[tuple[str, str]] = []
    for _ in range(120):
        stage.play()
        stood |= {
            bought.name: stage.ids[-1] for bought in stage.world.bought if bought.name not in stood
        }
        marked += [(name, stage.ids[-1]) for name, level in stage.updates[-1].items() if level]
    assert len(stood) >= 10
    assert not set(stood.items()) & set(marked)
    assert (stage.world.pending, any(stage.ids)) == (0, True)


def test_steer_18_nodes_that_stay_are_replaced_when_those_that_leave_are_held() -> None:
    document = steering(DEAR, mode=ConsolidationMode.FULL, min_node_age=0.0)
    stage = SteeringStage(with_dear_ones(), document).play()
    first = stage.horizon
    assert first is not None
    stage.world.set_budgets(PodDisruptionBudget("default", "rs", having(app="rs"), 0))
    stage.play(25)
    assert stage.world.bought == []
    stage.play(30)
    assert stage.horizon is not None
    assert (stage.horizon.id, stage.going) == (first.id, sorted(first.going))
    gone = [name for nodes in stage.removals for name in nodes]
    assert sum(name[0] == "d" for name in gone) >= 10
    assert not any(name[0] == "n" for name in gone)
    assert set(stage.marked) == set(first.going)


def held_and_half_empty(offer: Types, **options: Any) -> SteeringStage:
    """Half-empty nodes, of which the dearer ones leave, after the first pass; a budget holds these
    then. offer: what may be bought."""
    types: Types = {"s": ("4", "16Gi", 0.19), "m": ("4", "16Gi", 0.20)} | offer
    stays = {f"n-{at:02d}": ("s", HALF) for at in range(20)}
    leaves = {f"n-{at:02d}": ("m", ()) for at in range(20, 40)}
    build = machines(stays | leaves, types)
    for name in leaves:
        build.running(name, 4, *P, owner="held")
    document = steering(types, mode=ConsolidationMode.FULL)
    stage = SteeringStage(grouped(build, types, **options), document).play()
    assert set(stage.going) <= leaves.keys()
    stage.world.set_budgets(PodDisruptionBudget("default", "held", having(app="held"), 0))
    return stage


def test_steer_18_nodes_that_stay_never_move_into_room_that_exists() -> None:
    stage = held_and_half_empty({}, grows=())
    stage.play(58)
    assert len(stage.going) >= 18
    assert [nodes for nodes in stage.removals if nodes] == []


def test_steer_18_nodes_that_stay_move_only_to_nodes_that_are_bought_for_them() -> None:
    offer: Types = {"c": ("4", "16Gi", 0.05)}
    stage = held_and_half_empty(offer, grows=("c",), groups={"c": {"max": 50}})
    stage.play(58)
    removals = [removal for plan in stage.plans for removal in plan.removals]
    assert len(removals) >= 4
    assert [removal.node for removal in removals if not removal.replacement] == []
    assert stage.world.pending == 0


# --- 19 to 21: pools


def two_pools() -> ClusterBuilder:
    """Pools p and q of half-empty nodes."""
    types: Types = {"m": ("4", "16Gi", 0.20), "k": ("4", "16Gi", 0.20)}
    others = {f"k-{at:02d}": ("k", HALF) for at in range(40)}
    build = machines(halves() | others, types)
    groups = {"m": {"pool": Pool("p")}, "k": {"pool": Pool("q")}}
    return grouped(build, types, grows=(), groups=groups)


BOTH: Types = {"m": ("4", "16Gi", 0.20), "k": ("4", "16Gi", 0.20)}


def test_steer_19_nodes_of_a_pool_whose_budget_is_zero_are_not_marked() -> None:
    closed = (
        DisruptionBudget("closed", NodeLimit(nodes=0), groups=("q",)),
        DisruptionBudget("all", NodeLimit(share=1.0)),
    )
    document = steering(BOTH, more={"disruption_budgets": closed})
    stage = SteeringStage(two_pools(), document).play()
    assert stage.going
    assert {name[0] for name in stage.marked} == {"n"}
    stage.play(60)
    assert {name[0] for nodes in stage.removals for name in nodes} == {"n"}
    assert {name[0] for update in stage.updates for name in update} == {"n"}


def softly(names: tuple[str, ...], nodes: dict[str, Any], types: Types) -> ClusterBuilder:
    """The nodes, some of them with a soft taint of somebody else."""
    build = machines(nodes, types)
    wish = (Taint("example.com/prefer-spot", "PreferNoSchedule"),)
    build.nodes = [
        msgspec.structs.replace(node, taints=wish) if node.name in names else node
        for node in build.nodes
    ]
    return build


def test_steer_20_pool_with_a_soft_taint_of_somebody_else_is_not_steered() -> None:
    names = [f"k-{at:02d}" for at in range(40)]
    groups = {"m": {"pool": Pool("p")}, "k": {"pool": Pool("q")}}
    build = softly(("k-00",), halves() | dict.fromkeys(names, ("k", ())), BOTH)
    for name in names:
        build.running(name, 4, *P, owner="k", node_selector={TYPE: "k"})
    build = grouped(build, BOTH, grows=(), groups=groups)
    stage = SteeringStage(build, steering(BOTH)).play()
    [note] = stage.notes(ReasonCode.STEERING_OFF)[0]
    assert note.params == {"pool": "q", "taint": "example.com/prefer-spot"}
    assert {name[0] for name in stage.marked} == {"n"}
    stage.play(10)
    assert {name[0] for update in stage.updates for name in update} == {"n"}
    assert {name[0] for nodes in stage.removals for name in nodes} == {"k", "n"}


def test_steer_20_horizon_does_not_wait_for_a_pool_that_is_not_steered() -> None:
    names = [f"k-{at:02d}" for at in range(40)]
    build = softly(tuple(names), halves() | dict.fromkeys(names, ("k", ())), BOTH)
    for name in names:
        build.running(name, 4, *P, owner="k", node_selector={TYPE: "k"})
    groups = {"m": {"pool": Pool("p")}, "k": {"pool": Pool("q")}}
    build = grouped(build, BOTH, grows=(), groups=groups)
    stage = SteeringStage(build, steering(BOTH, more=ONE_AT_A_TIME)).play()
    going = stage.going
    stage.play(len(going))
    assert len(going) == 19
    assert sorted(name for nodes in stage.removals[1:] for name in nodes) == going
    stage.play(40)
    assert sum(map(len, stage.removals)) == 40


def test_steer_20_marks_are_one_more_than_soft_taints_on_nodes_that_stay() -> None:
    names = tuple(f"n-{at:02d}" for at in range(5))
    build = grouped(softly(names, halves(), TYPES), grows=())
    stage = SteeringStage(build, steering(steering=Steering.ALWAYS)).play()
    going = set(stage.going)
    assert not going & set(names)
    assert stage.marked == dict.fromkeys(going, 2)
    assert stage.notes(ReasonCode.STEERING_OFF) == [[]]


@each_row("of_group", [True, False], ids=["of the group", "of the pool"])
def test_steer_21_pool_of_five_that_must_keep_three_has_two_nodes_marked(of_group: bool) -> None:
    few = {f"k-{at}": ("k", pods(1)) for at in range(5)}
    minimum = {"min": 3} if of_group else {"pool": Pool("q", min=3)}
    groups: dict[str, dict[str, Any]] = {
        "m": {"pool": Pool("p")},
        "k": {"pool": Pool("q"), **minimum},
    }
    build = grouped(machines(halves() | few, BOTH), BOTH, grows=(), groups=groups)
    stage = SteeringStage(build, steering(BOTH)).play()
    assert sum(name.startswith("k") for name in stage.marked) == 2
    stage.play(10)
    assert sum(name.startswith("k") for nodes in stage.removals for name in nodes) == 2
