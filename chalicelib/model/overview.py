"""What a pass saw of a cluster's groups and nodes, for people: names, machines,
zones, prices and shares.

No decision depends on it. A pass stores it beside the points of the charts (store/gauge_ring.py),
so that commands and pages show a cluster without access to it. The stored form is a list of values
in the order of the fields: fields are only ever added at the end, with a default.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.cluster_bill import ClusterBill

MOST_NODES = 2000
"""Nodes of an overview; it says how many more there are."""


class SpotOverview(msgspec.Struct, frozen=True, array_like=True):
    """What a pass knows of a spot group that its memory does not say. Nothing of it changes while
    prices and the policy stay. rate: of interruptions per node and 30 days, by its vendor, 0.0:
    unknown. price: what one interruption of a node costs, in the currency of its pool, 0.0:
    unknown. avoided_for: seconds after a notice."""

    rate: float = 0.0
    price: float = 0.0
    avoided_for: float = 0.0


class GroupOverview(msgspec.Struct, frozen=True, array_like=True):
    """One node group. group: the provider's id, which policies and operations use. name: what a
    person calls it: the pool, the MachineDeployment, the scaling group's name. zone, machine: ""
    where unknown; several zones are joined by commas. price: of one node per hour, 0.0: unknown;
    currency, price_source, price_date: of the price (plan/prices.py), "" where unknown. no_price:
    why there is none, or why it is not compared with the others. cpu, memory: allocatable of its
    ready nodes, in cores and bytes, of which their pods request cpu_requested and memory_requested.
    aliases: further names that a person may use. ready, min, max: its ready nodes and its bounds.
    spot: of a spot group. retiring: why it never grows again, "" if it may (managed_group.py)."""

    group: str
    name: str = ""
    provider: str = ""
    zone: str = ""
    machine: str = ""
    price: float = 0.0
    cpu: float = 0.0
    cpu_requested: float = 0.0
    memory: float = 0.0
    memory_requested: float = 0.0
    aliases: tuple[str, ...] = ()
    ready: int = 0
    min: int = 0
    max: int = 0
    currency: str = ""
    price_source: str = ""
    price_date: str = ""
    no_price: str = ""
    spot: SpotOverview | None = None
    retiring: str = ""


class NodeOverview(msgspec.Struct, frozen=True, array_like=True):
    """One node. group: the index of its group in the overview, -1: none. created: epoch seconds,
    0.0: unknown. cpu, memory: percent of allocatable that its pods request, -1: unknown. pods: that
    run on it, without finished ones."""

    name: str
    group: int = -1
    zone: str = ""
    machine: str = ""
    created: float = 0.0
    cpu: int = -1
    memory: int = -1
    pods: int = 0


class PoolOverview(msgspec.Struct, frozen=True, array_like=True):
    """One declaration of spec.managedPools. candidates: machine types in a zone and a market that
    meet its requirements. open_groups: that the vendor has; live_groups: of them, those with nodes
    or a target. price: of all its nodes an hour. next_machine, next_price: the cheapest machine
    that could be bought now, "" for none. held: what keeps it from buying or opening more, ""
    for nothing."""

    name: str
    provider: str = ""
    candidates: int = 0
    open_groups: int = 0
    live_groups: int = 0
    nodes: int = 0
    price: float = 0.0
    currency: str = ""
    next_machine: str = ""
    next_price: float = 0.0
    held: str = ""

    @property
    def buys_nothing(self) -> bool:
        """Return whether something keeps it from buying any machine."""
        return bool(self.held) and not self.next_machine


class ClusterOverview(msgspec.Struct, frozen=True, array_like=True):
    """A cluster at an instant (epoch seconds). more_nodes: that are left out beyond MOST_NODES.
    currency: in which prices are compared, "" where nobody states it. bill: what the machines cost,
    None where no price is known. pools: of the policy's managedPools."""

    at: float = 0.0
    groups: tuple[GroupOverview, ...] = ()
    nodes: tuple[NodeOverview, ...] = ()
    more_nodes: int = 0
    currency: str = ""
    bill: ClusterBill | None = None
    pools: tuple[PoolOverview, ...] = ()

    @property
    def group_of(self) -> dict[str, GroupOverview]:
        """Return the group of each node that is in one."""
        count = len(self.groups)
        return {
            node.name: self.groups[node.group] for node in self.nodes if 0 <= node.group < count
        }

    @property
    def timeless(self) -> ClusterOverview:
        """It without its instants: what it says."""
        bill = self.bill and msgspec.structs.replace(self.bill, at=0.0, savings_at=0.0)
        return msgspec.structs.replace(self, at=0.0, bill=bill)

    @property
    def coarse(self) -> ClusterOverview:
        """What people should see within minutes: which groups and nodes there are,
        and their use in tenths."""
        groups = (
            msgspec.structs.replace(
                group,
                cpu_requested=group.cpu_requested / group.cpu // 0.1 if group.cpu else 0.0,
                memory_requested=group.memory_requested / group.memory // 0.1
                if group.memory
                else 0.0,
            )
            for group in self.groups
        )
        nodes = (
            msgspec.structs.replace(node, cpu=node.cpu // 10, memory=node.memory // 10, pods=0)
            for node in self.nodes
        )
        return msgspec.structs.replace(
            self, at=0.0, groups=tuple(groups), nodes=tuple(nodes), bill=None
        )
