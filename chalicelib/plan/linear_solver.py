"""Linear and integer programmes, solved by HiGHS: its only caller, so that every
search has the same options.

HiGHS is loaded when it is first needed. Most policies never need it, and a cold
start should not wait for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from chalicelib.model.errors import OutscalerError

LEFT = 1000.0  # cost of an unplaced pod: as much as a thousand of the most expensive nodes


class Trouble(OutscalerError):
    """The solver is missing, gave up, or found nothing. The caller goes on without it."""


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

    HiGHS is imported on first use, and runs silent, single-threaded, seeded, and without
    time limits: its limits are counts, so that the same input gives the same plan on any machine.
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
        """Add a column per ask: its unplaced pods, at the cost LEFT; their
        rows are the first ones."""
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
        """Select dual simplex (after bounds have changed) or primal simplex
        (after columns were added)."""
        self.model.setOptionValue("simplex_strategy", _DUAL if preferred else _PRIMAL)

    def whole(self, columns: Any) -> None:
        """Restrict these columns to integers."""
        kind = np.full(len(columns), int(self._highs.HighsVarType.kInteger), dtype=np.uint8)
        self.model.changeColsIntegrality(len(columns), np.asarray(columns, dtype=np.int32), kind)

    def run(self) -> tuple[float, Any, Any]:
        """Return objective, value of each column, dual value of each row. Raises Trouble
        if there is no solution."""
        self.model.run()
        solution = self.model.getSolution()
        if not solution.value_valid:
            raise Trouble(f"the solver found nothing: {self.model.getModelStatus()}")
        return (
            float(self.model.getInfo().objective_function_value),
            np.array(solution.col_value),
            np.array(solution.row_dual),
        )
