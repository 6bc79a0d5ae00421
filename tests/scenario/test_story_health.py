"""Unready nodes: those of others matter to nobody, those of one group or zone to it alone, and timers wait instead of
being forgotten (demands.md 9)."""

from __future__ import annotations

from typing import Any

import pytest

from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import story
from tests.scenario.scenario_world import StoryWorld

OPTIONS = {
    "scaleDownUnneededTime": "8m",
    "scaleDownDelayAfterAdd": "1m",
    "maxNodeProvisionTime": "3m",
    "maxNodeStartupTime": "2m",
}
SICK, WELL = "MachineDeployment/default/sick", "MachineDeployment/default/well"
ZONE = "topology.kubernetes.io/zone"


def _decided(world: StoryWorld) -> list[Any]:
    """What every decision was about, without the names that are made of everything in the cluster."""
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
    """Grows, and shrinks again, beside ten nodes of nobody's, of which so many are unready."""
    with StoryWorld(None, quick=True, grain=20.0) as world:
        world.apply_policy(document(options={**OPTIONS, "scaleDownUnneededTime": "1m"}))
        world.seed(
            objects.machine_deployment("well", 1, 1, 5),
            *(objects.node(f"stranger-{at}", taints=[{"key": "theirs", "effect": "NoSchedule"}]) for at in range(10)),
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
def test_CA_10161_nodes_of_nobody_may_all_be_unready_and_every_plan_is_the_same(unready: int) -> None:
    well, sick = _a_day(0), _a_day(unready)

    assert sick == well
    assert any(scale_ups for _, scale_ups, *_ in well)
    assert any(removals for _, _, removals, *_ in well)


def _two_groups(world: StoryWorld) -> list[str]:
    """A group of eight idle nodes and one of a single busy node; the idle ones, unneeded for some minutes."""
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


@story(quick=True, grain=20.0)
def test_CA_1836_a_sick_group_is_left_alone_its_timers_wait_and_all_else_goes_on(world: StoryWorld) -> None:
    idle = _two_groups(world)
    counted = {name: world.clock() - known.unneeded_since for name, known in world.last_known_nodes().items()}
    assert 100.0 < min(counted.values()) < 480.0
    for name in idle[:4]:
        world.cluster.kubelets.silence(name)
    fell_ill = world.clock()

    world.minutes(5)
    world.scale("web", 3)
    world.minutes(6)

    # Eleven minutes are longer than the timer: nothing has gone, and the other group has grown meanwhile.
    assert len(world.machines("sick")) == 8
    assert not world.ended("remove")
    assert (world.size("well"), world.pods_ready("web")) == (3, 3)
    assert world.group_verdict(SICK)["code"] == "NotReadyForScaleUp"
    held = {verdict["node"]: verdict["reason"]["code"] for verdict in world.last_plan()["unremovable"]}
    assert {held[name] for name in idle} == {"NodeGroupUnhealthy"}

    for name in idle[:4]:
        world.cluster.kubelets.revive(name)
    recovered = world.clock()
    world.step_until(lambda: bool(world.ended("remove")), limit=600.0, every=20.0)

    # What was counted before is not counted again: it goes after the rest of its eight minutes.
    assert 480.0 - max(counted.values()) - 60.0 <= world.clock() - recovered < 480.0
    assert world.clock() - fell_ill > 480.0
    world.minutes(8)
    assert world.size("sick") == 1


@story(quick=True, grain=20.0)
def test_CA_5959_a_zone_that_is_sick_freezes_the_groups_in_it_and_no_other(world: StoryWorld) -> None:
    """Two groups in the zone, of which one is well by itself."""
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
    near = [verdict["reason"] for verdict in world.last_plan()["unremovable"] if verdict["node"].startswith("near-")]
    assert {reason["code"] for reason in near} == {"NodeGroupUnhealthy"}
    assert "in zone z-a are unready" in near[0]["params"]["detail"]
