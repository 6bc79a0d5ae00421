"""The bill, the savings and the best moves as people and programs read them: money in units
of the currency, per hour.

`views/cluster_view.as_json` gives the stable keys. The command, the read route and the
page render the same values.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.model.cluster_bill import Bill, ClusterBill
from chalicelib.model.plan import Move, Plan
from chalicelib.reasons.words import counted, some
from chalicelib.views.cluster_view import Instant, Money, view_of
from chalicelib.views.consolidation import horizon_view

BEST_MOVES = 3
MACHINES_ONLY = "Machines only: without disks, load balancers, traffic and the vendor's fees."
SAVED_AGAINST = (
    "Saved against keeping the nodes that consolidation, a schedule or low use removed, until as "
    "many are bought again, at most 24 hours; spot nodes against their price on demand."
)
WEEK = "in 7 days"
GIVEN_BACK = "nodes not needed any more within 24 hours after Outscaler bought them: no saving"
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

    paid: Money
    workload: Money
    daemonsets: Money = msgspec.field(name="daemonSets")
    overhead: Money
    wanted: Money
    avoidable: Money
    unusable: Money


class MachinesView(msgspec.Struct, frozen=True, rename="camel"):
    """Machines of a group or pool, "" for those in none."""

    name: str
    machines: int
    parts: PartsView = msgspec.field(name="perHour")


class WorkloadView(msgspec.Struct, frozen=True):
    """Pods of a namespace or controller; of `names` of them in a row without a name."""

    name: str
    names: int
    workload: Money
    idle: Money


class SpotCostView(msgspec.Struct, frozen=True, rename="camel"):
    """model/cluster_bill.SpotCost."""

    nodes: int
    compared: int
    saved: Money
    fallback: int = msgspec.field(name="fallbackNodes")
    premium: Money

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
        fallback = counted(self.fallback, "node")
        more = f"more for {fallback} bought on demand in place of spot"
        return ((saved, self.saved), *([(more, self.premium)] if self.fallback else []))


class BillView(msgspec.Struct, frozen=True, rename="camel"):
    """The bill in one currency. bound, efficiency: None if unknown. spot: None without
    spot groups."""

    currency: str
    parts: PartsView = msgspec.field(name="perHour")
    bound: Money | None = msgspec.field(name="lowerBound")
    efficiency: float | None
    overcommitted: int = msgspec.field(name="overcommittedNodes")
    groups: tuple[MachinesView, ...]
    pools: tuple[MachinesView, ...]
    namespaces: tuple[WorkloadView, ...]
    owners: tuple[WorkloadView, ...]
    spot: SpotCostView | None = None


class SavingsView(msgspec.Struct, frozen=True, rename="camel"):
    """What is saved: per hour now; since midnight, in seven days, since the first of the month
    (UTC). given_back_*: what is no saving, apart from it. spot_*: the part of it that spot nodes
    are."""

    currency: str
    rate: Money = msgspec.field(name="perHour")
    today: Money
    week: Money = msgspec.field(name="sevenDays")
    month: Money
    given_back_today: Money
    given_back_week: Money = msgspec.field(name="givenBackSevenDays")
    given_back_month: Money
    spot_today: Money
    spot_week: Money = msgspec.field(name="spotSevenDays")
    spot_month: Money

    @property
    def saved(self) -> tuple[tuple[str, float], ...]:
        """Return each time with what is saved in it."""
        return _by_time(self.today, self.week, self.month)

    @property
    def by_spot(self) -> tuple[tuple[str, float], ...]:
        """Return the same for spot nodes; nothing where they saved nothing."""
        return _unless_none(_by_time(self.spot_today, self.spot_week, self.spot_month))

    @property
    def given_back(self) -> tuple[tuple[str, float], ...]:
        """Return the same for nodes given back; nothing where there were none."""
        amounts = self.given_back_today, self.given_back_week, self.given_back_month
        return _unless_none(_by_time(*amounts))


def _by_time(today: float, week: float, month: float) -> tuple[tuple[str, float], ...]:
    return (("today", today), (WEEK, week), ("this month", month))


def _unless_none(by_time: tuple[tuple[str, float], ...]) -> tuple[tuple[str, float], ...]:
    return by_time if any(amount for _, amount in by_time) else ()


class PlanEndView(msgspec.Struct, frozen=True, rename="camel"):
    """What the nodes cost when all has gone that consolidation lets go now; words: for people."""

    currency: str
    per_hour: float
    words: str


class CostView(msgspec.Struct, frozen=True, rename="camel"):
    """What a cluster costs at an instant. unpriced: machines without a price. moves: the
    best of the last decision. unpriced_removals: nodes removed in seven days that are in no
    savings. end_of_plan: None where consolidation has no horizon."""

    at: Instant
    bills: tuple[BillView, ...]
    unpriced: int
    savings: tuple[SavingsView, ...]
    savings_at: Instant
    moves: tuple[Move, ...]
    note: str = MACHINES_ONLY
    unpriced_removals: int = 0
    saved_against: str = SAVED_AGAINST
    end_of_plan: PlanEndView | None = None

    @property
    def unpriced_words(self) -> str:
        """Return how many removed nodes are in no savings, "" where there are none."""
        if not self.unpriced_removals:
            return ""
        nodes = counted(self.unpriced_removals, "node")
        are = (
            "has no price to compare, and counts"
            if self.unpriced_removals == 1
            else "have no price to compare, and count"
        )
        return f"{nodes} removed in 7 days {are} nothing."


def cost_view(bill: ClusterBill, plan: Plan | None) -> CostView:
    """Return what a cluster costs. plan: the last decision."""
    view = horizon_view(plan)
    end = None
    if view is not None:
        end = PlanEndView(view.report.currency, view.report.end, view.words)
    return CostView(
        Instant(bill.at),
        tuple(map(_bill, bill.bills)),
        bill.unpriced,
        tuple(view_of(sums, SavingsView) for sums in bill.savings),
        Instant(bill.savings_at),
        best_moves(plan),
        unpriced_removals=bill.unpriced_removals,
        end_of_plan=end,
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
    view = view_of(bill, BillView)
    bound = view.bound if bill.bound >= 0 else None
    efficiency = round(bill.efficiency, 4) if bill.efficiency is not None else None
    return msgspec.structs.replace(view, bound=bound, efficiency=efficiency)
