"""A cluster's memory: loaded as a whole, saved as a difference by the one pass that holds the
lease, changed in single values by executors and operators.

    load ─► before ── plan ──► after ─► save(before, after, new operations, lease)

`save` is one transaction: the lease's token is checked, every row is written only if it is
unchanged since the planner read it, and new operations appear together with the memory that
accounts for them, or not at all. A pass that only confirms the timers of nodes writes nothing; one
that changes no more than timers writes one row, by one conditional write. If an executor changed a
row in the meantime, the
save raises StaleWrite: the pass loads and plans again, and nothing that the
executor recorded is lost.

An executor's change is made together with its own writes: reading, changing and writing back is
repeated until no concurrent write interferes. Each such write is counted in the head row: a large
save (staged_saves.py) cannot check a hundred rows in one transaction, but it can check the count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from pynamodb.expressions.update import Action

from chalicelib.model.memory import DRAIN_FOR, GroupMemory, Memory, Replacement
from chalicelib.model.operation import Operation
from chalicelib.store.codec import NOT_DECODED, decode
from chalicelib.store.errors import LeaseLost, RowUnreadable, StaleWrite, StoreThrottled
from chalicelib.store.leases import Lease, check_in_force, fence
from chalicelib.store.memory_rows import (
    ABSENT,
    Adoption,
    Change,
    ChangedTimes,
    IncompleteRows,
    adopt,
    change_write,
    changes,
    head_actions,
    is_confirmation,
    is_version,
    row_change,
    times_change,
    to_memory,
    version_of,
)
from chalicelib.store.staged_saves import TRIES, Staging, create, is_closed
from chalicelib.store.table_client import (
    LONGEST_ATTEMPT,
    ConditionFailed,
    Raw,
    Table,
    TransactionCancelled,
    Write,
)
from chalicelib.store.tables import (
    BREAKER_OVERRIDE,
    ENDED,
    GROUPS,
    HEAD,
    MEMORY,
    NODES,
    OPEN,
    REPLACEMENTS,
    BreakerOverrideRow,
    HeadRow,
    MemoryRow,
    PoolRequestRow,
)

LONGER_THAN_A_WRITE = LONGEST_ATTEMPT + 1.0
"""Seconds of a lease that must be left for a save that is no transaction,
which is attempted once."""
TIDY_AFTER = 86400  # seconds after an override's end that DynamoDB may delete its row

GroupPatch = Callable[[GroupMemory], GroupMemory]
MemoryPatch = Callable[[Memory], Memory]
ReplacementPatch = Callable[[Replacement], Replacement]


class MemoryStore:
    """Loads and saves memories."""

    def __init__(self, table: Table, staging: Staging, clock: Callable[[], float]) -> None:
        self._table, self._staging, self._clock = table, staging, clock

    def load(self, cluster: str) -> Memory:
        """Return the whole memory, with the operations still open. A new
        cluster has an empty Memory.

        Raises StoreError, also for rows that this release cannot read: ignoring them would mean
        to act on half a memory.
        """
        memory, adoptions = _read(cluster, lambda: self._staging.view(cluster, MEMORY))
        for adoption in adoptions:
            adopt(self._table, cluster, adoption)
        return memory

    def look(self, cluster: str) -> Memory:
        """Return the same as `load` for display only: nothing is written. Raises StoreError."""
        return _read(cluster, lambda: self._staging.look(cluster, MEMORY))[0]

    def glance(self, cluster: str) -> Memory:
        """Return the memory in one request, for pages. While a large save is being applied, parts
        of it may be missing. Raises StoreError."""
        return _read(cluster, lambda: self._table.query(cluster, MEMORY))[0]

    def save(
        self,
        cluster: str,
        old_memory: Memory,
        new_memory: Memory,
        operations: Sequence[Operation],
        lease: Lease,
    ) -> None:
        """Write the difference and make the new operations visible.

        old_memory: as loaded under this lease. operations: the new ones; an existing one stays
        unchanged, so the same operation is never planned twice. Memory.operations of both memories
        is ignored, because planned operations belong to their executors.

        Raises LeaseLost (overtaken), StaleWrite (load and plan again); then nothing of it is
        visible. After any other StoreError it may be.
        """
        if is_confirmation(old_memory.nodes, new_memory.nodes):
            new_memory = msgspec.structs.replace(new_memory, nodes=old_memory.nodes)
        todo = changes(old_memory, new_memory)
        new_operations = self._without_existing(cluster, operations)
        if not todo and not new_operations:
            check_in_force(self._table, lease)
            return
        # Only the nodes' timers change, in one row that continues to exist.
        only_timers = (
            len(todo) == 1 and todo[0].item.startswith(NODES) and todo[0].version != ABSENT
        )
        if not new_operations and only_timers:
            check_in_force(self._table, lease)
            time_enough = lease.until - self._clock() >= LONGER_THAN_A_WRITE
            if time_enough and self._is_saved_alone(cluster, todo[0]):
                return
        # Groups that get an operation but are not written: the decision depends on them,
        # so they must be unchanged.
        written = {change.item for change in todo}
        groups = {
            GROUPS + operation.spec.group: operation.spec.group for operation in new_operations
        }
        depends_on = {
            item: version_of(old_memory.groups.get(group), GroupMemory)
            for item, group in groups.items()
            if item not in written
        }
        writes = [
            fence(self._table, lease),
            *(
                self._table.check(cluster, item, condition)
                for item, version in depends_on.items()
                if (condition := is_version(version)) is not None
            ),
            *(change_write(self._table, cluster, change) for change in todo),
            *(
                write
                for operation in new_operations
                for write in create(self._table, operation, check_ended=False)
            ),
        ]
        if not self._table.fits(writes):
            versions = depends_on | {change.item: change.expected for change in todo}
            self._staging.save(cluster, todo, new_operations, versions, lease, self._clock())
            return
        try:
            self._table.transact(writes)
        except TransactionCancelled as cancelled:
            if 0 in cancelled.refused:
                raise LeaseLost(cluster, lease.token) from None
            raise StaleWrite(cluster, tuple(writes[at].item for at in cancelled.refused)) from None

    def _is_saved_alone(self, cluster: str, change: Change) -> bool:
        """Save by one conditional write, which costs a quarter of a transaction; False: the table
        is busy, and nothing was written. The row's version prevents every concurrent change of it.
        The caller has just verified that the lease is in force and lasts longer than this write, so
        it cannot be taken over in the meantime. Raises StaleWrite."""
        try:
            self._table.write(change_write(self._table, cluster, change), attempts=1)
        except StoreThrottled:
            return False
        except ConditionFailed as refused:
            if refused.old.get("version", {}).get("S") != change.version:
                raise StaleWrite(cluster, (change.item,)) from None
            # The first attempt succeeded, and only its response was lost.
        return True

    def _without_existing(
        self, cluster: str, operations: Sequence[Operation]
    ) -> tuple[Operation, ...]:
        """Return the operations that do not exist yet. None can appear after this: only the holder
        of the lease creates operations, and the save checks that this pass is the holder."""
        if not operations:
            return ()
        by_id = {operation.spec.id: operation for operation in operations}
        existing = self._table.get_many(
            [(cluster, prefix + name) for name in by_id for prefix in (OPEN, ENDED)]
        )
        return tuple(
            operation
            for name, operation in by_id.items()
            if (cluster, OPEN + name) not in existing and (cluster, ENDED + name) not in existing
        )


def _read(cluster: str, rows: Callable[[], Iterable[Raw]]) -> tuple[Memory, tuple[Adoption, ...]]:
    """Return what `to_memory` makes of the rows, which are read again while a
    concurrent write changes them."""
    for _ in range(TRIES):
        try:
            return to_memory(rows())
        except IncompleteRows:
            continue
        except NOT_DECODED as error:
            raise RowUnreadable(
                f"{cluster}: what is remembered cannot be read ({error}); run the release that "
                "wrote it, or "
                "delete the cluster's rows of memory and start anew"
            ) from error
    raise RowUnreadable(f"{cluster}: memory changes faster than it can be read")


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
        memory_patch: MemoryPatch | None = None,
        replacement: str = "",
        replacement_patch: ReplacementPatch | None = None,
    ) -> None:
        """Write everything atomically. replacement: id of the one that is patched, unless it is
        over already. Raises TransactionCancelled if one of `writes` is refused, StaleWrite if
        memory changed during every attempt."""
        for _ in range(TRIES):
            rows = self._group_writes(cluster, group, group_patch) if group_patch else []
            if replacement and replacement_patch is not None:
                rows += self._replacement_writes(cluster, replacement, replacement_patch)
            patches = rows + self._head_writes(cluster, memory_patch, count=bool(rows))
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

    def _group_writes(self, cluster: str, group: str, patch: GroupPatch) -> list[Write]:
        row = self._table.get(MemoryRow, cluster, GROUPS + group)
        before = decode(row.text or "", GroupMemory) if row else None
        after = patch(before or GroupMemory())
        if after == (before or GroupMemory()):
            return []
        change = _based_on(row, row_change(GROUPS + group, before, after, GroupMemory))
        return [change_write(self._table, cluster, change)]

    def _replacement_writes(self, cluster: str, name: str, patch: ReplacementPatch) -> list[Write]:
        """Return the change of a replacement's row. A row is there before the operations that
        belong to it, unless the save that creates both is being applied."""
        row = self._table.get(MemoryRow, cluster, REPLACEMENTS + name)
        if row is None and self._staging.carry_out(cluster):
            row = self._table.get(MemoryRow, cluster, REPLACEMENTS + name)
        if row is None:
            return []
        before = decode(row.text or "", Replacement)
        after = patch(before)
        if after == before:
            return []
        change = _based_on(row, row_change(REPLACEMENTS + name, before, after, Replacement))
        return [change_write(self._table, cluster, change)]

    def _head_writes(self, cluster: str, patch: MemoryPatch | None, *, count: bool) -> list[Write]:
        """Return one update of the head row with the cluster-wide instants and the count; count:
        another row was patched."""
        if patch is None and not count:
            return []
        row = self._table.get(HeadRow, cluster, HEAD)
        if is_closed(row):
            self._staging.carry_out(cluster)
            row = self._table.get(HeadRow, cluster, HEAD)
        gate_is_open = HeadRow.pending.does_not_exist()
        actions: list[Action] = [HeadRow.patches.add(1)]
        before = decode(row.text, ChangedTimes) if row is not None and row.text else ChangedTimes()
        after = before
        if patch is not None:
            after = ChangedTimes.of(patch(Memory(**msgspec.structs.asdict(before))))
        if after == before:
            return [self._table.update(cluster, HEAD, actions, gate_is_open)] if count else []
        change = _based_on(row, times_change(before, after))
        unchanged = is_version(change.expected)
        assert unchanged is not None
        return [
            self._table.update(
                cluster, HEAD, actions + head_actions(change), gate_is_open & unchanged
            )
        ]


def _based_on(row: MemoryRow | None, change: Change) -> Change:
    """Return the change based on the row's own version, because the row was read here, whichever
    release wrote it (memory_rows.py)."""
    return (
        msgspec.structs.replace(change, expected=row.version or ABSENT)
        if row is not None
        else change
    )


# --- operators


class Retries:
    """Ends waits at an operator's request (`outscaler retry`): a node group's back-off, the wait
    after a failed removal. A pass that decides at the same time decides again.

    Only the instant changes. The number of failures and the length of the back-off stay, so that
    another failure waits twice as long as the last one.
    """

    def __init__(self, table: Table, staging: Staging, clock: Callable[[], float]) -> None:
        self._patches, self._clock = Patches(table, staging), clock

    def end_backoff(self, cluster: str, group: str) -> None:
        """End the group's back-off, its wait for the next repair, and its
        rests. Raises StoreError."""
        now = self._clock()

        def without_backoff(memory: GroupMemory) -> GroupMemory:
            backoff = memory.backoff
            if backoff is not None and backoff.until >= now:  # in force up to and including its end
                memory = msgspec.structs.replace(
                    memory, backoff=msgspec.structs.replace(backoff, until=now - 1.0)
                )
            renewals = {
                why: msgspec.structs.replace(renewal, until=min(renewal.until, now))
                for why, renewal in memory.renewals.items()
            }
            parts = {
                name: msgspec.structs.replace(part, until=min(part.until, now))
                for name, part in memory.undelivered.items()
            }
            tried_at = min(memory.repair_after, now)
            return msgspec.structs.replace(
                memory, repair_after=tried_at, renewals=renewals, undelivered=parts
            )

        self._patches.write(cluster, group, [], without_backoff)

    def end_failed_removal(self, cluster: str, group: str, node: str) -> None:
        """End the wait after a failed removal of the node. Raises StoreError."""
        now = self._clock()

        def without_wait(memory: GroupMemory) -> GroupMemory:
            failed = memory.failed_removals.get(node)
            if failed is None:
                return memory
            removals = memory.failed_removals | {
                node: msgspec.structs.replace(failed, until=min(failed.until, now))
            }
            return msgspec.structs.replace(memory, failed_removals=removals)

        self._patches.write(cluster, group, [], without_wait)


class PoolRequests:
    """An operator's requests to prune managed pools, or to drain them (`outscaler pools`). item: of
    the row, which loading memory reads: Memory.prunes, Memory.drains. A row of its own, as
    BreakerOverrides."""

    def __init__(self, table: Table, item: str) -> None:
        self._table, self._item = table, item

    def request(self, cluster: str, requests: Mapping[str, float]) -> None:
        """Store the requests, pool -> its instant; the last call counts."""
        text = msgspec.json.encode(requests).decode()
        expires_at = int(max(requests.values()) + DRAIN_FOR) + TIDY_AFTER
        row = PoolRequestRow(cluster, self._item, text=text, expires_at=expires_at)
        self._table.write(self._table.put(row))


class BreakerOverrides:
    """An operator's temporary override of the circuit breaker (`outscaler release`). Loading memory
    reads it: Memory.released_until.

    The override is a row of its own, separate from the breaker state that passes write: an
    operator does not wait for a lease, and a concurrent pass must neither lose the override nor
    become stale because of it.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def release(self, cluster: str, until: float) -> None:
        """Override the circuit breaker until that instant; the last call counts,
        even if it ends earlier."""
        row = BreakerOverrideRow(
            cluster, BREAKER_OVERRIDE, until=until, expires_at=int(until) + TIDY_AFTER
        )
        self._table.write(self._table.put(row))
