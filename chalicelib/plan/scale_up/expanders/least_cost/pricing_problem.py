"""The pricing problem: finds the most valuable load of one node for given pod values, a knapsack with several
resources.

Exact answers cost seconds for a large node and are not needed. Instead, many greedy fillings (lanes) run at once, each
with its own weights of scarce resources. Then each of the best is filled again with one pod, or all pods of one ask,
taken out. All lanes advance together, one ask per step, so that the Python loop runs a dozen times and not once per
pod.
"""

from __future__ import annotations

import numpy as np

from chalicelib.plan.scale_up.expanders.least_cost.problem import Problem
from chalicelib.plan.scale_up.expanders.least_cost.solver_types import Load
from chalicelib.plan.tables.array_types import Floats, Ints

_LANES = 12  # per offer and round
_IMPROVED = 3  # fillings per offer that the search tries to improve
_CANDIDATES = 64  # asks per offer that are considered: those with the highest value for their requests
_IDEAS = 64  # rows of the table of random weights
_AT_ONCE = 600_000  # cells of one array; bounds memory
GAIN = 1e-7  # by how much a load's value must exceed its cost, as a share of the cost


class ColumnCounter:
    """Candidates for filling a node of each offer: K asks per offer with their data. asks [G,K], need [G,K,R], value
    [G,K], cap [G,K]."""

    def __init__(self, problem: Problem, value: Floats, cap: Ints, scarce: Floats) -> None:
        free = np.maximum(problem.free, 1)
        burden = np.einsum("gr,ar->ga", scarce / free, problem.need)  # not @, see dot
        ratio = np.where((cap > 0) & (value > 0), value / np.maximum(burden, 1e-30), -1.0)
        wanted = int((ratio > 0).sum(axis=1).max(initial=0))
        many = min(_CANDIDATES, wanted)
        self.asks: Ints = np.argsort(-ratio, axis=1, kind="stable")[:, :many]
        self.need: Ints = problem.need[self.asks]
        self.amount: Floats = self.need.astype(np.float64)
        self.value: Floats = value[self.asks]
        self.cap: Ints = np.take_along_axis(np.where(ratio > 0, cap, 0), self.asks, axis=1)
        self.free = problem.free


