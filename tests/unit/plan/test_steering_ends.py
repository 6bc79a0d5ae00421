"""A horizon comes to an end, whatever keeps its nodes and whatever memory says
(docs/reference/consolidation.md "Horizon")."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chalicelib.model.group import Pool
from chalicelib.model.memory import ConsolidationMemory, Horizon, Memory, NodeMemory
from chalicelib.model.node import LEAVING_MARKS, SCALE_DOWN_DISABLED
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.benchmarks.consolidation_clusters import ClusterShape, generate
from tests.benchmarks.consolidation_ends import SPARING
from tests.benchmarks.consolidation_world import (
    Outscaler,
    World,
    run_to_the_end,
)
from tests.benchmarks.scheduler_referee import SchedulerScores
from tests.builders import NOW, ClusterBuilder
from tests.unit.plan.consolidation_fixture import TYPE, Machine, P, grouped, machines
from tests.unit.plan.steering_stage import (
    ONE_AT_A_TIME,
    SteeringStage,
    halves,
    pool_of,
    steering,
)

HOUR = 3600.0
HOURS = 48
NODES = 40


def blocking_pods(stage: SteeringStage) -> None:
    """Every node gets a pod that may not be evicted."""
    snapshot = stage.world.snapshot()
    at = next(at for at, cls in enumerate(snapshot.classes) if cls.safe_to_evict == "false")
    pod = snapshot.pods[0]
    for name in halves(NODES):
        fields = {"name": f"block-{name}", "uid": f"block-{name}", "cls": at, "node": name}
        stage.world.add_pod(msgspec.structs.replace(pod, **fields))


def no_disruption(stage: SteeringStage) -> None:
    """A disruption budget of zero."""
    closed = (DisruptionBudget("closed", NodeLimit(nodes=0)),)
    stage.obey(steering(more={"disruption_budgets": closed}))


def no_removals(stage: SteeringStage) -> None:
    """Scale-down is switched off."""
    stage.obey(steering(options={"scale_down_enabled": False}))


LASTING: list[Callable[[SteeringStage], None]] = [
    blocking_pods,
    no_disruption,
    no_removals,
]


@pytest.mark.parametrize("reason", LASTING, ids=lambda reason: reason.__name__)
def test_steer_12_two_days_without_a_possible_drain_write_few_marks(
    reason: Callable[[SteeringStage], None],
) -> None:
    build = machines(halves(NODES))
    build.cls("10m", "10Mi", owner="block", safe_to_evict="false")
    stage = SteeringStage(grouped(build, grows=())).play()
    assert len(stage.updates[0]) == 19
    reason(stage)
    stage.play(15).play(HOURS * 2, HOUR / 2)
    written = Counter(name for update in stage.updates for name in update)
    assert max(written.values()) <= 2 * (1 + HOURS / 24)
    assert sum(written.values()) <= 19 * 4
    assert not any(stage.removals)


def test_steer_2_two_days_in_which_every_node_refuses_its_mark_write_few_marks() -> None:
    """One node takes its mark, the others never do."""
    stage = SteeringStage(pool_of(halves(NODES)), steering(more=ONE_AT_A_TIME))
    stage.world.refusing = set(halves(NODES)) - {"n-39"}
    stage.play(15).play(HOURS, HOUR)
    assert sum(map(len, stage.updates)) <= 4 * 3 * NODES


# --- what no horizon ever holds


def kept_nodes(seed: int) -> tuple[ClusterBuilder, set[str], dict[str, int]]:
    """A cluster at random; the nodes that standing limits keep, and the minimums of its groups."""
    draw = random.Random(seed)
    types: dict[str, Machine] = dict.fromkeys("abc", ("4", "16Gi", 0.2))
    build = machines({})
    kept: set[str] = set()
    for at in range(100):
        name, kind = f"n-{at:02d}", draw.choice("abc")
        why = draw.choice(["", "", "", "annotation", "protected", "pod", "pod protected"])
        annotations = {"annotation": {SCALE_DOWN_DISABLED: "true"}}.get(why, {})
        annotations |= {"protected": {"karpenter.sh/do-not-disrupt": "true"}}.get(why, {})
        build.node(name, "4", "16Gi", group=kind, labels={TYPE: kind}, annotations=annotations)
        build.running(name, draw.randint(0, 5), *P)
        more: dict[str, dict[str, Any]] = {
            "pod": {"safe_to_evict": "false"},
            "pod protected": {"do_not_disrupt": "true"},
        }
        if why in more:
            build.running(name, 1, "10m", "10Mi", owner="own", **more[why])
        if why:
            kept.add(name)
    least = {kind: draw.randint(15, 35) for kind in "abc"}
    groups = {kind: {"min": least[kind], "pool": Pool("p", min=60)} for kind in "abc"}
    return grouped(build, types, grows=(), groups=groups), kept, least


@pytest.mark.parametrize("seed", range(8))
def test_no_horizon_holds_nodes_that_standing_limits_keep(seed: int) -> None:
    build, kept, least = kept_nodes(seed)
    types: dict[str, Machine] = dict.fromkeys("abc", ("4", "16Gi", 0.2))
    stage = SteeringStage(build, steering(types)).play()
    sizes = Counter(node.labels[TYPE] for node in build.nodes)
    going = set(stage.going)
    kinds = Counter(node.labels[TYPE] for node in build.nodes if node.name in going)
    assert not going & kept
    assert all(sizes[kind] - kinds[kind] >= min(least[kind], sizes[kind]) for kind in "abc")
    assert len(build.nodes) - len(going) >= 60


def test_some_clusters_at_random_have_a_horizon() -> None:
    types: dict[str, Machine] = dict.fromkeys("abc", ("4", "16Gi", 0.2))
    sizes = [
        len(SteeringStage(kept_nodes(seed)[0], steering(types)).play().going) for seed in range(8)
    ]
    assert sum(size > 0 for size in sizes) >= 3


# --- memory with impossible values

FAR = 1e18
NAMES = ("n-00", "n-39", "nobody", "", "x" * 5000)
HOSTILE: list[Horizon] = [
    Horizon("h", NOW - 60, dict.fromkeys(NAMES, 99), NAMES, 1),
    Horizon("h", -FAR, dict.fromkeys(NAMES, -5), NAMES, -1),
    Horizon("h", FAR, dict.fromkeys(NAMES, 1), NAMES, 10**18),
    Horizon("", 0.0, {}, NAMES, 0, batch=NAMES, refused=dict.fromkeys(NAMES, -(10**9))),
    Horizon("h", NOW, {"n-00": 1}, ("n-00", "n-00"), 1, missing=-(10**9)),
    Horizon("h", NOW, {"n-00": 1}, ("n-00",), 1, missing=10**9, batch=("n-01", "n-01")),
    Horizon("é\n" * 200, NOW, {"n-00": 2}, (), 1, refused={"n-00": 10**9}),
]


@pytest.mark.parametrize("horizon", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("at", [0.0, -FAR, FAR, NOW + 1e6])
def test_hostile_memory_neither_raises_nor_marks_beyond_the_levels(
    horizon: Horizon, at: float
) -> None:
    nodes = {name: NodeMemory(held_since=at, stays_until=-at, marked=True) for name in NAMES}
    remembered = ConsolidationMemory(horizon=horizon, searched=(-1, 10**18), horizon_at=at)
    stage = SteeringStage(pool_of(halves(NODES)))
    stage.outscaler.memory = Memory(nodes=nodes, consolidation=remembered)
    stage.play(3).play(8, HOUR)
    levels = {level for update in stage.updates for level in update.values()}
    names = {name for update in stage.updates for name in update}
    assert levels <= set(range(len(LEAVING_MARKS) + 1))
    assert names <= set(halves(NODES))
    assert any(stage.removals), "consolidation goes on"


# --- 3 and 22: to the end, with all scores of the scheduler


def played(seed: int, nodes: int, document: Policy) -> World:
    shape = ClusterShape(nodes, seed=seed)
    world = World(generate(shape), scores=SchedulerScores.DEFAULT, seed=seed)
    assert run_to_the_end(world, Outscaler(document), quiet=12).ended
    return world


def moved_twice(seeds: range, nodes: int) -> None:
    twice = moved = 0
    for seed in seeds:
        world = played(seed, nodes, SPARING)
        counts = Counter(move.pod for move in world.moves)
        twice += sum(times > 1 for times in counts.values())
        moved += len(counts)
        assert (world.pending, world.bought) == (0, [])
    assert moved > 100 * len(seeds)
    assert twice <= 0.01 * moved


def test_steer_3_hardly_a_pod_moves_twice() -> None:
    moved_twice(range(1, 3), 80)


@pytest.mark.slow
def test_steer_3_hardly_a_pod_of_twenty_clusters_moves_twice() -> None:
    moved_twice(range(1, 21), 200)
