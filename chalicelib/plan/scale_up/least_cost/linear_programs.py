"""The plain linear relaxation, in which nodes and pods may be split. It is fast, and the search starts from it.

Its price is a lower bound. Its dual values give the value of a pod and of a resource. Its shares assign pods to offers,
which is a far better first guess than any single group for all pods.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np

from chalicelib.plan.scale_up.least_cost.problem import Problem, Trouble
from chalicelib.plan.tables import Floats, Ints

LEFT = 1000.0  # cost of an unplaced pod: as much as a thousand of the most expensive nodes


class Relaxed(msgspec.Struct, frozen=True):
    """bound: no mix costs less. value [A]: of a pod. scarce [G,R]: value of a node's whole amount of a resource.
    shares [G,A]: whole pods, as many as can be placed at all."""

    bound: float
    value: Floats
    scarce: Floats
    shares: Ints


def relax(problem: Problem) -> Relaxed:
    """Solve the relaxation. Raises Trouble."""
    (offers, asks), width = problem.cap.shape, problem.free.shape[1]
    solver = Solver()
    limits = len(problem.room)
    rows = asks + offers * width
    scale = np.maximum(problem.amounts.max(axis=1, initial=1), 1)
    never = np.full(rows, solver.infinity)
    solver.rows(
        np.concatenate([problem.count, np.zeros(offers * width), np.full(limits, -solver.infinity)]),
        np.concatenate([never, problem.room / scale]),
    )
    pairs = np.argwhere(problem.cap > 0)
    solver.unplaced_columns(asks, np.full(asks, solver.infinity))
    solver.columns(problem.cost, problem.most, _node_columns(problem, rows, scale))
    solver.columns(np.zeros(len(pairs)), np.full(len(pairs), solver.infinity), _pod_columns(problem, pairs))
    bound, values, duals = solver.run()
    return Relaxed(
        bound=bound,
        value=np.maximum(duals[:asks], 0.0),
        scarce=np.maximum(duals[asks:rows].reshape(offers, width), 0.0),
        shares=_whole_shares(problem, pairs, values[asks + offers :]),
    )


def _node_columns(problem: Problem, rows: int, scale: Ints) -> Iterator[Entries]:
    """Return one column per offer: a node gives its resources, and counts in the limits."""
    (offers, asks), width = problem.cap.shape, problem.free.shape[1]
    for offer in range(offers):
        resources, limits = np.flatnonzero(problem.free[offer] > 0), np.flatnonzero(problem.amounts[:, offer])
        yield (
            [*(asks + offer * width + resources).tolist(), *(rows + limits).tolist()],
            [*[1.0] * len(resources), *(problem.amounts[limits, offer] / scale[limits]).tolist()],
        )


def _pod_columns(problem: Problem, pairs: Ints) -> Iterator[Entries]:
    """Return one column per offer and ask: a pod takes its share of each resource of the offer's nodes."""
    asks, width = problem.cap.shape[1], problem.free.shape[1]
    share = -problem.need[pairs[:, 1]] / np.maximum(problem.free[pairs[:, 0]], 1)
    for (offer, ask), parts in zip(pairs.tolist(), share, strict=True):
        requested = np.flatnonzero(parts)
        yield [ask, *(asks + offer * width + requested).tolist()], [1.0, *parts[requested].tolist()]


def _whole_shares(problem: Problem, pairs: Ints, values: Floats) -> Ints:
    """Return the shares as whole numbers: rounded down, with the remainder added where rounding cut off most."""
    shares: Floats = np.zeros(problem.cap.shape)
    shares[pairs[:, 0], pairs[:, 1]] = np.maximum(values, 0.0)
    whole: Ints = np.floor(shares + 1e-6).astype(np.int64)
    for ask in range(len(problem.count)):
        rest = min(int(problem.count[ask]), round(float(shares[:, ask].sum()))) - int(whole[:, ask].sum())
        for offer in np.argsort(whole[:, ask] - shares[:, ask], kind="stable")[: max(0, rest)]:
            whole[offer, ask] += 1
    return whole


_OPTIONS: tuple[tuple[str, bool | int | str], ...] = (
    ("output_flag", False),
    ("threads", 1),
    ("parallel", "off"),
    ("random_seed", 0),
)

_DUAL, _PRIMAL = 1, 4  # HiGHS's simplex_strategy

Entries = tuple[list[int], list[float]]  # of a column: rows, values


class Solver:
    """One linear program, minimised by HiGHS; rows are added first, then columns in pieces.

    HiGHS is imported on first use, and runs silent, single-threaded, seeded, and without time limits: its limits are
    counts, so that the same input gives the same plan on any machine.
    """

    def __init__(self, **options: bool | float | str) -> None:
        try:
            self._highs = importlib.import_module("highspy")
        except ImportError as error:
            raise Trouble(f"no solver: {error}") from error
        self.model: Any = self._highs._Highs()
        for name, value in (*_OPTIONS, *options.items()):
            self.model.setOptionValue(name, value)
        self.infinity: float = self._highs.kHighsInf

    def rows(self, lower: Any, upper: Any) -> None:
        """Add empty rows with these bounds."""
        count, none = len(lower), np.zeros(0, dtype=np.int32)
        self.model.addRows(
            count,
            np.asarray(lower, dtype=np.float64),
            np.asarray(upper, dtype=np.float64),
            0,
            np.zeros(count, dtype=np.int32),
            none,
            np.zeros(0),
        )

    def columns(self, cost: Any, upper: Any, columns: Iterable[Entries]) -> None:
        """Add columns between 0 and `upper`."""
        entries = list(columns)
        count = len(entries)
        rows = [row for column, _ in entries for row in column]
        self.model.addCols(
            count,
            np.asarray(cost, dtype=np.float64),
            np.zeros(count),
            np.asarray(upper, dtype=np.float64),
            len(rows),
            np.cumsum([0, *(len(column) for column, _ in entries)], dtype=np.int32)[:count],
            np.array(rows, dtype=np.int32),
            np.array([value for _, values in entries for value in values], dtype=np.float64),
        )

    def unplaced_columns(self, asks: int, upper: Any) -> None:
        """Add a column per ask: its unplaced pods, at the cost LEFT; their rows are the first ones."""
        self.columns(np.full(asks, LEFT), upper, [([ask], [1.0]) for ask in range(asks)])

    def bounds(self, lower: Any, upper: Any) -> None:
        """Set new bounds for every row."""
        count = len(lower)
        self.model.changeRowsBounds(
            count,
            np.arange(count, dtype=np.int32),
            np.asarray(lower, dtype=np.float64),
            np.asarray(upper, dtype=np.float64),
        )

    def dual(self, *, preferred: bool) -> None:
        """Select dual simplex (after bounds have changed) or primal simplex (after columns were added)."""
        self.model.setOptionValue("simplex_strategy", _DUAL if preferred else _PRIMAL)

    def whole(self, columns: Any) -> None:
        """Restrict these columns to integers."""
        kind = np.full(len(columns), int(self._highs.HighsVarType.kInteger), dtype=np.uint8)
        self.model.changeColsIntegrality(len(columns), np.asarray(columns, dtype=np.int32), kind)

    def run(self) -> tuple[float, Any, Any]:
        """Return objective, value of each column, dual value of each row. Raises Trouble if there is no solution."""
        self.model.run()
        solution = self.model.getSolution()
        if not solution.value_valid:
            raise Trouble(f"the solver found nothing: {self.model.getModelStatus()}")
        return (
            float(self.model.getInfo().objective_function_value),
            np.array(solution.col_value),
            np.array(solution.row_dual),
        )
