"""What a pass saw of a cluster's groups and nodes, in the form for people (model/overview.py), the
bill, and the point of the charts that it leaves.

All are made once in five minutes, and the first two with a new decision as well, from the sums of
the planner's state. All pods on a node count here, as people see them: those too that do not keep
the node (mirror pods, expendable pods).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from chalicelib.journal.carry_over import CarryOver
from chalicelib.journal.metric_values import wanted_nodes
from chalicelib.journal.metrics import key
from chalicelib.journal.pool_overview import pool_overviews
from chalicelib.journal.savings import (
    DAY,
    HOUR,
    counted,
    entries,
    spot_rates,
    under_way,
    unpriced_removals,
    with_gap,
    with_spot,
)
from chalicelib.model.cluster_bill import MILLION, ClusterBill
from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import Memory
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation
from chalicelib.model.overview import (
    MOST_NODES,
    ClusterOverview,
    GroupOverview,
    NodeOverview,
    SpotOverview,
)
from chalicelib.model.plan import Plan
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.cost_breakdown import cluster_bill
from chalicelib.plan.prices import NoPrice, Price, instance_type, price_book
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.readiness import ZONE, Bucket
from chalicelib.plan.state.spot_market import interruption_price, spot_groups
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.timeouts import longest_gap
from chalicelib.store.gauge_ring import GaugePoint

if TYPE_CHECKING:
    from chalicelib.plan.tables import Floats

_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
_MOST_ALIASES, _MOST_ZONES, _LONGEST = 6, 5, 200


class PassBill(msgspec.Struct, frozen=True):
    """The bill of a pass, None where no price is known, and its metrics. carry_over: with the
    savings of the operations that had ended at their instant."""

    bill: ClusterBill | None
    gauges: dict[str, float]
    counts: dict[str, float]
    carry_over: CarryOver


def pass_bill(
    state: ClusterState, old_carry_over: CarryOver, ended: Callable[[], Sequence[Operation]]
) -> PassBill:
    """Return the bill. ended: reads the ended operations; once an hour at most, and once a day
    where none has ended for a day and no spot node runs. Raises StoreError."""
    bill = cluster_bill(state)
    carry_over = _noted(state, bill, old_carry_over)
    if bill is None:
        return PassBill(None, {}, {}, carry_over)
    counts: dict[str, float] = {}
    if _is_savings_due(state, carry_over):
        noted_at = _last_bill(old_carry_over)
        carry_over, increments = _with_savings(state, bill, carry_over, ended(), noted_at)
        for currency, more in increments.items():
            if more:
                counts[key("savings_total", currency=currency)] = more
    bill = msgspec.structs.replace(
        bill,
        savings=carry_over.savings,
        savings_at=carry_over.savings_at,
        unpriced_removals=carry_over.unpriced_removals,
    )
    return PassBill(bill, _cost_gauges(bill, state.options), counts, carry_over)


def _noted(state: ClusterState, bill: ClusterBill | None, old_carry_over: CarryOver) -> CarryOver:
    """Return what is carried over with what spot nodes have saved since the last point, or with the
    gap since then."""
    now = state.now
    last = _last_bill(old_carry_over) or now
    if now - last > longest_gap(state.policy.scan_interval):
        notes = with_gap(old_carry_over.notes, last, now)
        return msgspec.structs.replace(old_carry_over, notes=notes, billed_at=now)
    spot = dict(old_carry_over.spot_open)
    for currency, rate in (spot_rates(bill) if bill is not None else {}).items():
        spot[currency] = spot.get(currency, 0.0) + rate * (now - last) / HOUR
    return msgspec.structs.replace(old_carry_over, spot_open=spot, billed_at=now)


def _last_bill(carry_over: CarryOver) -> float:
    """Return the instant of the last bill; earlier releases noted that of the last point only."""
    return carry_over.billed_at or carry_over.ring_at


def _is_savings_due(state: ClusterState, carry_over: CarryOver) -> bool:
    now, last_at = state.now, carry_over.savings_at
    if now // HOUR == last_at // HOUR:
        return False
    is_new_day = now // DAY != last_at // DAY
    has_changed = _last_change(state.memory) > now - DAY - HOUR
    is_saving = bool(carry_over.spot_open) or any(sums.rate for sums in carry_over.savings)
    return is_new_day or has_changed or is_saving


def _with_savings(
    state: ClusterState,
    bill: ClusterBill,
    carry_over: CarryOver,
    operations: Sequence[Operation],
    noted_at: float,
) -> tuple[CarryOver, dict[str, float]]:
    """Return what is carried over with the savings of now, and by currency what a counter
    grows by. noted_at: until when spot nodes were seen to save."""
    now, since = state.now, carry_over.savings_at or state.now
    spot = carry_over.spot_open
    notes = carry_over.notes
    if spot:  # of the hour before now
        notes = with_spot(notes, spot, noted_at)
    all_entries = entries(operations, now, under_way(state.memory), notes)
    sums, increments = counted(carry_over.savings, all_entries, since, now, spot)
    rates = spot_rates(bill)
    saved = tuple(
        msgspec.structs.replace(item, rate=item.rate + rates.get(item.currency, 0)) for item in sums
    )
    new_carry_over = msgspec.structs.replace(
        carry_over,
        savings=saved,
        savings_at=now,
        spot_open={},
        notes=notes,
        unpriced_removals=unpriced_removals(operations, now - 7 * DAY),
    )
    return new_carry_over, increments


def _cost_gauges(all_bills: ClusterBill, options: Options) -> dict[str, float]:
    gauges = {}
    for bill in all_bills.bills:
        gauges[key("cost_per_hour", currency=bill.currency)] = bill.parts.paid / MILLION
    if not options.emit_per_nodegroup_metrics:
        return gauges
    for bill in all_bills.bills:
        for row in bill.groups:
            if row.name:
                series = key(
                    "node_group_cost_per_hour", node_group=row.name, currency=bill.currency
                )
                gauges[series] = row.parts.paid / MILLION
    return gauges


def _last_change(memory: Memory) -> float:
    """Return when an operation changed the size of a group last, or a replacement went on."""
    groups = (at for group in memory.groups.values() for at in (group.last_add, group.last_delete))
    replacements = (row.since for row in memory.replacements.values())
    return max((memory.last_scale_up, memory.last_scale_down, *groups, *replacements))


def pass_overview(
    plan: Plan, state: ClusterState, bill: ClusterBill | None
) -> tuple[ClusterOverview, GaugePoint]:
    """Return the overview, and the point of the charts, with the cost in the
    currency of the overview."""
    snapshot = state.snapshot
    policy = state.policy
    has_spot = policy.spot is not None
    book = price_book(policy.prices, snapshot.groups, snapshot.taken_at, spot=has_spot)
    owners = _owners(state)
    members: dict[int, list[Node]] = {}
    for owner, node in zip(owners, snapshot.nodes, strict=True):
        members.setdefault(owner, []).append(node)
    amounts, pods = _amounts(state)
    is_ready = [state.buckets[node.name] is Bucket.READY for node in snapshot.nodes]
    ready = np.array(is_ready, dtype=np.bool_)
    slots = np.array(owners, dtype=np.int64)[ready] + 1  # the first is for nodes in no group
    of_ready = (*amounts[:, ready], np.ones(len(slots)))
    slot_count = len(snapshot.groups) + 1
    by_amount = [np.bincount(slots, weights=row, minlength=slot_count) for row in of_ready]
    sums = np.array(by_amount).T.tolist()
    spots = spot_groups(state)
    groups = []
    for at, group in enumerate(snapshot.groups):
        group_nodes = members.get(at, [])
        first_node = next(iter(group_nodes), None)
        price = book.of_group(state.groups[group.id].group, first_node)
        row = _priced(_group(group, group_nodes, sums[at + 1]), price, book.named(group))
        spot = spot_overview(group.id, state, spots)
        groups.append(msgspec.structs.replace(row, spot=spot))
    shares = _percents(amounts)
    by_name = sorted(range(len(snapshot.nodes)), key=lambda at: snapshot.nodes[at].name)
    nodes = tuple(
        _node(snapshot.nodes[at], owners[at], *shares[at], pods[at]) for at in by_name[:MOST_NODES]
    )
    omitted = len(snapshot.nodes) - len(nodes)
    currency = book.currency
    if not currency and bill is not None:
        currency = bill.bills[0].currency
    overview = ClusterOverview(
        snapshot.taken_at, tuple(groups), nodes, omitted, currency, bill, pool_overviews(state)
    )
    all_ready = amounts[:, ready].sum(axis=1, keepdims=True)
    ((cpu, memory),) = _percents(all_ready)
    waiting = sum(len(verdict.pods) for verdict in plan.unschedulable)
    waiting += sum(len(up.pods) for up in plan.scale_ups)
    target = wanted_nodes(plan, state)
    cost = _paid(bill, currency)
    point = GaugePoint(plan.at, plan.health.ready, waiting, target, cpu, memory, cost)
    return overview, point


def _owners(state: ClusterState) -> list[int]:
    """Return per node the index of its group, -1 for none."""
    index = {group.id: at for at, group in enumerate(state.snapshot.groups)}
    return [index.get(state.group_of.get(node.name, ""), -1) for node in state.snapshot.nodes]


def _paid(all_bills: ClusterBill | None, currency: str) -> float:
    """Return what is paid per hour in this currency, -1.0 for unknown."""
    for bill in all_bills.bills if all_bills is not None else ():
        if bill.currency == currency:
            return bill.parts.paid / MILLION
    return -1.0


def _amounts(state: ClusterState) -> tuple[Floats, list[int]]:
    """Return per node allocatable and requested cpu, allocatable and requested memory
    (millicores, bytes); and pods."""
    snapshot = state.snapshot
    occupancy = state.occupancy
    on_node = occupancy.where >= 0
    where = occupancy.where[on_node]
    cls = occupancy.cls[on_node]
    count = len(snapshot.nodes)
    rows: list[Floats] = []
    for name in (CPU, MEMORY):
        requests = [row.requests.get(name, 0) for row in snapshot.classes]
        allocatable = [node.allocatable.get(name, 0) for node in snapshot.nodes]
        of_class = np.array(requests, dtype=np.float64)
        requested = np.bincount(where, weights=of_class[cls], minlength=count)
        rows.append(np.array(allocatable, dtype=np.float64))
        rows.append(requested.astype(np.float64))
    return np.array(rows), np.bincount(where, minlength=count).tolist()


def _percents(amounts: Floats) -> list[tuple[int, int]]:
    """Return the requested percent of cpu and memory in each column, -1 for unknown."""
    columns = []
    for allocatable, requested in ((amounts[0], amounts[1]), (amounts[2], amounts[3])):
        share = 100 * requested / np.maximum(allocatable, 1)
        percent = np.minimum(np.rint(share), 999)
        columns.append(np.where(allocatable > 0, percent, -1).astype(np.int64).tolist())
    return list(zip(*columns, strict=True))


def completed(
    overview: ClusterOverview, old_overview: ClusterOverview, unread: Iterable[str]
) -> ClusterOverview:
    """Return the overview with what the one before knew of groups that were not read this time.
    unread: providers of which no group was read."""
    old_groups = {group.group: group for group in old_overview.groups}
    providers = set(unread)
    groups = []
    for group in overview.groups:
        old_group = old_groups.get(group.group)
        groups.append(group if old_group is None else _joined(group, old_group))
    present = {group.group for group in groups}
    absent = [group for key, group in old_groups.items() if key not in present]
    groups += [group for group in absent if group.provider in providers]
    index = {group.group: at for at, group in enumerate(groups)}
    old_owner = {}
    for node in old_overview.nodes:
        if 0 <= node.group < len(old_overview.groups):
            group_id = old_overview.groups[node.group].group
            old_owner[node.name] = index.get(group_id, -1)
    nodes = tuple(
        msgspec.structs.replace(node, group=old_owner[node.name])
        if node.group < 0 and node.name in old_owner
        else node
        for node in overview.nodes
    )
    return msgspec.structs.replace(overview, groups=tuple(groups), nodes=nodes)


def _joined(group: GroupOverview, old_group: GroupOverview) -> GroupOverview:
    """Return a group; what is not known of it now is as before, except for its use."""
    if not (group.price or group.no_price):
        group = msgspec.structs.replace(
            group,
            price=old_group.price,
            currency=old_group.currency,
            price_source=old_group.price_source,
            price_date=old_group.price_date,
            no_price=old_group.no_price,
        )
    return msgspec.structs.replace(
        group,
        name=group.name or old_group.name,
        zone=group.zone or old_group.zone,
        machine=group.machine or old_group.machine,
        aliases=group.aliases or old_group.aliases,
    )


def _priced(
    group: GroupOverview, price: Price | NoPrice, provider_price: Price | None
) -> GroupOverview:
    """Return the group with its price. provider_price: what its provider states, which is shown
    even if it cannot be compared."""
    if isinstance(price, Price):
        shown: Price | None = price
        missing = ""
    else:
        shown = provider_price
        missing = price.detail[:_LONGEST]
    if shown is None or not shown.amount:
        return msgspec.structs.replace(group, no_price=missing)
    return msgspec.structs.replace(
        group,
        price=shown.hourly,
        currency=shown.currency,
        price_source=str(shown.source),
        price_date=shown.date,
        no_price=missing,
    )


def _group(group: NodeGroup, nodes: Sequence[Node], sums: Sequence[float]) -> GroupOverview:
    """Return a group without its price. sums: the amounts of its ready nodes, and their number."""
    known = [node for node in (group.template, *nodes) if node is not None]
    zones = sorted({_zone(node) for node in known} - {""})
    machines = (instance_type(node) for node in known)
    machine = next(filter(None, machines), "")
    cpu, cpu_requested, memory, memory_requested, ready = sums
    return GroupOverview(
        group.id,
        group.name[:_LONGEST],
        group.provider,
        ",".join(zones[:_MOST_ZONES])[:_LONGEST],
        machine[:_LONGEST],
        0.0,
        cpu / 1000,
        cpu_requested / 1000,
        memory,
        memory_requested,
        tuple(alias[:_LONGEST] for alias in group.aliases[:_MOST_ALIASES]),
        int(ready),
        group.min,
        group.max,
        retiring=group.managed.retiring[:_LONGEST] if group.managed is not None else "",
    )


def spot_overview(
    group_id: str, state: ClusterState, spots: Collection[str]
) -> SpotOverview | None:
    """Return what is known of a spot group, None of another one. spots: those
    whose risk the policy weighs."""
    own = state.groups[group_id]
    if not own.group.spot:
        return None
    spot = state.policy.spot
    price = float(interruption_price(own, state)) / MILLION if group_id in spots else 0.0
    avoided_for = spot.avoid_after_interruption if spot is not None else 0.0
    return SpotOverview(own.group.interruption_rate, round(price, 6), avoided_for)


def _node(node: Node, group: int, cpu: int, memory: int, pods: int) -> NodeOverview:
    machine = instance_type(node)[:_LONGEST]
    zone = _zone(node)[:_LONGEST]
    return NodeOverview(node.name, group, zone, machine, node.created, cpu, memory, pods)


def _zone(node: Node) -> str:
    return node.labels.get(ZONE) or node.labels.get(_OLD_ZONE, "")
