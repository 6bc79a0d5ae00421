"""Functions are killed, lose answers and pause while groups of managed pools are opened, at each
vendor: each group exists once, no machine too many stays, and all pods run in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from infra.emulators.cherryservers.attached_account import CherryAccount
from infra.emulators.controllers import objects
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from tests.faults import cluster
from tests.faults.fault_schedule import API, FAIL, KILL, LOSE, PAUSE, TABLE, VENDOR, Strike
from tests.faults.faulty_world import FaultWorld
from tests.faults.vendor_groups import SIZE, CherryGroup, ExoscaleGroup, VendorGroup

OPTIONS = {**cluster.OPTIONS, "expander": "least-cost", "scaleDownUnneededTime": "3h"}
POOL: dict[str, dict[str, Any]] = {
    "exoscale": {"name": "general", "provider": "exoscale", "copyFrom": "web"},
    "cherryservers": {"name": "general", "provider": "cherryservers"},
}
GROUPS: dict[str, type[VendorGroup]] = {"exoscale": ExoscaleGroup, "cherryservers": CherryGroup}
PODS = 4
STEP, LIMIT, AFTERWARDS = 30.0, 5400.0, 900.0
"""Virtual seconds: between two looks, until all pods run, and for which all stays at rest."""
STRIKES = 4
SEEDS = range(15)
"""Seeds of each vendor in `make test`."""


@contextmanager
def opening(provider: str, seed: int) -> Iterator[tuple[FaultWorld, VendorGroup]]:
    """A cluster whose pods fit none of its nodes, and faults on the way."""
    dice, group = Random(seed), GROUPS[provider]()
    accounts = [group.account] if group.account is not None else []
    world = FaultWorld(dice, pace=cluster.PACE, grain=20.0, accounts=accounts)
    try:
        world.start()
        group.begin(world)
        full = {"provider": provider, "id": group.id, "min": 0, "max": SIZE}
        more = {"managedPools": [POOL[provider]], "nodeGroups": [full]}
        world.apply_policy(group.policy(world, OPTIONS, **more))
        world.seed(objects.node("system", cpu="1"))
        world.seed(objects.deployment("first", replicas=SIZE, cpu="3", memory="6Gi"))
        world.step(180.0)  # the catalogue is read, and the hand-made group is full
        world.weather.strikes.extend(strikes(dice))
        world.seed(objects.deployment("odd", replicas=PODS, cpu="3", memory="6Gi"))
        yield world, group
    finally:
        world.close()


def strikes(dice: Random) -> list[Strike]:
    """Faults at one of the next calls."""
    return [
        Strike(
            dice.choice((KILL, KILL, FAIL, LOSE, PAUSE)),
            dice.randint(1, 60),
            door=dice.choice(("", VENDOR, VENDOR, TABLE, API)),
            writing=dice.random() < 0.5,
            after=dice.random() < 0.5,
            seconds=dice.choice((5.0, 20.0, 40.0)),
        )
        for _ in range(STRIKES)
    ]


def running(world: FaultWorld) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in world.kube.list("pods", "default"))


def own_objects(group: VendorGroup) -> Counter[str]:
    """Names of groups that Outscaler has made -> objects of that name with machines."""
    account = group.account
    if isinstance(account, ExoscaleAccount):
        clusters = account.zone.clusters.values()
        pools = [pool for sks in clusters for pool in sks.nodepools.values()]
        return Counter(
            pool.name for pool in pools if pool.name.startswith("osc-") and pool.pool.size
        )
    assert isinstance(account, CherryAccount)
    names = {server.tags.get("k8s-nodepool", "") for server in account.cloud.servers.values()}
    return Counter(name for name in names if name.startswith("osc-"))


def play(provider: str, seed: int) -> None:
    with opening(provider, seed) as (world, group):
        began = world.clock()
        while running(world) < SIZE + PODS:
            assert world.clock() - began < LIMIT, "\n".join(world.trace[-60:])
            world.step(STEP)
        world.weather.strikes.clear()
        world.step(AFTERWARDS)
        assert world.audit.faults == [], world.trace[-40:]
        assert set(own_objects(group).values()) == {1}
        machines = group.machines(world)
        world.step(AFTERWARDS)
        assert group.machines(world) == machines, "something is bought or removed without a reason"
        assert [op for op in world.operations() if op.is_open] == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("provider", GROUPS)
def test_groups_are_opened_once_whatever_fails(provider: str, seed: int) -> None:
    play(provider, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15, 115))
@pytest.mark.parametrize("provider", GROUPS)
def test_groups_are_opened_once_whatever_fails_in_many_runs(provider: str, seed: int) -> None:
    play(provider, seed)
