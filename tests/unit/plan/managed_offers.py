"""A made-up provider with managed pools: two zones, spot, and five types of machines."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.catalogue import Catalogue, CatalogueEntry
from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.managed_group import MachineChoice, Managed
from chalicelib.model.memory import Memory
from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.managed_pools import ManagedPool, Market
from chalicelib.policy.settings.mode import Mode
from chalicelib.providers.kit.catalogue_shelf import CatalogueShelf
from chalicelib.providers.kit.managed_pools import (
    MARKET_LABEL,
    POOL_LABEL,
    CopySource,
    GroupCandidate,
    ManagedPools,
    candidate_group,
)
from chalicelib.providers.kit.node_template import INSTANCE_TYPE, GroupTemplate, template_node
from tests.builders import NOW, ZONE, ClusterBuilder, node
from tests.providers.emulated import KeptCache

CLUSTER = "7f1c0c1e-8a3e-4c7b-9b0e-2f6d1a5b9c11"
GIB = 2**30
SIZES = {"s2": (2, 8, 0.10), "s4": (4, 16, 0.19), "s8": (8, 32, 0.40), "c4": (4, 8, 0.15)}
SIZES |= {"r4": (4, 32, 0.24)}
GENERAL = ManagedPool("general", "test", opening_factor=0.0)


def entry(name: str, *, zone: str = "z1", **fields: Any) -> CatalogueEntry:
    """A type by its name, with other fields of an entry."""
    cores, gib, price = SIZES.get(name, (4, 16, 0.19))
    values: dict[str, Any] = {
        "family": name[:1],
        "cores": cores,
        "memory": gib * GIB,
        "price": price,
    } | fields
    return CatalogueEntry(name=name, zone=zone, **values)


def entries(*zones: str, **fields: Any) -> tuple[CatalogueEntry, ...]:
    """All types in these zones."""
    return tuple(entry(name, zone=zone, **fields) for zone in zones or ("z1",) for name in SIZES)


class OfferedCluster(ClusterBuilder):
    """A cluster with declarations and what their vendor sells."""

    def __init__(self, *pools: ManagedPool, catalogue: tuple[CatalogueEntry, ...] = ()) -> None:
        super().__init__()
        self.pools = pools or (GENERAL,)
        self.entries = catalogue or entries()
        self.policy: dict[str, Any] = {}
        self.options: dict[str, Any] = {"expander": ("least-cost",)}
        self.disk_price = 0.0
        self.source = CopySource()
        self.existing: dict[MachineChoice, int] = {}
        self.missing: dict[MachineChoice, int] = {}  # machines that have not joined
        self.quota: dict[str, int] = {}  # what the account may still have

    def managed(self) -> ManagedPools:
        """The declarations with a catalogue that was just read."""
        shelf = CatalogueShelf(KeptCache(), lambda: "catalogue", lambda: NOW)
        shelf.refresh(lambda: Catalogue("EUR", self.entries, self.disk_price), buying=False)
        return ManagedPools(self.pools, shelf, lambda: CLUSTER, lambda _: self.source)

    def opened(self, name: str, nodes: int = 0, **choice: str) -> OfferedCluster:
        """Adds a group that exists, with nodes."""
        values = {"declaration": self.pools[0].name, "zone": "z1", "market": "on-demand"} | choice
        self.existing[MachineChoice(instance_type=name, **values)] = nodes
        return self

    def groups_of_pools(self) -> tuple[list[NodeGroup], list[NodeGroup], list[Node]]:
        """The groups that exist, those that could be opened, and the nodes of the former."""
        existing, candidates, nodes = [], [], []
        for candidate in self.managed().candidates.values():
            group = candidate_group(candidate, template_of(candidate), "EUR", NOW)
            size = self.existing.get(candidate.group.choice)
            if size is None:
                candidates.append(group)
                continue
            own = [nodes_of(group, number) for number in range(size)]
            nodes += own
            instances = tuple(Instance(new.provider_id, node=new.name) for new in own)
            managed = Managed(candidate.group.choice, exists=True)
            size += self.missing.get(candidate.group.choice, 0)
            existing.append(
                msgspec.structs.replace(group, target=size, instances=instances, managed=managed)
            )
        return existing, candidates, nodes

    def offered_snapshot(self) -> Snapshot:
        """The cluster with its groups, those that could be opened, and the selections."""
        existing, candidates, nodes = self.groups_of_pools()
        before = self.snapshot()
        return msgspec.structs.replace(
            before,
            groups=(*before.groups, *existing),
            candidates=tuple(candidates),
            selections=self.managed().selections(self.quota),
            nodes=(*before.nodes, *nodes),
        )

    def offered_policy(self) -> Policy:
        """The policy with the declarations."""
        options = msgspec.structs.replace(Options(), **self.options)
        return Policy(
            name="test",
            mode=Mode.ACTIVE,
            options=options,
            managed_pools=self.pools,
            **self.policy,
        )

    def decided(self, memory: Memory | None = None, *, now: float = NOW) -> tuple[Plan, Memory]:
        """The plan and the memory after it."""
        policy = self.offered_policy()
        return plan_cluster(self.offered_snapshot(), policy, memory or Memory(), now, 0)

    def waiting(self, count: int, cpu: int, gib: int, **more: Any) -> OfferedCluster:
        """Adds pods that the scheduler has refused."""
        self.pending(count, str(cpu), f"{gib}Gi", **{"owner": f"rs-{cpu}-{gib}"} | more)
        return self

    def bought(self, plan: Plan) -> dict[str, int]:
        """Type, zone and market of new nodes -> their number; of other groups the name."""
        existing, candidates, _ = self.groups_of_pools()
        titles = {group.id: title(group) for group in [*existing, *candidates]}
        return {
            titles.get(growth.group, growth.group): growth.to_size - growth.from_size
            for growth in plan.scale_ups
        }

    def price(self, plan: Plan) -> float:
        """What the new nodes cost an hour."""
        existing, candidates, _ = self.groups_of_pools()
        prices = {group.id: group.price for group in [*existing, *candidates, *self.groups]}
        nodes = {growth.group: growth.to_size - growth.from_size for growth in plan.scale_ups}
        return round(sum(prices[name] * count for name, count in nodes.items()), 6)


def title(group: NodeGroup) -> str:
    """A group as s4, s4/z2 or s4/z1/spot: without the usual zone and market."""
    assert group.managed is not None
    choice = group.managed.choice
    if choice.market == Market.SPOT:
        return f"{choice.instance_type}/{choice.zone}/{choice.market}"
    return choice.instance_type if choice.zone == "z1" else f"{choice.instance_type}/{choice.zone}"


def template_of(candidate: GroupCandidate) -> GroupTemplate:
    """The node of a candidate; all of its capacity is for pods."""
    machine = candidate.machine.entry
    labels = {
        INSTANCE_TYPE: machine.name,
        ZONE: machine.zone,
        MARKET_LABEL: candidate.machine.market.value,
        POOL_LABEL: candidate.pool.name,
    }
    capacity = {"cpu": 1000 * machine.cores, "memory": machine.memory, "pods": 110}
    return GroupTemplate(template_node(candidate.group.name, labels, capacity, {}))


def nodes_of(group: NodeGroup, number: int) -> Node:
    """A node that has joined."""
    assert group.template is not None
    name, template = f"{group.id}-{number}", group.template
    ready = node(name, group=group.id, labels={**template.labels, HOSTNAME_LABEL: name})
    return msgspec.structs.replace(
        ready, allocatable=template.allocatable, capacity=template.capacity
    )
