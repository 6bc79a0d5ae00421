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


class _Places(msgspec.Struct, frozen=True):
    """Where pods may be put, as the columns of a linear programme see it.

    nodes: existing nodes that are one place; group: of a place that new nodes make, else -1; most: of its new nodes
    """

    nodes: Ints
    group: int = -1
    most: int = 0


class _Solved(msgspec.Struct, frozen=True):
    """gone [N] and bought [G], fractional in a relaxation; pod [K], limit [L]: dual values; scarce: rows of dual values
    [R] of the resources of places."""

    gone: Floats
    bought: Floats
    pod: Floats
    limit: Floats
    scarce: Floats


class _Model:
    """A linear programme: a column per candidate that may go, per place of new nodes, and per class and place."""

    def __init__(self, numbers: _Numbers, places: Sequence[_Places], **options: bool | float | str) -> None:
        problem = numbers.problem
        self._numbers, self._places = numbers, places
        self.candidates = np.flatnonzero(numbers.may_go)
        self._units = np.maximum(problem.need.max(axis=0, initial=0), 1)
        self._resources = np.flatnonzero(problem.need.any(axis=0))
        self._limit_units = np.maximum(np.abs(np.concatenate([problem.going, problem.buying], axis=1)).max(axis=1), 1)
        self._place_of = np.full(len(problem.free), -1)
        for at, place in enumerate(places):
            self._place_of[place.nodes] = at
        self.solver = Solver(**options)
        self._rows()
        self._columns()

    def _rows(self) -> None:
        problem, width, infinity = self._numbers.problem, len(self._resources), self.solver.infinity
        room: Floats = np.zeros((len(self._places), width))
        for at, place in enumerate(self._places):
            room[at] = np.maximum(problem.free[place.nodes], 0).sum(axis=0)[self._resources]
        room /= self._units[self._resources]
        upper = np.concatenate([np.full(len(problem.need), infinity), room.ravel(), problem.limit / self._limit_units])
        lower = np.full(len(upper), -infinity)
        lower[: len(problem.need)] = problem.extra
        self.solver.rows(lower, upper)

    def _columns(self) -> None:
        numbers, problem = self._numbers, self._numbers.problem
        new = [place for place in self._places if place.group >= 0]
        self.solver.columns(-problem.saves[self.candidates], np.ones(len(self.candidates)), self._candidate_columns())
        self.solver.columns(problem.price[[p.group for p in new]], [p.most for p in new], self._new_columns())
        self.first_pods = len(self.candidates) + len(new)
        self.pods: list[tuple[int, int]] = []  # class and place of each further column
        upper: list[int] = []
        for at, place in enumerate(self._places):
            cap = numbers.group_cap[place.group] * place.most if place.group >= 0 else numbers.cap[place.nodes].sum(axis=0)
            for cls in np.flatnonzero(cap).tolist():
                self.pods.append((cls, at))
                upper.append(int(cap[cls]))
        self.solver.columns(np.zeros(len(upper)), upper, self._pod_columns())

    def _candidate_columns(self) -> Iterator[Entries]:
        problem, classes = self._numbers.problem, len(self._numbers.problem.need)
        for node in self.candidates.tolist():
            pods = np.flatnonzero(problem.pods[node])
            rows, values = pods.tolist(), (-problem.pods[node, pods]).tolist()
            if self._place_of[node] >= 0:
                self._add_room(rows, values, int(self._place_of[node]), np.maximum(problem.free[node], 0))
            yield self._with_limits(rows, values, problem.going[:, node])

    def _new_columns(self) -> Iterator[Entries]:
        problem = self._numbers.problem
        for at, place in enumerate(self._places):
            if place.group >= 0:
                rows: list[int] = []
                values: list[float] = []
                self._add_room(rows, values, at, -problem.room[place.group])
                yield self._with_limits(rows, values, problem.buying[:, place.group])

    def _pod_columns(self) -> Iterator[Entries]:
        for cls, at in self.pods:
            rows, values = [cls], [1.0]
            self._add_room(rows, values, at, self._numbers.problem.need[cls])
            yield rows, values

    def _add_room(self, rows: list[int], values: list[float], place: int, amounts: Ints) -> None:
        used = np.flatnonzero(amounts[self._resources])
        rows += (len(self._numbers.problem.need) + place * len(self._resources) + used).tolist()
        values += (amounts[self._resources] / self._units[self._resources])[used].tolist()

    def _with_limits(self, rows: list[int], values: list[float], amounts: Ints) -> Entries:
        used = np.flatnonzero(amounts)
        first = len(self._numbers.problem.need) + len(self._places) * len(self._resources)
        return rows + (first + used).tolist(), values + (amounts / self._limit_units)[used].tolist()

    def solve(self) -> _Solved:
        """Return the optimum. Raises Trouble."""
        problem = self._numbers.problem
        _, values, duals = self.solver.run()
        gone: Floats = np.zeros(len(problem.saves))
        bought: Floats = np.zeros(len(problem.price))
        gone[self.candidates] = values[: len(self.candidates)]
        new = [place.group for place in self._places if place.group >= 0]
        np.add.at(bought, new, values[len(self.candidates) : self.first_pods])
        classes, rooms = len(problem.need), len(self._places) * len(self._resources)
        scarce: Floats = np.zeros((len(self._places), problem.need.shape[1]))
        if len(duals):
            scarce[:, self._resources] = -duals[classes : classes + rooms].reshape(len(self._places), -1)
        return _Solved(
            gone=gone,
            bought=bought,
            pod=np.maximum(duals[:classes], 0.0),
            limit=np.maximum(-duals[classes + rooms :], 0.0) / self._limit_units,
            scarce=np.maximum(scarce, 0.0) / self._units,
        )


