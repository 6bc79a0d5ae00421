"""A cluster's memory: loaded as a whole, saved as a difference, by the one pass that holds the lease.

    load ─► before ── plan ──► after ─► save(before, after, new operations, lease)

`save` is one transaction: the lease's token is checked, every row is written only if it is unchanged since the planner
read it, and new operations appear together with the memory that accounts for them, or not at all. A pass that only
confirms the timers of nodes writes one row, by one conditional write. If an executor changed a row in the meantime, the
save raises StaleWrite: the pass loads and plans again, and nothing that the executor recorded is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.operation import Operation
from chalicelib.store.codec import NOT_DECODED
from chalicelib.store.errors import LeaseLost, RowUnreadable, StaleWrite
from chalicelib.store.leases import Lease, check_in_force, fence
from chalicelib.store.memory_diff import ABSENT, Change, changes, version_of
from chalicelib.store.memory_rows import IncompleteRows, adopt, change_write, is_version, to_memory
from chalicelib.store.staged_saves import TRIES, Staging, create
from chalicelib.store.table_client import ConditionFailed, Table, TransactionCancelled, Write
from chalicelib.store.tables import GROUPS, MEMORY, NODES, OPEN, OVER

LONGER_THAN_A_WRITE = 90.0
"""Seconds of a lease that must be left for a save that is no transaction. All attempts at a write (client.py) take
less."""


class MemoryStore:
    """Loads and saves memories."""

    def __init__(self, table: Table, staging: Staging, clock: Callable[[], float]) -> None:
        self._table, self._staging, self._clock = table, staging, clock

    def load(self, cluster: str) -> Memory:
        """Return the whole memory, with the operations still open. A new cluster has an empty Memory.

        Raises StoreError, also for rows that this release cannot read: ignoring them would mean to act on half a
        memory.
        """
        for _ in range(TRIES):
            try:
                memory, adoptions = to_memory(self._staging.view(cluster, MEMORY))
            except IncompleteRows:
                continue
            except NOT_DECODED as error:
                raise _unreadable(cluster, error) from error
            for adoption in adoptions:
                adopt(self._table, cluster, adoption)
            return memory
        raise RowUnreadable(f"{cluster}: memory changes faster than it can be read")

    def look(self, cluster: str) -> Memory:
        """Return the same as `load` for display only: nothing is written. Raises StoreError."""
        for _ in range(TRIES):
            try:
                return to_memory(self._staging.look(cluster, MEMORY))[0]
            except IncompleteRows:
                continue
            except NOT_DECODED as error:
                raise _unreadable(cluster, error) from error
        raise RowUnreadable(f"{cluster}: memory changes faster than it can be read")

    def glance(self, cluster: str) -> Memory:
        """Return the memory in one request, for pages. While a large save is being applied, parts of it may be missing.
        Raises StoreError."""
        for _ in range(TRIES):
            try:
                return to_memory(self._table.query(cluster, MEMORY))[0]
            except IncompleteRows:
                continue
            except NOT_DECODED as error:
                raise _unreadable(cluster, error) from error
        raise RowUnreadable(f"{cluster}: memory changes faster than it can be read")

    def save(
        self, cluster: str, old_memory: Memory, new_memory: Memory, operations: Sequence[Operation], lease: Lease
    ) -> None:
        """Write the difference and make the new operations visible.

        old_memory: as loaded under this lease. operations: the new ones; an existing one stays unchanged, so the same
        operation is never planned twice. Memory.operations of before and after is ignored, because planned operations
        belong to their executors.

        Raises LeaseLost (overtaken), StaleWrite (load and plan again); then nothing of it is visible. After any other
        StoreError it may be.
        """
        todo = changes(old_memory, new_memory)
        fresh = self._fresh(cluster, operations)
        if not todo and not fresh:
            check_in_force(self._table, lease)
            return
        if not fresh and _is_timers_only(todo):
            check_in_force(self._table, lease)
            if lease.until - self._clock() >= LONGER_THAN_A_WRITE:
                self._save_alone(cluster, todo[0])
                return
        rests_on = _untouched_groups(old_memory, fresh, todo)
        writes = [
            fence(self._table, lease),
            *(
                self._table.check(cluster, item, condition)
                for item, version in rests_on.items()
                if (condition := is_version(version)) is not None
            ),
            *(change_write(self._table, cluster, change) for change in todo),
            *(write for operation in fresh for write in create(self._table, operation, check_over=False)),
        ]
        if not self._table.fits(writes):
            seen = rests_on | {change.item: change.expected for change in todo}
            self._staging.save(cluster, todo, fresh, seen, lease, self._clock())
            return
        try:
            self._table.transact(writes)
        except TransactionCancelled as cancelled:
            if 0 in cancelled.refused:
                raise LeaseLost(cluster, lease.token) from None
            raise StaleWrite(cluster, tuple(_item(writes[at]) for at in cancelled.refused)) from None

    def _save_alone(self, cluster: str, change: Change) -> None:
        """Save by one conditional write, which costs a quarter of a transaction. The row's version prevents every
        concurrent change of it. The caller has just verified that the lease is in force and lasts longer than any
        write, so it cannot be taken over in the meantime. Raises StaleWrite."""
        try:
            self._table.write(change_write(self._table, cluster, change))
        except ConditionFailed as refused:
            if refused.old.get("version", {}).get("S") != change.version:
                raise StaleWrite(cluster, (change.item,)) from None
            # The first attempt succeeded, and only its response was lost.

    def _fresh(self, cluster: str, operations: Sequence[Operation]) -> tuple[Operation, ...]:
        """Return the operations that do not exist yet. None can appear after this: only the holder of the lease creates
        operations, and the save checks that this pass is the holder."""
        if not operations:
            return ()
        by_id = {operation.spec.id: operation for operation in operations}
        known = self._table.get_many([(cluster, prefix + name) for name in by_id for prefix in (OPEN, OVER)])
        return tuple(
            operation
            for name, operation in by_id.items()
            if (cluster, OPEN + name) not in known and (cluster, OVER + name) not in known
        )


def _is_timers_only(todo: Sequence[Change]) -> bool:
    """Return whether only the nodes' timers change, in one row that continues to exist."""
    return len(todo) == 1 and todo[0].item.startswith(NODES) and todo[0].version != ABSENT


def _unreadable(cluster: str, error: Exception) -> RowUnreadable:
    return RowUnreadable(
        f"{cluster}: what is remembered cannot be read ({error}); run the release that wrote it, or "
        "delete the cluster's rows of memory and start anew"
    )


def _untouched_groups(old_memory: Memory, fresh: Sequence[Operation], todo: Sequence[Change]) -> dict[str, str]:
    """Return groups that get an operation but are not written: the decision depends on them, so they must be
    unchanged."""
    written = {change.item for change in todo}
    items = {GROUPS + operation.spec.group: operation.spec.group for operation in fresh}
    return {
        item: version_of(old_memory.groups.get(group), GroupMemory)
        for item, group in items.items()
        if item not in written
    }


def _item(write: Write) -> str:
    key: str = (write.arguments.get("Key") or write.arguments["Item"])["item"]["S"]
    return key
