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
from chalicelib.plan.tables import Floats

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
        count = len(lower)
        starts = np.zeros(count, dtype=np.int32)
        no_columns, no_values = np.zeros(0, dtype=np.int32), np.zeros(0)
        self.model.addRows(count, _floats(lower), _floats(upper), 0, starts, no_columns, no_values)

    def columns(self, cost: Any, upper: Any, columns: Iterable[Entries]) -> None:
        """Add columns between 0 and `upper`."""
        starts: list[int] = []
        rows: list[int] = []
        values: list[float] = []
        for column_rows, column_values in columns:
            starts.append(len(rows))
            rows += column_rows
            values += column_values
        count = len(starts)
        self.model.addCols(
            count,
            _floats(cost),
            np.zeros(count),
            _floats(upper),
            len(rows),
            np.array(starts, dtype=np.int32),
            np.array(rows, dtype=np.int32),
            _floats(values),
        )

    def unplaced_columns(self, asks: int, upper: Any, cost: float = LEFT) -> None:
        """Add a column per ask: its unplaced pods, at this cost each; their
        rows are the first ones."""
        columns = [([ask], [1.0]) for ask in range(asks)]
        self.columns(np.full(asks, cost), upper, columns)

    def bounds(self, lower: Any, upper: Any) -> None:
        """Set new bounds for every row."""
        count = len(lower)
        every_row = np.arange(count, dtype=np.int32)
        self.model.changeRowsBounds(count, every_row, _floats(lower), _floats(upper))

    def dual(self, *, preferred: bool) -> None:
        """Select dual simplex (after bounds have changed) or primal simplex
        (after columns were added)."""
        strategy = _DUAL if preferred else _PRIMAL
        self.model.setOptionValue("simplex_strategy", strategy)

    def whole(self, columns: Any) -> None:
        """Restrict these columns to integers."""
        count = len(columns)
        indices = np.asarray(columns, dtype=np.int32)
        integer = int(self._highs.HighsVarType.kInteger)
        kinds = np.full(count, integer, dtype=np.uint8)
        self.model.changeColsIntegrality(count, indices, kinds)

    def run(self) -> tuple[float, Any, Any]:
        """Return objective, value of each column, dual value of each row. Raises Trouble
        if there is no solution."""
        self.model.run()
        solution = self.model.getSolution()
        if not solution.value_valid:
            raise Trouble(f"the solver found nothing: {self.model.getModelStatus()}")
        objective = float(self.model.getInfo().objective_function_value)
        return objective, np.array(solution.col_value), np.array(solution.row_dual)


def _floats(numbers: Any) -> Floats:
    return np.asarray(numbers, dtype=np.float64)
