"""What is left when a horizon has ended: room for a rollout, and pods that stay where they are."""

from __future__ import annotations

from collections import Counter

import msgspec

from chalicelib.model.snapshot import PodDisruptionBudget
from tests.benchmarks.consolidation_world import pending_pod
from tests.builders import having
from tests.unit.plan.steering_stage import SteeringStage, halves, pool_of

HOUR = 3600.0


def test_steer_12_horizon_whose_budgets_all_refuse_is_given_up_without_an_error() -> None:
    stage = SteeringStage(pool_of(halves())).play()
    stage.world.set_budgets(PodDisruptionBudget("default", "rs", having(app="rs"), 0))
    stage.play(15).play(96, HOUR / 2)
    written = Counter(name for update in stage.updates for name in update)
    assert max(written.values()) <= 6
    assert not any(stage.removals)


def test_steer_22_room_for_one_surge_is_left_when_the_horizon_has_ended() -> None:
    stage = SteeringStage(pool_of(halves(84))).play()
    end = stage.world.nodes - len(stage.going)
    stage.play(30)
    assert stage.world.nodes == end == 45


def test_steer_3_pods_are_not_moved_again_when_the_horizon_has_ended() -> None:
    stage = SteeringStage(pool_of(halves(84))).play(30)
    moved = Counter(move.pod for move in stage.world.moves)
    assert sum(times > 1 for times in moved.values()) <= 0.01 * len(moved)


def test_steer_22_rollout_of_a_twentieth_at_the_end_finds_room() -> None:
    stage = SteeringStage(pool_of(halves(84))).play(30)
    world = stage.world
    old = list(world.snapshot().pods)
    surge = len(old) // 20
    for first in range(0, len(old), surge):
        for pod in old[first : first + surge]:
            new = msgspec.structs.replace(pod, name=f"{pod.name}-new")
            world.add_pod(pending_pod(new, f"{pod.uid}-new", world.now))
        world.bind()
        stage.play(1)
        for pod in old[first : first + surge]:
            world.end_pod(pod.key)
    assert len(old) > surge
    assert (len(world.bought), world.pending_minutes) == (0, 0)
