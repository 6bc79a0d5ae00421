"""The current streak of failed passes of a cluster: since when, how many, and the last error.

It is stored in the lease's row, which each pass writes when it ends, so that it costs neither a read nor a write. A
pass that was overtaken has neither failed nor succeeded, and leaves it unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pynamodb.expressions.update import Action

from chalicelib.store.tables import LeaseRow

LONGEST_TEXT = 300
"""Characters of an error's message that are kept."""


class PassFailure(msgspec.Struct, frozen=True):
    """Consecutive failed passes. cls, message: of the last one. since, at: when the first and the last of them began
    (epoch seconds). count: their number."""

    cls: str
    message: str
    since: float
    at: float
    count: int = 1


def after(old_failure: PassFailure | None, cls: str, message: str, at: float) -> PassFailure:
    """Return the streak after one more failed pass. old_failure: the streak so far, None where the last pass
    succeeded."""
    text = " ".join(message.split())[:LONGEST_TEXT]
    if old_failure is None:
        return PassFailure(cls, text, at, at)
    return PassFailure(cls, text, old_failure.since, at, old_failure.count + 1)


def read(row: LeaseRow) -> PassFailure | None:
    """Return a row's streak; None where the last pass succeeded, and for rows of earlier versions."""
    if not row.failing_since:
        return None
    return PassFailure(
        row.error_class or "",
        row.error_text or "",
        float(row.failing_since),
        float(row.error_at or row.failing_since),
        int(row.failures or 1),
    )


def writes(failure: PassFailure) -> Sequence[Action]:
    """Return the actions that set the row's attributes after a failed pass."""
    return (
        LeaseRow.failing_since.set(failure.since),
        LeaseRow.error_at.set(failure.at),
        LeaseRow.error_class.set(failure.cls),
        LeaseRow.error_text.set(failure.message),
        LeaseRow.failures.set(failure.count),
    )


def clears() -> Sequence[Action]:
    """Return the actions that remove these attributes after a successful pass."""
    return tuple(
        attribute.remove()
        for attribute in (
            LeaseRow.failing_since,
            LeaseRow.error_at,
            LeaseRow.error_class,
            LeaseRow.error_text,
            LeaseRow.failures,
        )
    )
