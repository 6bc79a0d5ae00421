"""Wrapper of HiGHS: imported on first use, silent, single-threaded, seeded, and without time limits.

HiGHS measures no time here: its limits are counts, so that the same input gives the same plan on any machine.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from chalicelib.plan.scale_up.expanders.least_cost.solver_types import Trouble

_OPTIONS: tuple[tuple[str, bool | int | str], ...] = (
    ("output_flag", False),
    ("threads", 1),
    ("parallel", "off"),
    ("random_seed", 0),
)

_DUAL, _PRIMAL = 1, 4  # HiGHS's simplex_strategy

Entries = tuple[list[int], list[int], list[float]]  # where each column starts, rows, values


class Solver:
    """One linear program, minimised; rows are added first, then columns in pieces."""

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

    def columns(self, cost: Any, upper: Any, entries: Entries) -> None:
        """Add columns between 0 and `upper`."""
        starts, rows, values = entries
        count = len(starts)
        self.model.addCols(
            count,
            np.asarray(cost, dtype=np.float64),
            np.zeros(count),
            np.asarray(upper, dtype=np.float64),
            len(rows),
            np.array(starts, dtype=np.int32),
            np.array(rows, dtype=np.int32),
            np.array(values, dtype=np.float64),
        )

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
