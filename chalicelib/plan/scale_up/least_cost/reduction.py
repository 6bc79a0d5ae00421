"""Leaves out offers that no cheap mix needs, so that the search is over a hundred of them and
not over thousands.

An offer is dominated by another one that costs no more, has at least its room, takes at least its
pods and counts no more in any limit: in any mix the other one can stand in its place, so the
cheapest mix does not change. What costs more than its best load is worth by the dual values of
the relaxation is left out, too, beyond a margin; there the cheapest mix may change by a little.
"""

from __future__ import annotations

import msgspec
import numpy as np

from chalicelib.plan.scale_up.least_cost.problem import Problem
from chalicelib.plan.scale_up.least_cost.relaxation import Relaxed
from chalicelib.plan.tables import Bools, Floats, Ints

MANY = 64
"""Offers above which those are left out that are not needed: the search is quick with fewer."""
MARGIN = 0.05
"""Part of its price by which an offer may cost more than its best load is worth."""
_WEIGHTS = 4  # steps between the bounds of two resources
_SLACK = 1e-9


def without_dominated(problem: Problem) -> Problem:
    """Return the problem without offers that are dominated by another one of which there are
    enough for all pods."""
    if len(problem.price) <= MANY:
        return problem
    asked = problem.need.any(axis=0)
    room = problem.room[:, asked]
    counts = problem.buying.T
    enough = problem.most >= problem.pending.sum()
    # Whatever dominates an offer stands before it, or is equal to it.
    order = np.lexsort((
        counts.sum(axis=1), -problem.group_fits.sum(axis=1), -room.sum(axis=1), problem.price
    ))  # fmt: skip
    kept: list[int] = []
    better: list[int] = []
    for at in order.tolist():
        is_dominated: Bools = (room[better] >= room[at]).all(axis=1)
        is_dominated &= (counts[better] <= counts[at]).all(axis=1)
        is_dominated &= ~(problem.group_fits[at] & ~problem.group_fits[better]).any(axis=1)
        if is_dominated.any():
            continue
        kept.append(at)
        if enough[at]:
            better.append(at)
    return _only(problem, np.array(sorted(kept), dtype=np.int64))


def without_dear(problem: Problem, relaxed: Relaxed) -> tuple[Problem, Relaxed]:
    """Return the problem and its relaxation without offers whose price exceeds what their best load
    is worth by more than MARGIN. Those that the relaxation buys from are kept."""
    if len(problem.price) <= MANY:
        return problem, relaxed
    price = problem.price + relaxed.surcharge
    worth = _worth_of_best_loads(problem, relaxed.value)
    kept = (price - worth <= MARGIN * price) | relaxed.shares.any(axis=1)
    kept |= problem.most < problem.pending.sum()
    offers = np.flatnonzero(kept)
    reduced = msgspec.structs.replace(
        relaxed,
        scarce=relaxed.scarce[offers],
        shares=relaxed.shares[offers],
        surcharge=relaxed.surcharge[offers],
    )
    return _only(problem, offers), reduced


def _only(problem: Problem, offers: Ints) -> Problem:
    return msgspec.structs.replace(
        problem,
        price=problem.price[offers],
        room=problem.room[offers],
        group_fits=problem.group_fits[offers],
        most=problem.most[offers],
        buying=problem.buying[:, offers],
        same_shape=problem.same_shape[offers],
        cap=problem.cap[offers],
        offers=tuple(problem.offers[at] for at in offers.tolist()),
    )


def _worth_of_best_loads(problem: Problem, value: Floats) -> Floats:
    """Return an upper bound of what the pods on one node of each offer are worth, [G]: the least of
    the fractional knapsacks over mixtures of two resources
    (https://en.wikipedia.org/wiki/Continuous_knapsack_problem)."""
    resources = np.flatnonzero(problem.need.any(axis=0)).tolist()
    parts: Floats = problem.need[None] / np.maximum(problem.room[:, None], 1)
    bound: Floats = np.full(len(problem.price), np.inf)
    for at, first in enumerate(resources):
        for second in resources[at:]:
            for step in range(_WEIGHTS):
                weight = step / _WEIGHTS
                burden = parts[:, :, first] * (1 - weight) + parts[:, :, second] * weight
                bound = np.minimum(bound, _fractional_knapsacks(problem.cap, value, burden))
    return bound


def _fractional_knapsacks(cap: Ints, value: Floats, burden: Floats) -> Floats:
    """Return the value of a knapsack of size 1 for each offer, [G]. cap [G,A]: most pods of an ask;
    burden [G,A]: of one of them."""
    burden = np.maximum(burden, _SLACK)
    best_first = np.argsort(-value / burden, axis=1, kind="stable")
    weights = np.take_along_axis(cap * burden, best_first, axis=1)
    values = np.take_along_axis(cap * value, best_first, axis=1)
    before = np.cumsum(weights, axis=1) - weights
    taken = np.clip((1.0 - before) / np.maximum(weights, _SLACK), 0.0, 1.0)
    total: Floats = (taken * values).sum(axis=1)
    return total
