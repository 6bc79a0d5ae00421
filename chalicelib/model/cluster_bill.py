"""The bill of a cluster: what its machines cost per hour, and what for (docs/bill.md).

Money is in whole millionths of the currency, per hour. Amounts of different currencies are never
added. The stored form is a list of values in the order of the fields: fields are only ever added at
the end, with a default.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

MILLION = 1_000_000
MOST_ROWS = 50
"""Namespaces, and controllers, that a stored bill names; the last row is the sum of the others."""


class CostParts(msgspec.Struct, frozen=True, array_like=True):
    """What machines cost, and for what: each hour of a node's resource is in exactly one part, so
    the parts are `paid` in total. workload: requests of pods. daemonsets: of DaemonSets and static
    pods. overhead: what the node reserves for its system. wanted: free room that headroom, rules or
    minimum sizes demand. avoidable: other free room. unusable: free room of nodes that are being
    drained, and instances without a node."""

    paid: int = 0
    workload: int = 0
    daemonsets: int = 0
    overhead: int = 0
    wanted: int = 0
    avoidable: int = 0
    unusable: int = 0

    @property
    def waste(self) -> int:
        """Return what free room costs that pods could use."""
        return self.wanted + self.avoidable

    @staticmethod
    def total(parts: Iterable[CostParts]) -> CostParts:
        """Return the sum."""
        rows = [msgspec.structs.astuple(row) for row in parts]
        return CostParts(*map(sum, zip(*rows, strict=True))) if rows else CostParts()


class MachineCost(msgspec.Struct, frozen=True, array_like=True):
    """Machines of a group or pool; name "": those in no group. machines: with a price, those
    without a node among them."""

    name: str
    machines: int = 0
    parts: CostParts = CostParts()


class WorkloadCost(msgspec.Struct, frozen=True, array_like=True):
    """Pods of a namespace, or of a controller (`namespace/kind/name`). idle: its share of the
    waste, by what it requests of each resource. names: how many names it stands for; more than one
    in a row without a name."""

    name: str
    workload: int = 0
    idle: int = 0
    names: int = 1


class SpotCost(msgspec.Struct, frozen=True, array_like=True):
    """Nodes of spot groups, beside the parts. compared: those whose price on demand is known too;
    saved: what these would cost more on demand. fallback: nodes bought on demand because spot was
    not to be had, of which a spot price is known; premium: what they cost more than that."""

    nodes: int = 0
    compared: int = 0
    saved: int = 0
    fallback: int = 0
    premium: int = 0


class Bill(msgspec.Struct, frozen=True, array_like=True):
    """The bill in one currency, "" where it is not known. bound: what no choice of nodes for these
    pods is cheaper than; -1: unknown. overcommitted: nodes whose pods request more than there is;
    their requests count as what there is. spot: None without spot groups."""

    currency: str = ""
    parts: CostParts = CostParts()
    groups: tuple[MachineCost, ...] = ()
    pools: tuple[MachineCost, ...] = ()
    namespaces: tuple[WorkloadCost, ...] = ()
    owners: tuple[WorkloadCost, ...] = ()
    bound: int = -1
    overcommitted: int = 0
    spot: SpotCost | None = None

    @property
    def efficiency(self) -> float | None:
        """Return the bound as a share of what is paid, None if one of them is unknown."""
        return self.bound / self.parts.paid if self.bound >= 0 and self.parts.paid > 0 else None


class Savings(msgspec.Struct, frozen=True, array_like=True):
    """What removals, replacements and spot nodes have saved in one currency, less the cost of
    overlaps and of failed replacements. rate: per hour, of what counts now. counted: the part of
    `total` that metrics have counted; a counter never falls, so it waits while `total` does.
    given_back_*: of nodes that were not needed any more within a day after their purchase, which is
    no saving. spot_*: the part of what is saved that spot nodes are."""

    currency: str = ""
    rate: int = 0
    today: int = 0
    week: int = 0
    month: int = 0
    total: int = 0
    counted: int = 0
    given_back_today: int = 0
    given_back_week: int = 0
    given_back_month: int = 0
    spot_today: int = 0
    spot_week: int = 0
    spot_month: int = 0


class SpotDay(msgspec.Struct, frozen=True, array_like=True):
    """What spot nodes saved on a day (of UTC, counted from the epoch), in millionths."""

    currency: str
    day: int
    amount: int


class SavingsNotes(msgspec.Struct, frozen=True, array_like=True):
    """What only passes can know of savings. gaps: begin and end of times without passes, epoch
    seconds."""

    spot: tuple[SpotDay, ...] = ()
    gaps: tuple[tuple[float, float], ...] = ()


NO_NOTES = SavingsNotes()


class ClusterBill(msgspec.Struct, frozen=True, array_like=True):
    """All bills of a cluster at an instant (epoch seconds), the largest first. unpriced: machines
    without a price. They are in no amount. savings: at the instant savings_at. unpriced_removals:
    nodes that were removed in seven days and are in no savings, because a price is not known."""

    at: float = 0.0
    bills: tuple[Bill, ...] = ()
    unpriced: int = 0
    savings: tuple[Savings, ...] = ()
    savings_at: float = 0.0
    unpriced_removals: int = 0