def fill(
    counter: ColumnCounter, which: Ints, pods: Ints, score: Floats, scarce: Floats, closed: Ints | None = None
) -> None:
    """Fill L nodes greedily in addition to the pods on them; changes pods [L,K].

    which [L]: the offer of each node; score [L,K]: value of a pod; scarce [L,R]: weight of a resource's share of what
    is left; closed [L]: a candidate that is not used.
    """
    need, width = counter.need[which], counter.free.shape[1]
    amount = counter.amount[which]
    left = counter.free[which] - np.einsum("lk,lkr->lr", pods, need)
    cap = counter.cap[which] - pods
    open_ = cap > 0
    if closed is not None:
        open_[np.arange(len(which)), closed] = False
    for column in range(width):
        open_ &= left[:, column, None] >= need[:, :, column]
    live = np.flatnonzero(open_.any(axis=1))
    if len(live) < len(which):
        need, amount = need[live], amount[live]
    while live.size:
        rest, still, row = left[live], open_[live], np.arange(len(live))
        weight = scarce[live] / np.maximum(rest, 1)
        share = np.einsum("lr,lkr->lk", weight, amount)
        best = np.where(still, score[live] / np.maximum(share, 1e-30), -1.0).argmax(axis=1)
        each = need[row, best]
        number = np.where(each > 0, rest // np.maximum(each, 1), 2**60).min(axis=1)
        number = np.minimum(number, cap[live, best])
        rest -= number[:, None] * each
        left[live] = rest
        pods[live, best] += number
        still[row, best] = False
        for column in range(width):
            still &= rest[:, column, None] >= need[:, :, column]
        open_[live] = still
        going = still.any(axis=1)
        live, need, amount = live[going], need[going], amount[going]


class Pricer:
    """Finds loads whose pods are worth more than their node. It has its own random generator with a fixed seed."""

    def __init__(self, problem: Problem, scarce: Floats) -> None:
        self.problem = problem
        self.scarce = scarce + 1e-3
        self._chance = np.random.default_rng(0)
        self._ideas = np.exp(self._chance.normal(0.0, 0.15, (_IDEAS, _CANDIDATES)))
        self._ideas[: _IDEAS // 2] = 1.0

    def loads(self, value: Floats, cost: Floats, cap: Ints, keep: int, tries: int, gain: float = GAIN) -> list[Load]:
        """Return loads whose value exceeds their cost by the required share, at most `keep` per offer, best first.

        value [A]: of a pod; cost [G]; cap [G,A]: most pods on a node; tries: how often the best are improved.
        """
        counter = ColumnCounter(self.problem, value, cap, self.scarce)
        offers = np.flatnonzero(counter.cap.any(axis=1))
        step = max(1, _AT_ONCE // (_LANES * max(1, counter.asks.shape[1])))
        chosen: list[tuple[float, Load]] = []
        for begin in range(0, len(offers), step):
            which, pods = self._lanes(counter, offers[begin : begin + step])
            for turn in range(tries + 1):
                over = np.einsum("lk,lk->l", pods, counter.value[which]) / cost[which] - 1.0
                if turn < tries:
                    top = _best(which, pods, over, _IMPROVED)
                    which, pods = self._again(counter, which[top], pods[top])
            for at in _best(which, pods, over, keep):
                if over[at] > gain:
                    whole = np.zeros(len(value), dtype=np.int64)
                    whole[counter.asks[which[at]]] = pods[at]
                    chosen.append((float(over[at]), Load(int(which[at]), whole, 1)))
        return [load for _, load in sorted(chosen, key=lambda one: -one[0])]

    def _lanes(self, counter: ColumnCounter, offers: Ints) -> tuple[Ints, Ints]:
        """Return every offer filled in _LANES ways: [L], [L,K]."""
        which, width = np.tile(offers, _LANES), self.problem.free.shape[1]
        spread = np.repeat(np.where(np.arange(_LANES) % 2, 0.4, 1.0), len(offers))[:, None]
        scarce = np.exp(self._chance.normal(0.0, 1.0, (len(which), width)) * spread)
        known = np.repeat(np.arange(_LANES) % 2 == 1, len(offers))
        scarce[known] *= self.scarce[which[known]]
        scarce[: len(offers)] = 1.0
        pods = np.zeros((len(which), counter.asks.shape[1]), dtype=np.int64)
        fill(counter, which, pods, self._scores(counter, which), scarce)
        return which, pods

    def _again(self, counter: ColumnCounter, which: Ints, pods: Ints) -> tuple[Ints, Ints]:
        """Return each filling, and each with one pod or all pods of one ask removed and the room filled with others."""
        lane, ask = np.nonzero(pods)
        several = pods[lane, ask] > 1
        lanes, asks = np.concatenate([lane, lane[several]]), np.concatenate([ask, ask[several]])
        out = np.concatenate([np.ones(len(lane), dtype=np.int64), pods[lane, ask][several]])
        new, of = pods[lanes], which[lanes]
        new[np.arange(len(lanes)), asks] -= out
        scarce = np.exp(self._chance.normal(0.0, 0.7, (len(lanes), self.problem.free.shape[1])))
        fill(counter, of, new, self._scores(counter, of), scarce, asks)
        return np.concatenate([which, of]), np.concatenate([pods, new])

    def _scores(self, counter: ColumnCounter, which: Ints) -> Floats:
        ideas = self._ideas[self._chance.integers(0, _IDEAS, len(which))]
        scores: Floats = counter.value[which] * ideas[:, : counter.asks.shape[1]]
        return scores


def _best(which: Ints, pods: Ints, gain: Floats, keep: int) -> list[int]:
    """Return the lanes with the highest gain, at most `keep` different ones per offer."""
    taken: dict[int, set[bytes]] = {}
    chosen = []
    for at, offer in zip((order := np.argsort(-gain, kind="stable")).tolist(), which[order].tolist(), strict=True):
        seen = taken.setdefault(offer, set())
        if len(seen) < keep and (key := pods[at].tobytes()) not in seen:
            seen.add(key)
            chosen.append(at)
    return chosen
