"""Pending pods get nodes, which are bought once."""

from __future__ import annotations

from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

WORKERS = "MachineDeployment/default/workers"


@scenario()
def test_backlog_gets_its_nodes_in_one_pass_and_nothing_is_bought_twice(
    world: ScenarioWorld,
) -> None:
    world.apply_policy(document())
    world.seed(objects.machine_deployment("workers", 1, 1, 8))
    world.minutes(2)
    world.seed(objects.deployment("web", replicas=12, cpu="1"))

    world.minutes(1)

    assert world.size("workers") == 4  # 3 pods of 1 core fit a node of 3.9
    assert len(world.nodes()) == 1  # the nodes are upcoming

    world.minutes(4)

    assert world.pending() == ()
    assert len(world.nodes()) == len(world.machines("workers")) == world.size("workers") == 4
    assert [(end["from"], end["to"]) for end in world.ended("grow")] == [(1, 4)]
    assert world.group_memory(WORKERS).request is None  # all requested nodes have joined
