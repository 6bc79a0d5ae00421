"""Applies an executor's memory updates atomically with its own writes, while a reconcile may be planning.

Reading, changing and writing back is repeated until no concurrent write interferes. Each such write is counted in the
head row: a large save (staged_saves.py) cannot check a hundred rows in one transaction, but it can check the count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from pynamodb.expressions.update import Action

from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.store.codec import decode
from chalicelib.store.errors import StaleWrite
from chalicelib.store.memory_diff import ABSENT, Change, ChangedTimes, row_change, times_change
from chalicelib.store.memory_rows import change_write, head_actions, is_version
from chalicelib.store.staged_saves import TRIES, Staging, is_closed
from chalicelib.store.table_client import ConditionFailed, Table, TransactionCancelled, Write
from chalicelib.store.tables import GROUPS, HEAD, HeadRow, MemoryRow

GroupPatch = Callable[[GroupMemory], GroupMemory]
MemoryPatch = Callable[[Memory], Memory]


class Patches:
    """Writes of one executor together with their memory updates, atomically."""

    def __init__(self, table: Table, staging: Staging) -> None:
        self._table, self._staging = table, staging

    def write(
        self,
        cluster: str,
        group: str,
        writes: Sequence[Write],
        group_patch: GroupPatch | None,
        memory_patch: MemoryPatch | None,
    ) -> None:
        """Write everything atomically. Raises TransactionCancelled if one of `writes` is refused, StaleWrite if memory
        changed during every attempt."""
        for _ in range(TRIES):
            about_group = self._group(cluster, group, group_patch) if group_patch else []
            patches = about_group + self._head(cluster, memory_patch, count=bool(about_group))
            if not writes and not patches:
                return
            try:
                self._send([*writes, *patches])
            except TransactionCancelled as cancelled:
                if any(at < len(writes) for at in cancelled.refused):
                    raise
                continue  # memory changed: read it again and patch the new state
            return
        raise StaleWrite(cluster, (GROUPS + group, HEAD))

    def _send(self, writes: Sequence[Write]) -> None:
        if len(writes) > 1:
            self._table.transact(writes)
            return
        try:
            self._table.write(writes[0])  # half the price of a transaction
        except ConditionFailed as refused:
            raise TransactionCancelled({0: refused.old}) from None

    def _group(self, cluster: str, group: str, patch: GroupPatch) -> list[Write]:
        row = self._table.get(MemoryRow, cluster, GROUPS + group)
        before = decode(row.text or "", GroupMemory) if row else None
        after = patch(before or GroupMemory())
        if after == (before or GroupMemory()):
            return []
        change = _based_on(row, row_change(GROUPS + group, before, after, GroupMemory))
        return [change_write(self._table, cluster, change)]

    def _head(self, cluster: str, patch: MemoryPatch | None, *, count: bool) -> list[Write]:
        """Return one update of the head row with the cluster-wide instants and the count; count: another row was
        patched."""
        if patch is None and not count:
            return []
        row = self._table.get(HeadRow, cluster, HEAD)
        if is_closed(row):
            self._staging.carry_out(cluster)
            row = self._table.get(HeadRow, cluster, HEAD)
        gate_is_open = HeadRow.pending.does_not_exist()
        actions: list[Action] = [HeadRow.patches.add(1)]
        before = decode(row.text, ChangedTimes) if row is not None and row.text else ChangedTimes()
        after = before if patch is None else ChangedTimes.of(patch(_as_memory(before)))
        if after == before:
            return [self._table.update(cluster, HEAD, actions, gate_is_open)] if count else []
        change = _based_on(row, times_change(before, after))
        unchanged = is_version(change.expected)
        assert unchanged is not None
        return [self._table.update(cluster, HEAD, actions + head_actions(change), gate_is_open & unchanged)]


def _based_on(row: MemoryRow | None, change: Change) -> Change:
    """Return the change based on the row's own version, because the row was read here, whichever release wrote it
    (memory_rows.py)."""
    return msgspec.structs.replace(change, expected=row.version or ABSENT) if row is not None else change


def _as_memory(times: ChangedTimes) -> Memory:
    return Memory(**{name: getattr(times, name) for name in ChangedTimes.__struct_fields__})
