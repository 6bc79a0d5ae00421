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
from chalicelib.plan.packing.linear_programme import Model, merged_places
from chalicelib.plan.packing.linear_solver import Trouble
from chalicelib.plan.packing.problem import Numbers, PackingProblem, no_candidates
from chalicelib.plan.predicates import static_mask
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.pools import pools
from chalicelib.plan.tables import LARGEST, Bools, Ints, NodeTable, ResourceColumns, integers

_MOST_PAIRS = 20_000
"""Pairs of an ask and a group; a larger programme takes too long for a report."""

PriceOf = Callable[[Node, str], tuple[int, str] | None]
"""(node, id of its group or "") -> the price per hour in millionths, and its currency."""


_Limit = tuple[list[int], int, int]
"""Places of offers, 1 or -1, and the most or the least of their nodes together."""


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
        cost = _least_price(_ExchangedNodes(state, offers, stay, inside))
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


class _ExchangedNodes:
    """What the nodes of the offers hold, and what their pods may use instead."""

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
        self.prices = [offer.price for offer in offers]

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

    def problem(self) -> PackingProblem:
        """Return the least for these pods: all nodes of the offers are new, and those that stay are
        one large one."""
        offers, asks, limits = self._offers, self._asks, self._limits()
        members = np.array([[at in one for at in range(len(offers))] for one, *_ in limits])
        signs = np.array([sign for _, sign, _ in limits], dtype=np.int64)
        fits = np.array([fits for (_, fits), _ in asks], dtype=np.bool_)
        fits = fits.reshape(len(asks), len(offers) + 1).T
        return PackingProblem(
            need=integers([need for (need, _), _ in asks]).reshape(-1, self._room.shape[1]),
            pending=integers([count for _, count in asks]),
            price=np.array(self.prices) / max(1, *self.prices),
            room=self._room,
            group_fits=fits[:-1],
            most=integers([offer.most for offer in offers]),
            free=self._stays[None, :],
            fits=fits[-1:],
            buying=members.reshape(len(limits), len(offers)) * signs[:, None],
            limit=integers([sign * nodes for _, sign, nodes in limits]),
            **no_candidates(len(asks), len(offers), len(limits)),
        )

    def _limits(self) -> list[_Limit]:
        """Return the limits of groups and of pools whose groups are all offers."""
        at_group = {offer.group.id: at for at, offer in enumerate(self._offers)}
        limits: list[_Limit] = [
            ([at], -1, offer.least) for at, offer in enumerate(self._offers) if offer.least > 0
        ]
        for pool in pools(self._state).values():
            shared = self._state.groups[pool.groups[0]].group.pool
            if shared is None or not set(pool.groups) <= set(at_group):
                continue
            members = [at_group[name] for name in pool.groups]
            size = sum(_size(self._offers[at].group) for at in members)
            least = min(shared.min - shared.elsewhere, size)
            limits.append((members, -1, least))
            if shared.max >= 0:
                limits.append((members, 1, max(shared.max - shared.elsewhere, size)))
        return limits


def _least_price(nodes: _ExchangedNodes) -> int | None:
    """Return the price in millionths, None if the programme is too large or has no solution.
    Raises Trouble."""
    numbers = Numbers(nodes.problem())
    if not numbers.demand.any() and not len(numbers.problem.limit):
        return 0  # the solver has no answer for nothing
    if np.count_nonzero(numbers.cap) + np.count_nonzero(numbers.group_cap) > _MOST_PAIRS:
        return None
    solution = Model(numbers, merged_places(numbers), may_wait=True).solve()
    if solution is None:
        return None
    return round(float(np.dot(nodes.prices, np.maximum(solution.bought, 0.0))))
