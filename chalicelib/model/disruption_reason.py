"""Why nodes go: each reason is one row with everything that is said about it.

Its word is stored with plans, replacements and operations, and a policy's disruptionBudgets name
it: it is never changed.

Not here: reasons for what is not done (model/reason.py).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class DisruptionRow(msgspec.Struct, frozen=True):
    """A word, and the texts about nodes that go for this reason."""

    word: str
    because: str = ""  # the end of a sentence
    due: str = ""  # what such a node is
    renewal: str = ""  # what new nodes come for


class DisruptionReason(StrEnum):
    """Every reason why nodes go, equal to its word. A policy's disruptionBudgets name these words,
    but for the last, which nothing limits."""

    row: DisruptionRow

    def __new__(cls, row: Any) -> DisruptionReason:
        """Create the member of a row: a string that is its word."""
        member = str.__new__(cls, row.word)
        member._value_ = row.word
        member.row = row
        return member

    UNNEEDED = DisruptionRow("unneeded")
    CONSOLIDATION = DisruptionRow("consolidation", because="for consolidation")
    EXPIRED = DisruptionRow("expired", because="because of age", due="too old", renewal="age")
    DRIFTED = DisruptionRow(
        "drifted", because="because of drift", due="not as its group is defined", renewal="drift"
    )
    REPAIR = DisruptionRow("repair", because="because of a fault", due="sick", renewal="repair")
    INTERRUPTED = DisruptionRow("interrupted", because="because of an interruption")
