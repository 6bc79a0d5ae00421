"""Requests a pass: one delayed message per debounce window, for any number of
requests (functions/webhook.py draws the window), and an earlier one for the first
event that says enough by itself.

Events wake a cluster 20 times at once and then once in 10 seconds (store/debounce.py); later
ones are gathered in a window that ends when the next wake-up is permitted. Ends of operations
and people are not limited.

The webhook and the executors share the window, so an operation that ends during a storm of
events adds no extra pass.
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.model.errors import OutscalerError
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.messages import RECONCILE, Cause, ReconcileMessage, encode
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.senders import whole_delay
from chalicelib.store.debounce import PROMPT, WINDOW
from chalicelib.store.errors import StoreError

SHORTEST_WINDOW = 1.0
"""Minimum seconds of a window, whatever the policy sets: without one every event would
cause a message and a pass."""


PROMPT_AGAIN = 3.0
"""Seconds after a prompt request in which further events are gathered: its pass waits up
to two seconds for them."""


def request_reconcile(
    policy: Policy, cause: Cause, runtime: Runtime, *, prompt: bool = False
) -> bool:
    """Return whether this call sent a message: a prompt one, or as the first of its window the one
    that ends it. prompt: whether a pass can use this event by itself, so that the first such event
    does not wait for others. Raises StoreError, NotSent."""
    window = max(policy.webhook.debounce, SHORTEST_WINDOW)
    wakes, limited = runtime.store.debounce.wakes(policy.name), cause is Cause.WEBHOOK
    pause = wakes.pause if limited else 0.0
    promptly = prompt and not pause and PROMPT not in wakes.keys
    if promptly and _requested(policy, cause, runtime, PROMPT, PROMPT_AGAIN, after=0.0):
        return True
    if WINDOW in wakes.keys:
        return False
    window = max(window, pause)
    return _requested(policy, cause, runtime, WINDOW, window, after=window)


def _requested(
    policy: Policy, cause: Cause, runtime: Runtime, key: str, window: float, *, after: float
) -> bool:
    """Send a message, visible after some seconds, unless another call did so within the window."""
    debounce, by = runtime.store.debounce, runtime.owner()
    try:
        if not debounce.wake(policy.name, window, key=key, by=by, limited=cause is Cause.WEBHOOK):
            return False
        message = ReconcileMessage(
            cluster=policy.name, reason=cause.value, at=runtime.clock() + after
        )
        runtime.sender.send(RECONCILE, encode(message), whole_delay(after))
    except OutscalerError:  # not sent: an open window would suppress later wake-ups
        cancel_request(policy.name, lambda: debounce.forget_wake(policy.name, key=key, by=by))
        raise
    return True


def cancel_request(cluster: str, forget: Callable[[], None]) -> None:
    """Undo this writer's change before an error is raised; if that fails, too,
    the row expires by itself."""
    try:
        forget()
    except StoreError as error:
        logger.warning("reconcile request not withdrawn", cluster=cluster, **failure(error))
