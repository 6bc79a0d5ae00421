"""Rounds fractional mixes to whole nodes: buys what is certain and solves again for the rest.

Rounding every column at once would buy one node per fraction. Instead the integer part is bought, then the largest
fractions. The rest is a smaller problem, for which a few rounds generate suitable loads.
"""

from __future__ import annotations

import numpy as np

from chalicelib.plan.scale_up.expanders.least_cost.greedy import cover
from chalicelib.plan.scale_up.expanders.least_cost.master_problem import Effort, Master, Prices, generate
from chalicelib.plan.scale_up.expanders.least_cost.pricing_problem import Pricer
from chalicelib.plan.scale_up.expanders.least_cost.problem import Problem, Rooms
from chalicelib.plan.scale_up.expanders.least_cost.solver_types import Load, Stop, dot
from chalicelib.plan.tables.array_types import Floats, Ints

_AGAIN = Effort(rounds=1, keep=3, tries=1)
_SHARE = 0.3  # share of the fractions that is rounded up at a time
_COLUMNS = 3  # times the number of asks: the number of loads that are kept
_EPSILON = 1e-6


def dive(master: Master, pricer: Pricer, prices: Prices, scarce: Floats, stop: Stop) -> list[Load]:
    """Return whole loads for the pods of the problem; some pods may be left where limits bind. Loads found on the way
    are added to the master problem too. Raises Trouble."""
    problem, slim = master.problem, master.slim(prices, _COLUMNS * len(master.problem.count))
    prices = slim.solve()
    rooms, left = Rooms(problem), problem.count.copy()
    loads: list[Load] = []
    while left.any():
        bought = _buy(problem, slim, prices, rooms, left)
        if not bought or stop():
            loads += bought
            break
        loads += bought
        if left.any():
            slim.want(left, rooms)
            prices = generate(slim, pricer, np.minimum(problem.cap, left), _AGAIN, stop)
    master.add(slim.loads)
    return loads + cover(problem, left, prices.value, scarce, rooms)


def _buy(problem: Problem, master: Master, prices: Prices, rooms: Rooms, left: Ints) -> list[Load]:
    """Buy the integer parts if there are any, otherwise some of the fractions; reduces rooms and left."""
    whole = np.floor(prices.nodes + _EPSILON).astype(np.int64)
    loads: list[Load] = []
    for at in np.flatnonzero(whole):
        load = master.loads[at]
        held = load.pods > 0
        nodes = min(int(whole[at]), rooms.allowed(load.offer), int((left[held] // load.pods[held]).min()))
        if nodes > 0:
            loads.append(_take(Load(load.offer, load.pods, nodes), rooms, left))
    if loads:
        return loads
    fractions = np.flatnonzero(prices.nodes > _EPSILON)
    fractions = fractions[np.argsort(-prices.nodes[fractions], kind="stable")]
    wanted = max(1, round(_SHARE * float(prices.nodes[fractions].sum())))
    for at in fractions:
        if len(loads) >= wanted:
            break
        load = master.loads[at]
        pods = np.minimum(load.pods, left)
        full = float(dot(pods, prices.value)) >= 0.98 * float(dot(load.pods, prices.value))
        if pods.any() and rooms.allowed(load.offer) > 0 and (full or not loads):
            pods = _top_up(problem, load.offer, pods, left, prices.value)
            loads.append(_take(Load(load.offer, pods, 1), rooms, left))
    return loads


def _take(load: Load, rooms: Rooms, left: Ints) -> Load:
    rooms.take(load.offer, load.nodes)
    left -= load.pods * load.nodes
    return load


def _top_up(problem: Problem, offer: int, pods: Ints, left: Ints, value: Floats) -> Ints:
    """Return a load of one node, with further pods added as long as they fit."""
    pods = pods.copy()
    room = problem.free[offer] - pods @ problem.need
    share = (problem.need / np.maximum(problem.free[offer], 1)).max(axis=1)
    for ask in np.argsort(-np.maximum(value, _EPSILON) / np.maximum(share, _EPSILON), kind="stable"):
        need = problem.need[ask]
        more = int(min(problem.cap[offer, ask], left[ask])) - int(pods[ask])
        if more > 0 and (need <= room).all():
            asked = need > 0
            more = min(more, int((room[asked] // need[asked]).min()))
            pods[ask] += more
            room = room - more * need
    return pods
