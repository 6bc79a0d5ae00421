"""The pricing problem: finds the most valuable load of one node for given pod values, a
knapsack with several resources.

Exact answers cost seconds for a large node and are not needed. Instead, many greedy fillings
(lanes) run at once, each with its own weights of scarce resources. Then each of the best is filled
again with one pod, or all pods of one ask, taken out. All lanes advance together, one ask per step,
so that the Python loop runs a dozen times and not once per pod.

Greedy integer mixes are built from the same fillings, fast and always feasible, but never the
final answer: `spread` fills each offer with the pods that the relaxation assigned to it, and starts
the search. `cover` repeatedly buys the load with the highest value for its cost, and completes
a mix: it places every pod that can be placed. `first_fit` computes what a single group would need;
no answer may cost more than that.
"""

from __future__ import annotations

import random

import numpy as np

from chalicelib.plan.scale_up.least_cost.linear_programs import Relaxed
from chalicelib.plan.scale_up.least_cost.problem import Load, Problem, Rooms, dot
from chalicelib.plan.tables import Floats, Ints

_LANES = 12  # per offer and round
_IMPROVED = 3  # fillings per offer that the search tries to improve
# asks per offer that are considered: those with the highest value for their requests
_CANDIDATES = 64
_IDEAS = 64  # rows of the table of random weights
_AT_ONCE = 600_000  # cells of one array; bounds memory
GAIN = 1e-7  # by how much a load's value must exceed its cost, as a share of the cost


class ColumnCounter:
    """Candidates for filling a node of each offer: K asks per offer with their data. asks [G,K],
    need [G,K,R], value [G,K], cap [G,K]."""

    def __init__(self, problem: Problem, value: Floats, cap: Ints, scarce: Floats) -> None:
        free = np.maximum(problem.free, 1)
        burden = np.einsum("gr,ar->ga", scarce / free, problem.need)  # not @, see dot
        ratio = np.where((cap > 0) & (value > 0), value / np.maximum(burden, 1e-30), -1.0)
        useful = int((ratio > 0).sum(axis=1).max(initial=0))
        many = min(_CANDIDATES, useful)
        self.asks: Ints = np.argsort(-ratio, axis=1, kind="stable")[:, :many]
        self.need: Ints = problem.need[self.asks]
        self.amount: Floats = self.need.astype(np.float64)
        self.value: Floats = value[self.asks]
        self.cap: Ints = np.take_along_axis(np.where(ratio > 0, cap, 0), self.asks, axis=1)
        self.free = problem.free


