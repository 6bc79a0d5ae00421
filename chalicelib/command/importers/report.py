"""The report of an import: one row per word of the input, so that nothing is lost without a notice."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """What became of a word. UNKNOWN refuses the import. MISSING: the policy needs it, and the input lacks it."""

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

    line: 0 where the source has none. source: the file. word: as written. path: of the policy, or empty.
    """

    line: int
    source: str
    word: str
    verdict: Verdict
    path: str = ""
    text: str = ""


_INCOMPLETE = (Verdict.MISSING, Verdict.NOT_HERE, Verdict.UNKNOWN)


def incomplete(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the rows of words that the policy does not follow, or lacks."""
    return tuple(row for row in rows if row.verdict in _INCOMPLETE)
