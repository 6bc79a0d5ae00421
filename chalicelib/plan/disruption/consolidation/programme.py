"""The integer programme of consolidation, over numbers only: which nodes go, and which are bought for their pods.

A proposal places every pod of the nodes that go, whole pods on whole nodes, within all linear limits. Rules about other
pods, host ports and claims are not in the numbers: the caller tries a proposal on the simulated cluster, and `cut`
excludes what fails there. See docs/reference/consolidation.md "The programme".

Every problem gets a linear relaxation, in which nodes of equal predicates are one, and a search that rounds it. A small
problem is solved exactly by HiGHS as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from chalicelib.plan.scale_up.least_cost.linear_programs import Entries, Solver
from chalicelib.plan.scale_up.least_cost.problem import Trouble
from chalicelib.plan.tables import MOST_PODS, Bools, Floats, Ints


class ConsolidationProblem(msgspec.Struct, frozen=True):
    """N candidates, S nodes that stay, K classes of equal pods, R resources, G groups, L limits.

    need [K,R]: requests of one pod of a class. extra [K]: pods without a node that need a place, too (headroom)
    saves [N]: what it brings that a candidate goes, before its pods have a place, in millionths; may be negative
    pods [N,K]: the pods of a candidate that must move if it goes
    free [N+S,R]: free room of the candidates, beside their own pods, then of the nodes that stay
    fits [N+S,K], group_fits [G,K]: which nodes and which groups take a class by constant predicates
    price [G]: of a new node, in millionths. room [G,R]: of an empty new node. most [G]: most new nodes
    going [L,N], buying [L,G], limit [L]: going of the nodes that go and buying of each new node are at most limit
    same_shape [G,N]: no node of the group may be bought if this candidate goes
    """

    need: Ints
    extra: Ints
    saves: Ints
    pods: Ints
    free: Ints
    fits: Bools
    price: Ints
    room: Ints
    group_fits: Bools
    most: Ints
    going: Ints
    buying: Ints
    limit: Ints
    same_shape: Bools


class Proposal(msgspec.Struct, frozen=True):
    """gone: candidates that go, ascending. bought [G]: new nodes. gain: saves of those that go less the purchases."""

    gone: tuple[int, ...]
    bought: tuple[int, ...]
    gain: int


class _Numbers:
    """What follows from a problem. cap [N+S,K], group_cap [G,K]: most pods of a class on a node; demand [K]: most pods
    that need a place; may_go [N]; most [G]: new nodes that can be worth it."""

    def __init__(self, problem: ConsolidationProblem) -> None:
        self.problem = problem
        count = len(problem.saves)
        pays = (problem.saves > 0) | (problem.going < 0).any(axis=0)
        self.demand: Ints = problem.extra + problem.pods[pays].sum(axis=0)
        self.cap = np.minimum(_capacity(problem.free, problem.need, problem.fits), self.demand)
        self.group_cap = np.minimum(_capacity(problem.room, problem.need, problem.group_fits), self.demand)
        elsewhere = (self.cap > 0).sum(axis=0) - (self.cap[:count] > 0) + (self.group_cap > 0).sum(axis=0)
        self.may_go: Bools = pays & ~((problem.pods > 0) & (elsewhere == 0)).any(axis=1)
        budget = int(np.maximum(problem.saves[self.may_go], 0).sum())
        affordable = np.where(problem.price > 0, budget // np.maximum(problem.price, 1), MOST_PODS)
        self.most: Ints = np.minimum(np.minimum(problem.most, affordable), self.demand.sum())
        self.most[~self.group_cap.any(axis=1) & ~(problem.buying < 0).any(axis=0)] = 0

    def gain(self, gone: Bools, bought: Ints) -> int:
        """Return the value of the objective."""
        return int(self.problem.saves[gone].sum() - (self.problem.price * bought).sum())

    def allowed(self, gone: Bools, bought: Ints) -> bool:
        """Return whether every limit and the rule of the same shape hold."""
        problem = self.problem
        used = problem.going[:, gone].sum(axis=1) + (problem.buying * bought).sum(axis=1)
        return bool((used <= problem.limit).all()) and not problem.same_shape[bought > 0][:, gone].any()


def _capacity(free: Ints, need: Ints, fits: Bools) -> Ints:
    """Return how many pods of each class every row takes."""
    room: Ints = np.where(fits, MOST_PODS, 0)
    for resource in range(free.shape[1]):
        asks = need[:, resource] > 0
        room[:, asks] = np.minimum(room[:, asks], np.maximum(free[:, resource, None], 0) // need[asks, resource])
    return room
