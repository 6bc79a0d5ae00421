"""Requests a pass now: one delayed message per debounce window, for any number of requests (handlers/webhook/handler.py
draws the window).

The webhook and the executors share the window, so an operation that ends during a storm of events adds no extra pass.
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.dispatch.messages import RECONCILE, Cause, ReconcileMessage, encode
from chalicelib.dispatch.sqs import whole_delay
from chalicelib.model.errors import OutscalerError
from chalicelib.model.policy import Policy
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.errors import StoreError

SHORTEST_WINDOW = 1.0
"""Minimum seconds of a window, whatever the policy sets: without one every event would cause a message and a pass."""


def request_reconcile(policy: Policy, cause: Cause, rt: Runtime) -> bool:
    """Return whether this call is the first of its window and so sent the message that ends it. Raises StoreError,
    NotSent."""
    window, debounce, by = max(policy.webhook.debounce, SHORTEST_WINDOW), rt.store.debounce, rt.owner()
    try:
        if not debounce.wake(policy.name, window, by=by):
            return False
        message = ReconcileMessage(cluster=policy.name, reason=cause.value, at=rt.clock() + window)
        rt.sender.send(RECONCILE, encode(message), whole_delay(window))
    except OutscalerError:  # not sent: an open window would suppress later wake-ups
        cancel_request(policy.name, lambda: debounce.forget_wake(policy.name, by=by))
        raise
    return True


def cancel_request(cluster: str, forget: Callable[[], None]) -> None:
    """Undo this writer's change before an error is raised; if that fails, too, the row expires by itself."""
    try:
        forget()
    except StoreError as error:
        logger.warning("reconcile request not withdrawn", cluster=cluster, **failure(error))
