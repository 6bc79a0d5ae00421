"""Collects what an import makes of its input: rows of the report, mistakes, and the parts of the document.

All translations write into one draft, so that every word has a row and all mistakes are reported at once.
"""

from __future__ import annotations

from typing import Any

from chalicelib.command.importers.report import Row, Verdict
from chalicelib.model.errors import BadInput, InputErrors

MOST_PROBLEMS = 100
_LONGEST = 300


class Draft:
    """The document in progress. options, provider: keys of the document -> value as written there."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.options: dict[str, Any] = {}
        self.provider: dict[str, Any] = {}
        self.node_groups: list[dict[str, Any]] = []
        self.scan_interval = ""
        self._problems: list[BadInput] = []

    def row(self, place: str, word: str, verdict: Verdict, path: str = "", text: str = "") -> None:
        """Add a row of the report."""
        source, line = split_place(place)
        self.rows.append(Row(line, source, shortened(word), verdict, path, text))

    def problem(self, place: str, problem: str, remedy: str = "") -> None:
        """Add a mistake, for which the import is refused."""
        if len(self._problems) < MOST_PROBLEMS:
            self._problems.append(BadInput(place, problem, remedy))

    def add(self, bad_input: BadInput) -> None:
        """Add the mistakes of an error."""
        for each in bad_input.problems if isinstance(bad_input, InputErrors) else (bad_input,):
            self.problem(each.place, each.problem, each.remedy)

    def check(self) -> None:
        """Raise InputErrors if there is any mistake."""
        if self._problems:
            raise InputErrors(tuple(self._problems))


def split_place(place: str) -> tuple[str, int]:
    """Return (source, line) of `deploy.yaml:31`; line 0 where there is none."""
    source, colon, line = place.rpartition(":")
    return (source, int(line)) if colon and line.isascii() and line.isdigit() and len(line) < 10 else (place, 0)


def shortened(text: str) -> str:
    """Return text of the input at a length that fits a report."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
