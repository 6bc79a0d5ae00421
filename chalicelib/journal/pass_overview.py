"""What a pass saw of a cluster's groups and nodes, in the form for people (model/overview.py), the
bill, and the point of the charts that it leaves.

All are made once in five minutes at most, from the sums of the planner's state. All pods on a node
count here, as people see them: those too that do not keep the node (mirror pods, expendable pods).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from chalicelib.journal.carry_over import CarryOver
from chalicelib.journal.metrics import key
from chalicelib.journal.savings import DAY, HOUR, counted, entries, under_way
from chalicelib.model.bill import MILLION, ClusterBill, Savings
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
from chalicelib.plan.bill import cluster_bill
from chalicelib.plan.prices import NoPrice, Price, instance_type, price_book
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.readiness import ZONE, Bucket
from chalicelib.plan.state.spot_market import interruption_price, spot_groups
from chalicelib.store.gauge_ring import GaugePoint

if TYPE_CHECKING:
    from chalicelib.plan.tables import Floats

_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
_MOST_ALIASES, _MOST_ZONES, _LONGEST = 6, 5, 200


class PassBill(msgspec.Struct, frozen=True):
    """The bill of a pass, None where no price is known, and its metrics. savings: of the operations
    that had ended at savings_at."""

    bill: ClusterBill | None
    gauges: dict[str, float]
    counts: dict[str, float]
    savings: tuple[Savings, ...]
    savings_at: float


def pass_bill(
    state: ClusterState, carry_over: CarryOver, ended: Callable[[], Sequence[Operation]]
) -> PassBill:
    """Return the bill. ended: reads the ended operations; once an hour at most, and once a day
    where none has ended for a day. Raises StoreError."""
    bill, now, counts = cluster_bill(state), state.now, {}
    sums, at = carry_over.savings, carry_over.savings_at
    if bill is None:
        return PassBill(None, {}, {}, sums, at)
    if now // HOUR != at // HOUR and (
        now // DAY != at // DAY or _last_change(state.memory) > now - DAY - HOUR
    ):
        all_entries = entries(ended(), now, under_way(state.memory))
        sums, grown = counted(sums, all_entries, at or now, now)
        counts = {
            key("savings_total", currency=currency): amount
            for currency, amount in grown.items()
            if amount
        }
        at = now
    gauges = {
        key("cost_per_hour", currency=own.currency): own.parts.paid / MILLION for own in bill.bills
    }
    if state.options.emit_per_nodegroup_metrics:
        gauges |= {
            key(
                "node_group_cost_per_hour", node_group=row.name, currency=own.currency
            ): row.parts.paid / MILLION
            for own in bill.bills
            for row in own.groups
            if row.name
        }
    return PassBill(
        msgspec.structs.replace(bill, savings=sums, savings_at=at), gauges, counts, sums, at
    )


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
    book = price_book(
        state.policy.prices, snapshot.groups, snapshot.taken_at, spot=state.policy.spot is not None
    )
    at_group = {group.id: at for at, group in enumerate(snapshot.groups)}
    owners = [at_group.get(state.group_of.get(node.name, ""), -1) for node in snapshot.nodes]
    members: dict[int, list[Node]] = {}
    for owner, node in zip(owners, snapshot.nodes, strict=True):
        members.setdefault(owner, []).append(node)
    amounts, pods = _amounts(state)
    ready = np.array(
        [state.buckets[node.name] is Bucket.READY for node in snapshot.nodes], dtype=np.bool_
    )
    place, size = np.array(owners, dtype=np.int64)[ready] + 1, len(snapshot.groups) + 1
    of_ready = (*amounts[:, ready], np.ones(len(place)))
    sums = np.array(
        [np.bincount(place, weights=row, minlength=size) for row in of_ready]
    ).T.tolist()
    prices = [
        book.of_group(state.groups[group.id].group, next(iter(members.get(at, ())), None))
        for at, group in enumerate(snapshot.groups)
    ]
    spots = spot_groups(state)
    groups = tuple(
        msgspec.structs.replace(
            _priced(
                _group(group, members.get(at, ()), sums[at + 1]), prices[at], book.named(group)
            ),
            spot=spot_overview(group.id, state, spots),
        )
        for at, group in enumerate(snapshot.groups)
    )
    shares = _percents(amounts)
    named = sorted(range(len(snapshot.nodes)), key=lambda at: snapshot.nodes[at].name)[:MOST_NODES]
    nodes = tuple(_node(snapshot.nodes[at], owners[at], *shares[at], pods[at]) for at in named)
    currency = book.currency or (bill.bills[0].currency if bill is not None else "")
    overview = ClusterOverview(
        snapshot.taken_at, groups, nodes, len(snapshot.nodes) - len(nodes), currency, bill
    )
    alone = members.get(-1, ())
    ((cpu, memory),) = _percents(amounts[:, ready].sum(axis=1, keepdims=True))
    waiting = sum(len(row.pods) for row in plan.unschedulable) + sum(
        len(up.pods) for up in plan.scale_ups
    )
    paid = (
        own.parts.paid / MILLION
        for own in (bill.bills if bill is not None else ())
        if own.currency == currency
    )
    cost = next(paid, -1.0)
    return overview, GaugePoint(
        plan.at, plan.health.ready, waiting, _wanted(plan, len(alone)), cpu, memory, cost
    )


def _amounts(state: ClusterState) -> tuple[Floats, list[int]]:
    """Return per node allocatable and requested cpu, allocatable and requested memory
    (millicores, bytes); and pods."""
    snapshot, occupancy = state.snapshot, state.occupancy
    on_node = occupancy.where >= 0
    where, cls, count = occupancy.where[on_node], occupancy.cls[on_node], len(snapshot.nodes)
    rows: list[Floats] = []
    for name in (CPU, MEMORY):
        of_class = np.array(
            [row.requests.get(name, 0) for row in snapshot.classes], dtype=np.float64
        )
        requested = np.bincount(where, weights=of_class[cls], minlength=count)
        rows.append(
            np.array([node.allocatable.get(name, 0) for node in snapshot.nodes], dtype=np.float64)
        )
        rows.append(requested.astype(np.float64))
    return np.array(rows), np.bincount(where, minlength=count).tolist()


def _percents(amounts: Floats) -> list[tuple[int, int]]:
    """Return the requested percent of cpu and memory in each column, -1 for unknown."""
    columns = []
    for offered, requested in ((amounts[0], amounts[1]), (amounts[2], amounts[3])):
        share = 100 * requested / np.maximum(offered, 1)
        columns.append(
            np.where(offered > 0, np.minimum(np.rint(share), 999), -1).astype(np.int64).tolist()
        )
    return list(zip(*columns, strict=True))


def completed(
    overview: ClusterOverview, old_overview: ClusterOverview, unread: Iterable[str]
) -> ClusterOverview:
    """Return the overview with what the one before knew of groups that were not read this time.
    unread: providers of which no group was read."""
    old, providers = {group.group: group for group in old_overview.groups}, set(unread)
    groups = [
        _joined(group, old[group.group]) if group.group in old else group
        for group in overview.groups
    ]
    present = {group.group for group in groups}
    groups += [
        group for key, group in old.items() if key not in present and group.provider in providers
    ]
    place = {group.group: at for at, group in enumerate(groups)}
    grouped = [node for node in old_overview.nodes if 0 <= node.group < len(old_overview.groups)]
    was_in = {node.name: place.get(old_overview.groups[node.group].group, -1) for node in grouped}
    nodes = tuple(
        msgspec.structs.replace(node, group=was_in[node.name])
        if node.group < 0 and node.name in was_in
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
    shown, missing = (
        (price, "") if isinstance(price, Price) else (provider_price, price.detail[:_LONGEST])
    )
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
    cpu, cpu_requested, memory, memory_requested, ready = sums
    return GroupOverview(
        group.id,
        group.name[:_LONGEST],
        group.provider,
        ",".join(zones[:_MOST_ZONES])[:_LONGEST],
        next((machine for node in known if (machine := instance_type(node))), "")[:_LONGEST],
        0.0,
        cpu / 1000,
        cpu_requested / 1000,
        memory,
        memory_requested,
        tuple(alias[:_LONGEST] for alias in group.aliases[:_MOST_ALIASES]),
        int(ready),
        group.min,
        group.max,
    )


def spot_overview(
    group_id: str, state: ClusterState, spots: Collection[str]
) -> SpotOverview | None:
    """Return what is known of a spot group, None of another one. spots: those
    whose risk the policy weighs."""
    own = state.groups[group_id]
    if not own.group.spot:
        return None
    price = float(interruption_price(own, state)) / MILLION if group_id in spots else 0.0
    avoided_for = (
        state.policy.spot.avoid_after_interruption if state.policy.spot is not None else 0.0
    )
    return SpotOverview(own.group.interruption_rate, round(price, 6), avoided_for)


def _node(node: Node, group: int, cpu: int, memory: int, pods: int) -> NodeOverview:
    machine, zone = instance_type(node)[:_LONGEST], _zone(node)[:_LONGEST]
    return NodeOverview(node.name, group, zone, machine, node.created, cpu, memory, pods)


def _zone(node: Node) -> str:
    return node.labels.get(ZONE) or node.labels.get(_OLD_ZONE, "")


def _wanted(plan: Plan, alone: int) -> int:
    """Return the nodes that there are to be after this plan: the targets of the
    groups, and nodes in no group."""
    targets = {group.group: group.target for group in plan.groups} | {
        up.group: up.to_size for up in plan.scale_ups
    }
    return max(0, sum(targets.values()) - len(plan.removals) + alone)
