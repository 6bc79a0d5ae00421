"""Operations as a conditional state machine: each transition of model/operation.py is one conditional write.

    planned ─── claim ─► running ─┬─ advance ─► waiting ─ claim ─► running …
                 extend ◄─► │     └─ advance ─► succeeded | failed | abandoned   (moved under another key)
    running ─── take_over ──┘   once its claim is over: the executor died

Open operations have keys of their own, so that listing them does not read ended ones. What an executor learns about its
group (backoff, cooldowns, the end of a scale-up request) is written in the same transaction as the operation's state,
so that one is never visible without the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pynamodb.expressions.condition import Condition

from chalicelib.model.operation import BROKEN, Operation, OperationState
from chalicelib.store.codec import encode
from chalicelib.store.errors import (
    IllegalTransition,
    OperationClaimed,
    OperationFinished,
    OperationNotDue,
    StaleWrite,
    StoreError,
)
from chalicelib.store.memory import GroupPatch, MemoryPatch, Patches
from chalicelib.store.memory_rows import status_actions, to_operation, to_operations, to_row
from chalicelib.store.staged_saves import TRIES, Staging
from chalicelib.store.table_client import ConditionFailed, Table, TransactionCancelled, Write, value_or_error
from chalicelib.store.tables import ENDED, OPEN, OperationRow

ENDS = frozenset({OperationState.SUCCEEDED, OperationState.FAILED, OperationState.ABANDONED})
AFTER_RUNNING = ENDS | {OperationState.WAITING}
CLOCKS = 30.0
"""Seconds by which the clocks of two functions may differ: who knows the end of a claim only from the other's clock
waits for so much longer."""


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
            for prefix in (OPEN, ENDED):
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
        """Claim the operation for ttl seconds. owner must be new for every attempt.

        Raises OperationClaimed (another executor has it), OperationNotDue (retry at due_at), OperationFinished (ended,
        or not known).

            planned or waiting       due_at              claimed_until + CLOCKS
            ──┬────────────────────────┬──────────┬───────────────┬────────────────►
              │ OperationNotDue        │ claim ►  │ Operation-    │ taken over: the executor died
                                                    Claimed
        """
        nobody_is_at_it = OperationRow.state.is_in(OperationState.PLANNED.value, OperationState.WAITING.value)
        its_time_has_come = OperationRow.due_at <= self._clock()
        claim = self._claim(cluster, operation, owner, ttl, nobody_is_at_it & its_time_has_come)
        try:
            return to_operation(self._table.write(claim))
        except ConditionFailed as refused:
            if not refused.old:
                return self._claim_elsewhere(cluster, operation, owner, ttl)
            found = to_operation(refused.old)
            if self.is_abandoned(found):
                return self.take_over(found, owner, ttl)
            if found.status.state is OperationState.RUNNING and found.status.claimed_by == owner:
                return found  # the first try succeeded and only its response was lost
            raise _in_the_way(found) from None

    def is_abandoned(self, operation: Operation) -> bool:
        """Return whether its executor's claim is over by any clock."""
        status = operation.status
        return status.state is OperationState.RUNNING and status.claimed_until + CLOCKS < self._clock()

    def take_over(self, old_operation: Operation, owner: str, ttl: float) -> Operation:
        """Claim the operation in place of an executor that has died. old_operation: the operation with that claim,
        which the caller knows to be over; the operation is not taken over if it has another one by now. owner, ttl, and
        what is raised: as for `claim`. The operation's data says that an executor has died (BROKEN)."""
        it_is_being_worked_on = OperationRow.state == OperationState.RUNNING.value
        by_that_executor = OperationRow.claimed_by == old_operation.status.claimed_by
        and_that_claim_was_not_extended = OperationRow.claimed_until == old_operation.status.claimed_until
        cluster, name = old_operation.spec.cluster, old_operation.spec.id
        only = it_is_being_worked_on & by_that_executor & and_that_claim_was_not_extended
        broken = {**old_operation.status.data, BROKEN: str(old_operation.status.attempt + 1)}
        try:
            return to_operation(self._table.write(self._claim(cluster, name, owner, ttl, only, broken)))
        except ConditionFailed as refused:
            if not refused.old:
                return self._claim_elsewhere(cluster, name, owner, ttl)
            found = to_operation(refused.old)
            if found.status.state is OperationState.RUNNING and found.status.claimed_by == owner:
                return found  # the first try succeeded and only its response was lost
            raise _in_the_way(found) from None

    def extend(self, operation: Operation, ttl: float) -> float:
        """Let the claim of a running step last for ttl seconds from now; return its new end. operation: as claimed.
        Raises OperationClaimed, OperationNotDue, OperationFinished if another executor has taken it over."""
        until = self._clock() + ttl
        more = [OperationRow.claimed_until.set(until)]
        row = operation.spec.cluster, OPEN + operation.spec.id
        try:
            self._table.write(self._table.update(*row, more, _is_claimed_as(operation)))
        except ConditionFailed as refused:
            if not refused.old:
                raise OperationFinished("over") from None
            raise _in_the_way(to_operation(refused.old)) from None
        return until

    def advance(
        self,
        old_operation: Operation,
        new_operation: Operation,
        owner: str,
        group_patch: GroupPatch | None = None,
        memory_patch: MemoryPatch | None = None,
    ) -> Operation:
        """Record the result of a step; return the operation as stored. old_operation: as claimed. new_operation:
        waiting or over.

        group_patch: updates the group's memory (given GroupMemory() where there is none); memory_patch: updates the
        cluster-wide instants (last_scale_up …; the rest of the returned Memory is ignored). Both may be called several
        times, with newer values, until no concurrent write interferes.

        Raises IllegalTransition, OperationClaimed (the claim expired and another executor has it), OperationFinished,
        StaleWrite (owner does not hold the claim). The claim ends with the step.
        """
        _check_arrow(old_operation, new_operation, owner)
        stored = new_operation.with_status(claimed_by="", claimed_until=0.0, updated_at=self._clock())
        ours = _is_claimed_as(old_operation)
        item = OPEN + old_operation.spec.id
        if stored.is_open:
            # mark_sent may have written in the meantime; its instant stays unless the executor has a newer one.
            leave = ("sent_at",) if new_operation.status.sent_at == old_operation.status.sent_at else ()
            writes = [
                self._table.update(old_operation.spec.cluster, item, status_actions(stored.status, leave=leave), ours)
            ]
        else:
            writes = [self._table.delete(old_operation.spec.cluster, item, ours), self._table.put(to_row(stored))]
        try:
            self._patches.write(old_operation.spec.cluster, old_operation.spec.group, writes, group_patch, memory_patch)
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

    def _claim(
        self,
        cluster: str,
        operation: str,
        owner: str,
        ttl: float,
        condition: Condition,
        data: dict[str, str] | None = None,
    ) -> Write:
        now = self._clock()
        actions = [
            OperationRow.state.set(OperationState.RUNNING.value),
            OperationRow.claimed_by.set(owner),
            OperationRow.claimed_until.set(now + ttl),
            OperationRow.updated_at.set(now),
            OperationRow.attempt.add(1),
            *([] if data is None else [OperationRow.data.set(encode(data).decode())]),
        ]
        return self._table.update(cluster, OPEN + operation, actions, condition)

    # --- refusals

    def _claim_elsewhere(self, cluster: str, operation: str, owner: str, ttl: float) -> Operation:
        """Handle a missing open row: the operation is over, or part of a large save that is decided but not applied."""
        found = self.get(cluster, operation)
        if found is None:
            raise OperationFinished("unknown")
        if not found.is_open:
            raise OperationFinished(found.status.state.value)
        return self.claim(cluster, operation, owner, ttl)

    def _settle(self, stored_operation: Operation, owner: str) -> Operation:
        """Handle a failed condition: either the same write succeeded before and its response was lost, or it is a real
        conflict."""
        found = self.get(stored_operation.spec.cluster, stored_operation.spec.id)
        if found is None:
            raise OperationFinished("unknown")
        if _says_the_same(found, stored_operation):
            return found
        if found.status.claimed_by == owner or found.status.state in (OperationState.PLANNED, OperationState.WAITING):
            raise StaleWrite(stored_operation.spec.cluster, (OPEN + stored_operation.spec.id,))
        raise _in_the_way(found)


