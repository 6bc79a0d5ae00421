"""Whole nodes from fractional mixes, and cheaper mixes from whole nodes.

`dive` buys what is certain and solves again for the rest. `polish` is a local search, node by node:
it places unplaced pods into gaps, removes unneeded nodes, and replaces oversized nodes by cheaper
ones that take the same pods.

Rounding every column at once would buy one node per fraction. Instead the integer part is
bought, then the largest fractions. The rest is a smaller problem, for which a few rounds
generate suitable loads.
"""

from __future__ import annotations

import numpy as np

from chalicelib.plan.scale_up.least_cost.master_problem import Effort, Master, Prices, generate
from chalicelib.plan.scale_up.least_cost.node_filling import Pricer, cover
from chalicelib.plan.scale_up.least_cost.problem import (
    Load,
    Loads,
    Problem,
    Rooms,
    Stop,
    dot,
    left_over,
)
from chalicelib.plan.scale_up.least_cost.reduction import MANY
from chalicelib.plan.scale_up.least_cost.relaxation import Relaxed
from chalicelib.plan.tables import Bools, Floats, Ints, first_fit

_AGAIN = Effort(rounds=1, keep=3, tries=1)
_SHARE = 0.3  # share of the fractions that is rounded up at a time
_COLUMNS = 3  # times the number of asks: the number of loads that are kept
_NEARLY = 0.01  # part of its price by which a node may cost more than its pods are worth
_EPSILON = 1e-6


def dive(master: Master, pricer: Pricer, prices: Prices, scarce: Floats, stop: Stop) -> list[Load]:
    """Return whole loads for the pods of the problem; some pods may be left where limits bind.
    Loads found on the way are added to the master problem too. Raises Trouble.

    pricer: finds loads whose pods are worth more than their node. scarce [G,R]: value of a node's
    whole amount of a resource. stop: says that time is over."""
    problem, slim = master.problem, master.slim(prices, _COLUMNS * len(master.problem.pending))
    cap = _of_promising_offers(master, prices)
    prices = slim.solve()
    rooms, unplaced = Rooms(problem), problem.pending.copy()
    loads: list[Load] = []
    while unplaced.any():
        bought = _whole_loads(problem, slim, prices, rooms, unplaced)
        if not bought or stop():
            loads += bought
            break
        loads += bought
        if unplaced.any():
            slim.want(unplaced, rooms)
            prices = generate(slim, pricer, np.minimum(cap, unplaced), _AGAIN, stop)
    master.add(slim.loads)
    return loads + cover(problem, unplaced, prices.value, scarce, rooms)


def _of_promising_offers(master: Master, prices: Prices) -> Ints:
    """Return the most pods on a node [G,A]; of many offers, 0 for those of which no load is nearly
    worth its price: most of the time of a dive goes into the search for loads."""
    problem = master.problem
    if len(problem.price) <= MANY:
        return problem.cap
    least = np.full(len(problem.price), np.inf)
    offers = [load.offer for load in master.loads]
    np.minimum.at(least, offers, master.reduced_costs(prices))
    is_promising = least <= _NEARLY * problem.price
    cap: Ints = np.where(is_promising[:, None], problem.cap, 0)
    return cap


