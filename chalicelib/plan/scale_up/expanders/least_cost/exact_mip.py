"""For few nodes: finds the best integer mix of the loads that the search has generated.

With few nodes, one node too many is a large part of the price, and there are few enough mixes to try them all. HiGHS
does so with a fixed number of branches; its mix is used if it is better.
"""

from __future__ import annotations

import numpy as np

from chalicelib.plan.scale_up.expanders.least_cost.highs import Entries, Solver
from chalicelib.plan.scale_up.expanders.least_cost.lp_relaxation import LEFT
from chalicelib.plan.scale_up.expanders.least_cost.master_problem import Master, Prices
from chalicelib.plan.scale_up.expanders.least_cost.problem import Problem, Rooms
from chalicelib.plan.scale_up.expanders.least_cost.solver_types import Load, dot
from chalicelib.plan.tables.array_types import Ints

FEW = 15  # nodes; above this number, rounding is as good and faster
_COLUMNS = 250
_BRANCHES = 20
_EPSILON = 1e-6


def mix(master: Master, prices: Prices, cost: float) -> list[Load]:
    """Return the best integer mix of the master problem's loads that costs less than `cost` (unplaced pods included),
    [] if none is found. Raises Trouble."""
    problem = master.problem
    own = np.array([prices.cost[load.offer] - float(dot(load.pods, prices.value)) for load in master.loads])
    order = np.argsort(own, kind="stable")[:_COLUMNS]
    loads = [master.loads[at] for at in order if own[at] < cost - prices.total]
    if not loads:
        return []
    asks, rooms = len(problem.count), Rooms(problem)
    scale = np.maximum(problem.amounts.max(axis=1, initial=1), 1)
    solver = Solver(mip_max_nodes=_BRANCHES, mip_rel_gap=1e-4, mip_max_leaves=_BRANCHES)
    solver.rows(
        np.concatenate([problem.count, np.full(len(rooms.most) + len(rooms.room), -solver.infinity)]),
        np.concatenate([np.full(asks, solver.infinity), rooms.most, rooms.room / scale]),
    )
    solver.columns(np.full(asks, LEFT), problem.count, (list(range(asks)), list(range(asks)), [1.0] * asks))
    solver.columns(
        [problem.cost[load.offer] for load in loads],
        [problem.most[load.offer] for load in loads],
        _entries(problem, loads, scale),
    )
    solver.whole(np.arange(asks, asks + len(loads)))
    _, nodes, _ = solver.run()
    return _without_surplus(problem, loads, np.round(nodes[asks:]).astype(np.int64))


def _entries(problem: Problem, loads: list[Load], scale: Ints) -> Entries:
    asks, offers = len(problem.count), len(problem.cost)
    starts: list[int] = []
    rows: list[int] = []
    values: list[float] = []
    for load in loads:
        starts.append(len(rows))
        held, shared = np.flatnonzero(load.pods), np.flatnonzero(problem.amounts[:, load.offer])
        rows += [*held.tolist(), asks + load.offer, *(asks + offers + shared).tolist()]
        values += [*load.pods[held].tolist(), 1.0, *(problem.amounts[shared, load.offer] / scale[shared]).tolist()]
    return starts, rows, values


def _without_surplus(problem: Problem, loads: list[Load], nodes: Ints) -> list[Load]:
    """Remove surplus pods: columns may carry more pods than there are."""
    left, rooms = problem.count.copy(), Rooms(problem)
    kept: list[Load] = []
    for load, wanted in zip(loads, nodes.tolist(), strict=True):
        rest = min(wanted, rooms.allowed(load.offer))
        while rest > 0:
            pods = np.minimum(load.pods, left)
            if not pods.any():
                break
            held = pods > 0
            alike = min(rest, int((left[held] // pods[held]).min()))
            kept.append(Load(load.offer, pods, alike))
            rooms.take(load.offer, alike)
            left -= pods * alike
            rest -= alike
    return kept