def _is_claimed_as(operation: Operation) -> Condition:
    it_is_being_worked_on = OperationRow.state == OperationState.RUNNING.value
    by_the_same_executor = OperationRow.claimed_by == operation.status.claimed_by
    and_this_is_the_same_attempt = OperationRow.attempt == operation.status.attempt
    same: Condition = it_is_being_worked_on & by_the_same_executor & and_this_is_the_same_attempt
    return same


def _check_arrow(old_operation: Operation, new_operation: Operation, owner: str) -> None:
    if old_operation.status.state is not OperationState.RUNNING or new_operation.status.state not in AFTER_RUNNING:
        raise IllegalTransition(old_operation.status.state.value, new_operation.status.state.value)
    if old_operation.status.claimed_by != owner:
        why = f"it is claimed by {old_operation.status.claimed_by}, not by {owner}"
        raise IllegalTransition(old_operation.status.state.value, new_operation.status.state.value, why)
    if old_operation.spec != new_operation.spec or old_operation.status.attempt != new_operation.status.attempt:
        raise IllegalTransition(
            old_operation.status.state.value,
            new_operation.status.state.value,
            "what an operation does cannot be changed",
        )


def _in_the_way(operation: Operation) -> StoreError:
    status = operation.status
    if status.state is OperationState.RUNNING:
        return OperationClaimed(status.claimed_by, status.claimed_until)
    return OperationNotDue(status.due_at) if operation.is_open else OperationFinished(status.state.value)


def _says_the_same(read_operation: Operation, stored_operation: Operation) -> bool:
    """Compare without the times of the write and of the last message."""
    status = stored_operation.status
    return read_operation.with_status(updated_at=status.updated_at, sent_at=status.sent_at) == stored_operation
