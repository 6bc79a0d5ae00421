"""Repairs on Cluster API: machines that never join, groups without stock, and unreadable groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infra.emulators.controllers import objects
from infra.emulators.controllers.capi import fields
from infra.emulators.kube.objects import clone
from infra.emulators.virtual_sqs import twice
from tests.scenario.policies import document
from tests.scenario.runner import ScenarioRunner, scenario
from tests.scenario.scenario_world import ScenarioWorld

GROUP = "MachineDeployment/default/{}"
QUICK = {"maxNodeProvisionTime": "4m"}


def _sizes(world: ScenarioWorld, group: str) -> Callable[[], list[int]]:
    """Returns a function that gives every size requested of the group since then."""
    seen, reported = [world.size(group)], world.kube.subscribe("machinedeployments", fields.GROUP)

    def sizes() -> list[int]:
        for event in reported.poll():
            size = event.object["spec"]["replicas"]
            if event.object["metadata"]["name"] == group and size != seen[-1]:
                seen.append(size)
        return seen

    return sizes


def _joined_and_not(
    world: ScenarioWorld, size: int, least: int, dead: int = 1
) -> tuple[set[str], set[str]]:
    """The group's machines that are nodes, and those that never will be."""
    world.apply_policy(
        document(options={**QUICK, "enforceNodeGroupMinSize": True, "scaleDownUnneededTime": "10h"})
    )
    world.cluster.capi.fail_next("default/workers", "never-joins", dead)
    world.seed(objects.machine_deployment("workers", size, least, size + 3))
    world.minutes(2)
    joined = set(world.nodes())
    assert len(joined) == size - dead
    return joined, set(world.machines("workers")) - joined


@pytest.mark.parametrize("trouble", ["none", "duplicates", "delete:called", "act:recorded"])
def test_machine_that_never_joins_is_replaced_at_the_minimum_size(
    stage: ScenarioRunner, trouble: str
) -> None:
    """Also covers kubernetes/autoscaler issue 6795: despite duplicates and crashes, the size is
    lowered by exactly one machine."""

    def tell(world: ScenarioWorld) -> None:
        joined, dead = _joined_and_not(world, 3, 3)
        sizes = _sizes(world, "workers")
        if trouble == "duplicates":
            world.queues.tamper = twice
        elif trouble != "none":
            world.kill_at(trouble, function="act_clusterapi")

        world.minutes(14)

        assert joined < set(world.nodes())
        assert len(world.nodes()) == len(world.machines("workers")) == world.size("workers") == 3
        assert not dead & set(world.machines("workers"))
        assert sizes() == [3, 2, 3], "lowered once, and grown to its minimum again"
        assert world.operations() == ()
        assert world.group_memory(GROUP.format("workers")).request is None

    stage.play(tell, quick=True, grain=20.0)


@scenario(quick=True, grain=20.0)
def test_machine_that_never_joins_is_only_deleted_above_the_minimum(world: ScenarioWorld) -> None:
    joined, _ = _joined_and_not(world, 4, 1, dead=2)
    sizes = _sizes(world, "workers")

    world.minutes(12)

    assert set(world.nodes()) == set(world.machines("workers")) == joined
    assert sizes()[-1] == 2
    assert sizes() == sorted(sizes(), reverse=True)


@pytest.mark.parametrize(("version", "limit"), [("v1beta1", 200.0), ("v1beta2", 720.0)])
def test_third_group_is_scaled_up_in_the_pass_that_finds_two_without_stock(
    stage: ScenarioRunner, version: str, limit: float
) -> None:
    """A v1beta1 Machine reports its failure; for v1beta2 only the elapsed time shows it."""
    names = ("first", "second", "third")

    def tell(world: ScenarioWorld) -> None:
        world.apply_policy(
            document(
                scan="20s",
                options={"expander": ["priority"], **QUICK},
                providers={"clusterapi": {"version": version}},
                nodeGroups=[
                    {
                        "provider": "clusterapi",
                        "id": GROUP.format(name),
                        "min": 0,
                        "max": 4,
                        "priority": 30 - 10 * at,
                    }
                    for at, name in enumerate(names)
                ],
            )
        )
        world.seed(
            objects.machine_deployment("base", 1, 1, 1, "1", version=version),
            *(objects.machine_deployment(name, 0, 0, 4, version=version) for name in names),
        )
        world.minutes(2)
        for name in names[:2]:
            world.cluster.capi.fail_next(f"default/{name}", "provisioning-failure", 2)
        world.seed(objects.deployment("web", replicas=2, cpu="3"))

        world.step_until(lambda: world.pending() == (), limit=limit)

        asked = [
            (plan["at"], up["group"])
            for plan in world.plans_with("scale_ups")
            for up in plan["scale_ups"]
        ]
        assert [group for _, group in asked] == [GROUP.format(name) for name in names]
        for name, (at, _) in zip(names[:2], asked[1:], strict=True):
            failed = world.group_memory(GROUP.format(name)).backoff
            assert failed is not None
            assert failed.last_failed == at, "the pass that sees the failure buys elsewhere"
        world.minutes(4)
        assert (world.size("first"), world.size("second"), world.size("third")) == (0, 0, 2)
        assert set(world.machines("first")) | set(world.machines("second")) == set()

    stage.play(tell, quick=True, grain=10.0)


@scenario(quick=True, grain=20.0)
def test_unreadable_group_blocks_no_other_group(world: ScenarioWorld) -> None:
    """A typing error in one group's bounds; other groups continue to scale up and down."""
    world.apply_policy(
        document(options={**QUICK, "scaleDownUnneededTime": "1m", "scaleDownDelayAfterAdd": "1m"})
    )
    odd = clone(objects.machine_deployment("odd", 2, 1, 5))
    odd["metadata"]["annotations"][fields.MIN_SIZE] = "many"
    world.seed(odd, objects.machine_deployment("workers", 1, 1, 5))
    world.minutes(2)
    world.seed(objects.deployment("web", replicas=6, cpu="2500m"))
    world.minutes(5)
    assert world.pods_ready("web") == 6
    assert world.size("workers") > 1

    world.scale("web", 1)
    world.minutes(8)

    assert world.size("workers") == 1
    assert (world.size("odd"), len(world.machines("odd"))) == (2, 2)
    reported = {gap["name"]: gap["detail"] for gap in world.last_plan()["gaps"]}
    assert "many" in next(detail for name, detail in reported.items() if "odd" in name)
