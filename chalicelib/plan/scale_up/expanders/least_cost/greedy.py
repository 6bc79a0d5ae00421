"""Greedy integer mixes: fast and always feasible, but never the final answer.

`spread` fills each offer with the pods that the relaxation assigned to it. `cover` repeatedly buys the load with the
highest value for its cost. `spread` starts the search, and `cover` completes it: it places every pod that can be
placed. `first_fit` computes what a single group would need; no answer may cost more than that.
"""

from __future__ import annotations

import numpy as np

from chalicelib.plan.scale_up.expanders.least_cost.lp_relaxation import Relaxed
from chalicelib.plan.scale_up.expanders.least_cost.pricing_problem import ColumnCounter, fill
from chalicelib.plan.scale_up.expanders.least_cost.problem import Problem, Rooms
from chalicelib.plan.scale_up.expanders.least_cost.solver_types import Load, dot
from chalicelib.plan.tables.array_types import Floats, Ints

_IDEAS = 6  # fillings per offer, of which the best is taken


def spread(problem: Problem, relaxed: Relaxed, rooms: Rooms) -> list[Load]:
    """Return loads for the relaxation's shares of the pods; reduces rooms. Pods that find no room are left out."""
    left, loads = relaxed.shares.copy(), list[Load]()
    score, closed = _scores(relaxed.value), np.zeros(len(left), dtype=np.bool_)
    while True:
        offers = np.flatnonzero(left.any(axis=1) & ~closed)
        if not offers.size:
            return loads
        _, pods = _ideas(problem, np.minimum(problem.cap, left), score, relaxed.scarce, offers)
        gain = dot(pods, score)
        for at, offer in enumerate(offers):
            lane = at + len(offers) * int(gain[at :: len(offers)].argmax())
            held = pods[lane] > 0
            nodes = min(rooms.allowed(int(offer)), int((left[offer, held] // pods[lane, held]).min(initial=2**40)))
            if nodes <= 0 or not held.any():
                closed[offer] = True
                continue
            loads.append(Load(int(offer), pods[lane], nodes))
            rooms.take(int(offer), nodes)
            left[offer] -= pods[lane] * nodes


def cover(problem: Problem, left: Ints, value: Floats, scarce: Floats, rooms: Rooms) -> list[Load]:
    """Return loads for pods `left` [A] from any offer; reduces left and rooms. Ends when nothing more can be placed."""
    loads: list[Load] = []
    score = _scores(value)
    while left.any():
        allowed = np.array([rooms.allowed(offer) for offer in range(len(problem.cost))], dtype=np.int64)
        cap = np.minimum(problem.cap, left)
        offers = np.flatnonzero((allowed > 0) & cap.any(axis=1))
        if not offers.size:
            break
        which, pods = _ideas(problem, cap, score, scarce, offers)
        best = int((dot(pods, score) / problem.cost[which]).argmax())
        offer, held = int(which[best]), pods[best] > 0
        nodes = min(int(allowed[offer]), int((left[held] // pods[best, held]).min()))
        loads.append(Load(offer, pods[best], nodes))
        rooms.take(offer, nodes)
        left -= pods[best] * nodes
    return loads


def _scores(value: Floats) -> Floats:
    """Return the pod values, all above zero: a pod with the dual value zero must also be placed."""
    return np.maximum(value, 1e-6 * max(1e-3, float(value.max(initial=0.0))))


def _ideas(problem: Problem, cap: Ints, score: Floats, scarce: Floats, offers: Ints) -> tuple[Ints, Ints]:
    """Return each offer filled in several ways, grouped by way: [L], [L,A]."""
    width = problem.free.shape[1]
    counter = ColumnCounter(problem, score, cap, scarce + 1e-3)
    which = np.tile(offers, _IDEAS)
    idea = np.repeat(np.arange(_IDEAS), len(offers))
    weight = np.ones((len(which), width))
    weight[idea == 1] = scarce[which[idea == 1]] + 1e-6
    for number in range(2, _IDEAS):
        weight[idea == number, (number - 1) % width] = 4.0
    scores = counter.value[which]
    largest = (problem.need / np.maximum(problem.free.max(axis=0), 1)).max(axis=1)[counter.asks[which]]
    late = idea >= _IDEAS // 2
    scores[late] *= 1.0 + largest[late]  # large pods first; small pods fill the remaining room
    some = np.zeros((len(which), counter.asks.shape[1]), dtype=np.int64)
    fill(counter, which, some, scores, weight)
    pods = np.zeros((len(which), len(score)), dtype=np.int64)
    np.put_along_axis(pods, counter.asks[which], some, axis=1)
    return which, pods


def first_fit(problem: Problem, dearest: float | None) -> list[Load] | None:
    """Return the cheapest group that takes all pods alone, by first fit decreasing, or None if none does for at most
    `dearest`."""
    best: list[Load] | None = None
    for offer in np.argsort(problem.cost, kind="stable"):
        if not problem.cap[offer].all():
            continue
        free = np.maximum(problem.free[offer], 1)
        least = int(np.ceil(((problem.need / free) * problem.count[:, None]).sum(axis=0).max() - 1e-9))
        allowed = Rooms(problem).allowed(int(offer))
        if dearest is not None:
            allowed = min(allowed, int(dearest / problem.cost[offer] + 1e-9))
        if least > allowed:
            continue
        loads = _fill_up(problem, int(offer), allowed)
        if loads is not None:
            best, dearest = loads, float(problem.cost[offer] * sum(load.nodes for load in loads))
    return best


def _fill_up(problem: Problem, offer: int, allowed: int) -> list[Load] | None:
    """Place all pods on nodes of one offer, first fit, large pods first. Returns None if that takes more nodes than
    allowed."""
    free, asks = problem.free[offer], len(problem.count)
    nodes: Ints = np.zeros(0, dtype=np.int64)
    left: Ints = np.zeros((0, len(free)), dtype=np.int64)
    pods: Ints = np.zeros((0, asks), dtype=np.int64)
    size = (problem.need / np.maximum(free, 1)).sum(axis=1)
    for ask in np.argsort(-size, kind="stable").tolist():
        need, rest = problem.need[ask], int(problem.count[ask])
        used = need > 0
        fits = np.minimum((left[:, used] // need[used]).min(axis=1, initial=2**40), problem.cap[offer, ask])
        fresh = int(problem.cap[offer, ask])
        before = np.minimum(rest, np.cumsum(fits * nodes))
        bought = -(-(rest - int(before[-1] if len(before) else 0)) // fresh)
        nodes, fits = np.append(nodes, bought), np.append(fits, fresh)
        left, pods = np.vstack([left, free]), np.vstack([pods, np.zeros(asks, dtype=np.int64)])
        parts: list[tuple[int, Ints, Ints]] = []
        for at in range(len(nodes)):
            for number, each in _split(int(nodes[at]), int(fits[at]), rest):
                rest -= number * each
                pods_ = pods[at].copy()
                pods_[ask] += each
                parts.append((number, left[at] - each * need, pods_))
        nodes = np.array([part[0] for part in parts], dtype=np.int64)
        left, pods = np.array([part[1] for part in parts]), np.array([part[2] for part in parts])
        if nodes.sum() > allowed:
            return None
    return [Load(offer, each, int(number)) for each, number in zip(pods, nodes, strict=True)]


def _split(nodes: int, fits: int, rest: int) -> list[tuple[int, int]]:
    """Return (nodes, pods on each) when `rest` pods are placed on equal nodes that take `fits` each."""
    if not fits or not rest:
        return [(nodes, 0)] if nodes else []
    full, part = divmod(min(rest, fits * nodes), fits)
    split = [(full, fits), (1 if part else 0, part), (nodes - full - (1 if part else 0), 0)]
    return [(number, each) for number, each in split if number]
