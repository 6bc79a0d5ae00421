"""Operations as a conditional state machine: each transition of model/operation.py
is one conditional write.

    planned ─── claim ─► running ─┬─ advance ─► waiting ─ claim ─► running …
                 extend ◄─► │     └─ advance ─► succeeded | failed | abandoned   (moved under
                                                                                 another key)
    running ─── take_over ──┘   once its claim is over: the executor died

Open operations have keys of their own, so that listing them does not read ended ones. What an
executor learns about its group (backoff, cooldowns, the end of a scale-up request) is written in
the same transaction as the operation's state, so that one is never visible without the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from pynamodb.expressions.condition import Condition

from chalicelib.model.operation import BROKEN, Operation, OperationState
from chalicelib.store.codec import encode
from chalicelib.store.errors import (
    IllegalTransition,
    OperationClaimed,
    OperationFinished,
    OperationNotDue,
    RowUnreadable,
    StaleWrite,
    StoreError,
)
from chalicelib.store.memory import GroupPatch, MemoryPatch, Patches, ReplacementPatch
from chalicelib.store.memory_rows import status_actions, to_operation, to_operations, to_row
from chalicelib.store.staged_saves import TRIES, Staging
from chalicelib.store.table_client import (
    ConditionFailed,
    Table,
    TransactionCancelled,
    value_or_error,
)
from chalicelib.store.tables import ENDED, OPEN, OperationRow

ENDS = frozenset({OperationState.SUCCEEDED, OperationState.FAILED, OperationState.ABANDONED})
AFTER_RUNNING = ENDS | {OperationState.WAITING}
CLOCKS = 30.0
"""Seconds by which the clocks of two functions may differ: who knows the end of a claim only from
the other's clock waits for so much longer."""


