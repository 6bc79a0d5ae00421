"""The plain linear relaxation, in which nodes and pods may be split. It is fast, and the search starts from it.

Its price is a lower bound. Its dual values give the value of a pod and of a resource. Its shares assign pods to offers,
which is a far better first guess than any single group for all pods.
"""

from __future__ import annotations

import msgspec
import numpy as np

from chalicelib.plan.scale_up.expanders.least_cost.highs import Entries, Solver
from chalicelib.plan.scale_up.expanders.least_cost.problem import Problem
from chalicelib.plan.tables.array_types import Floats, Ints

LEFT = 1000.0  # cost of an unplaced pod: as much as a thousand of the most expensive nodes


class Relaxed(msgspec.Struct, frozen=True):
    """bound: no mix costs less. value [A]: of a pod. scarce [G,R]: value of a node's whole amount of a resource.
    shares [G,A]: whole pods, as many as can be placed at all."""

    bound: float
    value: Floats
    scarce: Floats
    shares: Ints


def relax(problem: Problem) -> Relaxed:
    """Solve the relaxation. Raises Trouble."""
    (offers, asks), width = problem.cap.shape, problem.free.shape[1]
    solver = Solver()
    limits = len(problem.room)
    rows = asks + offers * width
    scale = np.maximum(problem.amounts.max(axis=1, initial=1), 1)
    never = np.full(rows, solver.infinity)
    solver.rows(
        np.concatenate([problem.count, np.zeros(offers * width), np.full(limits, -solver.infinity)]),
        np.concatenate([never, problem.room / scale]),
    )
    pairs = np.argwhere(problem.cap > 0)
    solver.columns(
        np.full(asks, LEFT), np.full(asks, solver.infinity), (list(range(asks)), list(range(asks)), [1.0] * asks)
    )
    solver.columns(problem.cost, problem.most, _nodes(problem, rows, scale))
    solver.columns(np.zeros(len(pairs)), np.full(len(pairs), solver.infinity), _pods(problem, pairs))
    bound, values, duals = solver.run()
    return Relaxed(
        bound=bound,
        value=np.maximum(duals[:asks], 0.0),
        scarce=np.maximum(duals[asks:rows].reshape(offers, width), 0.0),
        shares=_whole(problem, pairs, values[asks + offers :]),
    )


def _nodes(problem: Problem, rows: int, scale: Ints) -> Entries:
    (offers, asks), width = problem.cap.shape, problem.free.shape[1]
    starts: list[int] = []
    at: list[int] = []
    values: list[float] = []
    for offer in range(offers):
        starts.append(len(at))
        for column in np.flatnonzero(problem.free[offer] > 0):
            at.append(asks + offer * width + int(column))
            values.append(1.0)
        for limit in np.flatnonzero(problem.amounts[:, offer]):
            at.append(rows + int(limit))
            values.append(float(problem.amounts[limit, offer] / scale[limit]))
    return starts, at, values


def _pods(problem: Problem, pairs: Ints) -> Entries:
    """Add one column per offer and ask: a pod takes its share of each resource of the offer's nodes."""
    asks, width = problem.cap.shape[1], problem.free.shape[1]
    starts: list[int] = []
    at: list[int] = []
    values: list[float] = []
    share = -problem.need[pairs[:, 1]] / np.maximum(problem.free[pairs[:, 0]], 1)
    for (offer, ask), parts in zip(pairs.tolist(), share, strict=True):
        starts.append(len(at))
        asked = np.flatnonzero(parts)
        at += [ask, *(asks + offer * width + asked).tolist()]
        values += [1.0, *parts[asked].tolist()]
    return starts, at, values


def _whole(problem: Problem, pairs: Ints, values: Floats) -> Ints:
    """Return the shares as whole numbers: rounded down, with the remainder added where rounding cut off most."""
    shares: Floats = np.zeros(problem.cap.shape)
    shares[pairs[:, 0], pairs[:, 1]] = np.maximum(values, 0.0)
    whole: Ints = np.floor(shares + 1e-6).astype(np.int64)
    for ask in range(len(problem.count)):
        rest = min(int(problem.count[ask]), round(float(shares[:, ask].sum()))) - int(whole[:, ask].sum())
        for offer in np.argsort(whole[:, ask] - shares[:, ask], kind="stable")[: max(0, rest)]:
            whole[offer, ask] += 1
    return whole
