"""The master problem of column generation: how many nodes of each known load cover all
pods at the lowest cost.

Every load is a column, and every ask is a row that requires at least its pods. A load may carry
more pods than are left; the surplus pods are not placed. The dual values of the rows are the prices
at which `Pricer` (node_filling.py) values pods.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from chalicelib.plan.packing.linear_solver import Entries, Solver
from chalicelib.plan.scale_up.least_cost.node_filling import Pricer
from chalicelib.plan.scale_up.least_cost.problem import Load, Problem, Rooms, Stop, dot
from chalicelib.plan.tables import Floats, Ints

# pods are priced at a mean of the old and new dual values, which oscillate strongly at first
_SMOOTH = 0.5
_PATIENCE = 12  # rounds without progress
_PROGRESS = 5e-4


class Effort(msgspec.Struct, frozen=True):
    """Limits of the search for columns. rounds; keep: new loads per offer and round; tries: see
    Pricer; enough: a cost that is good enough."""

    rounds: int
    keep: int
    tries: int
    enough: float = 0.0


class Prices(msgspec.Struct, frozen=True):
    """An optimum of the master problem: its cost, nodes of each load, value of a pod [A], cost of
    a node in the limits [G]."""

    total: float
    nodes: Floats
    value: Floats
    cost: Floats


class Master:
    """The linear program and its columns; columns are only ever added. options: of HiGHS, which
    presolves nothing, because the program is solved again and again."""

    def __init__(
        self, problem: Problem, *, presolve: str = "off", **options: bool | float | str
    ) -> None:
        self.problem = problem
        self.loads: list[Load] = []
        self._known: set[tuple[int, bytes]] = set()
        self._limited = np.flatnonzero(problem.most < problem.pending.sum())
        self._scale = np.maximum(problem.buying.max(axis=1, initial=1), 1)
        asks = len(problem.pending)
        self._solver = Solver(presolve=presolve, **options)
        self._solver.rows(*self._bounds(problem.pending, Rooms(problem)))
        self._solver.unplaced_columns(asks, np.full(asks, self._solver.infinity))

    def _bounds(self, count: Ints, rooms: Rooms) -> tuple[Floats, Floats]:
        limits = np.concatenate([rooms.most[self._limited], rooms.limit / self._scale])
        return (
            np.concatenate([count, np.full(len(limits), -self._solver.infinity)]),
            np.concatenate([np.full(len(count), self._solver.infinity), np.maximum(limits, 0.0)]),
        )

    def want(self, count: Ints, rooms: Rooms) -> None:
        """Set the number of pods and the rooms for the following solves."""
        self._solver.bounds(*self._bounds(count, rooms))
        self._solver.dual(preferred=True)

    def add(self, loads: Iterable[Load]) -> int:
        """Add columns; returns how many of them are new."""
        problem, asks = self.problem, len(self.problem.pending)
        cost: list[float] = []
        columns: list[Entries] = []
        for load in loads:
            key = (load.offer, load.pods.tobytes())
            if key in self._known:
                continue
            self._known.add(key)
            self.loads.append(load)
            cost.append(float(problem.price[load.offer]))
            pods = np.flatnonzero(load.pods)
            own = np.flatnonzero(self._limited == load.offer)
            shared = np.flatnonzero(problem.buying[:, load.offer])
            rows = [
                *pods.tolist(),
                *(asks + own).tolist(),
                *(asks + len(self._limited) + shared).tolist(),
            ]
            amounts = (problem.buying[shared, load.offer] / self._scale[shared]).tolist()
            columns.append((rows, [*load.pods[pods].tolist(), *[1.0] * len(own), *amounts]))
        if columns:
            self._solver.dual(preferred=False)
            self._solver.columns(cost, np.full(len(columns), self._solver.infinity), columns)
        return len(columns)

    def reduced_costs(self, prices: Prices) -> Floats:
        """Return for each load by how much its node costs more than its pods are worth."""
        return np.array([
            prices.cost[load.offer] - float(dot(load.pods, prices.value)) for load in self.loads
        ])  # fmt: skip

    def slim(self, prices: Prices, columns: int) -> Master:
        """Return a master problem with only the most promising columns,
        which is solved much faster."""
        slim = Master(self.problem)
        best = np.argsort(self.reduced_costs(prices) - prices.nodes, kind="stable")[:columns]
        slim.add(self.loads[at] for at in sorted(best.tolist()))
        return slim

    def solve(self) -> Prices:
        """Return the optimum over the known loads. Raises Trouble."""
        problem, asks = self.problem, len(self.problem.pending)
        total, nodes, duals = self._solver.run()
        cost = problem.price.copy()
        cost[self._limited] -= duals[asks : asks + len(self._limited)]
        cost -= dot(problem.buying.T, duals[asks + len(self._limited) :] / self._scale)
        return Prices(
            total, nodes[asks:], np.maximum(duals[:asks], 0.0), np.maximum(cost, problem.price)
        )

    def whole_nodes(self) -> Ints:
        """Return the nodes of each load in whole numbers. Raises Trouble."""
        asks = len(self.problem.pending)
        self._solver.whole(np.arange(asks, asks + len(self.loads)))
        _, nodes, _ = self._solver.run()
        whole: Ints = np.round(nodes[asks:]).astype(np.int64)
        return whole


def generate(
    master: Master,
    pricer: Pricer,
    cap: Ints,
    effort: Effort,
    stop: Stop,
    value: Floats | None = None,
) -> Prices:
    """Add loads until none improves the cost, progress ends, or the effort is spent. value:
    initial value of each pod."""
    prices = master.solve()
    before, idle = prices.total, 0
    for _ in range(effort.rounds):
        if prices.total <= effort.enough or stop():
            break
        value = prices.value if value is None else _SMOOTH * value + (1 - _SMOOTH) * prices.value
        added = master.add(pricer.loads(value, prices.cost, cap, effort.keep, effort.tries))
        if not added:
            value = None
        else:
            prices = master.solve()
        idle += 1
        if prices.total < before * (1 - _PROGRESS):
            before, idle = prices.total, 0
        if idle >= _PATIENCE:
            break
    return prices


FEW = 15  # nodes; above this number, rounding is as good and faster
_COLUMNS = 250
_BRANCHES = 20
_EPSILON = 1e-6


def best_integer_mix(master: Master, prices: Prices, cost: float) -> list[Load]:
    """Return the best integer mix of the master problem's loads that costs less than `cost`
    (unplaced pods included), [] if none is found. Raises Trouble.

    With few nodes, one node too many is a large part of the price, and there are few enough mixes
    to try them all. HiGHS does so with a fixed number of branches.
    """
    problem = master.problem
    own = master.reduced_costs(prices)
    order = np.argsort(own, kind="stable")[:_COLUMNS]
    loads = [master.loads[at] for at in order if own[at] < cost - prices.total]
    if not loads:
        return []
    whole = Master(
        problem,
        presolve="choose",
        mip_max_nodes=_BRANCHES,
        mip_rel_gap=1e-4,
        mip_max_leaves=_BRANCHES,
    )
    whole.add(loads)
    return _without_surplus(problem, whole.loads, whole.whole_nodes())


def _without_surplus(problem: Problem, loads: list[Load], nodes: Ints) -> list[Load]:
    """Remove surplus pods: columns may carry more pods than there are."""
    unplaced, rooms = problem.pending.copy(), Rooms(problem)
    needed: list[Load] = []
    for load, count in zip(loads, nodes.tolist(), strict=True):
        rest = min(count, rooms.allowed(load.offer))
        while rest > 0:
            pods = np.minimum(load.pods, unplaced)
            if not pods.any():
                break
            carried = pods > 0
            alike = min(rest, int((unplaced[carried] // pods[carried]).min()))
            needed.append(Load(load.offer, pods, alike))
            rooms.take(load.offer, alike)
            unplaced -= pods * alike
            rest -= alike
    return needed