class Operations:
    """Claims, advances and lists operations."""

    def __init__(self, table: Table, staging: Staging, clock: Callable[[], float]) -> None:
        self._table, self._staging, self._clock = table, staging, clock
        self._patches = Patches(table, staging)

    # --- reading

    def get(self, cluster: str, operation: str) -> Operation | None:
        """Return an operation by id, open or over; None if it was never planned, or has been
        deleted after its retention time."""
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

    def look_at_each(
        self, clusters: Sequence[str]
    ) -> dict[str, tuple[Operation, ...] | StoreError]:
        """Return the open operations of each of many clusters, or why they cannot be read. Those of
        a large save that is being applied may be missing until the next call."""
        return {
            cluster: rows
            if isinstance(rows, StoreError)
            else value_or_error(partial(to_operations, rows))
            for cluster, rows in self._staging.look_at_each(clusters, OPEN).items()
        }

    def ended(self, cluster: str) -> tuple[Operation, ...]:
        """Return the ended operations that are still stored, the oldest first, without rows that
        cannot be read. One read of all of them, so call it seldom."""
        operations = []
        for raw in self._table.query(cluster, ENDED, consistent=False):
            with suppress(RowUnreadable):
                operations.append(to_operation(raw))
        return tuple(
            sorted(operations, key=lambda operation: (operation.spec.created_at, operation.spec.id))
        )

    # --- changing

    def claim(self, cluster: str, operation: str, owner: str, ttl: float) -> Operation:
        """Claim the operation for ttl seconds. owner must be new for every attempt.

        Raises OperationClaimed (another executor has it), OperationNotDue (retry at due_at),
        OperationFinished (ended, or not known).

            planned or waiting       due_at              claimed_until + CLOCKS
            ──┬────────────────────────┬──────────┬───────────────┬────────────────►
              │ OperationNotDue        │ claim ►  │ Operation-    │ taken over: the executor died
                                                    Claimed
        """
        its_time_has_come = OperationRow.due_at <= self._clock()
        return self._claim(cluster, operation, owner, ttl, _is_waiting() & its_time_has_come)

    def is_abandoned(self, operation: Operation) -> bool:
        """Return whether its executor's claim is over by any clock."""
        status = operation.status
        return (
            status.state is OperationState.RUNNING and status.claimed_until + CLOCKS < self._clock()
        )

    def take_over(self, old_operation: Operation, owner: str, ttl: float) -> Operation:
        """Claim the operation in place of an executor that has died. old_operation: the operation
        with that claim, which the caller knows to be over; the operation is not taken over if it
        has another one by now. owner, ttl, and what is raised: as for `claim`. The operation's data
        says that an executor has died (BROKEN)."""
        status = old_operation.status
        it_is_being_worked_on = OperationRow.state == OperationState.RUNNING.value
        by_that_executor = OperationRow.claimed_by == status.claimed_by
        and_that_claim_was_not_extended = OperationRow.claimed_until == status.claimed_until
        only = it_is_being_worked_on & by_that_executor & and_that_claim_was_not_extended
        broken = {**status.data, BROKEN: str(status.attempt + 1)}
        return self._claim(
            old_operation.spec.cluster, old_operation.spec.id, owner, ttl, only, broken
        )

    def extend(self, operation: Operation, ttl: float) -> float:
        """Let the claim of a running step last for ttl seconds from now; return its new end.
        operation: as claimed. Raises OperationClaimed, OperationNotDue, OperationFinished if
        another executor has taken it over."""
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
        replacement_patch: ReplacementPatch | None = None,
    ) -> Operation:
        """Record the result of a step; return the operation as stored. old_operation: as claimed.
        new_operation: waiting or over.

        group_patch: updates the group's memory (given GroupMemory() where there is none);
        memory_patch: updates the cluster-wide instants (last_scale_up …; the rest of the returned
        Memory is ignored); replacement_patch: updates the replacement of which the operation is
        part, unless that is over. They may be called several times, with newer values, until no
        concurrent write interferes.

        Raises IllegalTransition, OperationClaimed (the claim expired and another executor has it),
        OperationFinished, StaleWrite (owner does not hold the claim). The claim ends with the step.
        """
        _check_arrow(old_operation, new_operation, owner)
        stored = new_operation.with_status(
            claimed_by="", claimed_until=0.0, updated_at=self._clock()
        )
        ours = _is_claimed_as(old_operation)
        cluster, item = old_operation.spec.cluster, OPEN + old_operation.spec.id
        if stored.is_open:
            # mark_sent may have written in the meantime; its instant stays unless the
            # executor has a newer one.
            leave = (
                ("sent_at",) if new_operation.status.sent_at == old_operation.status.sent_at else ()
            )
            writes = [
                self._table.update(cluster, item, status_actions(stored.status, leave=leave), ours)
            ]
        else:
            writes = [self._table.delete(cluster, item, ours), self._table.put(to_row(stored))]
        try:
            spec = old_operation.spec
            self._patches.write(
                cluster,
                spec.group,
                writes,
                group_patch,
                memory_patch,
                spec.replacement,
                replacement_patch,
            )
        except TransactionCancelled:
            return self._result_of_refusal(stored, owner)
        return stored

    def mark_sent(self, cluster: str, operation: str, at: float) -> bool:
        """Record that a message was sent for it; False if it is over already."""
        it_is_open = OperationRow.state.exists()
        try:
            self._table.write(
                self._table.update(
                    cluster, OPEN + operation, [OperationRow.sent_at.set(at)], it_is_open
                )
            )
        except ConditionFailed:
            return False
        return True

    def hasten(self, cluster: str, operation: str) -> Operation:
        """Make the next step of a waiting operation due now; attempts and data stay. Raises
        OperationClaimed where a step runs, OperationFinished where it is over or not known."""
        due_now = OperationRow.due_at.set(self._clock())
        try:
            return to_operation(
                self._table.write(
                    self._table.update(cluster, OPEN + operation, [due_now], _is_waiting())
                )
            )
        except ConditionFailed as refused:
            current = to_operation(refused.old) if refused.old else self.get(cluster, operation)
            if current is None:
                raise OperationFinished("unknown") from None
            raise _in_the_way(current) from None

    def _claim(
        self,
        cluster: str,
        operation: str,
        owner: str,
        ttl: float,
        condition: Condition,
        data: dict[str, str] | None = None,
    ) -> Operation:
        """Claim the operation where the condition holds. data: replaces the
        operation's; None: it stays."""
        now = self._clock()
        actions = [
            OperationRow.state.set(OperationState.RUNNING.value),
            OperationRow.claimed_by.set(owner),
            OperationRow.claimed_until.set(now + ttl),
            OperationRow.updated_at.set(now),
            OperationRow.attempt.add(1),
            *([] if data is None else [OperationRow.data.set(encode(data).decode())]),
        ]
        try:
            return to_operation(
                self._table.write(self._table.update(cluster, OPEN + operation, actions, condition))
            )
        except ConditionFailed as refused:
            if not refused.old:
                # The operation is over, or part of a large save that is decided but not applied.
                current = self.get(cluster, operation)
                if current is None or not current.is_open:
                    raise OperationFinished(
                        current.status.state.value if current else "unknown"
                    ) from None
                return self.claim(cluster, operation, owner, ttl)
            current = to_operation(refused.old)
            if data is None and self.is_abandoned(current):
                return self.take_over(current, owner, ttl)
            if (
                current.status.state is OperationState.RUNNING
                and current.status.claimed_by == owner
            ):
                return current  # the first try succeeded and only its response was lost
            raise _in_the_way(current) from None

    def _result_of_refusal(self, stored_operation: Operation, owner: str) -> Operation:
        """Handle a failed condition: either the same write succeeded before and its response was
        lost, or it is a real conflict."""
        current = self.get(stored_operation.spec.cluster, stored_operation.spec.id)
        if current is None:
            raise OperationFinished("unknown")
        # compared without the times of the write and of the last message
        status = stored_operation.status
        if (
            current.with_status(updated_at=status.updated_at, sent_at=status.sent_at)
            == stored_operation
        ):
            return current
        waits = current.status.state in (OperationState.PLANNED, OperationState.WAITING)
        if waits or current.status.claimed_by == owner:
            raise StaleWrite(stored_operation.spec.cluster, (OPEN + stored_operation.spec.id,))
        raise _in_the_way(current)


