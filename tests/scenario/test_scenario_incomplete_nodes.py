"""Nodes that have joined but are incomplete count with their expected resources."""

from __future__ import annotations

from typing import Any

import pytest

from infra.emulators.controllers import objects
from infra.emulators.controllers.capi.controller import CapiControllerSettings
from infra.emulators.controllers.capi.machines import MachineClass
from infra.emulators.controllers.manager import Pace
from infra.emulators.kube.objects import KubeObject, clone
from tests.scenario.policies import document
from tests.scenario.runner import ScenarioRunner, scenario
from tests.scenario.scenario_world import ScenarioWorld

GPU, LABEL = "nvidia.com/gpu", {"cluster-api/accelerator": "t4"}
PLAIN = {"cpu": "8", "memory": "32Gi", "pods": "110"}
DRIVERLESS = Pace(
    machines=CapiControllerSettings(classes={"gpu": MachineClass(PLAIN, labels=LABEL)})
)
"""Machines whose Nodes come without the device that their group promises: a driver
has still to be installed."""
STARTUP = "startup-taint.cluster-autoscaler.kubernetes.io/driver"


def _gpu_pods(count: int) -> KubeObject:
    made = objects.deployment("train", replicas=count, cpu="2")
    resources = made["spec"]["template"]["spec"]["containers"][0]["resources"]
    resources["requests"][GPU] = "1"
    resources["limits"] = {GPU: "1"}
    return made


def _groups(world: ScenarioWorld, **more: Any) -> None:
    world.seed(
        objects.machine_deployment("base", 1, 1, 1),
        objects.machine_deployment(
            "gpu",
            0,
            0,
            5,
            cpu="8",
            memory="32Gi",
            labels=LABEL,
            **more,
            capacity={"gpu-type": GPU, "gpu-count": "1"},
        ),
    )
    world.minutes(2)


def _joined(world: ScenarioWorld) -> list[str]:
    return [name for name in world.nodes() if name.startswith("gpu-")]


def _change(world: ScenarioWorld, name: str, change: Any) -> None:
    node = clone(world.node(name))
    change(node)
    world.kube.update("nodes", node)
    world.settle()


def _gets_its_device(node: KubeObject) -> None:
    for key in ("capacity", "allocatable"):
        node["status"][key][GPU] = "1"


def _bought(world: ScenarioWorld) -> list[tuple[int, int]]:
    return [(end["from"], end["to"]) for end in world.ended("grow")]


@scenario(quick=True, grain=20.0, pace=DRIVERLESS)
def test_gpu_nodes_without_a_device_for_three_minutes_are_not_bought_again(
    world: ScenarioWorld,
) -> None:
    world.apply_policy(document())
    _groups(world)
    world.seed(_gpu_pods(2))
    world.step_until(lambda: len(_joined(world)) == 2, limit=300.0)

    world.minutes(3)

    assert all(GPU not in world.node(name)["status"]["allocatable"] for name in _joined(world))
    assert len(world.pending()) == 2
    assert _bought(world) == [(0, 2)]
    last = world.last_plan()
    assert sorted(last.get("fits_existing", ())) == sorted(world.pending()), (
        "and their pods are not forgotten"
    )

    for name in _joined(world):
        _change(world, name, _gets_its_device)
    world.minutes(2)

    assert world.pending() == ()
    assert _bought(world) == [(0, 2)]
    assert world.size("gpu") == 2
    assert not world.ended("remove")


@scenario(quick=True, grain=20.0, pace=DRIVERLESS)
def test_missing_device_delays_a_purchase_only_for_its_start_up_time(
    world: ScenarioWorld,
) -> None:
    """The start-up time is the limit: a broken node must not block its pod forever."""
    world.apply_policy(document(options={"maxNodeStartupTime": "5m"}))
    _groups(world)
    world.seed(_gpu_pods(1))
    world.step_until(lambda: len(_joined(world)) == 1, limit=300.0)
    world.minutes(4)
    assert world.size("gpu") == 1

    world.minutes(4)

    assert world.size("gpu") == 2


@pytest.mark.parametrize("where", ["declared", "known-prefix"])
def test_nodes_with_a_startup_taint_are_not_bought_again(stage: ScenarioRunner, where: str) -> None:
    key, options = {
        "declared": ("example.org/not-set-up", {"startupTaint": ["example.org/not-set-up"]}),
        "known-prefix": (STARTUP, {}),
    }[where]
    taint = {"key": key, "value": "", "effect": "NoSchedule"}
    capacity = {**PLAIN, GPU: "1"}
    pace = Pace(
        machines=CapiControllerSettings(
            classes={"gpu": MachineClass(capacity, labels=LABEL, taints=(taint,))}
        )
    )

    def tell(world: ScenarioWorld) -> None:
        world.apply_policy(document(options=options))
        _groups(world)
        world.seed(_gpu_pods(1))
        world.step_until(lambda: len(_joined(world)) == 1, limit=300.0)

        world.minutes(4)

        assert len(world.pending()) == 1
        assert _bought(world) == [(0, 1)]

        def finish(node: KubeObject) -> None:
            node["spec"]["taints"] = [
                each for each in node["spec"].get("taints", ()) if each["key"] != key
            ]

        _change(world, _joined(world)[0], finish)
        world.minutes(2)
        assert world.pending() == ()
        assert (_bought(world), world.size("gpu")) == ([(0, 1)], 1)

    stage.play(tell, quick=True, grain=20.0, pace=pace)