def fill(
    counter: ColumnCounter,
    which: Ints,
    pods: Ints,
    score: Floats,
    scarce: Floats,
    closed: Ints | None = None,
) -> None:
    """Fill L nodes greedily in addition to the pods on them; changes pods [L,K].

    which [L]: the offer of each node; score [L,K]: value of a pod; scarce [L,R]: weight of a
    resource's share of what is left; closed [L]: a candidate that is not used.
    """
    need, width = counter.need[which], counter.free.shape[1]
    amount = counter.amount[which]
    free = counter.free[which] - np.einsum("lk,lkr->lr", pods, need)
    cap = counter.cap[which] - pods
    open_ = cap > 0
    if closed is not None:
        open_[np.arange(len(which)), closed] = False
    for column in range(width):
        open_ &= free[:, column, None] >= need[:, :, column]
    live = np.flatnonzero(open_.any(axis=1))
    if len(live) < len(which):
        need, amount = need[live], amount[live]
    while live.size:
        rest, still, row = free[live], open_[live], np.arange(len(live))
        weight = scarce[live] / np.maximum(rest, 1)
        share = np.einsum("lr,lkr->lk", weight, amount)
        best = np.where(still, score[live] / np.maximum(share, 1e-30), -1.0).argmax(axis=1)
        per_pod = need[row, best]
        number = np.where(per_pod > 0, rest // np.maximum(per_pod, 1), 2**60).min(axis=1)
        number = np.minimum(number, cap[live, best])
        rest -= number[:, None] * per_pod
        free[live] = rest
        pods[live, best] += number
        still[row, best] = False
        for column in range(width):
            still &= rest[:, column, None] >= need[:, :, column]
        open_[live] = still
        going = still.any(axis=1)
        live, need, amount = live[going], need[going], amount[going]


class _RandomNumbers:
    """Repeatable random numbers. numpy.random would be 1.4 MB of the
    deployment, whose size is limited."""

    _TERMS = 12  # the variance of twelve uniform numbers is 1
    _SCALE = 2**16

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 (protects nothing)

    def normal(self, deviation: float, rows: int, columns: int) -> Floats:
        """Return nearly normal numbers around 0 [rows,columns]: sums of uniform ones, the same on
        every processor (https://en.wikipedia.org/wiki/Irwin-Hall_distribution)."""
        count = rows * columns
        terms = np.frombuffer(self._random.randbytes(2 * self._TERMS * count), dtype="<u2")
        sums = terms.reshape(count, self._TERMS).sum(axis=1, dtype=np.int64)
        mean = self._TERMS * (self._SCALE - 1) / 2
        numbers: Floats = (sums - mean) * (deviation / self._SCALE)
        return numbers.reshape(rows, columns)

    def indices(self, length: int, count: int) -> Ints:
        """Return `count` indices of a table. length: of the table, a power of two up to 256."""
        return (
            np.frombuffer(self._random.randbytes(count), dtype=np.uint8).astype(np.int64) % length
        )


class Pricer:
    """Finds loads whose pods are worth more than their node. It has its own random
    generator with a fixed seed."""

    def __init__(self, problem: Problem, scarce: Floats) -> None:
        self.problem = problem
        self.scarce = scarce + 1e-3
        self._random = _RandomNumbers(seed=0)
        self._ideas = np.exp(self._random.normal(0.15, _IDEAS, _CANDIDATES))
        self._ideas[: _IDEAS // 2] = 1.0

    def loads(
        self, value: Floats, cost: Floats, cap: Ints, keep: int, tries: int, gain: float = GAIN
    ) -> list[Load]:
        """Return loads whose value exceeds their cost by the required share, at most
        `keep` per offer, best first.

        value [A]: of a pod; cost [G]; cap [G,A]: most pods on a node; tries: how
        often the best are improved.
        """
        counter = ColumnCounter(self.problem, value, cap, self.scarce)
        offers = np.flatnonzero(counter.cap.any(axis=1))
        step = max(1, _AT_ONCE // (_LANES * max(1, counter.asks.shape[1])))
        chosen: list[tuple[float, Load]] = []
        for begin in range(0, len(offers), step):
            which, pods = self._lanes(counter, offers[begin : begin + step])
            for turn in range(tries + 1):
                over = np.einsum("lk,lk->l", pods, counter.value[which]) / cost[which] - 1.0
                if turn < tries:
                    top = _best_lanes(which, pods, over, _IMPROVED)
                    which, pods = self._again(counter, which[top], pods[top])
            for at in _best_lanes(which, pods, over, keep):
                if over[at] > gain:
                    whole = np.zeros(len(value), dtype=np.int64)
                    whole[counter.asks[which[at]]] = pods[at]
                    chosen.append((float(over[at]), Load(int(which[at]), whole, 1)))
        return [load for _, load in sorted(chosen, key=lambda one: -one[0])]

    def _lanes(self, counter: ColumnCounter, offers: Ints) -> tuple[Ints, Ints]:
        """Return every offer filled in _LANES ways: [L], [L,K]."""
        which, width = np.tile(offers, _LANES), self.problem.free.shape[1]
        spread = np.repeat(np.where(np.arange(_LANES) % 2, 0.4, 1.0), len(offers))[:, None]
        scarce = np.exp(self._random.normal(1.0, len(which), width) * spread)
        informed = np.repeat(np.arange(_LANES) % 2 == 1, len(offers))
        scarce[informed] *= self.scarce[which[informed]]
        scarce[: len(offers)] = 1.0
        pods = np.zeros((len(which), counter.asks.shape[1]), dtype=np.int64)
        fill(counter, which, pods, self._scores(counter, which), scarce)
        return which, pods

    def _again(self, counter: ColumnCounter, which: Ints, pods: Ints) -> tuple[Ints, Ints]:
        """Return each filling, and each with one pod or all pods of one ask removed and the
        room filled with others."""
        lane, ask = np.nonzero(pods)
        several = pods[lane, ask] > 1
        lanes, asks = np.concatenate([lane, lane[several]]), np.concatenate([ask, ask[several]])
        out = np.concatenate([np.ones(len(lane), dtype=np.int64), pods[lane, ask][several]])
        new, of = pods[lanes], which[lanes]
        new[np.arange(len(lanes)), asks] -= out
        scarce = np.exp(self._random.normal(0.7, len(lanes), self.problem.free.shape[1]))
        fill(counter, of, new, self._scores(counter, of), scarce, asks)
        return np.concatenate([which, of]), np.concatenate([pods, new])

    def _scores(self, counter: ColumnCounter, which: Ints) -> Floats:
        ideas = self._ideas[self._random.indices(_IDEAS, len(which))]
        scores: Floats = counter.value[which] * ideas[:, : counter.asks.shape[1]]
        return scores


def _best_lanes(which: Ints, pods: Ints, gain: Floats, keep: int) -> list[int]:
    """Return the lanes with the highest gain, at most `keep` different ones per offer."""
    chosen_of: dict[int, set[bytes]] = {}
    chosen = []
    for at, offer in zip(
        (order := np.argsort(-gain, kind="stable")).tolist(), which[order].tolist(), strict=True
    ):
        loads = chosen_of.setdefault(offer, set())
        if len(loads) < keep and (key := pods[at].tobytes()) not in loads:
            loads.add(key)
            chosen.append(at)
    return chosen


_FILLINGS = 6  # fillings per offer, of which the best is taken


def spread(problem: Problem, relaxed: Relaxed, rooms: Rooms) -> list[Load]:
    """Return loads for the relaxation's shares of the pods; reduces rooms. Pods that
    find no room are omitted."""
    shares, loads = relaxed.shares.copy(), list[Load]()
    score, closed = _scores(relaxed.value), np.zeros(len(shares), dtype=np.bool_)
    while True:
        offers = np.flatnonzero(shares.any(axis=1) & ~closed)
        if not offers.size:
            return loads
        _, pods = _filled_offers(
            problem, np.minimum(problem.cap, shares), score, relaxed.scarce, offers
        )
        gain = dot(pods, score)
        for at, offer in enumerate(offers):
            lane = at + len(offers) * int(gain[at :: len(offers)].argmax())
            carried = pods[lane] > 0
            times = int((shares[offer, carried] // pods[lane, carried]).min(initial=2**40))
            nodes = min(rooms.allowed(int(offer)), times)
            if nodes <= 0 or not carried.any():
                closed[offer] = True
                continue
            loads.append(Load(int(offer), pods[lane], nodes))
            rooms.take(int(offer), nodes)
            shares[offer] -= pods[lane] * nodes


def cover(
    problem: Problem, unplaced: Ints, value: Floats, scarce: Floats, rooms: Rooms
) -> list[Load]:
    """Return loads for pods `unplaced` [A] from any offer; reduces unplaced and rooms. Ends when
    nothing more can be placed."""
    loads: list[Load] = []
    score = _scores(value)
    while unplaced.any():
        allowed = np.array(
            [rooms.allowed(offer) for offer in range(len(problem.cost))], dtype=np.int64
        )
        cap = np.minimum(problem.cap, unplaced)
        offers = np.flatnonzero((allowed > 0) & cap.any(axis=1))
        if not offers.size:
            break
        which, pods = _filled_offers(problem, cap, score, scarce, offers)
        best = int((dot(pods, score) / problem.cost[which]).argmax())
        offer, carried = int(which[best]), pods[best] > 0
        nodes = min(int(allowed[offer]), int((unplaced[carried] // pods[best, carried]).min()))
        loads.append(Load(offer, pods[best], nodes))
        rooms.take(offer, nodes)
        unplaced -= pods[best] * nodes
    return loads


def _scores(value: Floats) -> Floats:
    """Return the pod values, all above zero: a pod with the dual value zero must also be placed."""
    return np.maximum(value, 1e-6 * max(1e-3, float(value.max(initial=0.0))))


def _filled_offers(
    problem: Problem, cap: Ints, score: Floats, scarce: Floats, offers: Ints
) -> tuple[Ints, Ints]:
    """Return each offer filled in several ways, grouped by way: [L], [L,A]."""
    width = problem.free.shape[1]
    counter = ColumnCounter(problem, score, cap, scarce + 1e-3)
    which = np.tile(offers, _FILLINGS)
    idea = np.repeat(np.arange(_FILLINGS), len(offers))
    weight = np.ones((len(which), width))
    weight[idea == 1] = scarce[which[idea == 1]] + 1e-6
    for number in range(2, _FILLINGS):
        weight[idea == number, (number - 1) % width] = 4.0
    scores = counter.value[which]
    largest = (problem.need / np.maximum(problem.free.max(axis=0), 1)).max(axis=1)[
        counter.asks[which]
    ]
    late = idea >= _FILLINGS // 2
    scores[late] *= 1.0 + largest[late]  # large pods first; small pods fill the remaining room
    some = np.zeros((len(which), counter.asks.shape[1]), dtype=np.int64)
    fill(counter, which, some, scores, weight)
    pods = np.zeros((len(which), len(score)), dtype=np.int64)
    np.put_along_axis(pods, counter.asks[which], some, axis=1)
    return which, pods


def first_fit(problem: Problem, dearest: float | None) -> list[Load] | None:
    """Return the cheapest group that takes all pods alone, by first fit decreasing, or None if none
    does for at most `dearest`."""
    best: list[Load] | None = None
    for offer in np.argsort(problem.cost, kind="stable"):
        if not problem.cap[offer].all():
            continue
        free = np.maximum(problem.free[offer], 1)
        least = int(
            np.ceil(((problem.need / free) * problem.count[:, None]).sum(axis=0).max() - 1e-9)
        )
        allowed = Rooms(problem).allowed(int(offer))
        if dearest is not None:
            allowed = min(allowed, int(dearest / problem.cost[offer] + 1e-9))
        if least > allowed:
            continue
        loads = _one_offer_for_all(problem, int(offer), allowed)
        if loads is not None:
            best, dearest = loads, float(problem.cost[offer] * sum(load.nodes for load in loads))
    return best


def _one_offer_for_all(problem: Problem, offer: int, allowed: int) -> list[Load] | None:
    """Place all pods on nodes of one offer, first fit, large pods first. Returns None if that takes
    more nodes than allowed."""
    free, asks = problem.free[offer], len(problem.count)
    nodes: Ints = np.zeros(0, dtype=np.int64)
    room: Ints = np.zeros((0, len(free)), dtype=np.int64)
    pods: Ints = np.zeros((0, asks), dtype=np.int64)
    size = (problem.need / np.maximum(free, 1)).sum(axis=1)
    for ask in np.argsort(-size, kind="stable").tolist():
        need, rest = problem.need[ask], int(problem.count[ask])
        used = need > 0
        fits = np.minimum(
            (room[:, used] // need[used]).min(axis=1, initial=2**40), problem.cap[offer, ask]
        )
        fresh = int(problem.cap[offer, ask])
        before = np.minimum(rest, np.cumsum(fits * nodes))
        bought = -(-(rest - int(before[-1] if len(before) else 0)) // fresh)
        nodes, fits = np.append(nodes, bought), np.append(fits, fresh)
        room, pods = np.vstack([room, free]), np.vstack([pods, np.zeros(asks, dtype=np.int64)])
        parts: list[tuple[int, Ints, Ints]] = []
        for at in range(len(nodes)):
            for number, per_node in _spread_over_nodes(int(nodes[at]), int(fits[at]), rest):
                rest -= number * per_node
                pods_ = pods[at].copy()
                pods_[ask] += per_node
                parts.append((number, room[at] - per_node * need, pods_))
        nodes = np.array([part[0] for part in parts], dtype=np.int64)
        room, pods = np.array([part[1] for part in parts]), np.array([part[2] for part in parts])
        if nodes.sum() > allowed:
            return None
    return [Load(offer, on_node, int(number)) for on_node, number in zip(pods, nodes, strict=True)]


def _spread_over_nodes(nodes: int, fits: int, rest: int) -> list[tuple[int, int]]:
    """Return (nodes, pods on each) when `rest` pods are placed on equal
    nodes that take `fits` each."""
    if not fits or not rest:
        return [(nodes, 0)] if nodes else []
    full, part = divmod(min(rest, fits * nodes), fits)
    split = [(full, fits), (1 if part else 0, part), (nodes - full - (1 if part else 0), 0)]
    return [(number, per_node) for number, per_node in split if number]
