"""Rows of memory: converts changes to writes, and rows back to a Memory.

Reading tolerates rows that another release wrote: unknown fields are ignored, and the row's version is then set to the
fingerprint of what remains (`adopt`). Without that, a save would never match it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pynamodb.expressions.condition import Condition
from pynamodb.expressions.update import Action

from chalicelib.model.memory import BreakerState, GroupMemory, LearntTemplate, Memory, NodeMemory, RuleMemory
from chalicelib.model.scaling_rules import RuleObject
from chalicelib.store.codec import canonical, decode, fingerprint, unpack
from chalicelib.store.errors import StoreError
from chalicelib.store.memory_diff import ABSENT, ANY, Change, ChangedTimes
from chalicelib.store.operation_rows import to_operations
from chalicelib.store.table_client import Raw, Table, TransactionCancelled, Write, row_of
from chalicelib.store.tables import (
    BRAKE,
    GROUPS,
    HEAD,
    NODES,
    OPEN,
    RELEASE,
    RULE_OBJECTS,
    RULES,
    TEMPLATES,
    UNREGISTERED,
    BlobRow,
    HeadRow,
    MemoryRow,
    ReleaseRow,
)

_KINDS: tuple[tuple[str, str, Any], ...] = (  # prefix, field of Memory, type of the value
    (GROUPS, "groups", GroupMemory),
    (TEMPLATES, "templates", LearntTemplate),
)
_BLOBS: tuple[tuple[str, str, Any], ...] = (
    (NODES, "nodes", dict[str, NodeMemory]),
    (UNREGISTERED, "unregistered", dict[str, float]),
    (RULES, "rules", dict[str, RuleMemory]),
    (RULE_OBJECTS, "rule_objects", dict[str, RuleObject]),
)


_MOST_PIECES = 1000
"""Pieces of one value; their numbers in the keys have three digits."""


class Adoption(NamedTuple):
    """Rows whose stored version is not the fingerprint of what this release reads in them."""

    items: tuple[str, ...]
    stored: str
    read: str


class IncompleteRows(StoreError):
    """Pieces of two different values were read because of a concurrent write. Read again. Never leaves the store."""

    published_name = "Torn"


def is_version(version: str) -> Condition | None:
    """Return the condition that the row is unchanged since it was read. No version: there is no row, or a head without
    instants."""
    if version == ANY:
        return None
    nothing_is_stored = MemoryRow.version.does_not_exist()
    it_is_what_was_seen = MemoryRow.version == version
    return nothing_is_stored if version == ABSENT else it_is_what_was_seen


def change_write(table: Table, cluster: str, change: Change) -> Write:
    """Return one change as a conditional write."""
    if change.item == HEAD:
        return table.update(cluster, HEAD, head_actions(change), is_version(change.expected))
    if change.version == ABSENT:
        return table.delete(cluster, change.item, is_version(change.expected))
    return table.put(change_row(cluster, change), is_version(change.expected))


def change_row(cluster: str, change: Change) -> MemoryRow | BlobRow:
    """Return the row after a change, which is neither the head nor a deletion."""
    if change.blob:
        return BlobRow(cluster, change.item, blob=change.blob, version=change.version, parts=change.parts)
    return MemoryRow(cluster, change.item, text=change.text, version=change.version)


def head_actions(change: Change) -> list[Action]:
    """Return actions for the head, which is updated and never replaced, because it holds the gate."""
    if change.version == ABSENT:
        return [HeadRow.text.remove(), HeadRow.version.remove()]
    return [HeadRow.text.set(change.text), HeadRow.version.set(change.version)]


def to_memory(rows: Iterable[Raw]) -> tuple[Memory, tuple[Adoption, ...]]:
    """Return a Memory from its rows, and the rows to adopt. Raises IncompleteRows."""
    by_item = {raw["item"]["S"]: raw for raw in rows}
    adoptions: list[Adoption] = []
    values: dict[str, Any] = {}
    for prefix, field, kind in _KINDS:
        values[field] = {
            item.removeprefix(prefix): _value(raw, kind, adoptions)
            for item, raw in by_item.items()
            if item.startswith(prefix)
        }
    for prefix, field, kind in _BLOBS:
        values[field] = _joined(prefix, by_item, kind, adoptions)
    values["operations"] = to_operations(raw for item, raw in by_item.items() if item.startswith(OPEN))
    if BRAKE in by_item:
        values["breaker"] = _value(by_item[BRAKE], BreakerState, adoptions)
    if RELEASE in by_item:
        values["released_until"] = row_of(ReleaseRow, by_item[RELEASE]).until or 0.0
    times = _value(by_item[HEAD], ChangedTimes, adoptions) if "text" in by_item.get(HEAD, {}) else ChangedTimes()
    values.update({name: getattr(times, name) for name in ChangedTimes.__struct_fields__})
    return Memory(**values), tuple(adoptions)


def _value(raw: Raw, kind: Any, adoptions: list[Adoption]) -> Any:
    row = row_of(MemoryRow, raw)
    value = decode(row.text or "", kind)
    _note(adoptions, (row.item,), row.version or "", value, kind)
    return value


def _joined(prefix: str, by_item: dict[str, Raw], kind: Any, adoptions: list[Adoption]) -> Any:
    first = by_item.get(f"{prefix}000")
    if first is None:
        return {}
    row = row_of(BlobRow, first)
    if row.parts > _MOST_PIECES:
        raise ValueError(f"{row.parts} pieces of one value")
    items = tuple(f"{prefix}{at:03d}" for at in range(int(row.parts)))
    if any(item not in by_item for item in items):
        raise IncompleteRows
    pieces = [row_of(BlobRow, by_item[item]) for item in items]
    if any(piece.version != row.version for piece in pieces):
        raise IncompleteRows
    value = decode(unpack(tuple(piece.blob for piece in pieces)), kind)
    _note(adoptions, items, row.version, value, kind)
    return value


def _note(adoptions: list[Adoption], items: tuple[str, ...], stored: str, value: Any, kind: Any) -> None:
    read = fingerprint(canonical(value, kind))
    if read != stored:
        adoptions.append(Adoption(items, stored, read))


def adopt(table: Table, cluster: str, adoption: Adoption) -> None:
    """Give rows that another release wrote the version that this release computes; the content stays unchanged."""
    it_is_still_that_one = MemoryRow.version == adoption.stored
    adopt_it: list[Action] = [MemoryRow.version.set(adoption.read)]
    # Large saves depend on versions, so this is counted like executors' writes (memory_patches.py).
    gate_is_open = HeadRow.pending.does_not_exist()
    count: list[Action] = [HeadRow.patches.add(1)]
    if adoption.items == (HEAD,):
        writes = [table.update(cluster, HEAD, adopt_it + count, it_is_still_that_one & gate_is_open)]
    else:
        writes = [table.update(cluster, item, adopt_it, it_is_still_that_one) for item in adoption.items]
        writes.append(table.update(cluster, HEAD, count, gate_is_open))
    try:
        table.transact(writes)
    except TransactionCancelled:
        return  # rewritten concurrently, so there is nothing to adopt
