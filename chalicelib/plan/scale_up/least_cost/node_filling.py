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

from chalicelib.plan.scale_up.least_cost.problem import Load, Problem, Rooms, dot
from chalicelib.plan.scale_up.least_cost.relaxation import Relaxed
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
        weight = scarce / np.maximum(problem.room, 1)
        burden = np.einsum("gr,ar->ga", weight, problem.need)  # not @, see dot
        has_value = (cap > 0) & (value > 0)
        ratio = np.where(has_value, value / np.maximum(burden, 1e-30), -1.0)
        is_useful = ratio > 0
        most_useful = int(is_useful.sum(axis=1).max(initial=0))
        best_first = np.argsort(-ratio, axis=1, kind="stable")
        self.asks: Ints = best_first[:, : min(_CANDIDATES, most_useful)]
        self.need: Ints = problem.need[self.asks]
        self.amount: Floats = self.need.astype(np.float64)
        self.value: Floats = value[self.asks]
        useful_cap = np.where(is_useful, cap, 0)
        self.cap: Ints = np.take_along_axis(useful_cap, self.asks, axis=1)
        self.free = problem.room


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
    width = counter.free.shape[1]
    need = counter.need[which]
    amount = counter.amount[which]
    used = np.einsum("lk,lkr->lr", pods, need)
    free = counter.free[which] - used
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
        rest = free[live]
        still = open_[live]
        row = np.arange(len(live))
        weight = scarce[live] / np.maximum(rest, 1)
        share = np.einsum("lr,lkr->lk", weight, amount)
        score_per_share = score[live] / np.maximum(share, 1e-30)
        best = np.where(still, score_per_share, -1.0).argmax(axis=1)
        per_pod = need[row, best]
        rooms = rest // np.maximum(per_pod, 1)
        room = np.where(per_pod > 0, rooms, 2**60).min(axis=1)
        number = np.minimum(room, cap[live, best])
        rest -= number[:, None] * per_pod
        free[live] = rest
        pods[live, best] += number
        still[row, best] = False
        for column in range(width):
            still &= rest[:, column, None] >= need[:, :, column]
        open_[live] = still
        going = still.any(axis=1)
        live = live[going]
        need = need[going]
        amount = amount[going]


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
        raw = self._random.randbytes(2 * self._TERMS * count)
        terms = np.frombuffer(raw, dtype="<u2").reshape(count, self._TERMS)
        sums = terms.sum(axis=1, dtype=np.int64)
        mean = self._TERMS * (self._SCALE - 1) / 2
        numbers: Floats = (sums - mean) * (deviation / self._SCALE)
        return numbers.reshape(rows, columns)

    def indices(self, length: int, count: int) -> Ints:
        """Return `count` indices of a table. length: of the table, a power of two up to 256."""
        numbers = np.frombuffer(self._random.randbytes(count), dtype=np.uint8)
        return numbers.astype(np.int64) % length


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
        self, value: Floats, cost: Floats, cap: Ints, keep: int, tries: int, loss: float = 0.0
    ) -> list[Load]:
        """Return loads whose value exceeds their cost by the required share, at most
        `keep` per offer, best first.

        value [A]: of a pod; cost [G]; cap [G,A]: most pods on a node; tries: how
        often the best are improved. loss: by which a load's value may be below its cost instead.
        """
        least = -loss / cost if loss else np.full(len(cost), GAIN)
        counter = ColumnCounter(self.problem, value, cap, self.scarce)
        offers = np.flatnonzero(counter.cap.any(axis=1))
        step = max(1, _AT_ONCE // (_LANES * max(1, counter.asks.shape[1])))
        chosen: list[tuple[float, Load]] = []
        for begin in range(0, len(offers), step):
            which, pods = self._lanes(counter, offers[begin : begin + step])
            over = _gains(counter, which, pods, cost)
            for _ in range(tries):
                top = _best_lanes(which, pods, over, _IMPROVED)
                which, pods = self._again(counter, which[top], pods[top])
                over = _gains(counter, which, pods, cost)
            for at in _best_lanes(which, pods, over, keep):
                offer = int(which[at])
                if over[at] > least[offer]:
                    whole = np.zeros(len(value), dtype=np.int64)
                    whole[counter.asks[offer]] = pods[at]
                    chosen.append((float(over[at]), Load(offer, whole, 1)))
        chosen.sort(key=lambda entry: -entry[0])
        return [load for _, load in chosen]

    def _lanes(self, counter: ColumnCounter, offers: Ints) -> tuple[Ints, Ints]:
        """Return every offer filled in _LANES ways: [L], [L,K]."""
        which, width = np.tile(offers, _LANES), self.problem.room.shape[1]
        is_odd = np.arange(_LANES) % 2 == 1
        informed = np.repeat(is_odd, len(offers))
        deviations = np.where(informed, 0.4, 1.0)[:, None]
        scarce = np.exp(self._random.normal(1.0, len(which), width) * deviations)
        scarce[informed] *= self.scarce[which[informed]]
        scarce[: len(offers)] = 1.0
        pods = np.zeros((len(which), counter.asks.shape[1]), dtype=np.int64)
        fill(counter, which, pods, self._scores(counter, which), scarce)
        return which, pods

    def _again(self, counter: ColumnCounter, which: Ints, pods: Ints) -> tuple[Ints, Ints]:
        """Return each filling, and each with one pod or all pods of one ask removed and the
        room filled with others."""
        lane, ask = np.nonzero(pods)
        number = pods[lane, ask]
        several = number > 1
        lanes = np.concatenate([lane, lane[several]])
        asks = np.concatenate([ask, ask[several]])
        one_pod = np.ones(len(lane), dtype=np.int64)
        removed = np.concatenate([one_pod, number[several]])
        new, of = pods[lanes], which[lanes]
        new[np.arange(len(lanes)), asks] -= removed
        width = self.problem.room.shape[1]
        scarce = np.exp(self._random.normal(0.7, len(lanes), width))
        fill(counter, of, new, self._scores(counter, of), scarce, asks)
        return np.concatenate([which, of]), np.concatenate([pods, new])

    def _scores(self, counter: ColumnCounter, which: Ints) -> Floats:
        ideas = self._ideas[self._random.indices(_IDEAS, len(which))]
        scores: Floats = counter.value[which] * ideas[:, : counter.asks.shape[1]]
        return scores


def _gains(counter: ColumnCounter, which: Ints, pods: Ints, cost: Floats) -> Floats:
    """Return by what share the value of each lane's pods exceeds the cost of its node."""
    value = np.einsum("lk,lk->l", pods, counter.value[which])
    gains: Floats = value / cost[which] - 1.0
    return gains


def _best_lanes(which: Ints, pods: Ints, gain: Floats, keep: int) -> list[int]:
    """Return the lanes with the highest gain, at most `keep` different ones per offer."""
    chosen_of: dict[int, set[bytes]] = {}
    chosen: list[int] = []
    order = np.argsort(-gain, kind="stable")
    for at, offer in zip(order.tolist(), which[order].tolist(), strict=True):
        loads = chosen_of.setdefault(offer, set())
        if len(loads) >= keep:
            continue
        load = pods[at].tobytes()
        if load not in loads:
            loads.add(load)
            chosen.append(at)
    return chosen


_FILLINGS = 6  # fillings per offer, of which the best is taken


def spread(problem: Problem, relaxed: Relaxed, rooms: Rooms) -> list[Load]:
    """Return loads for the relaxation's shares of the pods; reduces rooms. Pods that
    find no room are omitted."""
    shares = relaxed.shares.copy()
    score = _scores(relaxed.value)
    closed = np.zeros(len(shares), dtype=np.bool_)
    loads: list[Load] = []
    while True:
        offers = np.flatnonzero(shares.any(axis=1) & ~closed)
        if not offers.size:
            return loads
        cap = np.minimum(problem.cap, shares)
        _, pods = _filled_offers(problem, cap, score, relaxed.scarce, offers)
        gain = dot(pods, score)
        for at, offer in enumerate(offers.tolist()):
            best_way = int(gain[at :: len(offers)].argmax())
            on_node = pods[at + len(offers) * best_way]
            carried = on_node > 0
            times = shares[offer, carried] // on_node[carried]
            nodes = min(rooms.allowed(offer), int(times.min(initial=2**40)))
            if nodes <= 0 or not carried.any():
                closed[offer] = True
                continue
            loads.append(Load(offer, on_node, nodes))
            rooms.take(offer, nodes)
            shares[offer] -= on_node * nodes


def cover(
    problem: Problem, unplaced: Ints, value: Floats, scarce: Floats, rooms: Rooms
) -> list[Load]:
    """Return loads for pods `unplaced` [A] from any offer; reduces unplaced and rooms. Ends when
    nothing more can be placed."""
    loads: list[Load] = []
    score = _scores(value)
    while unplaced.any():
        allowed = [rooms.allowed(offer) for offer in range(len(problem.price))]
        is_open = np.array(allowed, dtype=np.int64) > 0
        cap = np.minimum(problem.cap, unplaced)
        offers = np.flatnonzero(is_open & cap.any(axis=1))
        if not offers.size:
            break
        which, pods = _filled_offers(problem, cap, score, scarce, offers)
        value_per_cost = dot(pods, score) / problem.price[which]
        best = int(value_per_cost.argmax())
        offer, on_node = int(which[best]), pods[best]
        carried = on_node > 0
        times = int((unplaced[carried] // on_node[carried]).min())
        nodes = min(allowed[offer], times)
        loads.append(Load(offer, on_node, nodes))
        rooms.take(offer, nodes)
        unplaced -= on_node * nodes
    return loads


def _scores(value: Floats) -> Floats:
    """Return the pod values, all above zero: a pod with the dual value zero must also be placed."""
    largest = float(value.max(initial=0.0))
    return np.maximum(value, 1e-6 * max(1e-3, largest))


def _filled_offers(
    problem: Problem, cap: Ints, score: Floats, scarce: Floats, offers: Ints
) -> tuple[Ints, Ints]:
    """Return each offer filled in several ways, grouped by way: [L], [L,A]."""
    width = problem.room.shape[1]
    counter = ColumnCounter(problem, score, cap, scarce + 1e-3)
    which = np.tile(offers, _FILLINGS)
    idea = np.repeat(np.arange(_FILLINGS), len(offers))
    asks = counter.asks[which]
    weight = np.ones((len(which), width))
    informed = idea == 1
    weight[informed] = scarce[which[informed]] + 1e-6
    for number in range(2, _FILLINGS):
        weight[idea == number, (number - 1) % width] = 4.0
    scores = counter.value[which]
    largest_node = np.maximum(problem.room.max(axis=0), 1)
    size = (problem.need / largest_node).max(axis=1)[asks]
    late = idea >= _FILLINGS // 2
    scores[late] *= 1.0 + size[late]  # large pods first; small pods fill the remaining room
    of_candidates = np.zeros((len(which), counter.asks.shape[1]), dtype=np.int64)
    fill(counter, which, of_candidates, scores, weight)
    pods = np.zeros((len(which), len(score)), dtype=np.int64)
    np.put_along_axis(pods, asks, of_candidates, axis=1)
    return which, pods


def first_fit(problem: Problem, dearest: float | None) -> list[Load] | None:
    """Return the cheapest group that takes all pods alone, by first fit decreasing, or None if none
    does for at most `dearest`."""
    best: list[Load] | None = None
    for offer in np.argsort(problem.price, kind="stable").tolist():
        if not problem.cap[offer].all():
            continue
        cost = problem.price[offer]
        share = problem.need / np.maximum(problem.room[offer], 1)
        nodes_by_resource = (share * problem.pending[:, None]).sum(axis=0)
        least = int(np.ceil(nodes_by_resource.max() - 1e-9))
        allowed = Rooms(problem).allowed(offer)
        if dearest is not None:
            allowed = min(allowed, int(dearest / cost + 1e-9))
        if least > allowed:
            continue
        loads = _one_offer_for_all(problem, offer, allowed)
        if loads is not None:
            best = loads
            dearest = float(cost * sum(load.nodes for load in loads))
    return best


def _one_offer_for_all(problem: Problem, offer: int, allowed: int) -> list[Load] | None:
    """Place all pods on nodes of one offer, first fit, large pods first. Returns None if that takes
    more nodes than allowed."""
    free, asks = problem.room[offer], len(problem.pending)
    nodes: Ints = np.zeros(0, dtype=np.int64)
    room: Ints = np.zeros((0, len(free)), dtype=np.int64)
    pods: Ints = np.zeros((0, asks), dtype=np.int64)
    size = (problem.need / np.maximum(free, 1)).sum(axis=1)
    for ask in np.argsort(-size, kind="stable").tolist():
        need, rest = problem.need[ask], int(problem.pending[ask])
        used = need > 0
        on_empty_node = int(problem.cap[offer, ask])
        by_room = (room[:, used] // need[used]).min(axis=1, initial=2**40)
        fits = np.minimum(by_room, on_empty_node)
        placed = np.minimum(rest, np.cumsum(fits * nodes))
        missing = rest - int(placed[-1] if len(placed) else 0)
        bought = -(-missing // on_empty_node)
        nodes = np.append(nodes, bought)
        fits = np.append(fits, on_empty_node)
        room = np.vstack([room, free])
        pods = np.vstack([pods, np.zeros(asks, dtype=np.int64)])
        parts: list[tuple[int, Ints, Ints]] = []
        for at in range(len(nodes)):
            for number, per_node in _spread_over_nodes(int(nodes[at]), int(fits[at]), rest):
                rest -= number * per_node
                on_node = pods[at].copy()
                on_node[ask] += per_node
                parts.append((number, room[at] - per_node * need, on_node))
        nodes = np.array([number for number, _, _ in parts], dtype=np.int64)
        room = np.array([room_left for _, room_left, _ in parts])
        pods = np.array([on_node for _, _, on_node in parts])
        if nodes.sum() > allowed:
            return None
    return [Load(offer, on_node, int(number)) for on_node, number in zip(pods, nodes, strict=True)]


def _spread_over_nodes(nodes: int, fits: int, rest: int) -> list[tuple[int, int]]:
    """Return (nodes, pods on each) when `rest` pods are placed on equal
    nodes that take `fits` each."""
    if not fits or not rest:
        return [(nodes, 0)] if nodes else []
    full, part = divmod(min(rest, fits * nodes), fits)
    partly_full = 1 if part else 0
    empty = nodes - full - partly_full
    split = [(full, fits), (partly_full, part), (empty, 0)]
    return [(number, per_node) for number, per_node in split if number]
