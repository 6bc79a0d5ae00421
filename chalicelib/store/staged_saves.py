"""Saves that are larger than one transaction, and the reads that make them atomic.

DynamoDB writes at most 100 rows at once. A larger save is therefore first written as a staged copy,
in rows that no reader uses, then decided by one small transaction, and then applied by the next
process that reads or writes.

    parts staged        decided: one transaction            applied                gate opened
    ──┬───────────────────┬───────────────────────────────────┬──────────────────────┬──────────►
      │ crash: nothing    │ checks the lease's token and that │ crash: the next      │ parts are
      │ happened; parts   │ no executor wrote since the rows  │ reader completes     │ deleted
      │ expire            │ were compared; closes the gate    │ it first             │

The gate is the head row. While `pending` is set, executors' writes to memory are refused
(operations.py), so a write that does not include the decided save cannot overtake it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec
from pynamodb.expressions.update import Action

from chalicelib.model.operation import Operation
from chalicelib.model.operation_document import OperationDocument, from_document, to_document
from chalicelib.store.codec import fingerprint, pack, unpack
from chalicelib.store.errors import LeaseLost, RowUnreadable, StaleWrite, StoreError, StoreThrottled
from chalicelib.store.leases import Lease, fence
from chalicelib.store.memory_rows import (
    ABSENT,
    ANY,
    Change,
    change_row,
    change_write,
    head_actions,
    is_version,
    to_row,
)
from chalicelib.store.table_client import (
    ITEMS_PER_READ,
    Raw,
    Table,
    TransactionCancelled,
    TransactionConflict,
    Write,
    readable,
    row_of,
    value_or_error,
)
from chalicelib.store.tables import (
    ENDED,
    HEAD,
    MEMORY,
    OPEN,
    STAGED,
    BlobRow,
    HeadRow,
    OperationRow,
)

TRIES = 12
STAGED_FOR = 86400  # seconds after which undecided parts may be deleted
MOST_PARTS = 90


class Staged(msgspec.Struct, frozen=True):
    """Content of a large save."""

    changes: tuple[Change, ...]
    operations: tuple[OperationDocument, ...]


NOTHING = Staged((), ())


class _Gate(NamedTuple):
    """generation: number of large saves so far. pending: a save that is decided and
    not applied, "" for none."""

    generation: int
    pending: str


class Staging:
    """The gate: reads that respect it, saves that go through it."""

    def __init__(self, table: Table) -> None:
        self._table = table

    # --- reading

    def view(self, cluster: str, prefix: str) -> tuple[Raw, ...]:
        """Return rows beginning with prefix, with all or nothing of a large save.

        A query is not atomic: rows read late may belong to a save that was not visible in rows
        read early. The gate is therefore read before and after, and the rows are read again if a
        save was decided in between.
        """
        for _ in range(TRIES):
            if prefix != MEMORY:
                before = self._table.get(HeadRow, cluster, HEAD)
                rows = self._rows(cluster, prefix)
            else:
                rows = self._rows(cluster, prefix)  # the head sorts first
                before = row_of(HeadRow, rows[0]) if rows and rows[0]["item"]["S"] == HEAD else None
            after = self._table.get(HeadRow, cluster, HEAD)
            if is_closed(before) or is_closed(after):
                self.carry_out(cluster)
            elif _generation(before) == _generation(after):
                return rows
        raise RowUnreadable(
            f"{cluster}: large saves follow each other faster than they can be read"
        )

    def look(self, cluster: str, prefix: str) -> tuple[Raw, ...]:
        """Return the same rows as `view` for read-only callers: a save that is decided and not
        applied is overlaid in memory, and nothing is written."""
        for _ in range(TRIES):
            before = self._table.get(HeadRow, cluster, HEAD)
            rows = self._rows(cluster, prefix)
            pending = before.pending if before is not None else None
            staged = (
                self._read(cluster, pending, int(before.parts or 0))
                if before is not None and pending
                else NOTHING
            )
            ended = self._ended(cluster, staged) if staged is not None else frozenset()
            after = self._table.get(HeadRow, cluster, HEAD)
            if staged is not None and _gate(before) == _gate(after):
                return overlaid(rows, staged, ended, prefix)
        raise RowUnreadable(
            f"{cluster}: large saves follow each other faster than they can be read"
        )

    def look_at_each(
        self, clusters: Sequence[str], prefix: str
    ) -> dict[str, tuple[Raw, ...] | StoreError]:
        """Return the rows of each of many clusters for the tick, or why they cannot be read. The
        gates of all are read together, and once: a save that another process applies at the same
        time may be there in part, and the rest is there for the next tick. A save that waits to be
        applied is overlaid as `look` does."""
        rows: dict[str, tuple[Raw, ...] | StoreError] = {}
        for start in range(0, len(clusters), ITEMS_PER_READ):
            batch = clusters[start : start + ITEMS_PER_READ]
            for cluster in batch:
                rows[cluster] = value_or_error(partial(self._rows, cluster, prefix))
            gates = self._gates(batch)
            for cluster in batch:
                gate = gates.get(cluster)
                if gate is None or gate.pending:
                    rows[cluster] = value_or_error(partial(self.look, cluster, prefix))
        return rows

    def _rows(self, cluster: str, prefix: str) -> tuple[Raw, ...]:
        return tuple(self._table.query(cluster, prefix))

    def _gates(self, clusters: Sequence[str]) -> dict[str, _Gate]:
        """Return the state of each cluster's gate, without those that cannot be read."""
        try:
            heads = self._table.get_many([(cluster, HEAD) for cluster in clusters])
        except StoreError:
            return {}
        gates = {cluster: _gate(None) for cluster in clusters}
        for (cluster, _), raw in heads.items():
            try:
                gates[cluster] = _gate(row_of(HeadRow, raw))
            except RowUnreadable:
                del gates[cluster]
        return gates

    def _ended(self, cluster: str, staged: Staged) -> frozenset[str]:
        """Return operations of a save that have already ended."""
        rows = self._table.get_many(
            [(cluster, ENDED + operation.id) for operation in staged.operations]
        )
        return frozenset(item.removeprefix(ENDED) for _, item in rows)

    # --- saving

    def save(
        self,
        cluster: str,
        changes: Sequence[Change],
        operations: Sequence[Operation],
        versions: dict[str, str],
        lease: Lease,
        now: float,
    ) -> None:
        """Write all of it or nothing. versions: by row, of every row that the decision depends on.

        A save that is decided is not a failed one, even if conflicting requests keep
        this process from applying it: the next process that reads or writes applies it.
        Raises LeaseLost, StaleWrite.
        """
        head = self._table.get(HeadRow, cluster, HEAD)
        if is_closed(head):
            raise StaleWrite(cluster, (HEAD,))
        current = self._versions(cluster)
        changed = tuple(
            item
            for item, version in versions.items()
            if version not in (ANY, current.get(item, ABSENT))
        )
        if changed:
            raise StaleWrite(cluster, changed)
        save, pieces = self._stage(cluster, changes, operations, lease, now)
        self._decide(cluster, head, save, pieces, changes, lease)
        with suppress(StoreThrottled):
            self.carry_out(cluster)

    def _stage(
        self,
        cluster: str,
        changes: Sequence[Change],
        operations: Sequence[Operation],
        lease: Lease,
        now: float,
    ) -> tuple[str, int]:
        rows = tuple(change for change in changes if change.item != HEAD)
        data = msgspec.msgpack.encode(Staged(rows, tuple(map(to_document, operations))))
        pieces = pack(data)
        if len(pieces) > MOST_PARTS:
            raise StoreError(f"{cluster}: a save of {len(data)} bytes is too large")
        save = f"{lease.token:010d}-{fingerprint(data)}"
        parts, expires_at = len(pieces), int(now) + STAGED_FOR
        for at, piece in enumerate(pieces):
            row = BlobRow(
                cluster,
                _part(save, at),
                blob=piece,
                version=save,
                parts=parts,
                expires_at=expires_at,
            )
            self._table.write(self._table.put(row))
        return save, len(pieces)

    def _decide(
        self,
        cluster: str,
        head: HeadRow | None,
        save: str,
        pieces: int,
        changes: Sequence[Change],
        lease: Lease,
    ) -> None:
        """Commit the save in one transaction. From here on it cannot be lost, so
        its parts do not expire."""
        patches = head.patches if head else None
        gate_is_open = HeadRow.pending.does_not_exist()
        # Executors count every write to memory here; an equal count means that the rows
        # compared above are unchanged.
        no_executor_wrote = (
            HeadRow.patches.does_not_exist() if patches is None else HeadRow.patches == patches
        )
        actions: list[Action] = [
            HeadRow.pending.set(save),
            HeadRow.parts.set(pieces),
            HeadRow.generation.add(1),
        ]
        condition = gate_is_open & no_executor_wrote
        for change in changes:
            if change.item == HEAD:
                actions += head_actions(change)
                unchanged = is_version(change.expected)
                condition = condition & unchanged if unchanged is not None else condition
        part_is_there = BlobRow.version == save
        writes = [fence(self._table, lease), self._table.update(cluster, HEAD, actions, condition)]
        for at in range(pieces):
            keep: list[Action] = [BlobRow.expires_at.remove()]
            writes.append(self._table.update(cluster, _part(save, at), keep, part_is_there))
        try:
            self._table.transact(writes)
        except TransactionCancelled as cancelled:
            if 0 in cancelled.refused:
                raise LeaseLost(cluster, lease.token) from None
            raise StaleWrite(cluster, (HEAD,)) from None

    # --- applying

    def carry_out(self, cluster: str) -> bool:
        """Apply a save that is decided; False if there is none. Any process may
        call it, concurrently and repeatedly: a conflict means that another one is applying it, and
        what is left is read again. Raises StoreThrottled if it stays in conflict."""
        conflicts = 0
        for attempt in range(TRIES):
            head = self._table.get(HeadRow, cluster, HEAD)
            if head is None or not head.pending:
                return attempt > 0
            save, parts = head.pending, int(head.parts or 0)
            staged = self._read(cluster, save, parts)
            if staged is None:
                continue  # another process has just finished it
            try:
                self._apply(cluster, save, staged)
                it_is_still_pending = HeadRow.pending == save
                open_gate: list[Action] = [HeadRow.pending.remove(), HeadRow.parts.remove()]
                opening = self._table.update(cluster, HEAD, open_gate, it_is_still_pending)
                deletions = (self._table.delete(cluster, _part(save, at)) for at in range(parts))
                self._table.transact([opening, *deletions], repeat_conflicts=False)
            except TransactionCancelled:
                continue  # another process applied a part of it; check again what is left
            except TransactionConflict:
                conflicts += 1
                self._table.wait_for_others(conflicts)
                continue
            return True
        raise StoreThrottled(f"{cluster}: a large save could not be carried out yet")

    def _read(self, cluster: str, save: str, parts: int) -> Staged | None:
        if parts > MOST_PARTS:
            raise RowUnreadable(f"{cluster}: a save of {parts} parts")
        keys = [(cluster, _part(save, at)) for at in range(parts)]
        rows = self._table.get_many(keys)
        if len(rows) < parts:
            return None
        blobs = tuple(row_of(BlobRow, rows[key]).blob for key in keys)
        with readable(cluster, _part(save, 0)):
            return msgspec.msgpack.decode(unpack(blobs), type=Staged)

    def _apply(self, cluster: str, save: str, staged: Staged) -> None:
        """Write what is not written yet. Every transaction checks that this save is still the
        pending one: a process that was suspended until after the save was finished and newer writes
        followed changes nothing."""
        it_is_still_pending = HeadRow.pending == save
        gate = self._table.check(cluster, HEAD, it_is_still_pending)
        batch = [gate]
        for writes in self._missing_writes(cluster, staged):
            if not self._table.fits([*batch, *writes]):
                self._table.transact(batch, repeat_conflicts=False)
                batch = [gate]
            batch += writes
        if len(batch) > 1:
            self._table.transact(batch, repeat_conflicts=False)

    def _missing_writes(self, cluster: str, staged: Staged) -> Iterator[list[Write]]:
        rows = self._versions(cluster)
        for change in staged.changes:
            version = rows.get(change.item, ABSENT)
            # A row with neither the old nor the new version was written, and then
            # changed by a later writer.
            if version != change.version and change.expected in (ANY, version):
                yield [change_write(self._table, cluster, change)]
        ended = self._ended(cluster, staged)
        for operation in staged.operations:
            if OPEN + operation.id not in rows and operation.id not in ended:
                yield create(self._table, from_document(operation), check_ended=True)

    def _versions(self, cluster: str) -> dict[str, str]:
        """Return every row of memory and its version."""
        return {
            raw["item"]["S"]: raw.get("version", {}).get("S", ABSENT)
            for raw in self._table.query(cluster, MEMORY)
        }


