"""Computes the difference between two memories as changes of rows, so that unchanged rows are not written.

Each change names the version of the row that the planner read, so a row that another writer changed in the meantime is
not overwritten. Absence is a version, too (""): empty values are not stored.

Timers of nodes are one compressed value for the whole cluster (5,000 nodes are about 13 KB), split into pieces only
beyond 300 KB: a pass that confirms every timer still writes one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from chalicelib.model.memory import BreakerState, GroupMemory, LearntTemplate, Memory, NodeMemory, RuleMemory
from chalicelib.model.scaling_rules import RuleObject
from chalicelib.store.codec import canonical, fingerprint, pack
from chalicelib.store.tables import BRAKE, GROUPS, HEAD, NODES, RULE_OBJECTS, RULES, TEMPLATES, UNREGISTERED

ABSENT = ""
ANY = "*"  # any version; only for further pieces of a value whose first piece is checked


class ChangedTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cluster-wide instants of Memory, which executors write, too."""

    last_scale_up: float = 0.0
    last_scale_down: float = 0.0
    last_scale_down_failure: float = 0.0
    first_seen: float = 0.0

    @classmethod
    def of(cls, memory: Memory) -> ChangedTimes:
        """Return the instants of a whole memory."""
        return cls(*(getattr(memory, name) for name in cls.__struct_fields__))


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row to be written, or deleted if version is ABSENT. expected: the version it replaces."""

    item: str
    expected: str
    version: str
    text: str = ""
    blob: bytes = b""
    parts: int = 0


def version_of(value: Any, kind: Any) -> str:
    """Return the version of the row that holds this value; None: of the missing row."""
    return ABSENT if value is None else fingerprint(canonical(value, kind))


def changes(old_memory: Memory, new_memory: Memory) -> tuple[Change, ...]:
    """Return the changes from one memory to the other. Operations are excluded, because executors write them;
    released_until is excluded, because an operator sets it (breaker_override.py)."""
    return (
        *(
            [times_change(ChangedTimes.of(old_memory), ChangedTimes.of(new_memory))]
            if ChangedTimes.of(old_memory) != ChangedTimes.of(new_memory)
            else []
        ),
        *([brake_change(old_memory.breaker, new_memory.breaker)] if old_memory.breaker != new_memory.breaker else []),
        *_mapping(GROUPS, old_memory.groups, new_memory.groups, GroupMemory),
        *_mapping(TEMPLATES, old_memory.templates, new_memory.templates, LearntTemplate),
        *_pieces(NODES, old_memory.nodes, new_memory.nodes, dict[str, NodeMemory]),
        *_pieces(UNREGISTERED, old_memory.unregistered, new_memory.unregistered, dict[str, float]),
        *_pieces(RULES, old_memory.rules, new_memory.rules, dict[str, RuleMemory]),
        *_pieces(RULE_OBJECTS, old_memory.rule_objects, new_memory.rule_objects, dict[str, RuleObject]),
    )


def row_change(item: str, before: Any, after: Any, kind: Any) -> Change:
    """Return the change of one JSON row; None means no row."""
    data = b"" if after is None else canonical(after, kind)
    return Change(item, version_of(before, kind), fingerprint(data) if data else ABSENT, text=data.decode())


def times_change(old_times: ChangedTimes, new_times: ChangedTimes) -> Change:
    """Return the change of the cluster-wide instants; where none is known, no row is stored."""
    old, new = (None if times == ChangedTimes() else times for times in (old_times, new_times))
    return row_change(HEAD, old, new, ChangedTimes)


def brake_change(old_breaker: BreakerState, new_breaker: BreakerState) -> Change:
    """Return the change of the circuit breaker's state; an empty state is not stored."""
    old, new = (None if brake == BreakerState() else brake for brake in (old_breaker, new_breaker))
    return row_change(BRAKE, old, new, BreakerState)


def _mapping(prefix: str, before: Mapping[str, Any], after: Mapping[str, Any], kind: Any) -> Iterator[Change]:
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old != new:
            yield row_change(prefix + key, old, new, kind)


def _pieces(prefix: str, before: Mapping[str, Any], after: Mapping[str, Any], kind: Any) -> Iterator[Change]:
    if before == after:
        return
    expected = version_of(before, kind) if before else ABSENT
    was = len(pack(canonical(before, kind))) if before else 0
    data = canonical(after, kind) if after else b""
    pieces, version = (pack(data), fingerprint(data)) if data else ((), ABSENT)
    for at in range(max(len(pieces), was)):
        checked = expected if at == 0 else ANY
        if at < len(pieces):
            yield Change(f"{prefix}{at:03d}", checked, version, blob=pieces[at], parts=len(pieces))
        else:
            yield Change(f"{prefix}{at:03d}", checked, ABSENT)
