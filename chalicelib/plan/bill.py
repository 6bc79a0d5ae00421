"""What a cluster's machines cost per hour, divided into what the money is for (docs/bill.md).

Pods count with their requests, as the scheduler counts them; use is not in a snapshot. The price of
a node is divided among its resources by the rates of spec.prices, otherwise with a core as dear as
8 GiB or a tenth of a GPU. Each part of a resource then belongs to one row. Shares are computed as
floats in an order that does not depend on the input, and rounded once per group, so that the rows
are what is paid, to the millionth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.bill import (
    MILLION,
    MOST_ROWS,
    Bill,
    ClusterBill,
    CostParts,
    MachineCost,
    SpotCost,
    WorkloadCost,
)
from chalicelib.model.group import DEAREST, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.pod import Owner, PodClass
from chalicelib.model.policy import NodePrices
from chalicelib.model.resources import CPU, GPU_RESOURCES, MEMORY, Amounts
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.cost_bound import bound
from chalicelib.plan.demand.headroom import headroom_demand
from chalicelib.plan.demand.scaling_rules.allocation_rate import RESOURCE, Rates
from chalicelib.plan.demand.scaling_rules.sources import sources, threshold
from chalicelib.plan.prices import PriceSource, instance_type, node_price, price_book
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pools import pools
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.state.spot_market import is_fallback
from chalicelib.plan.tables import Bools, Floats, Ints

_UNITS = (1000.0, 2.0**30, 1.0)  # a core, a GiB, a GPU
_USUAL_WEIGHTS = (1.0, 1 / 8, 10.0)
_MOST_STEPS = 5  # from a pod's owner to the top-level controller

ALONE = "(no controller)"
"""In place of the controller of pods that have none."""

Account = tuple[str, str]
"""Currency, and id of the group ("" for nodes in no group)."""


class PriceTags:
    """Finds prices in millionths with their currencies."""

    def __init__(self, state: ClusterState) -> None:
        self._book = price_book(
            state.policy.prices,
            state.snapshot.groups,
            state.now,
            spot=state.policy.spot is not None,
        )
        self._groups = {name: group.group for name, group in state.groups.items()}
        self._prices = state.policy.prices

    def of_node(self, node: Node, group: str) -> tuple[int, str] | None:
        """Return the price of a node per hour, and its currency; None if it is unknown. A
        provider's price that cannot be compared with the others is in its own currency.
        group: its id, "" for none."""
        price = self._book.paid(node, self._groups.get(group))
        return (
            (price.amount, price.currency)
            if price is not None and price.amount <= DEAREST * MILLION
            else None
        )

    def is_spot_price(self, node: Node, group: NodeGroup) -> bool:
        """Return whether what a node of a spot group costs is a price of spot, not
        that of its type on demand."""
        price = self._book.paid(node, group)
        listed = self._prices is not None and instance_type(node) in self._prices.spot
        return price is not None and (
            (listed and self._book.spot) or price.source is PriceSource.PROVIDER
        )

    def on_demand(self, node: Node) -> int | None:
        """Return what the list says that a node costs on demand, in millionths;
        None if it says nothing."""
        listed = node_price(node, self._prices) if self._prices is not None else None
        return round(listed * MILLION) if listed is not None and listed <= DEAREST else None


def cluster_bill(state: ClusterState) -> ClusterBill | None:
    """Return the bill of a cluster, None where no machine has a price. Namespaces and controllers
    beyond MOST_ROWS are one row."""
    tags = PriceTags(state)
    machines = _Machines(state, tags)
    if not machines.accounts:
        return None
    usage = _Usage(state, machines)
    wanted = _Wanted(state, machines, usage)
    cells = _Cells(machines, usage, wanted)
    currencies = sorted({currency for currency, _ in machines.accounts})
    least = bound(state, tags.of_node) if len(currencies) == 1 else None
    spots = (
        _SpotPrices(state, tags)
        if any(group.group.spot for group in state.groups.values())
        else None
    )
    bills = [
        msgspec.structs.replace(
            cells.bill(currency, least),
            spot=spots.cost(machines, currency) if spots is not None else None,
        )
        for currency in currencies
    ]
    bills.sort(key=lambda bill: (-bill.parts.paid, bill.currency))
    return ClusterBill(state.snapshot.taken_at, tuple(bills), machines.unpriced)


class _Machines:
    """What is paid. nodes: the priced ones, by name; price, account: of each. accounts: sorted.
    spare: by account, the price of instances without a node; count: machines by account. pools:
    of groups that share one."""

    def __init__(self, state: ClusterState, tags: PriceTags) -> None:
        of_nodes: list[tuple[int, Node, int, Account]] = []
        self.unpriced = 0
        for at in sorted(
            range(len(state.snapshot.nodes)), key=lambda at: state.snapshot.nodes[at].name
        ):
            node = state.snapshot.nodes[at]
            group = state.group_of.get(node.name, "")
            priced = tags.of_node(node, group)
            if priced is None:
                self.unpriced += 1
            else:
                of_nodes.append((at, node, priced[0], (priced[1], group)))
        spare = list(self._without_node(state, tags))
        self.pools = {
            name: group.group.pool.id
            for name, group in state.groups.items()
            if group.group.pool is not None
        }
        self.accounts = sorted(
            {account for *_, account in of_nodes} | {account for account, *_ in spare}
        )
        index = {account: at for at, account in enumerate(self.accounts)}
        self.rows = [at for at, *_ in of_nodes]
        self.nodes = [node for _, node, *_ in of_nodes]
        self.price: Ints = np.array([price for _, _, price, _ in of_nodes], dtype=np.int64)
        self.account: Ints = np.array([index[account] for *_, account in of_nodes], dtype=np.int64)
        self.spare, self.count = [0] * len(self.accounts), [0] * len(self.accounts)
        for account, price, number in spare:
            self.spare[index[account]] += price * number
            self.count[index[account]] += number
        for at in self.account.tolist():
            self.count[at] += 1
        self.paid = list(self.spare)
        for at, price in zip(self.account.tolist(), self.price.tolist(), strict=True):
            self.paid[at] += price

    def _without_node(
        self, state: ClusterState, tags: PriceTags
    ) -> Iterable[tuple[Account, int, int]]:
        """Yield account, price and number of instances that are billed and have no node;
        count those without a price."""
        joined = {
            word for node in state.snapshot.nodes for word in (node.name, node.provider_id) if word
        }
        for name, group in sorted(state.groups.items()):
            ids = {
                instance.id
                for instance in group.group.instances
                if instance.error is None and not {instance.id, instance.node} & joined
            }
            ids -= set(group.contested)  # their nodes are billed
            if not ids:
                continue
            template = (
                group.template.node if group.template is not None else next(iter(group.nodes), None)
            )
            priced = tags.of_node(template, name) if template is not None else None
            if priced is None:
                self.unpriced += len(ids)
            else:
                yield (priced[1], name), priced[0], len(ids)


class _SpotPrices:
    """What nodes cost on spot and on demand: the least price of a group with this type
    of machine, by currency."""

    def __init__(self, state: ClusterState, tags: PriceTags) -> None:
        self._state, self._tags = state, tags
        self._least: dict[tuple[bool, str, str], int] = {}
        for name, group in sorted(state.groups.items()):
            example = (
                group.template.node if group.template is not None else next(iter(group.nodes), None)
            )
            priced = tags.of_node(example, name) if example is not None else None
            if (
                example is None
                or priced is None
                or (group.group.spot and not tags.is_spot_price(example, group.group))
            ):
                continue
            key = (group.group.spot, instance_type(example), priced[1])
            self._least[key] = min(priced[0], self._least.get(key, priced[0]))

    def cost(self, machines: _Machines, currency: str) -> SpotCost:
        """Return what the nodes of spot groups save, and what nodes on demand in
        place of them cost more."""
        nodes = compared = saved = fallback = premium = 0
        for node, price, at in zip(
            machines.nodes, machines.price.tolist(), machines.account.tolist(), strict=True
        ):
            if machines.accounts[at][0] != currency:
                continue
            group = self._state.groups.get(machines.accounts[at][1])
            kind = instance_type(node)
            if group is not None and group.group.spot:
                nodes += 1
                listed = self._tags.on_demand(node)
                other = self._least.get((False, kind, currency)) if listed is None else listed
                if other is not None and self._tags.is_spot_price(node, group.group):
                    compared, saved = compared + 1, saved + other - price
            elif (
                is_fallback(node, group, self._state)
                and (spot := self._least.get((True, kind, currency))) is not None
            ):
                fallback, premium = fallback + 1, premium + price - spot
        return SpotCost(nodes, compared, saved, fallback, premium)


class _Usage:
    """How the resources of the priced nodes are used: [N,3] for cpu, memory and GPUs. unit: price
    of one unit. labels: (namespace, controller) of each owner. node, owner, cost [P], [P,3]: the
    price of what an owner's pods request on a node. daemons, overhead, free: [N,3] prices. room:
    [N,3] free amounts."""

    def __init__(self, state: ClusterState, machines: _Machines) -> None:
        snapshot, count = state.snapshot, len(machines.nodes)
        offers: Floats = np.array(
            [_three(node.allocatable) for node in machines.nodes], dtype=np.float64
        ).reshape(count, 3)
        capacity: Floats = np.array(
            [_three(node.capacity) for node in machines.nodes], dtype=np.float64
        ).reshape(count, 3)
        capacity = np.maximum(capacity, offers)
        self.unit = _unit_prices(machines.price, capacity, _weights(state.policy.prices))
        self.labels, owner_of = _owners(snapshot)
        # the last: pods without a node
        node_at: Ints = np.full(len(snapshot.nodes) + 1, -1, dtype=np.int64)
        node_at[machines.rows] = np.arange(count)
        where = node_at[state.occupancy.where]
        placed: Bools = where >= 0
        cls = state.occupancy.cls[placed]
        width = len(self.labels) + 1
        pairs, pair_of = np.unique(where[placed] * width + owner_of[cls], return_inverse=True)
        requests = np.array(
            [_three(row.requests) for row in snapshot.classes], dtype=np.float64
        ).reshape(-1, 3)
        requested = _sums(requests[cls], pair_of, len(pairs))
        node, owner = pairs // width, pairs % width
        used = _sums(requested, node, count)
        fits: Floats = np.minimum(1.0, offers / np.maximum(used, 1.0))
        self.overcommitted: Bools = np.any(used > offers, axis=1)
        requested *= fits[node]
        self.room: Floats = np.maximum(offers - used, 0.0)
        self.free, self.overhead = self.unit * self.room, self.unit * (capacity - offers)
        cost, pods = requested * self.unit[node], owner > 0
        self.daemons = _sums(cost[~pods], node[~pods], count)
        self.node, self.owner, self.cost = node[pods], owner[pods] - 1, cost[pods]


class _Wanted:
    """Free room that is there on purpose, by account. Room that serves a minimum size serves
    headroom and rules too, so the largest of the three counts; entries of the headroom add up, as
    do cpu and memory of rules."""

    def __init__(self, state: ClusterState, machines: _Machines, usage: _Usage) -> None:
        gone = [
            state.buckets[node.name] is Bucket.DELETED or node.name in state.leaving
            for node in machines.nodes
        ]
        self.leaving: Bools = np.array(gone, dtype=np.bool_)
        stays, size = ~self.leaving, len(machines.accounts)
        self._accounts = machines.accounts
        self._waste = _sums(usage.free[stays], machines.account[stays], size)
        self._room = _sums(usage.room[stays], machines.account[stays], size)
        self.waste: Floats = self._waste.sum(axis=1)
        sizes = self._minimum_sizes(state, machines)
        self.amount: Floats = np.minimum(
            self.waste, np.maximum(np.maximum(sizes, self._headroom(state)), self._rules(state))
        )

    def _minimum_sizes(self, state: ClusterState, machines: _Machines) -> Floats:
        """Return what the fewest nodes of a group or pool cost beyond what their pods need."""
        paid: Floats = np.array(machines.paid, dtype=np.float64)
        count: Floats = np.array(machines.count, dtype=np.float64)
        wanted: Floats = np.zeros(len(self._accounts))
        minima: list[tuple[tuple[str, ...], int]] = [
            ((name,), group.group.min) for name, group in state.groups.items()
        ]
        shared = {
            group.group.pool.id: group.group.pool
            for group in state.groups.values()
            if group.group.pool
        }
        minima += [
            (pool.groups, pool.min - shared[name].elsewhere)
            for name, pool in pools(state).items()
            if name in shared
        ]
        for groups, least in minima:
            chosen = self._chosen(groups)
            machines_there = count[chosen].sum()
            if least <= 0 or not machines_there:
                continue
            share = min(1.0, least / machines_there)
            waste = self.waste[chosen].sum()
            stays = max(0.0, share * paid[chosen].sum() - (paid[chosen].sum() - waste))
            part = self.waste[chosen] * (min(stays, waste) / waste if waste else 0.0)
            wanted[chosen] = np.maximum(wanted[chosen], part)
        return wanted

    def _headroom(self, state: ClusterState) -> Floats:
        with_classes, demand = headroom_demand(state)
        wanted: Floats = np.zeros(len(self._accounts))
        for pods in demand.pods:
            requests = _three(with_classes.snapshot.classes[pods.cls].requests)
            wanted += self._reserved(pods.groups, [amount * pods.count for amount in requests])
        return wanted

    def _rules(self, state: ClusterState) -> Floats:
        """Return what the allocatable costs that metric rules want above
        the requests of the pods."""
        wanted: Floats = np.zeros((2, len(self._accounts)))
        rules = [
            item
            for item in sources(state).bound
            if item.rule.metric is not None and item.verdict is None
        ]
        rates = Rates(state) if rules else None
        for item in rules:
            above, metric = threshold(item.rule, state), item.rule.metric
            if rates is None or metric is None or not 0 < above < 100:
                continue
            amount = rates.of(item.pool, metric).requests * (100 - above) / above
            at = (CPU, MEMORY).index(RESOURCE[metric])
            amounts = [amount if place == at else 0.0 for place in range(3)]
            wanted[at] = np.maximum(wanted[at], self._reserved(item.pool.groups, amounts))
        total: Floats = wanted.sum(axis=0)
        return total

    def _reserved(self, groups: Iterable[str], amounts: Sequence[float]) -> Floats:
        """Return the price of amounts of free room of these groups, by
        account, as far as they have it."""
        chosen = self._chosen(groups)
        room: Floats = np.where(chosen[:, None], self._room, 0.0)
        part = np.minimum(1.0, np.array(amounts) / np.maximum(room.sum(axis=0), 1.0))
        price: Floats = (np.where(chosen[:, None], self._waste, 0.0) * part).sum(axis=1)
        return price

    def _chosen(self, groups: Iterable[str]) -> Bools:
        named = set(groups)
        return np.array([group in named for _, group in self._accounts], dtype=np.bool_)


class _Cells:
    """The rounded amounts: by account, its parts and what each owner's pods cost."""

    def __init__(self, machines: _Machines, usage: _Usage, wanted: _Wanted) -> None:
        self._machines, self._usage = machines, usage
        size, owners = len(machines.accounts), len(usage.labels)
        account = machines.account
        at_node = usage.cost.sum(axis=1)
        keys, cell_of = np.unique(
            account[usage.node] * max(owners, 1) + usage.owner, return_inverse=True
        )
        workload = np.bincount(cell_of, weights=at_node, minlength=len(keys))
        free = usage.free.sum(axis=1)
        lost = np.where(wanted.leaving, free, 0.0)
        lost += machines.price * (usage.unit.sum(axis=1) <= 0)  # a node without capacity
        others = [
            np.bincount(account, weights=weights, minlength=size)
            for weights in (usage.daemons.sum(axis=1), usage.overhead.sum(axis=1), lost)
        ]
        self._stays: Bools = ~wanted.leaving
        self._parts: list[CostParts] = []
        self._owners: list[dict[int, int]] = []
        for at in range(size):
            inside = np.flatnonzero(keys // max(owners, 1) == at)
            rest = [row[at] for row in others]
            rest[2] += machines.spare[at]
            amount = float(wanted.amount[at])
            shares = [*workload[inside].tolist(), *rest, amount, float(wanted.waste[at]) - amount]
            whole = apportioned(machines.paid[at], shares)
            of_owners, (daemons, overhead, unusable, kept, avoidable) = (
                whole[: len(inside)],
                whole[len(inside) :],
            )
            self._owners.append(
                {
                    int(keys[cell]) % max(owners, 1): cost
                    for cell, cost in zip(inside, of_owners, strict=True)
                }
            )
            self._parts.append(
                CostParts(
                    machines.paid[at], sum(of_owners), daemons, overhead, kept, avoidable, unusable
                )
            )

    def bill(self, currency: str, least: int | None) -> Bill:
        """Return the bill in one currency. least: the lower bound, None if it is unknown."""
        machines = self._machines
        chosen = [at for at, account in enumerate(machines.accounts) if account[0] == currency]
        parts = CostParts.total(self._parts[at] for at in chosen)
        groups = {at: machines.accounts[at][1] for at in chosen}
        return Bill(
            currency,
            parts,
            self._machine_costs(groups),
            self._machine_costs(
                {at: machines.pools.get(group, group) for at, group in groups.items()}
            ),
            self._workload_costs(chosen, lambda label: label[0]),
            self._workload_costs(chosen, "/".join),
            -1 if least is None else min(least, parts.paid),
            int((self._usage.overcommitted & np.isin(machines.account, chosen)).sum()),
        )

    def _machine_costs(self, names: Mapping[int, str]) -> tuple[MachineCost, ...]:
        """Return the sums of accounts with the same name. names: by account."""
        costs: dict[str, MachineCost] = {}
        for at, name in names.items():
            old = costs.get(name, MachineCost(name))
            parts = CostParts.total((old.parts, self._parts[at]))
            costs[name] = MachineCost(name, old.machines + self._machines.count[at], parts)
        return tuple(sorted(costs.values(), key=lambda cost: (-cost.parts.paid, cost.name)))

    def _workload_costs(
        self, chosen: Sequence[int], name_of: Callable[[tuple[str, str]], str]
    ) -> tuple[WorkloadCost, ...]:
        """Return what pods cost by a name that is made of namespace and
        controller, the dearest first."""
        usage, labels = self._usage, self._usage.labels
        names = sorted({name_of(label) for label in labels})
        at_name = {name: at for at, name in enumerate(names)}
        name_at: Ints = np.array([at_name[name_of(label)] for label in labels], dtype=np.int64)
        whole = [0] * len(names)
        for at in chosen:
            for owner, cost in self._owners[at].items():
                whole[name_at[owner]] += cost
        inside = np.isin(self._machines.account, chosen)
        here, stays = inside[usage.node], inside & self._stays
        by_resource = _sums(usage.cost[here], name_at[usage.owner[here]], len(names))
        total = by_resource.sum(axis=0)
        idle = (by_resource / np.where(total > 0, total, 1.0) * usage.free[stays].sum(axis=0)).sum(
            axis=1
        )
        waste = sum(self._parts[at].waste for at in chosen)
        shares = apportioned(waste, [*idle.tolist(), max(0.0, waste - float(idle.sum()))])
        rows = [
            WorkloadCost(name, cost, share)
            for name, cost, share in zip(names, whole, shares, strict=False)
            if cost or share
        ]
        return shortened(sorted(rows, key=lambda row: (-row.workload, row.name)))


def shortened(rows: Sequence[WorkloadCost], most: int = MOST_ROWS) -> tuple[WorkloadCost, ...]:
    """Return the first rows, and the sum of the others as one row without a name."""
    first, others = tuple(rows[:most]), rows[most:]
    if not others:
        return first
    return (
        *first,
        WorkloadCost(
            "", sum(row.workload for row in others), sum(row.idle for row in others), len(others)
        ),
    )


def apportioned(total: int, shares: Sequence[float]) -> list[int]:
    """Return shares that add up to about `total` as whole numbers that add up to it: rounded down,
    and the rest to those that lost most, the first of them first."""
    whole = [int(share) for share in shares]
    rest = total - sum(whole)
    order = sorted(range(len(shares)), key=lambda at: (whole[at] - shares[at], at))
    while rest > 0 and order:
        for at in order[:rest]:
            whole[at] += 1
        rest -= min(rest, len(order))
    while rest < 0 and any(whole):
        for at in [at for at in reversed(order) if whole[at] > 0][:-rest]:
            whole[at] -= 1
            rest += 1
    return whole


def _three(amounts: Amounts) -> tuple[int, int, int]:
    """Return cpu, memory and GPUs."""
    gpus = sum(amounts.get(name, 0) for name in GPU_RESOURCES)
    return max(0, amounts.get(CPU, 0)), max(0, amounts.get(MEMORY, 0)), max(0, gpus)


def _weights(prices: NodePrices | None) -> Floats:
    """Return how dear a millicore, a byte and a GPU are in relation to each other."""
    weights = _USUAL_WEIGHTS
    if prices is not None and ((prices.cpu or 0) > 0 or (prices.memory or 0) > 0):
        cpu, memory = prices.cpu or 0.0, prices.memory or 0.0
        core = cpu or memory * 8
        weights = (cpu, memory, core * 10 if prices.gpu is None else prices.gpu)
    units: Floats = np.array(weights) / np.array(_UNITS)
    return units


def _unit_prices(price: Ints, capacity: Floats, weights: Floats) -> Floats:
    """Return [N,3] the price of one millicore, byte and GPU of each node; 0
    for what it does not have."""
    value = capacity * weights
    usual = capacity * (np.array(_USUAL_WEIGHTS) / np.array(_UNITS))
    value = np.where(value.sum(axis=1, keepdims=True) > 0, value, usual)
    total = value.sum(axis=1, keepdims=True)
    part = np.where(total > 0, value / np.where(total > 0, total, 1.0), 0.0)
    unit: Floats = np.where(
        capacity > 0, price[:, None] * part / np.where(capacity > 0, capacity, 1.0), 0.0
    )
    return unit


def _sums(rows: Floats, at: Ints, count: int) -> Floats:
    """Return [count,3] the sums of rows by their place."""
    sums: Floats = np.zeros((count, 3))
    for column in range(3):
        sums[:, column] = np.bincount(at, weights=rows[:, column], minlength=count)
    return sums


def _owners(snapshot: Snapshot) -> tuple[list[tuple[str, str]], Ints]:
    """Return (namespace, top-level controller) of all owners, sorted, and the owner of each class,
    from 1; 0 for pods that come with their node."""
    above = {
        (item.kind, item.namespace, item.name): item.owner
        for item in snapshot.controllers
        if item.owner
    }

    def label(pod_class: PodClass) -> tuple[str, str]:
        owner: Owner | None = pod_class.owner
        for _ in range(_MOST_STEPS):
            higher = (
                above.get((owner.kind, pod_class.namespace, owner.name))
                if owner is not None
                else None
            )
            if higher is None:
                break
            owner = higher
        return pod_class.namespace, f"{owner.kind}/{owner.name}" if owner is not None else ALONE

    labels = [None if cls.is_daemonset or cls.mirror else label(cls) for cls in snapshot.classes]
    known = sorted({item for item in labels if item is not None})
    index = {item: at for at, item in enumerate(known, 1)}
    return known, np.array([0 if item is None else index[item] for item in labels], dtype=np.int64)
