"""Who lowers a group's size lets a growth of that group that has begun be recorded first.

A growth says "from 3 to 4". After a crash its next attempt looks at the size to learn whether the first one got
through. If a removal beside it has lowered the size to 3 by then, the size says that it did not, and the machine would
be bought a second time. So whatever lowers sizes waits for as long as a growth is open that may have called its
provider; that growth ends by itself, at its own deadline at the latest.

    grow     3 ──► 4 ✝ (nothing recorded)                  asks: 4, done ──► recorded
    remove         waits ─────────────────────────────────────────────────────► 4 ──► 3
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from chalicelib.execute.deadline import deadline_of
from chalicelib.handlers.runtime import Runtime
from chalicelib.model.operation import Kind, Operation
from chalicelib.model.outcome import Pending
from chalicelib.model.policy import Options

AFTER = 10.0
_LOWERS: Mapping[Kind, frozenset[str]] = MappingProxyType({
    Kind.REMOVE: frozenset({"delete", "poll"}),
    Kind.DISCARD: frozenset({"", "delete", "poll"}),
    Kind.SHRINK: frozenset({"", "lower", "poll"}),
})
"""The steps of an operation (execute) that may lower a size; "" is the first."""


def waits(operation: Operation, options: Options, rt: Runtime) -> Pending | None:
    """Come back later, where a growth of the group is under way; None where the step may be done, and past its
    deadline, where it is given up. Raises StoreError."""
    if operation.step not in _LOWERS.get(operation.kind, ()) or rt.clock() >= deadline_of(operation, options):
        return None
    for other in rt.store.operations.list_open(operation.cluster):
        if other.kind is Kind.GROW and other.group == operation.group and other.attempt:
            return Pending(AFTER, operation.step, operation.data, f"until {other.id}, which has begun, is recorded")
    return None