def _whole_loads(
    problem: Problem, master: Master, prices: Prices, rooms: Rooms, unplaced: Ints
) -> list[Load]:
    """Buy the integer parts if there are any, otherwise some of the fractions.
    Reduces `rooms` and `unplaced`."""
    whole = np.floor(prices.nodes + _EPSILON).astype(np.int64)
    loads: list[Load] = []
    for at in np.flatnonzero(whole):
        load = master.loads[at]
        carried = load.pods > 0
        nodes = min(
            int(whole[at]),
            rooms.allowed(load.offer),
            int((unplaced[carried] // load.pods[carried]).min()),
        )
        if nodes > 0:
            loads.append(_taken_load(Load(load.offer, load.pods, nodes), rooms, unplaced))
    if loads:
        return loads
    fractions = np.flatnonzero(prices.nodes > _EPSILON)
    fractions = fractions[np.argsort(-prices.nodes[fractions], kind="stable")]
    count = max(1, round(_SHARE * float(prices.nodes[fractions].sum())))
    for at in fractions:
        if len(loads) >= count:
            break
        load = master.loads[at]
        pods = np.minimum(load.pods, unplaced)
        full = float(dot(pods, prices.value)) >= 0.98 * float(dot(load.pods, prices.value))
        if pods.any() and rooms.allowed(load.offer) > 0 and (full or not loads):
            pods = _topped_up(problem, load.offer, pods, unplaced, prices.value)
            loads.append(_taken_load(Load(load.offer, pods, 1), rooms, unplaced))
    return loads


def _taken_load(load: Load, rooms: Rooms, unplaced: Ints) -> Load:
    rooms.take(load.offer, load.nodes)
    unplaced -= load.pods * load.nodes
    return load


def _topped_up(problem: Problem, offer: int, pods: Ints, unplaced: Ints, value: Floats) -> Ints:
    """Return a load of one node, with further pods added as long as they fit."""
    pods = pods.copy()
    room = problem.room[offer] - pods @ problem.need
    share = (problem.need / np.maximum(problem.room[offer], 1)).max(axis=1)
    for ask in np.argsort(
        -np.maximum(value, _EPSILON) / np.maximum(share, _EPSILON), kind="stable"
    ):
        need = problem.need[ask]
        more = int(min(problem.cap[offer, ask], unplaced[ask])) - int(pods[ask])
        if more > 0 and (need <= room).all():
            requested = need > 0
            more = min(more, int((room[requested] // need[requested]).min()))
            pods[ask] += more
            room = room - more * need
    return pods


_CELLS = 6_000_000  # nodes times asks; in larger mixes, saving a node hardly changes the price
_CANDIDATES = 300  # the emptiest nodes
_FEW = 40  # nodes; up to this number, all nodes may be packed again


def polish(problem: Problem, loads: Loads, relaxed: Relaxed) -> list[Load]:
    """Return a mix with the same pods or more, on fewer or cheaper nodes for the pods
    that were already placed."""
    if sum(load.nodes for load in loads) * len(problem.pending) <= _CELLS:
        nodes = _Nodes(problem, loads)
        unplaced = left_over(problem, loads)
        for ask in np.flatnonzero(unplaced):
            unplaced[ask] -= nodes.put(int(ask), int(unplaced[ask]))
        nodes.drop()
        loads = nodes.loads()
    loads = _on_cheaper_offers(problem, loads)
    unplaced, rooms = left_over(problem, loads), Rooms(problem)
    for load in loads:
        rooms.take(load.offer, load.nodes)
    return [*loads, *cover(problem, unplaced, relaxed.value, relaxed.scarce, rooms)]


class _Nodes:
    """Nodes as separate rows: offer [N], pods [N,A], left [N,R]."""

    def __init__(self, problem: Problem, loads: Loads) -> None:
        self.problem = problem
        times = [load.nodes for load in loads]
        self.offer: Ints = np.repeat(
            np.array([load.offer for load in loads], dtype=np.int64), times
        )
        self.pods: Ints = np.repeat(
            np.array([load.pods for load in loads], dtype=np.int64).reshape(
                len(loads), len(problem.pending)
            ),
            times,
            axis=0,
        )
        self.left: Ints = problem.room[self.offer] - self.pods @ problem.need
        self.dropped = np.zeros(len(self.offer), dtype=np.bool_)
        self.size: Floats = (problem.need / np.maximum(problem.room.max(axis=0, initial=1), 1)).max(
            axis=1
        )

    def room(self, ask: int) -> Ints:
        """Return how many more pods of an ask each node takes."""
        need = self.problem.need[ask]
        used = need > 0
        room: Ints = np.minimum(
            (self.left[:, used] // need[used]).min(axis=1),
            self.problem.cap[self.offer, ask] - self.pods[:, ask],
        )
        room[self.dropped] = 0
        return np.maximum(room, 0)

    def put(self, ask: int, count: int) -> int:
        """Place up to `count` pods, first fit; returns how many were placed."""
        nodes, pods = first_fit(self.room(ask), count)
        self.pods[nodes, ask] += pods
        self.left[nodes] -= pods[:, None] * self.problem.need[ask]
        return int(pods.sum())

    def drop(self) -> None:
        """Remove nodes whose pods fit onto the others, expensive and empty nodes first."""
        full = 1.0 - (self.left / np.maximum(self.problem.room[self.offer], 1)).min(axis=1)
        order = np.argsort(full / self.problem.price[self.offer], kind="stable")[:_CANDIDATES]
        for node in order.tolist():
            if (
                not self._moved(node, np.arange(len(self.offer)) == node)
                and len(self.offer) <= _FEW
            ):
                self._moved(node, ~self.dropped)

    def _moved(self, node: int, emptied: Bools) -> bool:
        """Remove nodes and place their pods on others. Returns whether it succeeded;
        if not, nothing changes."""
        before = self.pods.copy(), self.left.copy(), self.dropped.copy()
        homeless = self.pods[emptied].sum(axis=0)
        self.pods[emptied] = 0
        self.left[emptied] = self.problem.room[self.offer[emptied]]
        self.dropped[node] = True
        asks = np.flatnonzero(homeless)
        for ask in asks[np.argsort(-self.size[asks], kind="stable")].tolist():
            if self.put(ask, int(homeless[ask])) < homeless[ask]:
                self.pods, self.left, self.dropped = before
                return False
        self.dropped |= ~self.pods.any(axis=1)
        return True

    def loads(self) -> list[Load]:
        """Merge equal nodes into loads."""
        equal: dict[tuple[int, bytes], list[int]] = {}
        for node in np.flatnonzero(~self.dropped).tolist():
            equal.setdefault((int(self.offer[node]), self.pods[node].tobytes()), []).append(node)
        return [Load(offer, self.pods[nodes[0]], len(nodes)) for (offer, _), nodes in equal.items()]


def _on_cheaper_offers(problem: Problem, loads: Loads) -> list[Load]:
    """Move each load to the cheapest offer that takes it and may still be bought."""
    rooms = Rooms(problem)
    for load in loads:
        rooms.take(load.offer, load.nodes)
    order = np.argsort(problem.price, kind="stable")
    after: list[Load] = []
    for load in loads:
        rest, used = load.nodes, load.pods @ problem.need
        holds: Bools = np.logical_and(
            np.all(problem.room >= used, axis=1), np.all(problem.cap >= load.pods, axis=1)
        )
        for offer in order[holds[order]].tolist():
            if problem.price[offer] >= problem.price[load.offer] or not rest:
                break
            nodes = min(rest, rooms.exchangeable(load.offer, offer))
            if nodes:
                rooms.take(load.offer, -nodes)
                rooms.take(offer, nodes)
                after.append(Load(offer, load.pods, nodes))
                rest -= nodes
        if rest:
            after.append(Load(load.offer, load.pods, rest))
    return after
