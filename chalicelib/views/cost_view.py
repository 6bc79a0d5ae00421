"""The bill, the savings and the best moves as people and programs read them: money in units
of the currency, per hour.

`views/cluster_view.as_json` gives the stable keys. The command, the read route and the
page render the same values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.model.cluster_bill import (
    MILLION,
    Bill,
    ClusterBill,
    CostParts,
    MachineCost,
    Savings,
    SpotCost,
    WorkloadCost,
)
from chalicelib.model.plan import Move, Plan
from chalicelib.reasons.words import counted, some
from chalicelib.views.cluster_view import Instant

BEST_MOVES = 3
MACHINES_ONLY = "Machines only: without disks, load balancers, traffic and the vendor's fees."
PARTS = {
    "workload": "requested by pods",
    "daemonsets": "DaemonSets and static pods",
    "overhead": "reserved for the system",
    "wanted": "free, for headroom, rules and minimum sizes",
    "avoidable": "free, avoidable at best",
    "unusable": "being drained, or without a node",
}
"""What each part of the price is for."""


class PartsView(msgspec.Struct, frozen=True):
    """model/cluster_bill.CostParts."""

    paid: float
    workload: float
    daemonsets: float = msgspec.field(name="daemonSets")
    overhead: float
    wanted: float
    avoidable: float
    unusable: float


class MachinesView(msgspec.Struct, frozen=True, rename="camel"):
    """Machines of a group or pool, "" for those in none."""

    name: str
    machines: int
    per_hour: PartsView


class WorkloadView(msgspec.Struct, frozen=True):
    """Pods of a namespace or controller; of `names` of them in a row without a name."""

    name: str
    names: int
    workload: float
    idle: float


class SpotCostView(msgspec.Struct, frozen=True, rename="camel"):
    """model/cluster_bill.SpotCost."""

    nodes: int
    compared: int
    saved: float
    fallback_nodes: int
    premium: float

    @property
    def words(self) -> tuple[tuple[str, float], ...]:
        """Return what each amount is, with the amount: what spot saves, what nodes
        in place of it cost more."""
        part = (
            f" (the price of {self.compared} on demand is known)"
            if self.compared < self.nodes
            else ""
        )
        saved = f"saved by {counted(self.nodes, 'spot node')}{part}"
        fallback = counted(self.fallback_nodes, "node")
        more = f"more for {fallback} bought on demand in place of spot"
        return ((saved, self.saved), *([(more, self.premium)] if self.fallback_nodes else []))


class BillView(msgspec.Struct, frozen=True, rename="camel"):
    """The bill in one currency. lower_bound, efficiency: None if unknown. spot:
    None without spot groups."""

    currency: str
    per_hour: PartsView
    lower_bound: float | None
    efficiency: float | None
    overcommitted_nodes: int
    groups: tuple[MachinesView, ...]
    pools: tuple[MachinesView, ...]
    namespaces: tuple[WorkloadView, ...]
    owners: tuple[WorkloadView, ...]
    spot: SpotCostView | None = None


class SavingsView(msgspec.Struct, frozen=True, rename="camel"):
    """What is saved: per hour now; since midnight, in seven days, since the
    first of the month (UTC)."""

    currency: str
    per_hour: float
    today: float
    seven_days: float
    month: float


class CostView(msgspec.Struct, frozen=True, rename="camel"):
    """What a cluster costs at an instant. unpriced: machines without a price. moves: the
    best of the last decision."""

    at: Instant
    bills: tuple[BillView, ...]
    unpriced: int
    savings: tuple[SavingsView, ...]
    savings_at: Instant
    moves: tuple[Move, ...]
    note: str = MACHINES_ONLY


def cost_view(bill: ClusterBill, plan: Plan | None) -> CostView:
    """Return what a cluster costs. plan: the last decision."""
    return CostView(
        Instant(bill.at),
        tuple(map(_bill, bill.bills)),
        bill.unpriced,
        savings_views(bill.savings),
        Instant(bill.savings_at),
        best_moves(plan),
    )


def savings_views(savings: Sequence[Savings]) -> tuple[SavingsView, ...]:
    """Return the savings by currency."""
    return tuple(
        SavingsView(
            sums.currency,
            *(_money(amount) for amount in (sums.rate, sums.today, sums.week, sums.month)),
        )
        for sums in savings
    )


def best_moves(plan: Plan | None) -> tuple[Move, ...]:
    """Return the moves of a decision that save most."""
    moves = plan.consolidation.moves if plan is not None and plan.consolidation is not None else ()
    return tuple(sorted(moves, key=lambda move: (-move.saves, move.nodes))[:BEST_MOVES])


def move_text(move: Move, names: Mapping[str, str]) -> str:
    """Return which nodes go and what is bought. names: of groups, by id."""
    nodes = some(move.nodes)
    bought = ", ".join(
        f"{purchase.nodes} of {names.get(purchase.group, purchase.group)}"
        for purchase in move.purchases
    )
    return f"{nodes} go{'es' if len(move.nodes) == 1 else ''}" + (
        f", for {bought}" if bought else ""
    )


def _bill(bill: Bill) -> BillView:
    efficiency = bill.efficiency
    return BillView(
        bill.currency,
        _parts(bill.parts),
        _money(bill.bound) if bill.bound >= 0 else None,
        round(efficiency, 4) if efficiency is not None else None,
        bill.overcommitted,
        tuple(map(_machines, bill.groups)),
        tuple(map(_machines, bill.pools)),
        tuple(map(_workload, bill.namespaces)),
        tuple(map(_workload, bill.owners)),
        _spot(bill.spot) if bill.spot is not None else None,
    )


def _spot(cost: SpotCost) -> SpotCostView:
    return SpotCostView(
        cost.nodes, cost.compared, _money(cost.saved), cost.fallback, _money(cost.premium)
    )


def _parts(parts: CostParts) -> PartsView:
    return PartsView(*map(_money, msgspec.structs.astuple(parts)))


def _machines(cost: MachineCost) -> MachinesView:
    return MachinesView(cost.name, cost.machines, _parts(cost.parts))


def _workload(cost: WorkloadCost) -> WorkloadView:
    return WorkloadView(cost.name, cost.names, _money(cost.workload), _money(cost.idle))


def _money(millionths: int) -> float:
    return millionths / MILLION
