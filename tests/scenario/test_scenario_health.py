"""Unready nodes: those without a group have no effect, those of a group or zone affect only that
group or zone, and timers pause instead of being reset."""

from __future__ import annotations

from typing import Any

import pytest

from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

OPTIONS = {
    "scaleDownUnneededTime": "8m",
    "scaleDownDelayAfterAdd": "1m",
    "maxNodeProvisionTime": "3m",
    "maxNodeStartupTime": "2m",
}
UNHEALTHY, HEALTHY = "MachineDeployment/default/sick", "MachineDeployment/default/well"
ZONE = "topology.kubernetes.io/zone"


def _decided(world: ScenarioWorld) -> list[Any]:
    """The content of every decision, without the names derived from the whole cluster."""
    return [
        (
            plan["at"],
            plan.get("scale_ups", ()),
            plan.get("removals", ()),
            plan.get("unneeded", ()),
            plan.get("groups", ()),
        )
        for plan in world.plans()
    ]


def _a_day(strangers_unready: int) -> list[Any]:
    """Scales up and down again, next to ten nodes without a group, of which that many are
    unready."""
    with ScenarioWorld(None, quick=True, grain=20.0) as world:
        world.apply_policy(document(options={**OPTIONS, "scaleDownUnneededTime": "1m"}))
        world.seed(
            objects.machine_deployment("well", 1, 1, 5),
            *(
                objects.node(f"stranger-{at}", taints=[{"key": "theirs", "effect": "NoSchedule"}])
                for at in range(10)
            ),
        )
        for at in range(strangers_unready):
            world.cluster.kubelets.silence(f"stranger-{at}")
        world.minutes(2)
        world.seed(objects.deployment("web", replicas=6, cpu="1500m"))
        world.minutes(5)
        world.scale("web", 1)
        world.minutes(8)
        assert world.size("well") == 1
        return _decided(world)


@pytest.mark.parametrize("unready", [6, 10])
def test_unready_nodes_without_a_group_never_change_a_plan(unready: int) -> None:
    well, unhealthy = _a_day(0), _a_day(unready)

    assert unhealthy == well
    assert any(scale_ups for _, scale_ups, *_ in well)
    assert any(removals for _, _, removals, *_ in well)


def _two_groups(world: ScenarioWorld) -> list[str]:
    """A group of eight idle nodes and one of a single busy node; the idle ones have been
    unneeded for some minutes."""
    world.apply_policy(document(options=OPTIONS))
    world.seed(
        objects.machine_deployment("sick", 8, 1, 9, labels={"pool": "sick"}, zone="z-a"),
        objects.machine_deployment("well", 1, 1, 5, labels={"pool": "well"}, zone="z-b"),
    )
    world.minutes(2.5)
    world.seed(objects.deployment("web", replicas=1, cpu="2500m", nodeSelector={"pool": "well"}))
    world.minutes(4)
    idle = sorted(name for name in world.nodes() if name.startswith("sick-"))
    assert set(idle) <= set(world.last_known_nodes())
    return idle


@scenario(quick=True, grain=20.0)
def test_unhealthy_group_is_frozen_its_timers_pause_and_other_groups_continue(
    world: ScenarioWorld,
) -> None:
    idle = _two_groups(world)
    counted = {
        name: world.clock() - known.unneeded_since
        for name, known in world.last_known_nodes().items()
    }
    assert 100.0 < min(counted.values()) < 480.0
    for name in idle[:4]:
        world.cluster.kubelets.silence(name)
    fell_ill = world.clock()

    world.minutes(5)
    world.scale("web", 3)
    world.minutes(6)

    # Eleven minutes exceed the timer: nothing was removed, and the other group has grown meanwhile.
    assert len(world.machines("sick")) == 8
    assert not world.ended("remove")
    assert (world.size("well"), world.pods_ready("web")) == (3, 3)
    assert world.group_verdict(UNHEALTHY)["code"] == "NotReadyForScaleUp"
    held = {
        verdict["node"]: verdict["reason"]["code"] for verdict in world.last_plan()["unremovable"]
    }
    assert {held[name] for name in idle} == {"NodeGroupUnhealthy"}

    for name in idle[:4]:
        world.cluster.kubelets.revive(name)
    recovered = world.clock()
    world.step_until(lambda: bool(world.ended("remove")), limit=600.0, every=20.0)

    # Time counted before the pause still counts: the node is removed after the
    # rest of its eight minutes.
    assert 480.0 - max(counted.values()) - 60.0 <= world.clock() - recovered < 480.0
    assert world.clock() - fell_ill > 480.0
    world.minutes(8)
    assert world.size("sick") == 1


@scenario(quick=True, grain=20.0)
def test_unhealthy_zone_freezes_only_the_groups_in_it(world: ScenarioWorld) -> None:
    """Two groups in the zone, one of which is healthy by itself."""
    world.apply_policy(document(options={**OPTIONS, "scaleDownUnneededTime": "1m"}))
    world.seed(
        objects.machine_deployment("sick", 7, 1, 9, zone="z-a"),
        objects.machine_deployment("near", 3, 1, 5, zone="z-a"),
        objects.machine_deployment("well", 8, 1, 9, zone="z-b"),
    )
    world.step(100)
    for name in world.nodes():
        if name.startswith("sick-"):
            world.cluster.kubelets.silence(name)
    world.minutes(6)

    assert len(world.machines("sick")) == 7
    assert len(world.machines("near")) == 3
    assert world.size("well") < 8
    assert world.last_plan()["health"]["sick_zones"] == ["z-a"]
    near = [
        verdict["reason"]
        for verdict in world.last_plan()["unremovable"]
        if verdict["node"].startswith("near-")
    ]
    assert {reason["code"] for reason in near} == {"NodeGroupUnhealthy"}
    assert "in zone z-a are unready" in near[0]["params"]["detail"]
