"""Operations as a conditional state machine: each transition of model/operation.py is one conditional write.

    planned ─┬─ claim ─► running ─┬─ advance ─► waiting ─ claim ─► running …
             │                    └─ advance ─► succeeded | failed | abandoned   (moved under another key)
    running ─┴─ claim, once claimed_until is past: the executor died

Open operations have keys of their own, so that listing them does not read ended ones. What an executor learns about its
group (backoff, cooldowns, the end of a scale-up request) is written in the same transaction as the operation's state,
so that one is never visible without the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from chalicelib.model.operation import Operation, OperationState
from chalicelib.store.errors import (
    IllegalTransition,
    OperationClaimed,
    OperationFinished,
    OperationNotDue,
    StaleWrite,
    StoreError,
)
from chalicelib.store.memory_patches import GroupPatch, MemoryPatch, Patches
from chalicelib.store.operation_rows import status_actions, to_operation, to_operations, to_row
from chalicelib.store.staged_saves import TRIES, Staging
from chalicelib.store.table_client import ConditionFailed, Table, TransactionCancelled, value_or_error
from chalicelib.store.tables import OPEN, OVER, OperationRow

ENDS = frozenset({OperationState.SUCCEEDED, OperationState.FAILED, OperationState.ABANDONED})
AFTER_RUNNING = ENDS | {OperationState.WAITING}


class Operations:
    """Claims, advances and lists operations."""

    def __init__(self, table: Table, staging: Staging, clock: Callable[[], float]) -> None:
        self._table, self._staging, self._clock = table, staging, clock
        self._patches = Patches(table, staging)

    # --- reading

    def get(self, cluster: str, operation: str) -> Operation | None:
        """Return an operation by id, open or over; None if it was never planned, or has been deleted after its
        retention time."""
        for _ in range(TRIES):
            # In this order: an operation only goes from open to over, so it cannot be missed.
            for prefix in (OPEN, OVER):
                row = self._table.get(OperationRow, cluster, prefix + operation)
                if row is not None:
                    return to_operation(row)
            if not self._staging.carry_out(cluster):
                return None
        return None

    def list_open(self, cluster: str) -> tuple[Operation, ...]:
        """Return planned, running and waiting operations, the oldest first."""
        return to_operations(self._staging.view(cluster, OPEN))

    def look(self, cluster: str) -> tuple[Operation, ...]:
        """Return the same as `list_open` for display only: nothing is written."""
        return to_operations(self._staging.look(cluster, OPEN))

    def look_at_each(self, clusters: Sequence[str]) -> dict[str, tuple[Operation, ...] | StoreError]:
        """Return the same for each of many clusters, or why it cannot be read."""
        found = self._staging.look_at_each(clusters, OPEN)
        return {
            name: rows if isinstance(rows, StoreError) else value_or_error(partial(to_operations, rows))
            for name, rows in found.items()
        }

    # --- changing

    def claim(self, cluster: str, operation: str, owner: str, ttl: float) -> Operation:
        """Claim the operation for ttl seconds. owner must be new for every attempt (an invocation's request id).

        Raises OperationClaimed (another executor has it), OperationNotDue (retry at due_at), OperationFinished (ended,
        or not known).

            planned or waiting       due_at                   claimed_until
            ──┬────────────────────────┬──────────┬───────────────┬────────────────►
              │ OperationNotDue        │ claim ►  │ Operation-    │ claim again: the executor died
                                                    Claimed
        """
        now = self._clock()
        nobody_is_at_it = OperationRow.state.is_in(OperationState.PLANNED.value, OperationState.WAITING.value)
        its_time_has_come = OperationRow.due_at <= now
        somebody_was_at_it = OperationRow.state == OperationState.RUNNING.value
        and_did_not_finish_in_time = OperationRow.claimed_until < now
        claim = self._table.update(
            cluster,
            OPEN + operation,
            [
                OperationRow.state.set(OperationState.RUNNING.value),
                OperationRow.claimed_by.set(owner),
                OperationRow.claimed_until.set(now + ttl),
                OperationRow.updated_at.set(now),
                OperationRow.attempt.add(1),
            ],
            (nobody_is_at_it & its_time_has_come) | (somebody_was_at_it & and_did_not_finish_in_time),
        )
        try:
            return to_operation(self._table.write(claim))
        except ConditionFailed as refused:
            if not refused.old:
                return self._claim_elsewhere(cluster, operation, owner, ttl)
            found = to_operation(refused.old)
            if found.status.state is OperationState.RUNNING and found.status.claimed_by == owner:
                return found  # the first try succeeded and only its response was lost
            raise _in_the_way(found) from None

    def advance(
        self,
        before: Operation,
        after: Operation,
        owner: str,
        group_patch: GroupPatch | None = None,
        memory_patch: MemoryPatch | None = None,
    ) -> Operation:
        """Record the result of a step; return the operation as stored. before: as claimed. after: waiting or over.

        group_patch: updates the group's memory (given GroupMemory() where there is none); memory_patch: updates the
        cluster-wide instants (last_scale_up …; the rest of the returned Memory is ignored). Both may be called several
        times, with newer values, until no concurrent write interferes.

        Raises IllegalTransition, OperationClaimed (the claim expired and another executor has it), OperationFinished,
        StaleWrite (owner does not hold the claim). The claim ends with the step.
        """
        _check_arrow(before, after, owner)
        stored = after.with_status(claimed_by="", claimed_until=0.0, updated_at=self._clock())
        it_is_being_worked_on = OperationRow.state == OperationState.RUNNING.value
        by_us = OperationRow.claimed_by == owner
        and_this_is_the_same_attempt = OperationRow.attempt == before.status.attempt
        ours = it_is_being_worked_on & by_us & and_this_is_the_same_attempt
        item = OPEN + before.spec.id
        if stored.is_open:
            # mark_sent may have written in the meantime; its instant stays unless the executor has a newer one.
            leave = ("sent_at",) if after.status.sent_at == before.status.sent_at else ()
            writes = [self._table.update(before.spec.cluster, item, status_actions(stored.status, leave=leave), ours)]
        else:
            writes = [self._table.delete(before.spec.cluster, item, ours), self._table.put(to_row(stored))]
        try:
            self._patches.write(before.spec.cluster, before.spec.group, writes, group_patch, memory_patch)
        except TransactionCancelled:
            return self._settle(stored, owner)
        return stored

    def mark_sent(self, cluster: str, operation: str, at: float) -> bool:
        """Record that a message was sent for it; False if it is over already."""
        it_is_open = OperationRow.state.exists()
        try:
            self._table.write(self._table.update(cluster, OPEN + operation, [OperationRow.sent_at.set(at)], it_is_open))
        except ConditionFailed:
            return False
        return True

    def hasten(self, cluster: str, operation: str) -> Operation:
        """Make the next step of a waiting operation due now; attempts and data stay. Raises OperationClaimed where a
        step runs, OperationFinished where it is over or not known."""
        now = self._clock()
        it_waits = OperationRow.state.is_in(OperationState.PLANNED.value, OperationState.WAITING.value)
        soon = self._table.update(cluster, OPEN + operation, [OperationRow.due_at.set(now)], it_waits)
        try:
            return to_operation(self._table.write(soon))
        except ConditionFailed as refused:
            found = to_operation(refused.old) if refused.old else self.get(cluster, operation)
            if found is None:
                raise OperationFinished("unknown") from None
            raise _in_the_way(found) from None

    # --- refusals

    def _claim_elsewhere(self, cluster: str, operation: str, owner: str, ttl: float) -> Operation:
        """Handle a missing open row: the operation is over, or part of a large save that is decided but not applied."""
        found = self.get(cluster, operation)
        if found is None:
            raise OperationFinished("unknown")
        if not found.is_open:
            raise OperationFinished(found.status.state.value)
        return self.claim(cluster, operation, owner, ttl)

    def _settle(self, stored: Operation, owner: str) -> Operation:
        """Handle a failed condition: either the same write succeeded before and its response was lost, or it is a real
        conflict."""
        found = self.get(stored.spec.cluster, stored.spec.id)
        if found is None:
            raise OperationFinished("unknown")
        if _says_the_same(found, stored):
            return found
        if found.status.claimed_by == owner or found.status.state in (OperationState.PLANNED, OperationState.WAITING):
            raise StaleWrite(stored.spec.cluster, (OPEN + stored.spec.id,))
        raise _in_the_way(found)


def _check_arrow(before: Operation, after: Operation, owner: str) -> None:
    if before.status.state is not OperationState.RUNNING or after.status.state not in AFTER_RUNNING:
        raise IllegalTransition(before.status.state.value, after.status.state.value)
    if before.status.claimed_by != owner:
        why = f"it is claimed by {before.status.claimed_by}, not by {owner}"
        raise IllegalTransition(before.status.state.value, after.status.state.value, why)
    if before.spec != after.spec or before.status.attempt != after.status.attempt:
        raise IllegalTransition(
            before.status.state.value, after.status.state.value, "what an operation does cannot be changed"
        )


def _in_the_way(found: Operation) -> StoreError:
    if found.status.state is OperationState.RUNNING:
        return OperationClaimed(found.status.claimed_by, found.status.claimed_until)
    return OperationNotDue(found.status.due_at) if found.is_open else OperationFinished(found.status.state.value)


def _says_the_same(found: Operation, stored: Operation) -> bool:
    """Compare without the times of the write and of the last message."""
    return found.with_status(updated_at=stored.status.updated_at, sent_at=stored.status.sent_at) == stored
