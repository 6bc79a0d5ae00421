"""The problem over numbers only: pods of K classes need places on nodes, R resources each.

Rules about other pods, host ports and claims are not in the numbers; who carries a solution out
looks at them.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from chalicelib.plan.tables import MOST_PODS, Bools, Floats, Ints


class PackingProblem(msgspec.Struct, frozen=True):
    """N candidates that may go, S nodes that stay, K classes of equal pods, R resources, G groups
    that may grow, L limits.

    need [K,R]: requests of one pod of a class. pending [K]: pods without a node that need a place
    price [G]: of a new node, in any unit. room [G,R]: of an empty one. most [G]: most new nodes
    group_fits [G,K]: which groups take a class by constant predicates
    saves [N]: what it brings that a candidate goes, before its pods have a place, in the unit of
    the prices; may be negative. pods [N,K]: the pods of a candidate that must move if it goes
    free [N+S,R]: free room of the candidates, beside their own pods, then of the nodes that stay
    fits [N+S,K]: which nodes take a class by constant predicates
    going [L,N], buying [L,G], limit [L]: going of the nodes that go and buying of each new node
    are at most limit
    same_shape [G,N]: no node of the group may be bought if this candidate goes
    """

    need: Ints
    pending: Ints
    price: Ints | Floats
    room: Ints
    group_fits: Bools
    most: Ints
    saves: Ints
    pods: Ints
    free: Ints
    fits: Bools
    going: Ints
    buying: Ints
    limit: Ints
    same_shape: Bools


def no_candidates(classes: int, groups: int, limits: int) -> dict[str, Any]:
    """Return the fields of a problem in which no node may go: K, G and L."""
    return {
        "saves": np.zeros(0, dtype=np.int64),
        "pods": np.zeros((0, classes), dtype=np.int64),
        "going": np.zeros((limits, 0), dtype=np.int64),
        "same_shape": np.zeros((groups, 0), dtype=np.bool_),
    }


class Numbers:
    """What follows from a problem. cap [N+S,K], group_cap [G,K]: most pods of a class
    on a node; demand [K]: most pods that need a place; may_go [N]; most [G]: new
    nodes that can be worth it."""

    def __init__(self, problem: PackingProblem) -> None:
        self.problem = problem
        count = len(problem.saves)
        pays = (problem.saves > 0) | (problem.going < 0).any(axis=0)
        self.demand: Ints = problem.pending + problem.pods[pays].sum(axis=0)
        self.cap = np.minimum(capacity(problem.free, problem.need, problem.fits), self.demand)
        self.group_cap = np.minimum(
            capacity(problem.room, problem.need, problem.group_fits), self.demand
        )
        places = (self.cap > 0).sum(axis=0) + (self.group_cap > 0).sum(axis=0)
        elsewhere = places - (self.cap[:count] > 0)
        self.may_go: Bools = pays & ~((problem.pods > 0) & (elsewhere == 0)).any(axis=1)
        useful = np.where(self.group_cap.any(axis=1), self.demand.sum(), 0)
        useful[(problem.buying < 0).any(axis=0)] = MOST_PODS
        self.most: Ints = np.minimum(problem.most, useful)
        if count:  # nodes that go pay for those that are bought
            budget = int(np.maximum(problem.saves[self.may_go], 0).sum())
            prices = np.maximum(problem.price, 1)
            affordable = np.where(problem.price > 0, budget // prices, MOST_PODS)
            self.most = np.minimum(self.most, affordable)

    def gain(self, gone: Bools, bought: Ints) -> int:
        """Return the value of the objective."""
        return int(self.problem.saves[gone].sum() - (self.problem.price * bought).sum())

    def allowed(self, gone: Bools, bought: Ints) -> bool:
        """Return whether every limit and the rule of the same shape hold."""
        problem = self.problem
        used = problem.going[:, gone].sum(axis=1) + (problem.buying * bought).sum(axis=1)
        is_within = bool((used <= problem.limit).all())
        return is_within and not problem.same_shape[bought > 0][:, gone].any()


def capacity(room: Ints, need: Ints, fits: Bools) -> Ints:
    """Return how many pods of each class every row takes by its room, 0 where it does not fit."""
    pods: Ints = np.where(fits, MOST_PODS, 0)
    for resource in range(room.shape[1]):
        asks = need[:, resource] > 0
        by_resource = np.maximum(room[:, resource, None], 0) // need[asks, resource]
        pods[:, asks] = np.minimum(pods[:, asks], by_resource)
    return pods