def create(table: Table, operation: Operation, *, check_ended: bool) -> list[Write]:
    """Return writes that make an operation visible; check_ended: refuse if it
    has ended in the meantime."""
    it_does_not_exist = OperationRow.text.does_not_exist()
    writes = [table.put(to_row(operation), it_does_not_exist)]
    if check_ended:
        writes.append(
            table.check(operation.spec.cluster, ENDED + operation.spec.id, it_does_not_exist)
        )
    return writes


def overlaid(
    rows: Sequence[Raw], staged: Staged, ended: frozenset[str], prefix: str
) -> tuple[Raw, ...]:
    """Return the rows as carry_out would leave them, in the order of their keys. ended:
    operations that have ended."""
    if not staged.changes and not staged.operations:
        return tuple(rows)
    by_item = {raw["item"]["S"]: raw for raw in rows}
    for change in staged.changes:
        version = by_item.get(change.item, {}).get("version", {}).get("S", ABSENT)
        if (
            not change.item.startswith(prefix)
            or version == change.version
            or change.expected not in (ANY, version)
        ):
            continue
        if change.version == ABSENT:
            by_item.pop(change.item, None)
        else:
            by_item[change.item] = change_row("", change).serialize()
    for operation in staged.operations:
        item = OPEN + operation.id
        if item.startswith(prefix) and item not in by_item and operation.id not in ended:
            by_item[item] = to_row(from_document(operation)).serialize()
    return tuple(by_item[item] for item in sorted(by_item))


def is_closed(head: HeadRow | None) -> bool:
    """Return whether a save is decided and not applied."""
    return head is not None and bool(head.pending)


def _gate(head: HeadRow | None) -> _Gate:
    return _Gate(_generation(head), (head.pending or "") if head else "")


def _generation(head: HeadRow | None) -> int:
    return int(head.generation or 0) if head else 0


def _part(save: str, at: int) -> str:
    return f"{STAGED}{save}#{at:03d}"
