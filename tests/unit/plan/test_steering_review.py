"""States of a horizon that must end, and memory, clocks and prices that are not as expected
(docs/reference/consolidation.md "Horizon")."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import ConsolidationMemory, Memory, NodeMemory
from chalicelib.model.plan import TaintUpdate
from chalicelib.model.snapshot import PodDisruptionBudget, Snapshot
from chalicelib.plan.removal.consolidation.patience import Patience
from chalicelib.plan.removal.consolidation.steering import HorizonPass
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from tests.benchmarks.consolidation_clusters import ClusterShape, generate
from tests.benchmarks.consolidation_ends import SPARING
from tests.benchmarks.consolidation_world import Outscaler
from tests.builders import NOW, having
from tests.cases import each_row
from tests.unit.plan.consolidation_fixture import grouped, machines
from tests.unit.plan.steering_stage import (
    ONE_AT_A_TIME,
    MarkedWorld,
    SteeringStage,
    halves,
    in_the_world,
    pool_of,
    report_of,
    steering,
)

DAY = 86_400.0


def remembering(stage: SteeringStage, **fields: object) -> None:
    """Another memory of consolidation."""
    memory = stage.outscaler.memory
    consolidation = msgspec.structs.replace(memory.consolidation, **fields)
    stage.outscaler.memory = msgspec.structs.replace(memory, consolidation=consolidation)


def test_nodes_go_once_confirm_after_has_passed_since_the_horizon_was_decided() -> None:
    stage = SteeringStage(pool_of(halves()), steering(confirm_after=60.0)).play(7, 10.0)
    assert [len(nodes) for nodes in stage.removals] == [0, 0, 0, 0, 0, 0, 19]


def test_clock_that_was_ahead_when_the_horizon_was_decided_does_not_stop_it() -> None:
    stage = SteeringStage(pool_of(halves()), steering(confirm_after=60.0)).play()
    assert stage.horizon is not None
    remembering(stage, horizon=msgspec.structs.replace(stage.horizon, since=NOW + 30 * DAY))
    stage.play()
    assert len(stage.removals[-1]) == 19


def test_nodes_beside_a_few_that_must_stay_are_consolidated_with_or_without_marks() -> None:
    """33 nodes could go, 30 of them if those that stay do not count."""
    stage = SteeringStage(pool_of(halves(33))).play(0)
    until = stage.world.now + DAY / 2
    nodes = {f"n-{at:02d}": NodeMemory(stays_until=until) for at in range(3)}
    stage.outscaler.memory = Memory(nodes=nodes)
    stage.play(3)
    assert any(stage.removals)


def test_pool_that_loses_its_price_while_a_node_is_drained_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = SteeringStage(pool_of(halves()), steering(more=ONE_AT_A_TIME)).play()
    monkeypatch.setattr(Outscaler, "_finish", lambda *_: None)
    monkeypatch.setattr(stage.world, "remove", lambda *_: None)
    stage.play()
    operations = tuple(stage.plans[-1].operations)
    assert (len(operations), len(stage.removals[-1])) == (1, 1)
    memory = stage.outscaler.memory
    stage.outscaler.memory = msgspec.structs.replace(memory, operations=operations)
    stage.obey(steering({}, more=ONE_AT_A_TIME))
    stage.play(2)
    assert stage.removals[-2:] == [[], []]
    assert stage.going == []


def _with_lone_node() -> Snapshot:
    build = machines(halves())
    build.node("lone", "4", "16Gi")
    return grouped(build, grows=()).snapshot()


def test_node_that_keeps_room_and_leaves_its_group_does_not_stop_the_others() -> None:
    stage = SteeringStage(in_the_world(_with_lone_node())).play()
    assert stage.horizon is not None
    levels = {**stage.horizon.levels, "lone": 2}
    remembering(stage, horizon=msgspec.structs.replace(stage.horizon, levels=levels))
    stage.play(2)
    assert any(stage.removals)


class HalfReadWorld(MarkedWorld):
    """unread: whether the provider's answer on group m is missing."""

    unread = False

    def snapshot(self) -> Snapshot:
        snapshot = super().snapshot()
        error = "timeout" if self.unread else ""

        def read(group: NodeGroup) -> NodeGroup:
            return msgspec.structs.replace(group, error=error)

        return msgspec.structs.replace(snapshot, groups=tuple(map(read, snapshot.groups)))


def half_read() -> tuple[SteeringStage, HalfReadWorld]:
    stage = SteeringStage(pool_of(halves()), steering(more=ONE_AT_A_TIME))
    world = HalfReadWorld(in_the_world(pool_of(halves()).snapshot()))
    stage.world = world
    return stage, world


def test_group_that_cannot_be_read_for_some_passes_keeps_its_marks() -> None:
    stage, world = half_read()
    stage.play(1)
    marked, ids = stage.marked, stage.ids
    world.unread = True
    stage.play(3)
    world.unread = False
    stage.play(3)
    assert (stage.updates[1:], set(stage.ids)) == ([{}] * 6, set(ids))
    assert [len(nodes) for nodes in stage.removals] == [0, 0, 0, 0, 1, 1, 1]
    assert marked


def test_group_that_cannot_be_read_for_a_day_has_no_horizon_any_more() -> None:
    stage, world = half_read()
    stage.play(1)
    world.unread = True
    stage.play(48, 1800.0)
    assert stage.going == []


class StrippedWorld(MarkedWorld):
    """Somebody takes all marks away, but only after a pass has seen them."""

    passes = 0

    def mark(self, updates: Iterable[TaintUpdate]) -> None:
        self.passes += 1
        if self.passes % 2:
            super().mark(updates)
        else:
            marked = [node.name for node in self.snapshot().nodes if node.taints]
            super().mark(TaintUpdate(name, "mark") for name in marked)


