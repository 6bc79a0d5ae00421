"""Finds stuck operations, which are saved but have no message or executor under way, and
sends their messages again.

Saving and sending are two steps, and a process may die between them; a message may also be lost
after it was sent. Without this, an operation of a function that died would stay open for ever.
Sending once too often is harmless, because a message carries only a name and the claim decides
which executor works, so the rules only have to be patient enough to avoid needless messages.
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.model.operation import Operation, OperationState
from chalicelib.runtime.log import logger
from chalicelib.runtime.messages import ActMessage, act_queue, encode
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.errors import StoreError

#: Saved in one transaction and sent right after it: seconds after which the sender must be dead.
UNSENT_FOR = 30.0

#: The longest time a message may be under way before it counts as lost.
UNHEARD_FOR = 120.0


def resend_operations(
    cluster: str, opened: tuple[Operation, ...] | StoreError, runtime: Runtime
) -> tuple[str, ...]:
    """Send operations again that were saved but never sent, or have been silent since;
    return their ids. opened: the cluster's open operations, or the error that is raised
    because they cannot be read."""
    if isinstance(opened, StoreError):
        raise opened
    now = runtime.clock()
    resent = []
    for operation in opened:
        why = resend_reason(operation, now)
        if why:
            runtime.sender.send(
                act_queue(operation.spec.provider),
                encode(ActMessage(cluster, operation.spec.id)),
                0,
            )
            runtime.store.operations.mark_sent(cluster, operation.spec.id, now)
            logger.warning(
                "operation re-sent", cluster=cluster, operation=operation.spec.id, why=why
            )
            resent.append(operation.spec.id)
    return tuple(resent)


def resend_reason(operation: Operation, now: float) -> str:
    """Return why this operation should be sent again, by the first rule that applies; empty if it
    should not. now: epoch seconds."""
    return next((why for why, holds in RULES if holds(operation, now)), "")


def _is_silent(operation: Operation, since: float, now: float) -> bool:
    """Return whether nothing has happened since that instant, nor since the last message."""
    return now - max(since, operation.status.sent_at) > UNHEARD_FOR


def _never_sent(operation: Operation, now: float) -> bool:
    status = operation.status
    planned = status.state is OperationState.PLANNED and status.sent_at == 0.0
    return planned and now - operation.spec.created_at > UNSENT_FOR


def _never_taken(operation: Operation, now: float) -> bool:
    status = operation.status
    due = max(operation.spec.created_at, status.due_at)
    return (
        status.state is OperationState.PLANNED
        and status.sent_at > 0.0
        and _is_silent(operation, due, now)
    )


def _overdue(operation: Operation, now: float) -> bool:
    return operation.status.state is OperationState.WAITING and _is_silent(
        operation, operation.status.due_at, now
    )


def _claim_ended(operation: Operation, now: float) -> bool:
    last_sign = max(operation.status.claimed_until, operation.status.sent_at)
    return operation.status.state is OperationState.RUNNING and now - last_sign > UNSENT_FOR


RULES: tuple[tuple[str, Callable[[Operation, float], bool]], ...] = (
    ("saved but never sent", _never_sent),
    ("sent but never taken", _never_taken),
    ("waiting and overdue", _overdue),
    ("its executor's claim ran out", _claim_ended),
)