def _is_waiting() -> Condition:
    waits: Condition = OperationRow.state.is_in(
        OperationState.PLANNED.value, OperationState.WAITING.value
    )
    return waits


def _is_claimed_as(operation: Operation) -> Condition:
    it_is_being_worked_on = OperationRow.state == OperationState.RUNNING.value
    by_the_same_executor = OperationRow.claimed_by == operation.status.claimed_by
    and_this_is_the_same_attempt = OperationRow.attempt == operation.status.attempt
    same: Condition = it_is_being_worked_on & by_the_same_executor & and_this_is_the_same_attempt
    return same


def _check_arrow(old_operation: Operation, new_operation: Operation, owner: str) -> None:
    old, new = old_operation.status, new_operation.status
    if old.state is not OperationState.RUNNING or new.state not in AFTER_RUNNING:
        raise IllegalTransition(old.state.value, new.state.value)
    if old.claimed_by != owner:
        raise IllegalTransition(
            old.state.value, new.state.value, f"it is claimed by {old.claimed_by}, not by {owner}"
        )
    if old_operation.spec != new_operation.spec or old.attempt != new.attempt:
        raise IllegalTransition(
            old.state.value, new.state.value, "what an operation does cannot be changed"
        )


def _in_the_way(operation: Operation) -> StoreError:
    status = operation.status
    if status.state is OperationState.RUNNING:
        return OperationClaimed(status.claimed_by, status.claimed_until)
    return (
        OperationNotDue(status.due_at)
        if operation.is_open
        else OperationFinished(status.state.value)
    )
