"""The linear programme of a packing problem: a column per candidate that may go, per place of new
nodes, and per class and place.

Where each node is a place of its own and all columns are integers, its optimum is the problem's.
Where equal nodes are one place and columns are fractions, it is the relaxation: no plan is better,
and its dual values say what a pod and room are worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from chalicelib.plan.packing.linear_solver import LEFT, Entries, Solver, Trouble
from chalicelib.plan.packing.problem import Numbers
from chalicelib.plan.tables import Bools, Floats, Ints

EPSILON = 1e-6
NOWHERE: Ints = np.zeros(0, dtype=np.int64)
EXISTING = -1


class Place(msgspec.Struct, frozen=True):
    """Where pods may be put, as the columns of a linear programme see it: existing nodes as one
    place, or up to `most` new nodes of a group, which is EXISTING for existing nodes."""

    nodes: Ints
    group: int
    most: int


class LinearRule(msgspec.Struct, frozen=True):
    """A further row: the weighted sum over candidates that go and places of new
    nodes is at most `most`."""

    most: float
    candidates: dict[int, float]
    places: dict[int, float]


class Solution(msgspec.Struct, frozen=True):
    """objective: prices less what is saved, with the cost of pods that wait. gone [N], bought [G],
    and pods put [places,K]; fractions in a relaxation. pod [K], limit [L], scarce [places,R]: dual
    values of a pod, of a limit, and of room."""

    objective: float
    gone: Floats
    bought: Floats
    put: Floats
    pod: Floats
    limit: Floats
    scarce: Floats


class Model:
    """The rows and columns of a problem."""

    def __init__(
        self,
        numbers: Numbers,
        places: Sequence[Place],
        rules: Sequence[LinearRule] = (),
        *,
        may_wait: bool = False,
        **options: bool | float | str,
    ) -> None:
        """may_wait: a pod may stay without a place, at the cost of LEFT of the dearest nodes.
        options: of HiGHS."""
        problem = numbers.problem
        self._numbers, self._places, self._rules = numbers, places, rules
        self._candidates = np.flatnonzero(numbers.may_go)
        self._new = [at for at, place in enumerate(places) if place.group != EXISTING]
        self._units = np.maximum(problem.need.max(axis=0, initial=0), 1)
        self._resources = np.flatnonzero(problem.need.any(axis=0))
        amounts = np.concatenate([problem.going, problem.buying], axis=1)
        self._limit_units = np.maximum(np.abs(amounts).max(axis=1, initial=1), 1)
        self._place_of = np.full(len(problem.free), -1)
        for at, place in enumerate(places):
            self._place_of[place.nodes] = at
        self._first_room = len(problem.need)
        self._first_limit = self._first_room + len(places) * len(self._resources)
        self._first_rule = self._first_limit + len(problem.limit)
        self.solver = Solver(**options)
        self._add_rows()
        self._add_columns()
        if may_wait:
            classes = len(problem.need)
            dearest = float(problem.price.max(initial=0)) or 1.0
            self.solver.unplaced_columns(classes, problem.pending, LEFT * dearest)

    def _add_rows(self) -> None:
        problem, infinity = self._numbers.problem, self.solver.infinity
        free: Floats = np.zeros((len(self._places), len(self._resources)))
        for at, place in enumerate(self._places):
            free[at] = np.maximum(problem.free[place.nodes], 0.0).sum(axis=0)[self._resources]
        free /= self._units[self._resources]
        limits, rules = problem.limit / self._limit_units, [rule.most for rule in self._rules]
        upper = np.concatenate([np.full(len(problem.need), infinity), free.ravel(), limits, rules])
        lower = np.full(len(upper), -infinity)
        lower[: len(problem.need)] = problem.pending
        self.solver.rows(lower, upper)

    def _add_columns(self) -> None:
        numbers, problem = self._numbers, self._numbers.problem
        new = [self._places[at] for at in self._new]
        self.cost = np.concatenate(
            [-problem.saves[self._candidates], problem.price[[place.group for place in new]]]
        )
        self.most = np.array(
            [1] * len(self._candidates) + [place.most for place in new], dtype=np.int64
        )
        self.solver.columns(
            self.cost, self.most, [*self._candidate_columns(), *self._new_columns()]
        )
        self._pods: list[tuple[int, int]] = []  # place and class of each further column
        upper: list[int] = []
        for at, place in enumerate(self._places):
            alone, group = numbers.cap[place.nodes].sum(axis=0), place.group
            cap = alone if group == EXISTING else numbers.group_cap[group] * place.most
            for cls in np.flatnonzero(cap).tolist():
                self._pods.append((at, cls))
                upper.append(int(cap[cls]))
        self.solver.columns(np.zeros(len(upper)), upper, self._pod_columns())

    def _candidate_columns(self) -> Iterator[Entries]:
        problem = self._numbers.problem
        for node in self._candidates.tolist():
            pods = np.flatnonzero(problem.pods[node])
            rows, values = pods.tolist(), (-problem.pods[node, pods]).tolist()
            if self._place_of[node] >= 0:
                self._use_room(
                    rows, values, int(self._place_of[node]), np.maximum(problem.free[node], 0)
                )
            self._use_limits(
                rows,
                values,
                problem.going[:, node],
                [rule.candidates.get(node) for rule in self._rules],
            )
            yield rows, values

    def _new_columns(self) -> Iterator[Entries]:
        problem = self._numbers.problem
        for at in self._new:
            rows: list[int] = []
            values: list[float] = []
            group = self._places[at].group
            self._use_room(rows, values, at, -problem.room[group])
            self._use_limits(
                rows,
                values,
                problem.buying[:, group],
                [rule.places.get(at) for rule in self._rules],
            )
            yield rows, values

    def _pod_columns(self) -> Iterator[Entries]:
        need = self._numbers.problem.need
        shares_of: dict[int, tuple[Ints, list[float]]] = {}
        for at, cls in self._pods:
            if cls not in shares_of:
                shares_of[cls] = self._shares(need[cls])
            used, shares = shares_of[cls]
            first = self._first_room + at * len(self._resources)
            yield [cls, *(first + used).tolist()], [1.0, *shares]

    def _use_room(self, rows: list[int], values: list[float], place: int, amounts: Ints) -> None:
        used, shares = self._shares(amounts)
        rows += (self._first_room + place * len(self._resources) + used).tolist()
        values += shares

    def _shares(self, amounts: Ints) -> tuple[Ints, list[float]]:
        """Return the resources that are used, and how many units of each."""
        shares = amounts[self._resources] / self._units[self._resources]
        used = np.flatnonzero(shares)
        return used, shares[used].tolist()

    def _use_limits(
        self, rows: list[int], values: list[float], amounts: Ints, weights: list[float | None]
    ) -> None:
        used = np.flatnonzero(amounts)
        rows += (self._first_limit + used).tolist()
        values += (amounts / self._limit_units)[used].tolist()
        rows += [self._first_rule + at for at, weight in enumerate(weights) if weight is not None]
        values += [weight for weight in weights if weight is not None]

    def restrict(self, may_go: Bools, may_buy: Bools) -> None:
        """Allow only these candidates and groups from now on."""
        allowed = np.concatenate(
            [may_go[self._candidates], may_buy[[self._places[at].group for at in self._new]]]
        )
        count = len(allowed)
        columns = np.arange(count, dtype=np.int32)
        self.solver.model.changeColsBounds(
            count, columns, np.zeros(count), np.where(allowed, self.most, 0.0)
        )

    def minimise_nodes(self) -> None:
        """Minimise nodes that go, then purchases, then the sum of indexes, instead of the price."""
        per_purchase = int(self._candidates.sum()) + 1
        per_node = per_purchase * (int(self.most[len(self._candidates) :].sum()) + 1)
        cost = np.concatenate(
            [per_node + self._candidates, np.full(len(self._new), per_purchase)]
        ).astype(np.float64)
        self.solver.model.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost)

    def integers(self) -> None:
        """Restrict all columns to integers."""
        self.solver.whole(np.arange(len(self.cost) + len(self._pods)))

    def solve(self) -> Solution | None:
        """Return the optimum, None if no plan obeys the rows. Raises Trouble."""
        problem, count = self._numbers.problem, len(self._candidates)
        try:
            objective, values, duals = self.solver.run()
        except Trouble:
            if "nfeasible" in self.status:
                return None
            raise
        gone: Floats = np.zeros(len(problem.saves))
        bought: Floats = np.zeros(len(problem.price))
        put: Floats = np.zeros((len(self._places), len(problem.need)))
        gone[self._candidates] = values[:count]
        np.add.at(
            bought, [self._places[at].group for at in self._new], values[count : len(self.cost)]
        )
        pods = np.array(self._pods, dtype=np.int64).reshape(-1, 2)
        put[tuple(pods.T)] = values[len(self.cost) : len(self.cost) + len(pods)]
        duals = duals if len(duals) else np.zeros(self._first_rule)
        scarce: Floats = np.zeros((len(self._places), problem.need.shape[1]))
        scarce[:, self._resources] = -duals[self._first_room : self._first_limit].reshape(
            len(self._places), len(self._resources)
        )
        return Solution(
            objective=objective,
            gone=gone,
            bought=bought,
            put=put,
            pod=np.maximum(duals[: self._first_room], 0.0),
            limit=np.maximum(-duals[self._first_limit : self._first_rule], 0.0) / self._limit_units,
            scarce=np.maximum(scarce, 0.0) / self._units,
        )

    @property
    def status(self) -> str:
        """Return how HiGHS ended."""
        return str(self.solver.model.modelStatusToString(self.solver.model.getModelStatus()))


def merged_places(numbers: Numbers) -> list[Place]:
    """Return the nodes with equal predicates as one place each, and the groups."""
    rows, which = np.unique(numbers.problem.fits, axis=0, return_inverse=True)
    places = [Place(np.flatnonzero(which == row), EXISTING, 0) for row in range(len(rows))]
    groups = np.flatnonzero(numbers.most > 0).tolist()
    return [*places, *(Place(NOWHERE, group, int(numbers.most[group])) for group in groups)]
