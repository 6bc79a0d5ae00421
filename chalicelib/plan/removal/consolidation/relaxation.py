"""The numbers of a consolidation, and its linear relaxation, in which nodes of
equal predicates are one.

The relaxation says how much no plan can exceed, what a pod and room are worth, and which nodes
should roughly go. The programme (programme.py) rounds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from chalicelib.plan.linear_solver import Entries, Solver, Trouble
from chalicelib.plan.tables import MOST_PODS, Bools, Floats, Ints

EPSILON = 1e-6
_LEVELS = 12  # of the prices of room that a bound tries per mix of resources
NOWHERE: Ints = np.zeros(0, dtype=np.int64)
EXISTING = -1


class ConsolidationProblem(msgspec.Struct, frozen=True):
    """N candidates, S nodes that stay, K classes of equal pods, R resources, G groups, L limits.

    need [K,R]: requests of one pod of a class. extra [K]: pods without a node that need a place,
    too (headroom) saves [N]: what it brings that a candidate goes, before its pods have a place, in
    millionths; may be negative pods [N,K]: the pods of a candidate that must move if it goes free
    [N+S,R]: free room of the candidates, beside their own pods, then of the nodes that stay fits
    [N+S,K], group_fits [G,K]: which nodes and which groups take a class by constant predicates
    price [G]: of a new node, in millionths. room [G,R]: of an empty new node. most [G]: most new
    nodes going [L,N], buying [L,G], limit [L]: going of the nodes that go and buying of each new
    node are at most limit same_shape [G,N]: no node of the group may be bought if this candidate
    goes
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


class Numbers:
    """What follows from a problem. cap [N+S,K], group_cap [G,K]: most pods of a class
    on a node; demand [K]: most pods that need a place; may_go [N]; most [G]: new
    nodes that can be worth it."""

    def __init__(self, problem: ConsolidationProblem) -> None:
        self.problem = problem
        count = len(problem.saves)
        pays = (problem.saves > 0) | (problem.going < 0).any(axis=0)
        self.demand: Ints = problem.extra + problem.pods[pays].sum(axis=0)
        self.cap = np.minimum(_capacity(problem.free, problem.need, problem.fits), self.demand)
        self.group_cap = np.minimum(
            _capacity(problem.room, problem.need, problem.group_fits), self.demand
        )
        elsewhere = (
            (self.cap > 0).sum(axis=0) - (self.cap[:count] > 0) + (self.group_cap > 0).sum(axis=0)
        )
        self.may_go: Bools = pays & ~((problem.pods > 0) & (elsewhere == 0)).any(axis=1)
        budget = int(np.maximum(problem.saves[self.may_go], 0).sum())
        affordable = np.where(problem.price > 0, budget // np.maximum(problem.price, 1), MOST_PODS)
        useful = np.where(self.group_cap.any(axis=1), self.demand.sum(), 0)
        useful[(problem.buying < 0).any(axis=0)] = MOST_PODS
        self.most: Ints = np.minimum(np.minimum(problem.most, affordable), useful)

    def gain(self, gone: Bools, bought: Ints) -> int:
        """Return the value of the objective."""
        return int(self.problem.saves[gone].sum() - (self.problem.price * bought).sum())

    def allowed(self, gone: Bools, bought: Ints) -> bool:
        """Return whether every limit and the rule of the same shape hold."""
        problem = self.problem
        used = problem.going[:, gone].sum(axis=1) + (problem.buying * bought).sum(axis=1)
        return (
            bool((used <= problem.limit).all())
            and not problem.same_shape[bought > 0][:, gone].any()
        )


def _capacity(free: Ints, need: Ints, fits: Bools) -> Ints:
    """Return how many pods of each class every row takes."""
    room: Ints = np.where(fits, MOST_PODS, 0)
    for resource in range(free.shape[1]):
        asks = need[:, resource] > 0
        room[:, asks] = np.minimum(
            room[:, asks], np.maximum(free[:, resource, None], 0) // need[asks, resource]
        )
    return room


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
    """gone [N], bought [G], and pods put [places,K]; fractions in a relaxation. pod [K], limit [L],
    scarce [places,R]: dual values of a pod, of a limit, and of room."""

    gone: Floats
    bought: Floats
    put: Floats
    pod: Floats
    limit: Floats
    scarce: Floats


class Model:
    """A linear programme: a column per candidate that may go, per place of new nodes,
    and per class and place."""

    def __init__(
        self,
        numbers: Numbers,
        places: Sequence[Place],
        rules: Sequence[LinearRule] = (),
        **options: bool | float | str,
    ) -> None:
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

    def _add_rows(self) -> None:
        problem, infinity = self._numbers.problem, self.solver.infinity
        free: Floats = np.zeros((len(self._places), len(self._resources)))
        for at, place in enumerate(self._places):
            free[at] = np.maximum(problem.free[place.nodes], 0.0).sum(axis=0)[self._resources]
        free /= self._units[self._resources]
        limits, rules = problem.limit / self._limit_units, [rule.most for rule in self._rules]
        upper = np.concatenate([np.full(len(problem.need), infinity), free.ravel(), limits, rules])
        lower = np.full(len(upper), -infinity)
        lower[: len(problem.need)] = problem.extra
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
        for at, cls in self._pods:
            rows, values = [cls], [1.0]
            self._use_room(rows, values, at, self._numbers.problem.need[cls])
            yield rows, values

    def _use_room(self, rows: list[int], values: list[float], place: int, amounts: Ints) -> None:
        shares = amounts[self._resources] / self._units[self._resources]
        used = np.flatnonzero(shares)
        rows += (self._first_room + place * len(self._resources) + used).tolist()
        values += shares[used].tolist()

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
            _, values, duals = self.solver.run()
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
        put[tuple(np.array(self._pods, dtype=np.int64).reshape(-1, 2).T)] = values[len(self.cost) :]
        duals = duals if len(duals) else np.zeros(self._first_rule)
        scarce: Floats = np.zeros((len(self._places), problem.need.shape[1]))
        scarce[:, self._resources] = -duals[self._first_room : self._first_limit].reshape(
            len(self._places), len(self._resources)
        )
        return Solution(
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
    model = Model(numbers, _merged_places(numbers))
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


def _merged_places(numbers: Numbers) -> list[Place]:
    """Return the nodes with equal predicates as one place each, and the groups."""
    rows, which = np.unique(numbers.problem.fits, axis=0, return_inverse=True)
    places = [Place(np.flatnonzero(which == row), EXISTING, 0) for row in range(len(rows))]
    groups = np.flatnonzero(numbers.most > 0).tolist()
    return [*places, *(Place(NOWHERE, group, int(numbers.most[group])) for group in groups)]


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
        - (problem.extra * pod).sum()
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
