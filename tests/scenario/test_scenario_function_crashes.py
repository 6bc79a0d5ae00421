"""Functions die at critical instants; every requested node exists exactly once."""

from __future__ import annotations

import pytest

from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import ScenarioRunner, scenario
from tests.scenario.scenario_world import ScenarioWorld

TOLD = ("/events", "/configmaps")  # published events
WORKERS = "MachineDeployment/default/workers"


def _pods_wait_for_three_nodes(world: ScenarioWorld) -> None:
    world.apply_policy(document())
    world.seed(objects.machine_deployment("workers", 1, 1, 8))
    world.minutes(2.5)
    world.seed(objects.deployment("web", replicas=12, cpu="1"))


def _exactly_four_nodes_came(world: ScenarioWorld) -> None:
    """Checks that one scale-up was requested of the cluster, once, with as many Machines."""
    assert [(end["from"], end["to"], end["state"]) for end in world.ended("grow")] == [
        (1, 4, "succeeded")
    ]
    assert len(world.writes(*TOLD)) == 1, world.writes(*TOLD)
    assert len(world.machines("workers")) == len(world.nodes()) == world.size("workers") == 4
    assert world.pending() == ()
    assert world.operations() == ()


@scenario(grain=30.0)
def test_act_killed_twice_between_call_and_record_buys_once(world: ScenarioWorld) -> None:
    _pods_wait_for_three_nodes(world)
    world.kill_at("grow:called", times=2)

    world.minutes(11)

    assert world.deaths() == ["grow:called", "grow:called"]
    _exactly_four_nodes_came(world)
    assert world.group_memory(WORKERS).request is None


@pytest.mark.parametrize("place", ["reconcile:observed", "reconcile:saved", "reconcile:sent"])
def test_killed_reconcile_is_continued_without_a_second_plan(
    stage: ScenarioRunner, place: str
) -> None:
    def tell(world: ScenarioWorld) -> None:
        _pods_wait_for_three_nodes(world)
        world.kill_at(place, function="reconcile")

        world.minutes(10)

        assert world.deaths() == [place]
        _exactly_four_nodes_came(world)
        planned = {
            operation["spec"]["id"]
            for memory in world.passes
            for operation in memory["shop"].get("operations", ())
        }
        assert len(planned) == 1

    stage.play(tell, grain=30.0)


@pytest.mark.parametrize("place", ["act:claimed", "act:recorded", "taint:called", "delete:called"])
def test_act_killed_in_a_removal_removes_the_node_once(stage: ScenarioRunner, place: str) -> None:
    def tell(world: ScenarioWorld) -> None:
        world.apply_policy(document(options={"scaleDownUnneededTime": "1m"}))
        world.seed(objects.machine_deployment("workers", 2, 1, 5))
        world.kill_at(place, function="act_clusterapi")

        world.minutes(10)

        assert world.deaths() == [place]
        (removed,) = world.ended("remove")
        assert (removed["state"], removed["removed"]) == ("succeeded", 1)
        assert world.size("workers") == len(world.nodes()) == 1
        assert not any(world.is_marked(name) for name in world.nodes())

    stage.play(tell, grain=30.0)
