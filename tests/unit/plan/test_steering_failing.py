"""Cases that fail at 0fee2bb3; each says why."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest

from chalicelib.model.pod import Pod
from chalicelib.model.snapshot import PodDisruptionBudget
from chalicelib.policy.settings.cluster_policy import Policy
from tests.benchmarks.consolidation_ends import SPARING, UNSTEERED
from tests.benchmarks.consolidation_world import MINUTE, Outscaler, pending_pod
from tests.builders import having
from tests.unit.plan.steering_stage import SteeringStage, halves, pool_of
from tests.unit.plan.test_steering_ends import played

HOUR = 3600.0


def test_steer_12_horizon_whose_budgets_all_refuse_is_given_up_without_an_error() -> None:
    """HorizonSearch of no candidates raises a ValueError, so that no pass plans any more."""
    stage = SteeringStage(pool_of(halves())).play()
    stage.world.set_budgets(PodDisruptionBudget("default", "rs", having(app="rs"), 0))
    stage.play(15).play(96, HOUR / 2)
    written = Counter(name for update in stage.updates for name in update)
    assert max(written.values()) <= 6
    assert not any(stage.removals)


def test_steer_22_room_for_one_surge_is_left_when_the_horizon_has_ended() -> None:
    """45 nodes stay by the horizon, three for one surge; the next pass searches all 45 without
    marks and takes these three."""
    stage = SteeringStage(pool_of(halves(84))).play()
    end = stage.world.nodes - len(stage.going)
    stage.play(30)
    assert stage.world.nodes == end == 45


def test_steer_3_pods_are_not_moved_again_when_the_horizon_has_ended() -> None:
    """The same search without marks evicts pods that the horizon has just moved."""
    stage = SteeringStage(pool_of(halves(84))).play(30)
    moved = Counter(move.pod for move in stage.world.moves)
    assert sum(times > 1 for times in moved.values()) <= 0.01 * len(moved)


def restarted(seed: int, nodes: int, document: Policy) -> tuple[int, float]:
    """Restarts every ReplicaSet at the end, a quarter of its pods at a time and the new ones first;
    the nodes that are bought, and the minutes for which pods wait."""
    world = played(seed, nodes, document)
    planner, before = Outscaler(document), world.pending_minutes
    classes = world.snapshot().classes
    owners: dict[int, list[Pod]] = {}
    for pod in world.snapshot().pods:
        if not classes[pod.cls].is_daemonset:
            owners.setdefault(pod.cls, []).append(pod)
    for old in owners.values():
        surge = max(1, len(old) // 4)
        for first in range(0, len(old), surge):
            for pod in old[first : first + surge]:
                new = msgspec.structs.replace(pod, name=f"{pod.name}-new")
                world.add_pod(pending_pod(new, f"{pod.uid}-new", world.now))
            world.bind()
            while world.pending:
                planner.act(world)
                world.bind()
                world.advance(MINUTE)
            for pod in old[first : first + surge]:
                world.end_pod(pod.key)
    return len(world.bought), world.pending_minutes - before


def all_restarted(seeds: range, nodes: int) -> None:
    ours, today = (
        np.array([restarted(seed, nodes, document) for seed in seeds]).sum(axis=0)
        for document in (SPARING, UNSTEERED)
    )
    print(f"\nbought, pod-minutes: {ours}; without marks {today}")
    assert (ours <= 1.1 * today + 1).all()


def test_steer_22_restarts_at_the_end_buy_no_more_than_without_marks() -> None:
    all_restarted(range(1, 3), 60)


@pytest.mark.slow
def test_steer_22_restarts_in_large_clusters_buy_no_more_than_without_marks() -> None:
    all_restarted(range(1, 4), 1000)
