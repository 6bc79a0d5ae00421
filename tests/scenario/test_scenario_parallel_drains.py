"""Many parallel drains, and no more removals than a policy allows in an hour
(docs/reference/scale-down.md "Hourly limits")."""

from __future__ import annotations

from typing import Any

from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

HOUR = 3600.0
OPTIONS = {
    "scaleDownUnneededTime": "2m",
    "scaleDownDelayAfterAdd": "1m",
    "unremovableNodeRecheckTimeout": "1m",
}
OLD = "old"


def _nodes_with_a_pod_each(world: ScenarioWorld, count: int, **spec: Any) -> None:
    """That many hardly used nodes with one small pod each, and bigger ones that
    can hold all of these pods."""
    world.seed(objects.machine_deployment(OLD, count, 0, count))
    world.minutes(2)
    world.seed(
        objects.deployment("web", replicas=count, cpu="300m", terminationGracePeriodSeconds=20),
        objects.pdb("web", max_unavailable=10),
    )
    world.step(20)
    assert all(len(world.pods_on(name)) == 1 for name in world.nodes())
    world.seed(objects.machine_deployment("new", 3, 3, 3, cpu="16", memory="64Gi"))
    world.minutes(2)
    world.apply_policy(document(options={**OPTIONS, "maxDrainParallelism": 10}, **spec))


def _marked(world: ScenarioWorld) -> int:
    return sum(world.is_marked(name) for name in world.nodes())


def _left(world: ScenarioWorld) -> list[str]:
    return [name for name in world.nodes() if name.startswith(f"{OLD}-")]


@scenario(quick=True, grain=20.0)
def test_twenty_parallel_drains_use_one_hours_limit_and_the_rest_wait(world: ScenarioWorld) -> None:
    _nodes_with_a_pod_each(world, 24, maxDisruption={"nodesPerHour": 20})
    began, most = world.clock(), 0
    while len(_left(world)) > 4 and world.clock() - began < HOUR:
        world.step(20)
        most = max(most, _marked(world))

    assert 4 < most <= 10, "several at once, and no more than maxDrainParallelism"
    took = world.clock() - began
    assert took < HOUR
    world.minutes(5)
    assert len(_left(world)) == 4
    assert len(world.ended("remove")) == 20
    assert {end["state"] for end in world.ended("remove")} == {"succeeded"}
    held = [
        verdict["reason"]
        for verdict in world.last_plan()["unremovable"]
        if verdict["node"] in _left(world)
    ]
    assert {reason["code"] for reason in held} == {"MaxDisruption"}
    first = min(plan["at"] for plan in world.plans_with("removals"))
    assert {reason["params"]["until"] for reason in held} == {first + HOUR}, (
        "and it says when there is room again"
    )
    assert world.pods_ready("web") == 24

    world.minutes((first + HOUR - world.clock()) / 60.0 + 6)

    assert _left(world) == []
    assert world.pods_ready("web") == 24
    assert world.operations() == ()


@scenario(quick=True, grain=20.0)
def test_policy_may_still_limit_drains_to_one_at_a_time(world: ScenarioWorld) -> None:
    _nodes_with_a_pod_each(world, 4)
    world.apply_policy(document(options={**OPTIONS, "maxDrainParallelism": 1}))
    began, most = world.clock(), 0
    while _left(world) and world.clock() - began < HOUR:
        world.step(10)
        most = max(most, _marked(world))
    assert (most, _left(world)) == (1, [])
