"""Shadow mode, and policies that change while the cluster runs."""

from __future__ import annotations

import pytest

from chalicelib.model.errors import InputErrors
from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

OPTIONS = {"scaleDownUnneededTime": "2m"}
WORKERS = "MachineDeployment/default/workers"


@scenario(grain=20.0)
def test_shadow_mode_plans_and_explains_without_changes(world: ScenarioWorld) -> None:
    world.apply_policy(document(mode="shadow", options=OPTIONS))
    world.seed(
        objects.machine_deployment("workers", 3, 1, 5),
        objects.machine_deployment("big", 0, 0, 3, "16"),
    )
    world.minutes(2.5)
    assert len(world.last_known_nodes()) == 3
    world.minutes(3)
    world.seed(objects.deployment("web", replicas=2, cpu="12"))
    world.minutes(1)

    assert {
        removal["node"] for plan in world.plans_with("removals") for removal in plan["removals"]
    }
    assert {up["group"] for plan in world.plans_with("scale_ups") for up in plan["scale_ups"]} == {
        "MachineDeployment/default/big"
    }
    assert world.writes() == []
    assert world.operations() == ()
    assert {message.queue for message in world.queues.sent} == {"reconcile"}
    assert (world.size("workers"), world.size("big"), len(world.nodes())) == (3, 0, 3)

    world.apply_policy(document(mode="active", options=OPTIONS))
    world.minutes(1)

    assert world.size("big") == 2


@scenario(grain=20.0)
def test_new_policy_is_in_force_at_the_next_tick(world: ScenarioWorld) -> None:
    world.apply_policy(document(options={"scaleDownUnneededTime": "1h"}))
    world.seed(objects.machine_deployment("workers", 3, 1, 5))
    world.minutes(5.5)
    assert len(world.nodes()) == 3
    known = world.last_known_nodes()
    assert len(known) == 3

    world.apply_policy(document(options=OPTIONS))
    world.step(40)

    assert world.operations() != () or world.ended("remove") != []
    world.minutes(2)
    assert len(world.nodes()) == 1
    since = {plan["at"] for plan in world.plans_with("removals")}
    assert min(since) == 360.0 + world.passed_at()[0], "the timers were not begun anew"


@scenario(grain=20.0)
def test_invalid_document_is_rejected_and_the_last_valid_one_stays_in_force(
    world: ScenarioWorld,
) -> None:
    first = world.apply_policy(document(options=OPTIONS))
    bad = document(options={"scaleDownUnneededTime": "soon", "expandr": ["least-waste"]})

    with pytest.raises(InputErrors) as refused:
        world.apply_policy(bad)

    reported = str(refused.value)
    assert "scaleDownUnneededTime" in reported
    assert "expandr" in reported
    stored = world.store.policies.current("shop")
    assert stored is not None
    assert stored.version == first
    world.seed(objects.machine_deployment("workers", 2, 1, 5))
    world.minutes(6)
    assert len(world.nodes()) == 1


@scenario(grain=20.0)
def test_stored_document_unreadable_by_this_release_stops_only_its_cluster(
    world: ScenarioWorld,
) -> None:
    """As after a rollback to a release older than the document."""
    other = world.add_neighbour("garage")
    world.apply_policy(document("garage", options=OPTIONS))
    world.store.policies.put("shop", document("shop", newOption=1), "0" * 16, None)
    other.seed(objects.machine_deployment("workers", 2, 1, 5))

    world.minutes(6)

    assert len(other.kube.list("nodes")) == 1
    ticks = [invocation.answer for invocation in world.invocations if invocation.function == "tick"]
    assert {tuple(answer["failed"]) for answer in ticks} == {("shop",)}
    assert world.server.requests == []
