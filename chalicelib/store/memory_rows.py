"""The rows of memory: the difference of two memories as changes of rows, changes as
writes, and rows as a Memory.

Unchanged rows are not written. Each change names the version of the row that the planner read, so a
row that another writer changed in the meantime is not overwritten. Absence is a version, too (""):
empty values are not stored.

Timers of nodes are one compressed value for the whole cluster (5,000 nodes are about 13 KB), split
into pieces only beyond 300 KB. A pass that does nothing but confirm them writes no row: every
successful pass confirms all timers, and the lease's row has the instant of the last one. The value
is written again after CONFIRMED_FOR seconds, so that readers without the lease and earlier releases
see timers that are hardly older.

Reading tolerates rows that another release wrote: unknown fields are ignored, and the
row's version is then set to the fingerprint of what remains (`adopt`). Without that, a
save would never match it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.update import Action

from chalicelib.model.memory import (
    BreakerState,
    ConsolidationMemory,
    GroupMemory,
    LearntTemplate,
    Memory,
    NodeMemory,
    Replacement,
    RuleMemory,
)
from chalicelib.model.operation import Operation, OperationSpec, OperationStatus
from chalicelib.model.scaling_rules import RuleObject
from chalicelib.store.codec import canonical, decode, encode, fingerprint, pack, unpack
from chalicelib.store.errors import StoreError
from chalicelib.store.table_client import Raw, Table, TransactionCancelled, Write, readable, row_of
from chalicelib.store.tables import (
    BREAKER,
    BREAKER_OVERRIDE,
    CONSOLIDATION,
    DRAINS,
    ENDED,
    GROUPS,
    HEAD,
    NODES,
    OPEN,
    PRUNES,
    REPLACEMENTS,
    RULE_OBJECTS,
    RULES,
    TEMPLATES,
    UNREGISTERED,
    BlobRow,
    BreakerOverrideRow,
    HeadRow,
    MemoryRow,
    OperationRow,
    PoolRequestRow,
)

ABSENT = ""
ANY = "*"  # any version; only for further pieces of a value whose first piece is checked
KEPT, PRICED_KEPT = 14 * 86400.0, 35 * 86400.0
"""Seconds that an ended operation is kept; one with a price for longer, so that a month
of savings can be summed."""
CONFIRMED_FOR = 600.0
"""Seconds for which the stored timers may lack their confirmations. Less than the time without
passes after which a timer pauses, 900 seconds."""

# Prefix of the rows, field of Memory, type of the value. One row for each key:
_BY_KEY: tuple[tuple[str, str, Any], ...] = (
    (GROUPS, "groups", GroupMemory),
    (TEMPLATES, "templates", LearntTemplate),
    (REPLACEMENTS, "replacements", Replacement),
)
# One compressed value, in pieces; none is stored where it is the field's default:
_COMPRESSED: tuple[tuple[str, str, Any], ...] = (
    (NODES, "nodes", dict[str, NodeMemory]),
    (UNREGISTERED, "unregistered", dict[str, float]),
    (RULES, "rules", dict[str, RuleMemory]),
    (RULE_OBJECTS, "rule_objects", dict[str, RuleObject]),
    (CONSOLIDATION, "consolidation", ConsolidationMemory),
)
_NO_MEMORY = Memory()
_MOST_PIECES = 1000
"""Pieces of one value; their numbers in the keys have three digits."""


class ChangedTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cluster-wide instants of Memory, which executors write, too."""

    last_scale_up: float = 0.0
    last_scale_down: float = 0.0
    last_scale_down_failure: float = 0.0
    first_seen: float = 0.0
    acting_since: float = 0.0
    watching_since: float = 0.0

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


# --- the difference


def version_of(value: Any, kind: Any) -> str:
    """Return the version of the row that holds this value; None: of the missing row."""
    return ABSENT if value is None else fingerprint(canonical(value, kind))


def changes(old_memory: Memory, new_memory: Memory) -> tuple[Change, ...]:
    """Return the changes from one memory to the other. Operations are excluded, because executors
    write them; released_until, prunes and drains are excluded, because an operator sets
    them (memory.py)."""
    all_changes: list[Change] = []
    old_times = ChangedTimes.of(old_memory)
    new_times = ChangedTimes.of(new_memory)
    if old_times != new_times:
        all_changes.append(times_change(old_times, new_times))
    if old_memory.breaker != new_memory.breaker:
        old_breaker = _unless(BreakerState(), old_memory.breaker)
        new_breaker = _unless(BreakerState(), new_memory.breaker)
        all_changes.append(row_change(BREAKER, old_breaker, new_breaker, BreakerState))
    for prefix, field, kind in _BY_KEY:
        before = getattr(old_memory, field)
        after = getattr(new_memory, field)
        keys = before.keys() | after.keys()
        changed = sorted(key for key in keys if before.get(key) != after.get(key))
        all_changes.extend(
            row_change(prefix + key, before.get(key), after.get(key), kind) for key in changed
        )
    for prefix, field, kind in _COMPRESSED:
        default = getattr(_NO_MEMORY, field)
        before = _unless(default, getattr(old_memory, field))
        after = _unless(default, getattr(new_memory, field))
        all_changes.extend(_piece_changes(prefix, before, after, kind))
    return tuple(all_changes)


