"""Stores the memory use of passes in the lease's row, which each pass reads and writes anyway.

All of it is optional: rows of earlier releases have none of these attributes, and earlier releases ignore them.
`unended` is counted when a lease is acquired and removed when it is released, each in the write that is made anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from pynamodb.expressions.update import Action

from chalicelib.model.pass_footprint import PassMemory
from chalicelib.store.tables import LeaseRow


def read(row: LeaseRow) -> PassMemory:
    """Return the memory use stored in a row."""
    return PassMemory(int(row.peak or 0), int(row.size or 0), int(row.unended or 0), float(row.large_until or 0.0))


def begins() -> Action:
    """Return the action that counts one more started pass."""
    counted: Action = LeaseRow.unended.add(1)
    return counted


def ends(old_memory: PassMemory, new_memory: PassMemory | None) -> Sequence[Action]:
    """Return the actions for a pass that has ended with this memory use; None: unchanged."""
    actions: list[Action] = [LeaseRow.unended.remove()]
    if new_memory is None:
        return actions
    for attribute, old, new in (
        (LeaseRow.peak, old_memory.peak, new_memory.peak),
        (LeaseRow.size, old_memory.size, new_memory.size),
        (LeaseRow.large_until, old_memory.large_until, new_memory.large_until),
    ):
        if new != old:
            actions.append(attribute.set(new) if new else attribute.remove())
    return actions
