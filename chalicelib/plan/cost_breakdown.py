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

from chalicelib.model.cluster_bill import (
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
from chalicelib.model.resources import CPU, GPU_RESOURCES, MEMORY, Amounts
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.cost_bound import bound
from chalicelib.plan.demand.headroom import headroom_demand
from chalicelib.plan.demand.scaling_rules.allocation_rate import RESOURCE, Rates
from chalicelib.plan.demand.scaling_rules.sources import sources, threshold
from chalicelib.plan.prices import PriceSource, instance_type, node_price
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.pools import pools
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.state.spot_market import is_fallback
from chalicelib.plan.tables import Bools, Floats, Ints
from chalicelib.policy.settings.node_prices import NodePrices

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
        self._book = state.prices
        self._groups = {name: group.group for name, group in state.groups.items()}
        self._prices = state.policy.prices

    def of_node(self, node: Node, group: str) -> tuple[int, str] | None:
        """Return the price of a node per hour, and its currency; None if it is unknown. A
        provider's price that cannot be compared with the others is in its own currency.
        group: its id, "" for none."""
        price = self._book.paid(node, self._groups.get(group))
        if price is None or price.amount > DEAREST * MILLION:
            return None
        return price.amount, price.currency

    def is_spot_price(self, node: Node, group: NodeGroup) -> bool:
        """Return whether what a node of a spot group costs is a price of spot, not
        that of its type on demand."""
        price = self._book.paid(node, group)
        if price is None:
            return False
        is_listed = self._prices is not None and instance_type(node) in self._prices.spot
        return (is_listed and self._book.spot) or price.source is PriceSource.PROVIDER

    def on_demand(self, node: Node, currency: str) -> int | None:
        """Return what the list says that a node costs on demand, in millionths; None if it says
        nothing, or is in another currency."""
        if self._prices is None or currency != self._book.currency:
            return None
        listed = node_price(node, self._prices)
        if listed is not None and listed <= DEAREST:
            return round(listed * MILLION)
        return None


def cluster_bill(state: ClusterState) -> ClusterBill | None:
    """Return the bill of a cluster, None where no machine has a price. Namespaces and controllers
    beyond MOST_ROWS are one row."""
    tags = PriceTags(state)
    machines = _Machines(state, tags)
    if not machines.accounts:
        return None
    usage = _Usage(state, machines)
    reserve = _Reserve(state, machines, usage)
    cells = _Cells(machines, usage, reserve)
    currencies = sorted({currency for currency, _ in machines.accounts})
    least = bound(state, tags.of_node) if len(currencies) == 1 else None
    bills = [cells.bill(currency, least) for currency in currencies]
    if any(group.group.spot for group in state.groups.values()):
        spots = _SpotPrices(state, tags)
        bills = [
            msgspec.structs.replace(bill, spot=spots.cost(machines, bill.currency))
            for bill in bills
        ]
    bills.sort(key=lambda bill: (-bill.parts.paid, bill.currency))
    return ClusterBill(state.snapshot.taken_at, tuple(bills), machines.unpriced)


class _Machines:
    """What is paid. nodes: the priced ones, by name; price, account: of each. accounts: sorted.
    spare: by account, the price of instances without a node; count: machines by account. pools:
    of groups that share one."""

    def __init__(self, state: ClusterState, tags: PriceTags) -> None:
        self.rows: list[int] = []
        self.nodes: list[Node] = []
        prices: list[int] = []
        accounts: list[Account] = []
        self.unpriced = 0
        for row, node in sorted(enumerate(state.snapshot.nodes), key=lambda item: item[1].name):
            group = state.group_of.get(node.name, "")
            priced = tags.of_node(node, group)
            if priced is None:
                self.unpriced += 1
                continue
            price, currency = priced
            self.rows.append(row)
            self.nodes.append(node)
            prices.append(price)
            accounts.append((currency, group))
        spare = list(self._without_node(state, tags))
        self.pools = {
            name: group.group.pool.id
            for name, group in state.groups.items()
            if group.group.pool is not None
        }
        self.accounts = sorted({*accounts, *(account for account, *_ in spare)})
        index = {account: at for at, account in enumerate(self.accounts)}
        places = [index[account] for account in accounts]
        self.price: Ints = np.array(prices, dtype=np.int64)
        self.account: Ints = np.array(places, dtype=np.int64)
        self.spare = [0] * len(self.accounts)
        self.count = [0] * len(self.accounts)
        for account, price, number in spare:
            at = index[account]
            self.spare[at] += price * number
            self.count[at] += number
        self.paid = list(self.spare)
        for at, price in zip(places, prices, strict=True):
            self.count[at] += 1
            self.paid[at] += price

    def _without_node(
        self, state: ClusterState, tags: PriceTags
    ) -> Iterable[tuple[Account, int, int]]:
        """Yield account, price and number of instances that are billed and have no node;
        count those without a price."""
        names_of_nodes = {node.name for node in state.snapshot.nodes}
        names_of_nodes.update(node.provider_id for node in state.snapshot.nodes)
        names_of_nodes.discard("")
        for name, group in sorted(state.groups.items()):
            working = [instance for instance in group.group.instances if instance.error is None]
            ids = {
                instance.id
                for instance in working
                if names_of_nodes.isdisjoint((instance.id, instance.node))
            }
            ids -= set(group.contested)  # their nodes are billed
            if not ids:
                continue
            example = _example(group)
            priced = tags.of_node(example, name) if example is not None else None
            if priced is None:
                self.unpriced += len(ids)
                continue
            price, currency = priced
            yield (currency, name), price, len(ids)


def _example(group: NodeGroupState) -> Node | None:
    """Return what a new node of a group would be like."""
    if group.template is not None:
        return group.template.node
    return next(iter(group.nodes), None)


class _SpotPrices:
    """What nodes cost on spot and on demand: the least price of a group with this type
    of machine, by currency."""

    def __init__(self, state: ClusterState, tags: PriceTags) -> None:
        self._state, self._tags = state, tags
        self._least: dict[tuple[bool, str, str], int] = {}
        for name, group in sorted(state.groups.items()):
            example = _example(group)
            priced = tags.of_node(example, name) if example is not None else None
            if example is None or priced is None:
                continue
            is_spot = group.group.spot
            if is_spot and not tags.is_spot_price(example, group.group):
                continue
            price, currency = priced
            key = (is_spot, instance_type(example), currency)
            self._least[key] = min(price, self._least.get(key, price))

    def cost(self, machines: _Machines, currency: str) -> SpotCost:
        """Return what the nodes of spot groups save, and what nodes on demand in
        place of them cost more."""
        nodes = compared = saved = fallback = premium = 0
        prices, accounts = machines.price.tolist(), machines.account.tolist()
        for node, price, at in zip(machines.nodes, prices, accounts, strict=True):
            currency_of_node, name = machines.accounts[at]
            if currency_of_node != currency:
                continue
            group = self._state.groups.get(name)
            if group is not None and group.group.spot:
                nodes += 1
                on_demand = self._on_demand(node, currency)
                if on_demand is not None and self._tags.is_spot_price(node, group.group):
                    compared += 1
                    saved += on_demand - price
            elif is_fallback(node, group, self._state):
                on_spot = self._least.get((True, instance_type(node), currency))
                if on_spot is not None:
                    fallback += 1
                    premium += price - on_spot
        return SpotCost(nodes, compared, saved, fallback, premium)

    def _on_demand(self, node: Node, currency: str) -> int | None:
        listed = self._tags.on_demand(node, currency)
        if listed is not None:
            return listed
        return self._least.get((False, instance_type(node), currency))


class _Usage:
    """How the resources of the priced nodes are used: [N,3] for cpu, memory and GPUs. unit: price
    of one unit. labels: (namespace, controller) of each owner. node, owner, cost [P], [P,3]: the
    price of what an owner's pods request on a node. daemons, overhead, free: [N,3] prices. room:
    [N,3] free amounts."""

    def __init__(self, state: ClusterState, machines: _Machines) -> None:
        snapshot, count = state.snapshot, len(machines.nodes)
        offers = _table(node.allocatable for node in machines.nodes)
        capacity = _table(node.capacity for node in machines.nodes)
        capacity = np.maximum(capacity, offers)
        weights = _weights(state.policy.prices)
        self.unit = _unit_prices(machines.price, capacity, weights)
        self.labels, owner_of = _owners(snapshot)
        # the last: pods without a node
        node_at: Ints = np.full(len(snapshot.nodes) + 1, -1, dtype=np.int64)
        node_at[machines.rows] = np.arange(count)
        where = node_at[state.occupancy.where]
        placed: Bools = where >= 0
        cls = state.occupancy.cls[placed]
        width = len(self.labels) + 1
        pair_of_pod = where[placed] * width + owner_of[cls]
        pairs, pair_of = np.unique(pair_of_pod, return_inverse=True)
        requests = _table(pod_class.requests for pod_class in snapshot.classes)
        requested = _sums(requests[cls], pair_of, len(pairs))
        node, owner = pairs // width, pairs % width
        used = _sums(requested, node, count)
        fits: Floats = np.minimum(1.0, offers / np.maximum(used, 1.0))
        self.overcommitted: Bools = np.any(used > offers, axis=1)
        requested *= fits[node]
        self.room: Floats = np.maximum(offers - used, 0.0)
        self.free = self.unit * self.room
        self.overhead = self.unit * (capacity - offers)
        cost = requested * self.unit[node]
        has_owner = owner > 0
        self.daemons = _sums(cost[~has_owner], node[~has_owner], count)
        self.node = node[has_owner]
        self.owner = owner[has_owner] - 1
        self.cost = cost[has_owner]


class _Reserve:
    """Free room that is there on purpose, by account. Room that serves a minimum size serves
    headroom and rules too, so the largest of the three counts; entries of the headroom add up, as
    do cpu and memory of rules."""

    def __init__(self, state: ClusterState, machines: _Machines, usage: _Usage) -> None:
        leaving = [
            state.buckets[node.name] is Bucket.DELETED or node.name in state.leaving
            for node in machines.nodes
        ]
        self.leaving: Bools = np.array(leaving, dtype=np.bool_)
        stays = ~self.leaving
        account, size = machines.account[stays], len(machines.accounts)
        self._accounts = machines.accounts
        self._waste = _sums(usage.free[stays], account, size)
        self._room = _sums(usage.room[stays], account, size)
        self.waste: Floats = self._waste.sum(axis=1)
        for_sizes = self._minimum_sizes(state, machines)
        for_pods = np.maximum(for_sizes, self._headroom(state))
        largest = np.maximum(for_pods, self._rules(state))
        self.amount: Floats = np.minimum(self.waste, largest)

    def _minimum_sizes(self, state: ClusterState, machines: _Machines) -> Floats:
        """Return what the fewest nodes of a group or pool cost beyond what their pods need."""
        paid: Floats = np.array(machines.paid, dtype=np.float64)
        count: Floats = np.array(machines.count, dtype=np.float64)
        costs: Floats = np.zeros(len(self._accounts))
        for groups, least in _minima(state):
            chosen = self._chosen(groups)
            machines_there = count[chosen].sum()
            if least <= 0 or not machines_there:
                continue
            paid_there = paid[chosen].sum()
            waste = self.waste[chosen].sum()
            useful = paid_there - waste
            minimum = min(1.0, least / machines_there) * paid_there
            beyond_need = min(max(0.0, minimum - useful), waste)
            part = beyond_need / waste if waste else 0.0
            costs[chosen] = np.maximum(costs[chosen], self.waste[chosen] * part)
        return costs

    def _headroom(self, state: ClusterState) -> Floats:
        with_classes, demand = headroom_demand(state)
        costs: Floats = np.zeros(len(self._accounts))
        for pods in demand.pods:
            cls = with_classes.snapshot.classes[pods.cls]
            amounts = [amount * pods.count for amount in _three(cls.requests)]
            costs += self._cost_of(pods.groups, amounts)
        return costs

    def _rules(self, state: ClusterState) -> Floats:
        """Return what the allocatable costs that metric rules want above
        the requests of the pods."""
        costs: Floats = np.zeros((2, len(self._accounts)))
        rules = [
            item
            for item in sources(state).bound
            if item.rule.metric is not None and item.verdict is None
        ]
        rates = Rates(state) if rules else None
        for item in rules:
            metric = item.rule.metric
            above = threshold(item.rule, state)
            if rates is None or metric is None or not 0 < above < 100:
                continue
            requests = rates.of(item.pool, metric).requests
            resource = (CPU, MEMORY).index(RESOURCE[metric])
            amounts = [0.0, 0.0, 0.0]
            amounts[resource] = requests * (100 - above) / above
            cost = self._cost_of(item.pool.groups, amounts)
            costs[resource] = np.maximum(costs[resource], cost)
        total: Floats = costs.sum(axis=0)
        return total

    def _cost_of(self, groups: Iterable[str], amounts: Sequence[float]) -> Floats:
        """Return the price of amounts of free room of these groups, by
        account, as far as they have it."""
        is_chosen = self._chosen(groups)[:, None]
        room = np.where(is_chosen, self._room, 0.0).sum(axis=0)
        part = np.minimum(1.0, np.array(amounts) / np.maximum(room, 1.0))
        waste = np.where(is_chosen, self._waste, 0.0)
        price: Floats = (waste * part).sum(axis=1)
        return price

    def _chosen(self, groups: Iterable[str]) -> Bools:
        names = set(groups)
        return np.array([group in names for _, group in self._accounts], dtype=np.bool_)


def _minima(state: ClusterState) -> Iterable[tuple[Iterable[str], int]]:
    """Yield groups, and how many nodes they have at least together."""
    elsewhere: dict[str, int] = {}
    for name, group in state.groups.items():
        yield (name,), group.group.min
        if group.group.pool:
            elsewhere[group.group.pool.id] = group.group.pool.elsewhere
    for name, pool in pools(state).items():
        if name in elsewhere:
            yield pool.groups, pool.min - elsewhere[name]


class _Cells:
    """The rounded amounts: by account, its parts and what each owner's pods cost."""

    def __init__(self, machines: _Machines, usage: _Usage, reserve: _Reserve) -> None:
        self._machines, self._usage = machines, usage
        size, width = len(machines.accounts), max(len(usage.labels), 1)
        account = machines.account
        cell_of_row = account[usage.node] * width + usage.owner
        cells, cell_of = np.unique(cell_of_row, return_inverse=True)
        workload = np.bincount(cell_of, weights=usage.cost.sum(axis=1), minlength=len(cells))
        unusable = np.where(reserve.leaving, usage.free.sum(axis=1), 0.0)
        has_no_capacity = usage.unit.sum(axis=1) <= 0
        unusable += machines.price * has_no_capacity
        others = [
            np.bincount(account, weights=weights, minlength=size)
            for weights in (usage.daemons.sum(axis=1), usage.overhead.sum(axis=1), unusable)
        ]
        others[2] += machines.spare
        self._stays: Bools = ~reserve.leaving
        self._parts: list[CostParts] = []
        self._owners: list[dict[int, int]] = []
        for at, paid in enumerate(machines.paid):
            inside = np.flatnonzero(cells // width == at)
            amount = float(reserve.amount[at])
            shares = workload[inside].tolist()
            shares += [row[at] for row in others]
            shares += [amount, float(reserve.waste[at]) - amount]
            whole = apportioned(paid, shares)
            of_owners, rest = whole[: len(inside)], whole[len(inside) :]
            owners = (cells[inside] % width).tolist()
            self._owners.append(dict(zip(owners, of_owners, strict=True)))
            daemons, overhead, lost, reserved, avoidable = rest
            pods = sum(of_owners)
            self._parts.append(CostParts(paid, pods, daemons, overhead, reserved, avoidable, lost))

    def bill(self, currency: str, least: int | None) -> Bill:
        """Return the bill in one currency. least: the lower bound, None if it is unknown."""
        machines = self._machines
        chosen = [at for at, account in enumerate(machines.accounts) if account[0] == currency]
        parts = CostParts.total(self._parts[at] for at in chosen)
        groups = {at: machines.accounts[at][1] for at in chosen}
        pools_of_groups = {at: machines.pools.get(name, name) for at, name in groups.items()}
        is_inside = np.isin(machines.account, chosen)
        overcommitted = self._usage.overcommitted & is_inside
        return Bill(
            currency,
            parts,
            self._machine_costs(groups),
            self._machine_costs(pools_of_groups),
            self._workload_costs(chosen, lambda label: label[0]),
            self._workload_costs(chosen, "/".join),
            -1 if least is None else min(least, parts.paid),
            int(overcommitted.sum()),
        )

    def _machine_costs(self, names: Mapping[int, str]) -> tuple[MachineCost, ...]:
        """Return the sums of accounts with the same name. names: by account."""
        costs: dict[str, MachineCost] = {}
        for at, name in names.items():
            others = costs.get(name, MachineCost(name))
            number = others.machines + self._machines.count[at]
            parts = CostParts.total((others.parts, self._parts[at]))
            costs[name] = MachineCost(name, number, parts)
        return tuple(sorted(costs.values(), key=lambda cost: (-cost.parts.paid, cost.name)))

    def _workload_costs(
        self, chosen: Sequence[int], name_of: Callable[[tuple[str, str]], str]
    ) -> tuple[WorkloadCost, ...]:
        """Return what pods cost by a name that is made of namespace and
        controller, the dearest first."""
        usage = self._usage
        name_of_owner = [name_of(label) for label in usage.labels]
        names = sorted(set(name_of_owner))
        index = {name: at for at, name in enumerate(names)}
        name_at: Ints = np.array([index[name] for name in name_of_owner], dtype=np.int64)
        costs = [0] * len(names)
        for at in chosen:
            for owner, cost in self._owners[at].items():
                costs[name_at[owner]] += cost
        inside = np.isin(self._machines.account, chosen)
        here = inside[usage.node]
        by_resource = _sums(usage.cost[here], name_at[usage.owner[here]], len(names))
        total = by_resource.sum(axis=0)
        part = by_resource / np.where(total > 0, total, 1.0)
        free = usage.free[inside & self._stays].sum(axis=0)
        idle = (part * free).sum(axis=1)
        waste = sum(self._parts[at].waste for at in chosen)
        of_nobody = max(0.0, waste - float(idle.sum()))
        shares = apportioned(waste, [*idle.tolist(), of_nobody])
        rows = [
            WorkloadCost(name, cost, share)
            for name, cost, share in zip(names, costs, shares, strict=False)
            if cost or share
        ]
        return shortened(sorted(rows, key=lambda row: (-row.workload, row.name)))


def shortened(rows: Sequence[WorkloadCost], most: int = MOST_ROWS) -> tuple[WorkloadCost, ...]:
    """Return the first rows, and the sum of the others as one row without a name."""
    first, others = tuple(rows[:most]), rows[most:]
    if not others:
        return first
    workload = sum(row.workload for row in others)
    idle = sum(row.idle for row in others)
    return *first, WorkloadCost("", workload, idle, len(others))


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
        reducible = [at for at in reversed(order) if whole[at] > 0]
        for at in reducible[:-rest]:
            whole[at] -= 1
            rest += 1
    return whole


def _three(amounts: Amounts) -> tuple[int, int, int]:
    """Return cpu, memory and GPUs."""
    gpus = sum(amounts.get(name, 0) for name in GPU_RESOURCES)
    return max(0, amounts.get(CPU, 0)), max(0, amounts.get(MEMORY, 0)), max(0, gpus)


def _table(rows: Iterable[Amounts]) -> Floats:
    """Return [rows,3] cpu, memory and GPUs."""
    amounts = [_three(row) for row in rows]
    return np.array(amounts, dtype=np.float64).reshape(-1, 3)


def _weights(prices: NodePrices | None) -> Floats:
    """Return how dear a millicore, a byte and a GPU are in relation to each other."""
    weights = _USUAL_WEIGHTS
    if prices is not None:
        cpu, memory = prices.cpu or 0.0, prices.memory or 0.0
        core = cpu or memory * 8
        gpu = core * 10 if prices.gpu is None else prices.gpu
        if cpu > 0 or memory > 0:
            weights = (cpu, memory, gpu)
    units: Floats = np.array(weights) / np.array(_UNITS)
    return units


def _unit_prices(price: Ints, capacity: Floats, weights: Floats) -> Floats:
    """Return [N,3] the price of one millicore, byte and GPU of each node; 0
    for what it does not have."""
    value = capacity * weights
    usual_value = capacity * _weights(None)
    is_worthless = value.sum(axis=1, keepdims=True) <= 0
    value = np.where(is_worthless, usual_value, value)
    total = value.sum(axis=1, keepdims=True)
    part = np.where(total > 0, value / np.where(total > 0, total, 1.0), 0.0)
    divisor = np.where(capacity > 0, capacity, 1.0)
    unit: Floats = np.where(capacity > 0, price[:, None] * part / divisor, 0.0)
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
        if owner is None:
            return pod_class.namespace, ALONE
        for _ in range(_MOST_STEPS):
            higher = above.get((owner.kind, pod_class.namespace, owner.name))
            if higher is None:
                break
            owner = higher
        return pod_class.namespace, f"{owner.kind}/{owner.name}"

    labels = [None if cls.is_daemonset or cls.mirror else label(cls) for cls in snapshot.classes]
    owners = sorted({item for item in labels if item is not None})
    index: dict[tuple[str, str] | None, int] = {item: at for at, item in enumerate(owners, 1)}
    return owners, np.array([index.get(item, 0) for item in labels], dtype=np.int64)
