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
    offers = [
        offer for _, group in sorted(state.groups.items()) if (offer := _offer(group, price_of))
    ]
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
    return None if cost is None else fixed + cost


def _offer(group: NodeGroupState, price_of: PriceOf) -> _Offer | None:
    if group.template is None or group.group.error:
        return None
    priced = price_of(group.template.node, group.id)
    if priced is None:
        return None
    size = max(group.target, len(group.nodes))
    least, most = min(group.group.min, size), max(group.group.max, size)
    return _Offer(
        group, group.template.node, group.template.daemons, priced[0], max(0, least), most
    )


class _Programme:
    """Rows: the pods of each ask, the resources of each offer, the room that stays, the
    bounds of groups and pools."""

    def __init__(
        self, state: ClusterState, offers: list[_Offer], stay: list[Node], inside: set[str]
    ) -> None:
        classes, occupancy = state.snapshot.classes, state.occupancy
        columns = ResourceColumns(classes)
        self._state, self._offers = state, offers
        table = NodeTable([offer.node for offer in offers], columns)
        for row, offer in enumerate(offers):
            for cls in offer.daemons:
                table.put(cls, np.array([row]), np.ones(1, dtype=np.int64))
        self._room: Ints = np.clip(table.free, 0, LARGEST)
        others = NodeTable(stay, columns)
        names = {node.name: row for row, node in enumerate(stay)}
        rows = np.array(
            [*(names.get(node.name, -1) for node in state.snapshot.nodes), -1], dtype=np.int64
        )
        there = rows[occupancy.where]
        others.occupy(there[there >= 0], occupancy.cls[there >= 0], [()] * len(classes))
        free = np.clip(others.free, 0, LARGEST).astype(np.float64)
        movable = np.array(
            [not (cls.is_daemonset or cls.mirror) for cls in classes] or [False], dtype=np.bool_
        )
        moves = np.array(
            [*(node.name in inside for node in state.snapshot.nodes), False], dtype=np.bool_
        )
        counted = (
            moves[occupancy.where] & movable[occupancy.cls]
            if len(occupancy.where)
            else np.zeros(0, np.bool_)
        )
        counts = np.bincount(occupancy.cls[counted], minlength=len(classes)).tolist()
        used: Bools = np.zeros(len(stay), dtype=np.bool_)
        asks: dict[tuple[tuple[int, ...], tuple[bool, ...]], int] = {}
        for cls, number in enumerate(counts):
            if not number:
                continue
            need = columns.need(cls)
            fits = static_mask(cls, classes[cls], table) & np.all(self._room >= need, axis=1)
            outside = (
                static_mask(cls, classes[cls], others) if stay else np.zeros(0, dtype=np.bool_)
            )
            used |= outside
            if fits.any():
                key = tuple(need.tolist()), (*fits.tolist(), bool(outside.any()))
                asks[key] = asks.get(key, 0) + number
        self._asks = sorted(asks.items())
        self._stays: Ints = np.minimum(free[used].sum(axis=0), LARGEST).astype(np.int64)

    def solve(self) -> int | None:
        """Return the cost in millionths. Raises Trouble."""
        offers, asks, width = self._offers, self._asks, self._room.shape[1]
        room: Ints = np.concatenate([self._room, self._stays[None, :]])
        pairs = [
            (place, ask)
            for ask, ((need, fits), _) in enumerate(asks)
            for place in np.flatnonzero(
                np.array(fits) & np.all((room > 0) | (np.array(need) <= 0), axis=1)
            ).tolist()
        ]
        if len(pairs) > _MOST_PAIRS:
            return None
        solver = Solver()
        first, limits = len(asks) + width * len(room), self._limits()
        endless = solver.infinity
        lower = [float(count) for _, count in asks] + [0.0] * (width * len(offers)) + [-1.0] * width
        upper = [endless] * (len(asks) + width * len(room))
        solver.rows(
            [*lower, *(float(least) for _, least, _ in limits)],
            [*upper, *(endless if most is None else float(most) for *_, most in limits)],
        )
        dearest = max(1, *(offer.price for offer in offers))
        solver.unplaced_columns(len(asks), [endless] * len(asks))
        solver.columns(
            [offer.price / dearest for offer in offers],
            [float(offer.most) for offer in offers],
            [self._node_column(at, len(asks), first, limits) for at in range(len(offers))],
        )
        solver.columns(
            [0.0] * len(pairs),
            [endless] * len(pairs),
            [self._pod_column(ask, place, room) for place, ask in pairs],
        )
        _, values, _ = solver.run()
        nodes: list[float] = values[len(asks) : len(asks) + len(offers)].tolist()
        return round(
            sum(offer.price * max(0.0, number) for offer, number in zip(offers, nodes, strict=True))
        )

    def _limits(self) -> list[tuple[frozenset[int], int, int | None]]:
        """Return (offers, least, most) of groups and of pools whose groups are all offers."""
        at_group = {offer.group.id: at for at, offer in enumerate(self._offers)}
        limits: list[tuple[frozenset[int], int, int | None]] = [
            (frozenset({at}), offer.least, None)
            for at, offer in enumerate(self._offers)
            if offer.least > 0
        ]
        for pool in pools(self._state).values():
            shared = self._state.groups[pool.groups[0]].group.pool
            if shared is None or not set(pool.groups) <= set(at_group):
                continue
            members = [at_group[name] for name in pool.groups]
            size = sum(
                max(self._offers[at].group.target, len(self._offers[at].group.nodes))
                for at in members
            )
            most = None if shared.max < 0 else max(shared.max - shared.elsewhere, size)
            limits.append((frozenset(members), min(shared.min - shared.elsewhere, size), most))
        return limits

    def _node_column(
        self, at: int, asks: int, first: int, limits: list[tuple[frozenset[int], int, int | None]]
    ) -> Entries:
        """A node gives its resources, and counts in its limits."""
        width = self._room.shape[1]
        resources = [
            asks + at * width + column for column in np.flatnonzero(self._room[at] > 0).tolist()
        ]
        within = [first + row for row, (members, *_) in enumerate(limits) if at in members]
        return [*resources, *within], [1.0] * (len(resources) + len(within))

    def _pod_column(self, ask: int, place: int, room: Ints) -> Entries:
        """A pod takes its share of each resource."""
        need = np.array(self._asks[ask][0][0], dtype=np.int64)
        resources = np.flatnonzero(need).tolist()
        start = len(self._asks) + place * room.shape[1]
        shares = [-need[column] / max(1, int(room[place, column])) for column in resources]
        return [ask, *(start + column for column in resources)], [1.0, *map(float, shares)]
