"""Retries a wake-up soon after its pass failed.

The reconcile queue redelivers a failed message after its visibility timeout of twelve minutes, which is right for a
function that died. A cluster, a vendor or the table that was unreachable for some seconds is available long before
that. The message is therefore sent again a few times; a longer outage is left to the queue and its dead-letter queue.
"""

from __future__ import annotations

import msgspec

from chalicelib.dispatch.messages import RECONCILE, Cause, ReconcileMessage, encode
from chalicelib.dispatch.senders import NotSent, whole_delay
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.errors import StoreError

AFTER = 30.0
"""Seconds until the next attempt."""
MOST = 5
"""Attempts after the first."""
_CLOCKS = 5.0  # seconds of clock difference between two functions: the retry must find the window closed


def ask_again_soon(message: ReconcileMessage, error: OutscalerError, runtime: Runtime) -> bool:
    """Return whether the message was sent again, or an equivalent one is under way; if not, the queue must keep it.

    Not for a scheduled pass, which the next tick requests, nor for an operator's mistake, which time does not correct.
    """
    if message.reason == Cause.SCHEDULE.value or isinstance(error, BadInput) or message.tries >= MOST:
        return False
    try:
        if _first(message.cluster, runtime):
            again = msgspec.structs.replace(message, at=runtime.clock(), tries=message.tries + 1)
            runtime.sender.send(RECONCILE, encode(again), whole_delay(AFTER))
    except NotSent:
        return False
    logger.error(
        "pass failed; requeued", cluster=message.cluster, after=AFTER, tries=message.tries + 1, **failure(error)
    )
    return True


def _first(cluster: str, runtime: Runtime) -> bool:
    """Return whether no other failed wake-up of the cluster has requested this already; True where the table fails,
    too."""
    try:
        return runtime.store.debounce.first_use(cluster, "retry", AFTER - _CLOCKS, kind="retry")
    except StoreError:
        return True
