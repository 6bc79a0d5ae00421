"""The checks of own groups see what they are for: each is shown a request that breaks its rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from infra.emulators.controllers import objects
from infra.emulators.exoscale.account import Zone, leave
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from infra.emulators.exoscale.models import Nodepool
from infra.emulators.vendor_common.http_messages import Answer, Incoming, scripted
from tests.faults.cluster import FAT
from tests.faults.io_interceptor import Process
from tests.faults.own_groups import OwnGroups
from tests.faults.run_state import FaultRun

OWN = "osc-c5f524-general-0000000000"
TYPE = "memory.extra-large"
PODS = 2


@dataclass(frozen=True)
class OpenedGroup:
    """A run that has opened one group, and its only growth."""

    run: FaultRun
    own: OwnGroups
    zone: Zone
    nodepool: Nodepool
    growth: str

    def asked(self, change: Callable[[], object], operation: str = "") -> list[str]:
        """Carries out a change as a request of this operation, and returns what is wrong."""
        world = self.run.world
        process = Process("act_exoscale", operation, world.clock()) if operation else None

        def answer() -> Answer:
            change()
            return scripted()

        world.process = process
        try:
            self.own.through(Incoming("POST", "/v2/sks-cluster", {}), answer)
        finally:
            world.process = None
        return world.audit.faults

    def add(self, name: str, size: int) -> None:
        cluster = self.nodepool.pool.cluster
        self.zone.add_nodepool(cluster, name, size=size, type=TYPE)


@pytest.fixture
def opened() -> Iterator[OpenedGroup]:
    with FaultRun(1, provider="exoscale") as run:
        assert run.own is not None
        assert isinstance(run.own.account, ExoscaleAccount)
        zone = run.own.account.zone
        run.world.seed(objects.deployment("fat", replicas=PODS, cpu=FAT.cpu, memory=FAT.memory))
        run.world.step(600.0)
        assert list(run.own.restless()) == []
        (nodepool,) = (
            pool
            for sks in zone.clusters.values()
            for pool in sks.nodepools.values()
            if pool.name.startswith("osc-")
        )
        ended = run.world.store.operations.ended(run.world.name)
        (growth,) = (made.spec.id for made in ended if made.spec.group == nodepool.name)
        yield OpenedGroup(run, run.own, zone, nodepool, growth)


def test_machine_that_no_operation_buys_is_a_fault(opened: OpenedGroup) -> None:
    (fault,) = opened.asked(lambda: opened.add(OWN, 1))
    assert "grew to 1, and operation - is None" in fault


def test_machine_of_a_group_that_the_operation_does_not_name_is_a_fault(
    opened: OpenedGroup,
) -> None:
    (fault,) = opened.asked(lambda: opened.add(OWN, 1), opened.growth)
    assert f"grew to 1, and operation {opened.growth} is {{" in fault


def test_second_object_of_a_name_is_a_fault(opened: OpenedGroup) -> None:
    (fault,) = opened.asked(lambda: opened.add(opened.nodepool.name, 1), opened.growth)
    assert "which was not disturbed" in fault
    assert any("2 objects of the name" in text for text in opened.own.restless())


def test_machine_above_the_size_of_its_operation_is_a_fault(opened: OpenedGroup) -> None:
    def grow() -> None:
        opened.nodepool.pool.size += 1

    (fault,) = opened.asked(grow, opened.growth)
    assert f"has {PODS + 1} by {opened.growth}" in fault
    assert any("a target of 2" in text for text in opened.own.restless())


def test_node_that_no_removal_names_is_a_fault_if_it_goes(opened: OpenedGroup) -> None:
    def remove() -> None:
        pool, now = opened.nodepool.pool, opened.run.world.clock()
        leave(opened.zone, pool.staying[:1], now)

    (fault,) = opened.asked(remove, opened.growth)
    assert "does not name" in fault or "nothing names it" in fault


def test_pod_that_waits_while_a_group_may_be_opened_is_not_at_rest(opened: OpenedGroup) -> None:
    opened.run.world.seed(objects.deployment("wide", replicas=1, cpu="5", memory="2Gi"))
    opened.run.world.step(2.0)
    assert any("wide" in text for text in opened.own.restless())
