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
    offers, asks = problem.cap.shape
    width = problem.free.shape[1]
    rows = asks + offers * width
    solver = Solver()
    endless = solver.infinity
    no_limit = np.full(len(problem.room), -endless)
    lower = np.concatenate([problem.count, np.zeros(offers * width), no_limit])
    scale = np.maximum(problem.amounts.max(axis=1, initial=1), 1)
    upper = np.concatenate([np.full(rows, endless), problem.room / scale])
    solver.rows(lower, upper)
    solver.unplaced_columns(asks, np.full(asks, endless))
    solver.columns(problem.cost, problem.most, _node_columns(problem, rows, scale))
    pairs = np.argwhere(problem.cap > 0)
    free_of_charge = np.zeros(len(pairs))
    any_number = np.full(len(pairs), endless)
    solver.columns(free_of_charge, any_number, _pod_columns(problem, pairs))
    bound, values, duals = solver.run()
    resource_duals = duals[asks:rows].reshape(offers, width)
    placed_pods = values[asks + offers :]
    return Relaxed(
        bound=bound,
        value=np.maximum(duals[:asks], 0.0),
        scarce=np.maximum(resource_duals, 0.0),
        shares=_whole_shares(problem, pairs, placed_pods),
    )


def _node_columns(problem: Problem, rows: int, scale: Ints) -> Iterator[Entries]:
    """Return one column per offer: a node gives its resources, and counts in the limits."""
    offers, asks = problem.cap.shape
    width = problem.free.shape[1]
    for offer in range(offers):
        resources = np.flatnonzero(problem.free[offer] > 0)
        resource_rows = asks + offer * width + resources
        limits = np.flatnonzero(problem.amounts[:, offer])
        limit_rows = rows + limits
        amounts = problem.amounts[limits, offer] / scale[limits]
        column_rows = [*resource_rows.tolist(), *limit_rows.tolist()]
        yield column_rows, [*[1.0] * len(resources), *amounts.tolist()]


def _pod_columns(problem: Problem, pairs: Ints) -> Iterator[Entries]:
    """Return one column per offer and ask: a pod takes its share of each
    resource of the offer's nodes."""
    asks, width = problem.cap.shape[1], problem.free.shape[1]
    requests = problem.need[pairs[:, 1]]
    free = problem.free[pairs[:, 0]]
    shares = -requests / np.maximum(free, 1)
    for (offer, ask), share in zip(pairs.tolist(), shares, strict=True):
        requested = np.flatnonzero(share)
        resource_rows = asks + offer * width + requested
        yield [ask, *resource_rows.tolist()], [1.0, *share[requested].tolist()]


def _whole_shares(problem: Problem, pairs: Ints, values: Floats) -> Ints:
    """Return the shares as whole numbers: rounded down, with the remainder added
    where rounding cut off most."""
    shares: Floats = np.zeros(problem.cap.shape)
    shares[pairs[:, 0], pairs[:, 1]] = np.maximum(values, 0.0)
    whole: Ints = np.floor(shares + 1e-6).astype(np.int64)
    for ask in range(len(problem.count)):
        pods = min(int(problem.count[ask]), round(float(shares[:, ask].sum())))
        missing = max(0, pods - int(whole[:, ask].sum()))
        most_cut_off = np.argsort(whole[:, ask] - shares[:, ask], kind="stable")
        for offer in most_cut_off[:missing]:
            whole[offer, ask] += 1
    return whole
