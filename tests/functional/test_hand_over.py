"""From Cluster Autoscaler to Outscaler and back while machines are on their way:
nothing is bought twice.
"""

from __future__ import annotations

import pytest

from chalicelib.model.node import TO_BE_DELETED
from chalicelib.model.operation import OperationKind
from infra.emulators.controllers import objects
from infra.emulators.controllers.capi.controller import CapiControllerSettings
from infra.emulators.controllers.capi.machines import MachineTimes
from infra.emulators.controllers.manager import Pace
from tests.cases import each_row
from tests.functional.test_shadow_comparison import OPTIONS, WORKERS, SharedCluster
from tests.scenario.policies import document


def machines(provision: float, join: float = 30.0) -> Pace:
    """A cluster whose machines take these seconds."""
    return Pace(machines=CapiControllerSettings(times=MachineTimes(provision=provision, join=join)))


SLOW = machines(240.0, 480.0)
"""Machines that take 12 minutes."""


def bought(world: SharedCluster) -> list[tuple[str, str]]:
    """The scale-ups of Outscaler."""
    return [(entry["group"], entry["kind"]) for entry in world.ended(OperationKind.SCALE_UP)]


def act(world: SharedCluster) -> None:
    """Stops the other autoscaler, and sets mode active."""
    world.other.dead = True
    world.minutes(0.5)
    world.apply_policy(document(options=OPTIONS))


@pytest.mark.parametrize("before", ["shadow", "off"])
def test_hand_over_while_machines_come_buys_nothing_a_second_time(before: str) -> None:
    with SharedCluster(pace=SLOW) as world:
        world.begin()
        world.apply_policy(document(mode=before, options=OPTIONS))
        world.minutes(16)
        world.seed(objects.deployment("web", replicas=4, cpu="3"))
        world.minutes(2)
        assert world.other.grown
        size = world.size("workers")
        act(world)
        world.minutes(20)
        assert world.size("workers") == size
        assert bought(world) == []
        assert world.pods_ready("web") == 4


def test_hand_over_of_machines_that_never_come_buys_others_after_the_deadline() -> None:
    with SharedCluster() as world:
        world.begin()
        world.cluster.capi.fail_next("default/workers", "never-joins", 4)
        world.seed(objects.deployment("web", replicas=4, cpu="3"))
        world.minutes(2)
        assert world.other.grown
        act(world)
        world.minutes(10)
        assert bought(world) == []
        world.minutes(30)
        assert bought(world) != []


def test_growths_with_slow_machines_in_shadow_are_no_extra_of_ours() -> None:
    with SharedCluster(pace=SLOW) as world:
        world.begin()
        for number in range(3):
            world.seed(objects.deployment(f"web-{number}", replicas=2, cpu="3"))
            world.minutes(20)
        assert [(group, count) for _, group, count in world.other.grown] == [(WORKERS, 2)] * 3
        assert {str(verdict) for verdict in world.verdicts} == {"same"}


@each_row(
    "wait, bought_again", [(False, True), (True, False)], ids=["at once", "once they are nodes"]
)
def test_way_back_waits_until_own_machines_are_nodes(wait: bool, bought_again: bool) -> None:
    with SharedCluster(pace=SLOW, counts_others=False) as world:
        world.other.dead = True
        world.apply_policy(document(options=OPTIONS))
        world.seed(
            objects.machine_deployment("workers", 2, 1, 12),
            objects.deployment("base", replicas=2, cpu="2500m"),
        )
        world.minutes(16)
        world.seed(objects.deployment("web", replicas=3, cpu="3"))
        world.minutes(3)
        assert bought(world)
        world.apply_policy(document(mode="shadow", options=OPTIONS))
        world.minutes(14 if wait else 1)
        world.other.dead = False
        world.minutes(5)
        assert bool(world.other.grown) is bought_again


def test_own_acts_before_the_way_back_are_no_acts_of_the_other() -> None:
    with SharedCluster() as world:
        world.begin()
        before = world.matches
        act(world)
        world.seed(objects.deployment("web", replicas=4, cpu="3"))
        world.minutes(10)
        world.scale("web", 0)
        world.minutes(25)
        assert bought(world)
        world.apply_policy(document(mode="shadow", options=OPTIONS))
        world.minutes(1)
        world.other.dead = False
        world.minutes(10)
        assert world.matches == before


def test_removal_that_the_other_had_begun_is_taken_back_within_minutes() -> None:
    with SharedCluster() as world:
        world.begin()
        world.other.dead = True
        [node, *_] = sorted(node["metadata"]["name"] for node in world.kube.list("nodes"))
        taint = {"key": TO_BE_DELETED, "value": str(int(world.clock())), "effect": "NoSchedule"}
        changed = world.node(node) | {}
        changed = {**changed, "spec": {**changed["spec"], "taints": [taint], "unschedulable": True}}
        world.kube.update("nodes", changed)
        world.minutes(1)
        world.apply_policy(document(options=OPTIONS))
        world.minutes(1.2)
        assert world.is_marked(node)
        world.minutes(3)
        assert not world.is_marked(node)