class _Relaxation:
    """The linear relaxation, split until no group is bought whose shape goes. bound: no plan has a larger gain."""

    def __init__(self, numbers: _Numbers, most: int, stop: Callable[[], bool]) -> None:
        self._numbers = numbers
        self._model = _Model(numbers, _merged_places(numbers))
        self._open: list[tuple[float, _Solved]] = []
        self.leaves: list[tuple[float, _Solved]] = []


def _merged_places(numbers: _Numbers) -> list[_Places]:
    """Return the nodes with equal predicates as one place each, and the groups."""
    problem = numbers.problem
    nowhere: Ints = np.zeros(0, dtype=np.int64)
    rows, which = np.unique(numbers.problem.fits, axis=0, return_inverse=True)
    places = [_Places(np.flatnonzero(which == row)) for row in range(len(rows))]
    groups = np.flatnonzero(numbers.most > 0).tolist()
    return [*places, *(_Places(nowhere, group, int(numbers.most[group])) for group in groups)]


def _most_worth(value: Floats, need: Ints, free: Ints, cap: Ints, scarce: Floats) -> Floats:
    """Return an upper bound of what the pods on each node can be worth. For any price of its room, that is what the room
    costs and what its pods are worth beyond the room they take; the least over many prices is taken."""
    rates = _room_prices(value, need, scarce)
    beyond = np.maximum(value[:, None] - np.einsum("kr,pr->kp", need, rates), 0.0)
    worth: Floats = np.einsum("nr,pr->np", np.maximum(free, 0), rates) + np.einsum("nk,kp->np", cap, beyond)
    return worth.min(axis=1, initial=np.inf)


def _room_prices(value: Floats, need: Ints, scarce: Floats) -> Floats:
    """Return prices of room to try: those of the relaxation and mixes of resources, at several levels."""
    units = np.maximum(need.max(axis=0, initial=0), 1)
    mixes = np.concatenate([scarce * units, np.eye(len(units)), np.ones((1, len(units)))])
    mixes = mixes[mixes.any(axis=1)] / units
    rates = [np.zeros(len(units)), *scarce]
    for mix in mixes:
        size = np.einsum("kr,r->k", need, mix)
        levels = np.unique((value[size > 0] / size[size > 0]))
        rates += [mix * level for level in levels[np.linspace(0, len(levels) - 1, 12).astype(int)]] if len(levels) else []
    return np.array(rates)
