"""Taints outside of removals: leftover taints are removed, and unneeded nodes get a soft taint
(docs/reference/drain.md "Soft taints", "Stale taints")."""

from __future__ import annotations

from typing import Any

from infra.emulators.controllers import objects
from infra.emulators.kube.objects import clone
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

HARD = "ToBeDeletedByClusterAutoscaler"
SOFT = "DeletionCandidateOfClusterAutoscaler"
OPERATION, CORDONED = "outscaler.dev/operation", "outscaler.dev/cordoned"
LATER = {"scaleDownUnneededTime": "2h"}
"""No removal within any of these scenarios."""


def _two_nodes(world: ScenarioWorld, **options: Any) -> list[str]:
    """Two nodes; returns their names."""
    world.apply_policy(document(options={**LATER, **options}))
    world.seed(objects.machine_deployment("workers", 2, 1, 5))
    world.minutes(2.5)
    return sorted(world.nodes())


def _mark(world: ScenarioWorld, name: str, value: str, **notes: str) -> None:
    """The taint and annotations that a removal leaves when its function dies in the middle."""
    node = clone(world.node(name))
    taints = [taint for taint in node["spec"].get("taints") or () if taint["key"] != SOFT]
    node["spec"] |= {
        "unschedulable": True,
        "taints": [*taints, {"key": HARD, "value": value, "effect": "NoSchedule"}],
    }
    node["metadata"]["annotations"] = {**node["metadata"].get("annotations", {}), **notes}
    world.kube.update("nodes", node)


def _soft(world: ScenarioWorld) -> set[str]:
    """Nodes with the soft taint."""
    return {
        name
        for name in world.nodes()
        if SOFT in {taint["key"] for taint in world.node(name)["spec"].get("taints") or ()}
    }


def _writes_to_nodes(world: ScenarioWorld) -> int:
    return sum("/nodes/" in request for request in world.writes())


@scenario(grain=30.0)
def test_taint_of_a_finished_operation_is_removed_by_the_next_pass(world: ScenarioWorld) -> None:
    left, other = _two_nodes(world)
    _mark(
        world, left, str(int(world.clock())), **{OPERATION: "remove-of-yesterday", CORDONED: "true"}
    )

    world.minutes(1.5)

    assert not world.is_marked(left)
    assert OPERATION not in world.node(left)["metadata"]["annotations"]
    assert CORDONED not in world.node(left)["metadata"]["annotations"]
    assert not world.is_marked(other)


@scenario(grain=60.0)
def test_taint_of_another_program_stays_as_long_as_a_removal_may_take(world: ScenarioWorld) -> None:
    left, _ = _two_nodes(world)
    _mark(world, left, str(int(world.clock())))

    world.minutes(20)
    assert world.is_marked(left)

    world.minutes(5)
    assert not world.is_marked(left)


@scenario(grain=30.0)
def test_unneeded_nodes_have_the_soft_taint_until_they_are_needed(world: ScenarioWorld) -> None:
    nodes = set(_two_nodes(world))
    world.minutes(2)
    assert _soft(world) == nodes
    said = next(taint for taint in world.node(min(nodes))["spec"]["taints"] if taint["key"] == SOFT)
    assert said["effect"] == "PreferNoSchedule"
    assert 0.0 <= world.clock() - int(said["value"]) <= 300.0
    asked = _writes_to_nodes(world)
    world.minutes(3)
    assert _writes_to_nodes(world) == asked  # a quiet pass makes no request

    # More than one node can hold, so the node is needed in spite of its soft taint.
    world.seed(objects.deployment("web", replicas=6, cpu="1"))
    world.minutes(2)
    assert world.pods_ready("web") == 6
    assert _soft(world) == set()
    assert set(world.nodes()) == nodes


@scenario(grain=30.0)
def test_soft_taints_are_removed_when_the_option_is_off(world: ScenarioWorld) -> None:
    nodes = set(_two_nodes(world))
    world.minutes(2)
    assert _soft(world) == nodes

    world.apply_policy(document(options={**LATER, "maxBulkSoftTaintCount": 0}))
    world.minutes(2)

    assert _soft(world) == set()
