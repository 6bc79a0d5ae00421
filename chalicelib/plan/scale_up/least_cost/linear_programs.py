"""The plain linear relaxation, in which nodes and pods may be split. It is fast, and
the search starts from it.

Its price is a lower bound. Its dual values give the value of a pod and of a resource. Its shares
assign pods to offers, which is a far better first guess than any single group for all pods.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from chalicelib.plan.linear_solver import Entries, Solver
from chalicelib.plan.scale_up.least_cost.problem import Problem
from chalicelib.plan.tables import Floats, Ints


class Relaxed(msgspec.Struct, frozen=True):
    """bound: no mix costs less. value [A]: of a pod. scarce [G,R]: value of a node's whole amount
    of a resource. shares [G,A]: whole pods, as many as can be placed at all."""

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
        np.concatenate(
            [problem.count, np.zeros(offers * width), np.full(limits, -solver.infinity)]
        ),
        np.concatenate([never, problem.room / scale]),
    )
    pairs = np.argwhere(problem.cap > 0)
    solver.unplaced_columns(asks, np.full(asks, solver.infinity))
    solver.columns(problem.cost, problem.most, _node_columns(problem, rows, scale))
    solver.columns(
        np.zeros(len(pairs)), np.full(len(pairs), solver.infinity), _pod_columns(problem, pairs)
    )
    bound, values, duals = solver.run()
    return Relaxed(
        bound=bound,
        value=np.maximum(duals[:asks], 0.0),
        scarce=np.maximum(duals[asks:rows].reshape(offers, width), 0.0),
        shares=_whole_shares(problem, pairs, values[asks + offers :]),
    )


def _node_columns(problem: Problem, rows: int, scale: Ints) -> Iterator[Entries]:
    """Return one column per offer: a node gives its resources, and counts in the limits."""
    (offers, asks), width = problem.cap.shape, problem.free.shape[1]
    for offer in range(offers):
        resources, limits = (
            np.flatnonzero(problem.free[offer] > 0),
            np.flatnonzero(problem.amounts[:, offer]),
        )
        yield (
            [*(asks + offer * width + resources).tolist(), *(rows + limits).tolist()],
            [*[1.0] * len(resources), *(problem.amounts[limits, offer] / scale[limits]).tolist()],
        )


def _pod_columns(problem: Problem, pairs: Ints) -> Iterator[Entries]:
    """Return one column per offer and ask: a pod takes its share of each
    resource of the offer's nodes."""
    asks, width = problem.cap.shape[1], problem.free.shape[1]
    share = -problem.need[pairs[:, 1]] / np.maximum(problem.free[pairs[:, 0]], 1)
    for (offer, ask), parts in zip(pairs.tolist(), share, strict=True):
        requested = np.flatnonzero(parts)
        yield [ask, *(asks + offer * width + requested).tolist()], [1.0, *parts[requested].tolist()]


def _whole_shares(problem: Problem, pairs: Ints, values: Floats) -> Ints:
    """Return the shares as whole numbers: rounded down, with the remainder added
    where rounding cut off most."""
    shares: Floats = np.zeros(problem.cap.shape)
    shares[pairs[:, 0], pairs[:, 1]] = np.maximum(values, 0.0)
    whole: Ints = np.floor(shares + 1e-6).astype(np.int64)
    for ask in range(len(problem.count)):
        rest = min(int(problem.count[ask]), round(float(shares[:, ask].sum()))) - int(
            whole[:, ask].sum()
        )
        for offer in np.argsort(whole[:, ask] - shares[:, ask], kind="stable")[: max(0, rest)]:
            whole[offer, ask] += 1
    return whole