def test_steer_8_marks_that_are_stripped_later_are_not_written_for_ever() -> None:
    document = steering(confirm_after=DAY)
    stage = SteeringStage(pool_of(halves()), document)
    stage.world = StrippedWorld(in_the_world(pool_of(halves()).snapshot()))
    stage.play(40)
    assert sum(bool(update) for update in stage.updates) <= 4


def test_shadow_follows_a_cluster_that_changes() -> None:
    stage = SteeringStage(pool_of(halves()), steering(mode=ConsolidationMode.SHADOW)).play()
    before = stage.horizon
    remembering(stage, searched=(1, 1, 1, 1), horizon_at=NOW - DAY)
    stage.play()
    assert stage.outscaler.memory.consolidation.searched != (1, 1, 1, 1)
    assert before is not None


def test_horizon_that_is_found_again_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = HorizonPass.decide
    monkeypatch.setattr(HorizonPass, "decide", lambda self, *, stuck: decide(self, stuck=True))
    stage = SteeringStage(pool_of(halves()), steering(confirm_after=DAY)).play()
    for _ in range(3):
        remembering(stage, horizon_at=0.0)
        stage.play()
    assert len(set(stage.ids)) == 1


def test_new_marks_are_written_before_others_are_removed() -> None:
    stage = SteeringStage(pool_of(halves()), steering(confirm_after=DAY)).play()
    horizon = stage.horizon
    assert horizon is not None
    first, *rest = horizon.going
    levels = {**dict.fromkeys(rest, 1), "n-00": 2}
    changed = msgspec.structs.replace(horizon, levels=levels, going=tuple(rest))
    remembering(stage, horizon=changed)
    stage.play()
    assert list(stage.updates[-1].items()) == [("n-00", 2), (first, 0)]


@pytest.mark.parametrize("since", [-1e18, 1e18])
def test_score_of_any_instant_is_no_error(since: float) -> None:
    memory = ConsolidationMemory(scores={"p": ((since, 0.4),)}, scored_at=NOW)
    patience = Patience(memory, NOW, Consolidation())
    assert 0.125 <= patience.needed("p") <= 0.5


def test_owner_without_moves_in_memory_is_no_error() -> None:
    stage = SteeringStage(pool_of(halves()))
    owners = {f"default/ReplicaSet/{name}": () for name in ("rs", "app", "")}
    remembering(stage, moves=owners)
    assert len(stage.play().going) == 19


@each_row("moved, leaving", [(160, 0), (1, 19)], ids=["all", "one"])
def test_pods_that_are_new_count_as_moved_no_more_often_than_pods_were(
    moved: int, leaving: int
) -> None:
    start = pool_of(halves()).snapshot()
    pods = [msgspec.structs.replace(pod, created=NOW - 1800.0) for pod in start.pods]
    stage = SteeringStage(in_the_world(msgspec.structs.replace(start, pods=tuple(pods))))
    remembering(stage, moves={"default/ReplicaSet/rs": ((NOW - 3600.0, moved),)})
    assert len(stage.play().going) == leaving


def test_load_that_falls_while_nodes_leave_lets_more_of_them_leave() -> None:
    stage = SteeringStage(pool_of(halves(80)), steering(more=ONE_AT_A_TIME)).play(3)
    first = stage.horizon
    assert first is not None
    staying = [node.name for node in stage.world.snapshot().nodes if node.name not in first.going]
    for pod in stage.world.snapshot().pods:
        if pod.node in staying[::2]:
            stage.world.end_pod(pod.key)
    stage.play(10)
    assert stage.horizon is not None
    assert stage.horizon.id != first.id
    assert stage.horizon.end < first.end


def test_own_drains_are_no_change_of_the_cluster() -> None:
    stage = SteeringStage(pool_of(halves(80)), steering(more=ONE_AT_A_TIME)).play(30)
    assert len(set(stage.ids)) == 1
    assert sum(map(len, stage.removals)) == 29
    report = report_of(stage.plans[-1])
    assert report is not None
    assert report.gone == 28


def test_pods_of_daemonsets_that_go_with_their_nodes_are_no_change_of_the_cluster() -> None:
    cluster = generate(ClusterShape(200, seed=15))
    assert any(cls.is_daemonset for cls in cluster.classes)
    stage = SteeringStage(cluster, SPARING, seed=15).play(11)
    assert stage.horizon is not None
    assert stage.horizon.gone > 100
    assert len(set(stage.ids)) == 1


def test_nodes_that_share_a_pod_disruption_budget_leave_one_after_the_other() -> None:
    """The budget allows a disruption every half hour, so the last waits for hours."""
    stage = SteeringStage(pool_of(halves())).play()
    budget = PodDisruptionBudget("default", "rs", having(app="rs"), 0)
    for turn in range(24):
        stage.world.set_budgets(msgspec.structs.replace(budget, allowed=4 * (turn % 3 == 2)))
        stage.play(1, 600.0)
    removed = [len(nodes) for nodes in stage.removals]
    assert removed[1:] == [0, 0, 1] * 8


def test_few_nodes_that_may_go_now_wait_for_a_horizon_where_many_may_leave() -> None:
    snapshot = in_the_world(pool_of(halves(40)).snapshot())
    young = [msgspec.structs.replace(node, created=NOW) for node in snapshot.nodes[:20]]
    nodes = (*young, *snapshot.nodes[20:])
    stage = SteeringStage(msgspec.structs.replace(snapshot, nodes=nodes))
    remembering(stage, horizon_at=NOW)
    stage.play(8)
    assert (stage.ids, stage.removals) == ([""] * 8, [[]] * 8)
    stage.play(20)
    assert any(stage.ids)
    assert any(stage.removals)
