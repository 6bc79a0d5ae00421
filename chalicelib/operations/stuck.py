"""Finds stuck operations: open ones that are saved but have no message or executor under way.

Saving and sending are two steps, and a process may die between them; a message may also be lost after it was sent.
Sending once too often is harmless, because the claim decides which executor works, so the rules only have to be patient
enough to avoid needless messages. An ordered table; the first rule that applies gives the reason for the log.
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.model.operation import Operation, OperationState

#: Saved in one transaction and sent right after it: seconds after which the sender must be dead.
UNSENT_FOR = 30.0

#: The longest time a message may be under way before it counts as lost.
UNHEARD_FOR = 120.0


def _unheard(operation: Operation, since: float, now: float) -> bool:
    """Return whether nothing has happened since that instant, nor since the last message."""
    return now - max(since, operation.status.sent_at) > UNHEARD_FOR


def _never_sent(operation: Operation, now: float) -> bool:
    return (
        operation.status.state is OperationState.PLANNED
        and operation.status.sent_at == 0.0
        and now - operation.spec.created_at > UNSENT_FOR
    )


def _never_taken(operation: Operation, now: float) -> bool:
    due = max(operation.spec.created_at, operation.status.due_at)
    return (
        operation.status.state is OperationState.PLANNED
        and operation.status.sent_at > 0.0
        and _unheard(operation, due, now)
    )


def _overdue(operation: Operation, now: float) -> bool:
    return operation.status.state is OperationState.WAITING and _unheard(operation, operation.status.due_at, now)


def _abandoned(operation: Operation, now: float) -> bool:
    last_sign = max(operation.status.claimed_until, operation.status.sent_at)
    return operation.status.state is OperationState.RUNNING and now - last_sign > UNSENT_FOR


RULES: tuple[tuple[str, Callable[[Operation, float], bool]], ...] = (
    ("saved but never sent", _never_sent),
    ("sent but never taken", _never_taken),
    ("waiting and overdue", _overdue),
    ("its executor's claim ran out", _abandoned),
)


def resend_reason(operation: Operation, now: float) -> str:
    """Return why this operation should be sent again, empty if it should not. now: epoch seconds."""
    return next((why for why, holds in RULES if holds(operation, now)), "")