def _unless(default: Any, value: Any) -> Any:
    """Return a value; None, for which no row is stored, where it is the default."""
    return None if value == default else value


def row_change(item: str, before: Any, after: Any, kind: Any) -> Change:
    """Return the change of one JSON row; None means no row."""
    data = b"" if after is None else canonical(after, kind)
    version = fingerprint(data) if data else ABSENT
    return Change(item, version_of(before, kind), version, text=data.decode())


def times_change(old_times: ChangedTimes, new_times: ChangedTimes) -> Change:
    """Return the change of the cluster-wide instants; where none is known, no row is stored."""
    old = _unless(ChangedTimes(), old_times)
    new = _unless(ChangedTimes(), new_times)
    return row_change(HEAD, old, new, ChangedTimes)


def _piece_changes(prefix: str, before: Any, after: Any, kind: Any) -> Iterator[Change]:
    """Yield the changes of a compressed value; None means that none is stored."""
    if before == after:
        return
    expected = version_of(before, kind)
    old_count = 0 if before is None else len(pack(canonical(before, kind)))
    data = b"" if after is None else canonical(after, kind)
    pieces = pack(data) if data else ()
    version = fingerprint(data) if data else ABSENT
    for at in range(max(len(pieces), old_count)):
        item = f"{prefix}{at:03d}"
        checked = expected if at == 0 else ANY
        if at < len(pieces):
            yield Change(item, checked, version, blob=pieces[at], parts=len(pieces))
        else:
            yield Change(item, checked, ABSENT)


def confirm(memory: Memory, last_success: float) -> Memory:
    """Return the memory with the confirmations of timers that passes have not written.
    last_success: of the lease."""
    nodes = dict(memory.nodes)
    for name, node in memory.nodes.items():
        if node.unneeded_since and 0 < last_success - node.confirmed_at < CONFIRMED_FOR:
            nodes[name] = msgspec.structs.replace(node, confirmed_at=last_success)
    return msgspec.structs.replace(memory, nodes=nodes)


def is_confirmation(
    old_nodes: Mapping[str, NodeMemory], new_nodes: Mapping[str, NodeMemory]
) -> bool:
    """Return whether the new timers follow from the old ones and the instant of the pass, so that
    they need not be written."""
    if old_nodes.keys() != new_nodes.keys():
        return False
    return all(_is_confirmed(old_nodes[name], new) for name, new in new_nodes.items())


def _is_confirmed(old_memory: NodeMemory, new_memory: NodeMemory) -> bool:
    confirmed = msgspec.structs.replace(old_memory, confirmed_at=new_memory.confirmed_at)
    seconds = new_memory.confirmed_at - old_memory.confirmed_at
    return new_memory == confirmed and 0 <= seconds < CONFIRMED_FOR


# --- writes


def is_version(version: str) -> Condition | None:
    """Return the condition that the row is unchanged since it was read. No version: there is no
    row, or a head without instants."""
    if version == ANY:
        return None
    nothing_is_stored = MemoryRow.version.does_not_exist()
    it_is_what_was_read = MemoryRow.version == version
    return nothing_is_stored if version == ABSENT else it_is_what_was_read


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
        return BlobRow(
            cluster, change.item, blob=change.blob, version=change.version, parts=change.parts
        )
    return MemoryRow(cluster, change.item, text=change.text, version=change.version)


def head_actions(change: Change) -> list[Action]:
    """Return actions for the head, which is updated and never replaced,
    because it holds the gate."""
    if change.version == ABSENT:
        return [HeadRow.text.remove(), HeadRow.version.remove()]
    return [HeadRow.text.set(change.text), HeadRow.version.set(change.version)]


# --- reading


class Adoption(NamedTuple):
    """Rows whose stored version is not the fingerprint of what this release reads in them."""

    items: tuple[str, ...]
    stored: str
    read: str


class IncompleteRows(StoreError):
    """Pieces of two different values were read because of a concurrent write. Read
    again. Never leaves the store."""

    published_name = "Torn"


