"""Pods that are created at once and refused one after the other get nodes by
one plan or two, and soon.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from chalicelib.runtime.runtime import Runtime
from infra.emulators.controllers import objects
from infra.emulators.controllers.capi.controller import CapiControllerSettings
from infra.emulators.controllers.capi.machines import MachineTimes
from infra.emulators.controllers.manager import Pace
from infra.emulators.local_world import LocalWorld
from tests.scenario.policies import WEBHOOK, document

SIZES = {"small": ("4", "16Gi"), "high-memory": ("4", "32Gi"), "large": ("16", "64Gi")}
APPS = 6
PODS = 240
LAST_REFUSAL = 13.0  # seconds after the burst
WARM = 360.0  # seconds until the first nodes have settled, and templates are copied from them


class BurstWorld(LocalWorld):
    """A world whose scheduler looks at so many pods a second, also while a function sleeps.
    Nodes join after the burst."""

    def __init__(self, pods_per_second: float) -> None:
        machines = CapiControllerSettings(times=MachineTimes(provision=120.0))
        super().__init__(
            quick=True,
            grain=0.5,
            webhook=True,
            pace=Pace(machines=machines, pods_per_second=pods_per_second),
        )

    def new_runtime(self) -> Runtime:
        return dataclasses.replace(super().new_runtime(), sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.cluster.step()

    def begin(self, count: int, after: float = 7.0) -> float:
        """Create the groups, and the pods at an instant between two scheduled
        passes, which is returned."""
        self.seed(
            *(objects.machine_deployment(name, 1, 1, 200, *size) for name, size in SIZES.items())
        )
        self.apply_policy(document(webhook=WEBHOOK, options={"expander": "least-waste"}))
        self.step(WARM + after)
        began = self.clock()
        self.seed(
            *(
                objects.deployment(f"app-{at}", replicas=count // APPS, cpu="1")
                for at in range(APPS)
            )
        )
        return began

    def purchases(self, since: float) -> list[dict[str, Any]]:
        """The plans that buy."""
        return [plan for plan in self.plans() if plan["at"] >= since and plan.get("scale_ups")]

    def bought(self) -> int:
        """How many nodes were bought."""
        return sum(self.size(name) - 1 for name in SIZES)


@pytest.fixture(scope="module")
def nodes_of_one_plan() -> int:
    """The nodes that one plan buys for all of the pods."""
    with BurstWorld(math.inf) as world:
        began = world.begin(PODS)
        world.step(60.0)
        assert len(world.purchases(began)) == 1
        return world.bought()


@pytest.mark.parametrize("after", [7.0, 55.0], ids=str)
def test_burst_that_is_refused_slowly_is_bought_by_two_plans_at_most(
    after: float, nodes_of_one_plan: int
) -> None:
    with BurstWorld(PODS / LAST_REFUSAL) as world:
        began = world.begin(PODS, after)
        world.step(60.0)
        instants = [round(plan["at"] - began, 1) for plan in world.purchases(began)]
        assert 1 <= len(instants) <= 2
        assert instants[0] <= 10.0
        assert instants[-1] <= LAST_REFUSAL + 4.0
        assert world.bought() <= nodes_of_one_plan + 1
        world.step(240.0)
        assert world.pending() == ()
        assert len(world.purchases(began)) == len(instants)


def test_single_pod_gets_its_node_as_soon_as_without_a_scheduler_to_wait_for() -> None:
    with BurstWorld(math.inf) as world:
        began = world.begin(0)
        world.seed(objects.deployment("large", replicas=2, cpu="10"))
        world.step(10.0)
        assert len(world.pending()) == 1, "one has room on a node"
        assert [plan["at"] - began <= 2.1 for plan in world.purchases(began)] == [True]
