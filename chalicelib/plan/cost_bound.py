"""A lower bound of what nodes for the present pods cost: a linear programme in which
nodes and pods may be split.

    minimise  Σ price · nodes   such that every pod has a place, no resource of a group's
                                nodes is used twice, pods are on groups that they fit, and
                                groups and pools keep their bounds

Groups take part that have a template and a price. Their nodes may be exchanged for others; all
further nodes stay, and their free room is free of charge. So no choice of whole nodes is cheaper,
whatever the rules between pods are, which the programme leaves out.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from chalicelib.model.node import Node
from chalicelib.plan.linear_solver import Entries, Solver, Trouble
from chalicelib.plan.predicates import static_mask
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.pools import pools
from chalicelib.plan.tables import LARGEST, Bools, Ints, NodeTable, ResourceColumns

_MOST_PAIRS = 20_000
"""Pairs of an ask and a group; a larger programme takes too long for a report."""

PriceOf = Callable[[Node, str], tuple[int, str] | None]
"""(node, id of its group or "") -> the price per hour in millionths, and its currency."""


_Limit = tuple[frozenset[int], int, int | None]
"""Places of offers, the least and the most of their nodes together."""


class _Offer(msgspec.Struct, frozen=True):
    """A group with the price of a new node in millionths, and the bounds of its size."""

    group: NodeGroupState
    node: Node
    daemons: tuple[int, ...]
    price: int
    least: int
    most: int


def bound(state: ClusterState, price_of: PriceOf) -> int | None:
    """Return the bound of what all priced nodes cost per hour, in millionths; None where there is
    no solver, or the programme is too large. price_of: all prices have one currency."""
    possible = [_offer(group, price_of) for _, group in sorted(state.groups.items())]
    offers = [offer for offer in possible if offer is not None]
    inside = {node.name for offer in offers for node in offer.group.nodes}
    stay = [node for node in state.snapshot.nodes if node.name not in inside]
    fixed = 0
    for node in stay:
        priced = price_of(node, state.group_of.get(node.name, ""))
        fixed += priced[0] if priced is not None else 0
    if not offers:
        return fixed
    try:
        cost = _Programme(state, offers, stay, inside).solve()
    except Trouble:
        return None
    if cost is None:
        return None
    return fixed + cost


def _offer(group: NodeGroupState, price_of: PriceOf) -> _Offer | None:
    template = group.template
    if template is None or group.group.error:
        return None
    priced = price_of(template.node, group.id)
    if priced is None:
        return None
    price, _ = priced
    size = _size(group)
    least = max(0, min(group.group.min, size))
    most = max(group.group.max, size)
    return _Offer(group, template.node, template.daemons, price, least, most)


def _size(group: NodeGroupState) -> int:
    return max(group.target, len(group.nodes))


class _Programme:
    """Rows: the pods of each ask, the resources of each offer, the room that stays, the
    bounds of groups and pools."""

    def __init__(
        self, state: ClusterState, offers: list[_Offer], stay: list[Node], inside: set[str]
    ) -> None:
        classes = state.snapshot.classes
        columns = ResourceColumns(classes)
        self._state, self._offers = state, offers
        table = NodeTable([offer.node for offer in offers], columns)
        for row, offer in enumerate(offers):
            for cls in offer.daemons:
                table.put(cls, np.array([row]), np.ones(1, dtype=np.int64))
        self._room: Ints = np.clip(table.free, 0, LARGEST)
        others = self._occupied(stay, columns)
        free = np.clip(others.free, 0, LARGEST).astype(np.float64)
        is_used: Bools = np.zeros(len(stay), dtype=np.bool_)
        asks: dict[tuple[tuple[int, ...], tuple[bool, ...]], int] = {}
        for cls, number in enumerate(self._moving_pods(inside)):
            if not number:
                continue
            need = columns.need(cls)
            fits = static_mask(cls, classes[cls], table) & np.all(self._room >= need, axis=1)
            fits_others: Bools = np.zeros(0, dtype=np.bool_)
            if stay:
                fits_others = static_mask(cls, classes[cls], others)
            is_used |= fits_others
            if fits.any():
                key = tuple(need.tolist()), (*fits.tolist(), bool(fits_others.any()))
                asks[key] = asks.get(key, 0) + number
        self._asks = sorted(asks.items())
        free_in_all = free[is_used].sum(axis=0)
        self._stays: Ints = np.minimum(free_in_all, LARGEST).astype(np.int64)

    def _occupied(self, stay: list[Node], columns: ResourceColumns) -> NodeTable:
        """Return the nodes that stay, with their pods."""
        occupancy, snapshot = self._state.occupancy, self._state.snapshot
        table = NodeTable(stay, columns)
        row_of = {node.name: row for row, node in enumerate(stay)}
        rows_of_nodes = [*(row_of.get(node.name, -1) for node in snapshot.nodes), -1]
        rows = np.array(rows_of_nodes, dtype=np.int64)[occupancy.where]
        on_these = rows >= 0
        no_ports = [()] * len(snapshot.classes)
        table.occupy(rows[on_these], occupancy.cls[on_these], no_ports)
        return table

    def _moving_pods(self, inside: set[str]) -> list[int]:
        """Return by class how many pods of the exchanged nodes need a place."""
        occupancy, classes = self._state.occupancy, self._state.snapshot.classes
        if not len(occupancy.where):
            return [0] * len(classes)
        is_inside = [*(node.name in inside for node in self._state.snapshot.nodes), False]
        moves = np.array(is_inside, dtype=np.bool_)[occupancy.where]
        comes_with_node = [cls.is_daemonset or cls.mirror for cls in classes]
        stays = np.array(comes_with_node, dtype=np.bool_)[occupancy.cls]
        moving: Ints = occupancy.cls[moves & ~stays]
        counts: list[int] = np.bincount(moving, minlength=len(classes)).tolist()
        return counts

    def solve(self) -> int | None:
        """Return the cost in millionths. Raises Trouble."""
        offers, asks, width = self._offers, self._asks, self._room.shape[1]
        room: Ints = np.concatenate([self._room, self._stays[None, :]])
        pairs = self._pairs(room)
        if len(pairs) > _MOST_PAIRS:
            return None
        solver = Solver()
        endless = solver.infinity
        limits = self._limits()
        first = len(asks) + width * len(room)
        lower = [float(count) for _, count in asks]
        lower += [0.0] * (width * len(offers))
        lower += [-1.0] * width
        lower += [float(least) for _, least, _ in limits]
        upper = [endless] * first
        upper += [endless if most is None else float(most) for *_, most in limits]
        solver.rows(lower, upper)
        solver.unplaced_columns(len(asks), [endless] * len(asks))
        dearest = max(1, *(offer.price for offer in offers))
        relative_prices = [offer.price / dearest for offer in offers]
        most_nodes = [float(offer.most) for offer in offers]
        node_columns = [self._node_column(at, first, limits) for at in range(len(offers))]
        solver.columns(relative_prices, most_nodes, node_columns)
        pod_columns = [self._pod_column(ask, place, room) for place, ask in pairs]
        solver.columns([0.0] * len(pairs), [endless] * len(pairs), pod_columns)
        _, values, _ = solver.run()
        nodes: list[float] = values[len(asks) : len(asks) + len(offers)].tolist()
        numbers = [max(0.0, number) for number in nodes]
        costs = [offer.price * number for offer, number in zip(offers, numbers, strict=True)]
        return round(sum(costs))

    def _pairs(self, room: Ints) -> list[tuple[int, int]]:
        """Return (place, ask) where a pod of the ask may be."""
        pairs: list[tuple[int, int]] = []
        for ask, ((need, fits), _) in enumerate(self._asks):
            has_room = np.all((room > 0) | (np.array(need) <= 0), axis=1)
            places = np.flatnonzero(np.array(fits) & has_room)
            pairs += [(place, ask) for place in places.tolist()]
        return pairs

    def _limits(self) -> list[_Limit]:
        """Return the limits of groups and of pools whose groups are all offers."""
        at_group = {offer.group.id: at for at, offer in enumerate(self._offers)}
        limits: list[_Limit] = [
            (frozenset({at}), offer.least, None)
            for at, offer in enumerate(self._offers)
            if offer.least > 0
        ]
        for pool in pools(self._state).values():
            shared = self._state.groups[pool.groups[0]].group.pool
            if shared is None or not set(pool.groups) <= set(at_group):
                continue
            members = [at_group[name] for name in pool.groups]
            size = sum(_size(self._offers[at].group) for at in members)
            least = min(shared.min - shared.elsewhere, size)
            most = None if shared.max < 0 else max(shared.max - shared.elsewhere, size)
            limits.append((frozenset(members), least, most))
        return limits

    def _node_column(self, at: int, first: int, limits: list[_Limit]) -> Entries:
        """A node gives its resources, and counts in its limits. first: the row of the first."""
        start = len(self._asks) + at * self._room.shape[1]
        resources = np.flatnonzero(self._room[at] > 0).tolist()
        rows = [start + column for column in resources]
        rows += [first + row for row, (members, *_) in enumerate(limits) if at in members]
        return rows, [1.0] * len(rows)

    def _pod_column(self, ask: int, place: int, room: Ints) -> Entries:
        """A pod takes its share of each resource."""
        (need_of_ask, _), _ = self._asks[ask]
        need = np.array(need_of_ask, dtype=np.int64)
        resources = np.flatnonzero(need).tolist()
        start = len(self._asks) + place * room.shape[1]
        rows = [start + column for column in resources]
        shares = [-need[column] / max(1, int(room[place, column])) for column in resources]
        return [ask, *rows], [1.0, *map(float, shares)]