def to_memory(rows: Iterable[Raw]) -> tuple[Memory, tuple[Adoption, ...]]:
    """Return a Memory from its rows, and the rows to adopt. Raises IncompleteRows."""
    by_item = {raw["item"]["S"]: raw for raw in rows}
    adoptions: list[Adoption] = []

    def adopted(items: tuple[str, ...], stored: str, data: bytes | str, kind: Any) -> Any:
        value = decode(data, kind)
        read = fingerprint(canonical(value, kind))
        if read != stored:
            adoptions.append(Adoption(items, stored, read))
        return value

    def one_row(item: str, kind: Any) -> Any:
        row = row_of(MemoryRow, by_item[item])
        return adopted((row.item,), row.version or "", row.text or "", kind)

    values: dict[str, Any] = {}
    for prefix, field, kind in _BY_KEY:
        values[field] = {
            item.removeprefix(prefix): one_row(item, kind)
            for item in by_item
            if item.startswith(prefix)
        }
    for prefix, field, kind in _COMPRESSED:
        pieces = _pieces(prefix, by_item)
        if pieces:
            blobs = tuple(piece.blob for piece in pieces)
            items = tuple(piece.item for piece in pieces)
            values[field] = adopted(items, pieces[0].version, unpack(blobs), kind)
    open_rows = [raw for item, raw in by_item.items() if item.startswith(OPEN)]
    values["operations"] = to_operations(open_rows)
    if BREAKER in by_item:
        values["breaker"] = one_row(BREAKER, BreakerState)
    if BREAKER_OVERRIDE in by_item:
        override = row_of(BreakerOverrideRow, by_item[BREAKER_OVERRIDE])
        values["released_until"] = override.until or 0.0
    for item, field in ((PRUNES, "prunes"), (DRAINS, "drains")):
        if item in by_item:
            text = row_of(PoolRequestRow, by_item[item]).text
            values[field] = msgspec.json.decode(text, type=dict[str, float])
    times = one_row(HEAD, ChangedTimes) if "text" in by_item.get(HEAD, {}) else ChangedTimes()
    return Memory(**values, **msgspec.structs.asdict(times)), tuple(adoptions)


def _pieces(prefix: str, by_item: Mapping[str, Raw]) -> list[BlobRow]:
    """Return the pieces of one value, [] where it is not stored. Raises IncompleteRows."""
    first = by_item.get(f"{prefix}000")
    if first is None:
        return []
    row = row_of(BlobRow, first)
    if row.parts > _MOST_PIECES:
        raise ValueError(f"{row.parts} pieces of one value")
    items = [f"{prefix}{at:03d}" for at in range(int(row.parts))]
    if any(item not in by_item for item in items):
        raise IncompleteRows
    pieces = [row_of(BlobRow, by_item[item]) for item in items]
    if any(piece.version != row.version for piece in pieces):
        raise IncompleteRows
    return pieces


def adopt(table: Table, cluster: str, adoption: Adoption) -> None:
    """Give rows that another release wrote the version that this release computes; the
    content stays unchanged."""
    it_is_still_that_one = MemoryRow.version == adoption.stored
    adopt_it: list[Action] = [MemoryRow.version.set(adoption.read)]
    # Large saves depend on versions, so this is counted like executors' writes (memory.py).
    gate_is_open = HeadRow.pending.does_not_exist()
    count: list[Action] = [HeadRow.patches.add(1)]
    if adoption.items == (HEAD,):
        condition = it_is_still_that_one & gate_is_open
        writes = [table.update(cluster, HEAD, adopt_it + count, condition)]
    else:
        writes = [
            table.update(cluster, item, adopt_it, it_is_still_that_one) for item in adoption.items
        ]
        writes.append(table.update(cluster, HEAD, count, gate_is_open))
    try:
        table.transact(writes)
    except TransactionCancelled:
        return  # rewritten concurrently, so there is nothing to adopt


# --- operations: the immutable definition is one text, the progress is in attributes


def to_row(operation: Operation) -> OperationRow:
    """Return the row; under the open key while it is open, under the other key once it has
    ended."""
    spec = operation.spec
    status = operation.status
    prefix = OPEN if operation.is_open else ENDED
    text = encode(spec).decode()
    row = OperationRow(spec.cluster, prefix + spec.id, text=text, **_attributes(status))
    if not operation.is_open:
        row.expires_at = int(status.updated_at + (PRICED_KEPT if spec.price else KEPT))
    return row


def to_operation(raw: Raw | OperationRow) -> Operation:
    """Return the operation in a row. Raises RowUnreadable."""
    row = row_of(OperationRow, raw) if isinstance(raw, dict) else raw
    with readable(row.cluster, row.item):
        progress = {name: getattr(row, name) for name in OperationStatus.__struct_fields__}
        progress["data"] = decode(row.data, dict[str, str])
        progress["attempt"] = int(row.attempt)
        spec = decode(row.text, OperationSpec)
        return Operation(spec, msgspec.convert(progress, OperationStatus))


def to_operations(rows: Iterable[Raw]) -> tuple[Operation, ...]:
    """Return several operations, the oldest first."""
    operations = map(to_operation, rows)
    return tuple(sorted(operations, key=lambda item: (item.spec.created_at, item.spec.id)))


def status_actions(status: OperationStatus, *, leave: tuple[str, ...] = ()) -> list[Action]:
    """Return its progress as an update; leave: attributes that stay unchanged."""
    return [
        getattr(OperationRow, name).set(value)
        for name, value in _attributes(status).items()
        if name not in leave
    ]


def _attributes(status: OperationStatus) -> dict[str, Any]:
    return msgspec.structs.asdict(status) | {
        "state": status.state.value,
        "data": encode(status.data).decode(),
    }
