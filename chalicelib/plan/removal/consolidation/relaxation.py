"""The linear relaxation of a consolidation, in which nodes of equal predicates are one.

It says how much no plan can exceed, what a pod and room are worth, and which nodes should roughly
go. The programme (programme.py) rounds it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from chalicelib.plan.packing.linear_programme import (
    EPSILON,
    NOWHERE,
    Model,
    Solution,
    merged_places,
)
from chalicelib.plan.packing.problem import Numbers
from chalicelib.plan.tables import Bools, Floats, Ints

_LEVELS = 12  # of the prices of room that a bound tries per mix of resources


class Leaf(msgspec.Struct, frozen=True):
    """A relaxation in which no group is bought whose shape goes. may_go [N], may_buy [G]: its
    choice; bound: no plan of this choice has a larger gain; worth [N]: what a candidate's going is
    worth, beyond its staying; profit [G]: what a new node is worth, beyond its price."""

    may_go: Bools
    may_buy: Bools
    bound: float
    worth: Floats
    profit: Floats
    solution: Solution


def relax_problem(numbers: Numbers, most: int, stop: Callable[[], bool]) -> list[Leaf]:
    """Return the leaves of the relaxation, the largest bound first, which holds for
    every plan. Raises Trouble.

    most: relaxations to solve; then, and when `stop` returns true, a leaf may buy
    a group whose shape goes.
    """
    problem = numbers.problem
    if not numbers.may_go.any():
        return []
    model = Model(numbers, merged_places(numbers))
    choices = [(numbers.may_go, numbers.most > 0)]
    leaves: list[Leaf] = []
    solved = 0
    while choices:
        may_go, may_buy = choices.pop()
        model.restrict(may_go, may_buy)
        solution = model.solve()
        solved += 1
        if solution is None:
            continue
        clash = (solution.bought > EPSILON) & (problem.same_shape & (solution.gone > EPSILON)).any(
            axis=1
        )
        if clash.any() and solved < most and not stop():
            group = int(np.flatnonzero(clash)[0])
            choices.append((may_go, may_buy & (np.arange(len(may_buy)) != group)))
            choices.append((may_go & ~problem.same_shape[group], may_buy))
        else:
            leaves.append(_leaf(numbers, may_go, may_buy, solution))
    return sorted(leaves, key=lambda leaf: -leaf.bound)


def _leaf(numbers: Numbers, may_go: Bools, may_buy: Bools, solution: Solution) -> Leaf:
    """Return a leaf, with the bound of its dual values: every node, taken by itself, does what is
    worth most at these values. It holds for any dual values, so that it does not depend on the
    tolerances of the solver."""
    problem, pod, limit = numbers.problem, solution.pod, solution.limit
    scarce = np.unique(solution.scarce, axis=0)
    stays = _most_worth(pod, problem.need, problem.free, numbers.cap, scarce)
    new = _most_worth(pod, problem.need, problem.room, numbers.group_cap, scarce)
    goes = (
        problem.saves
        - np.einsum("nk,k->n", problem.pods, pod)
        - np.einsum("ln,l->n", problem.going, limit)
    )
    candidates = stays[: len(goes)]
    profit = np.where(
        may_buy, new - problem.price - np.einsum("lg,l->g", problem.buying, limit), 0.0
    )
    bound = (
        np.where(may_go, np.maximum(goes, candidates), candidates).sum()
        + stays[len(goes) :].sum()
        + (numbers.most * np.maximum(profit, 0.0)).sum()
        + (problem.limit * limit).sum()
        - (problem.pending * pod).sum()
    )
    return Leaf(may_go, may_buy, float(bound), goes - candidates, profit, solution)


def _most_worth(pod: Floats, need: Ints, free: Ints, cap: Ints, scarce: Floats) -> Floats:
    """Return an upper bound of what the pods on each node can be worth. For any price of its room,
    that is what the room costs and what its pods are worth beyond the room they take; the least
    over several prices is taken."""
    rates = _room_prices(pod, need, scarce)
    beyond = np.maximum(pod[:, None] - np.einsum("kr,pr->kp", need, rates), 0.0)
    worth = np.einsum("nr,pr->np", np.maximum(free, 0), rates) + np.einsum("nk,kp->np", cap, beyond)
    least: Floats = worth.min(axis=1)
    return least


def _room_prices(pod: Floats, need: Ints, scarce: Floats) -> Floats:
    """Return prices of room to try: those of the relaxation, and mixes of
    resources at several levels."""
    units = np.maximum(need.max(axis=0, initial=0), 1)
    mixes = np.concatenate([scarce, np.eye(len(units)) / units, np.ones((1, len(units))) / units])
    rates = [np.zeros(len(units)), *scarce]
    for mix in mixes:
        size = np.einsum("kr,r->k", need, mix)
        levels = np.unique(pod[size > 0] / size[size > 0])
        chosen = (
            np.unique(np.linspace(0, len(levels) - 1, _LEVELS).astype(np.int64))
            if len(levels)
            else NOWHERE
        )
        rates += [mix * level for level in levels[chosen]]
    return np.array(rates)
