"""Two passes at once, because one was stopped for longer than its lease."""

from __future__ import annotations

import pytest

from infra.emulators.controllers import objects
from tests.faults.cluster import FAT
from tests.faults.fault_schedule import PAUSE, TABLE, Strike
from tests.faults.faulty_world import FaultWorld
from tests.faults.run_state import FaultRun

PODS = 2
LEASE = 30.0
SAVE = 6
"""Which write of the pass saves its plan."""


def _another_pass(world: FaultWorld) -> None:
    """Lets the lease end, and another pass buy."""
    world.step(LEASE + 5.0)
    world.tick()
    world.step(5.0)


@pytest.mark.parametrize("provider", ["exoscale", "cherryservers"])
def test_pool_40_of_two_passes_at_once_one_opens_the_group(provider: str) -> None:
    with FaultRun(1, provider=provider) as machine:
        world, own = machine.world, machine.own
        assert own is not None
        strike = Strike(PAUSE, SAVE, TABLE, "reconcile", writing=True)
        strike.meanwhile = lambda: _another_pass(world)
        world.weather.strikes.append(strike)
        world.seed(objects.deployment("fat", replicas=PODS, cpu=FAT.cpu, memory=FAT.memory))

        world.step(400.0)

        machine.check()
        story = "\n".join(world.trace)
        assert "pause at table transact_write_items" in story
        assert story.count("gave it back") == 1, "the save of the first pass is refused"
        operations = [
            operation.spec
            for operation in world.store.operations.ended(world.name)
            if operation.spec.group.startswith("osc-")
        ]
        assert [(spec.kind.value, spec.from_size, spec.to_size) for spec in operations] == [
            ("grow", 0, PODS)
        ]
        groups = [group for group in own.objects().values() if group.name.startswith("osc-")]
        assert [(group.size, len(group.machines)) for group in groups] == [(PODS, PODS)]
        assert world.audit.counts["own groups opened"] == 1
