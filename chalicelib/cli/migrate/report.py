"""The report of an import: one row per word of the input, so that nothing is lost without a notice.

All translations write into one draft, so that every word has a row and all
mistakes are reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from chalicelib.cli.arguments import store_command
from chalicelib.model.errors import BadInput, InputErrors

MOST_PROBLEMS = 100
_LONGEST = 300
_OBJECT = re.compile(r"(?:([a-z0-9-]{1,63})/)?([a-z0-9][a-z0-9.-]{0,252})\Z")


class Verdict(StrEnum):
    """What became of a word. UNKNOWN refuses the import. MISSING: the policy needs
    it, and the input lacks it."""

    READ = "read"
    KEPT = "kept"
    TRANSLATED = "translated"
    WRITTEN_OUT = "written out"
    TO_STORE = "secret"
    READ_LIVE = "read live"
    NO_EFFECT = "no effect"
    NOT_HERE = "not here"
    MISSING = "missing"
    TOLD = "told"
    UNKNOWN = "unknown"


class Row(msgspec.Struct, frozen=True, rename="camel"):
    """One row.

    line: 0 where the source has none. source: the file. word: as written. path:
    of the policy, or empty.
    """

    line: int
    source: str
    word: str
    verdict: Verdict
    path: str = ""
    text: str = ""


def incomplete(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the rows of words that the policy does not follow, or lacks."""
    return tuple(
        row for row in rows if row.verdict in (Verdict.MISSING, Verdict.NOT_HERE, Verdict.UNKNOWN)
    )


class Draft:
    """The document in progress, its report and its mistakes. options, provider: keys
    of the document -> value."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.options: dict[str, Any] = {}
        self.provider: dict[str, Any] = {}
        self.node_groups: list[dict[str, Any]] = []
        self.scan_interval = ""
        self._problems: list[BadInput] = []

    def row(self, place: str, word: str, verdict: Verdict, path: str = "", text: str = "") -> None:
        """Add a row of the report. place: `deploy.yaml:31`, or a file without a line."""
        source, colon, digits = place.rpartition(":")
        numbered = colon and digits.isascii() and digits.isdigit() and len(digits) < 10
        source, line = (source, int(digits)) if numbered else (place, 0)
        self.rows.append(Row(line, source, shortened(word), verdict, path, text))

    def problem(self, place: str, problem: str, remedy: str = "") -> None:
        """Add a mistake, for which the import is refused."""
        if len(self._problems) < MOST_PROBLEMS:
            self._problems.append(BadInput(place, problem, remedy))

    def add(self, bad_input: BadInput) -> None:
        """Add the mistakes of an error."""
        for error in bad_input.problems if isinstance(bad_input, InputErrors) else (bad_input,):
            self.problem(error.place, error.problem, error.remedy)

    def check(self) -> None:
        """Raise InputErrors if there is any mistake."""
        if self._problems:
            raise InputErrors(tuple(self._problems))


def shortened(text: str) -> str:
    """Return text of the input at a length that fits a report."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def copy_command(kubernetes_object: str, name: str) -> str:
    """Return the command that copies `namespace/name` of a Secret to AWS without a file or a value
    on the command line; without an object, the command for a file. name: as in the policy."""
    match = _OBJECT.match(kubernetes_object)
    if match is None:
        return store_command(name)
    return (
        f"kubectl -n {match[1] or 'kube-system'} get secret {match[2]} -o json | "
        f"jq '.data|map_values(@base64d)' | {store_command(name, 'file:///dev/stdin')}"
    )
