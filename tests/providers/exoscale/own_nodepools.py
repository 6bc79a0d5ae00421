"""A zone with managed pools: what is opened there, and what is asked of the vendor."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.managed_group import MachineChoice
from chalicelib.model.outcome import Succeeded
from chalicelib.policy.settings.managed_pools import ManagedPool
from infra.emulators.exoscale.account import example_id
from infra.emulators.exoscale.models import Nodepool
from tests.providers.exoscale.fixture import ExoscaleFixture, opened
from tests.providers.managed import (
    carried_out,
    growth,
    offered,
    refreshed,
)

GENERAL = ManagedPool("general", "exoscale", "web")
CREATE = "create-sks-nodepool"
LARGE = "standard.large"
GROUP = example_id("nodepool", 7)  # any UUID


def ready(*pools: ManagedPool, size: int = 2, **zone: Any) -> ExoscaleFixture:
    """A zone with the Nodepool `web` of these nodes, and the catalogue read. zone: its settings."""
    bench = opened(("web", "prod", size), pools=pools or (GENERAL,))
    for key, value in zone.items():
        assert hasattr(bench.zone, key)
        setattr(bench.zone, key, value)
    refreshed(bench)
    bench.look()
    return bench


def web(bench: ExoscaleFixture) -> Nodepool:
    return named(bench, "web")[0]


def named(bench: ExoscaleFixture, name: str) -> list[Nodepool]:
    """The Nodepools of a name that are not being deleted, the elder first."""
    bench.zone.step()
    return [
        nodepool
        for cluster in bench.zone.clusters.values()
        for nodepool in cluster.nodepools.values()
        if nodepool.name == name and nodepool.state_now != "deleting"
    ]


def sizes(bench: ExoscaleFixture, name: str) -> list[int]:
    return [nodepool.pool.size for nodepool in named(bench, name)]


def writes(bench: ExoscaleFixture) -> list[str]:
    return [call.operation for call in bench.look() if call.writes]


def created(bench: ExoscaleFixture, to_size: int = 3, kind: str = LARGE) -> NodeGroup:
    """Opens a group and lets its nodes join."""
    group = offered(bench, kind)
    assert isinstance(carried_out(bench, growth(bench, group, to_size)), Succeeded)
    bench.settle()
    bench.look()
    return group


def declared(bench: ExoscaleFixture, **changes: Any) -> None:
    """Changes the first declaration."""
    first, *others = bench.pools
    bench.pools = (msgspec.structs.replace(first, **changes), *others)


def choice_of(group: NodeGroup) -> MachineChoice:
    assert group.managed is not None
    return group.managed.choice
