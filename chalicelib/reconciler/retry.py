"""A wake-up whose pass failed is asked for again soon.

The reconcile queue gives a failed message back after its visibility timeout of twelve minutes, which is right for a
function that died. A cluster, a vendor or the table that was out of reach for some seconds is back long before. So the
message goes into the queue once more, a few times; an outage that lasts is left to the queue and its dead letters.
"""

from __future__ import annotations

import msgspec

from chalicelib.dispatch.errors import NotSent
from chalicelib.dispatch.messages import RECONCILE, Cause, ReconcileMessage, encode
from chalicelib.dispatch.sqs import whole_delay
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.errors import StoreError

AFTER = 30.0
"""Seconds until the next attempt."""
MOST = 5
"""Attempts after the first."""
_CLOCKS = 5.0  # seconds by which clocks of two functions may differ: the next attempt must find the window closed


def ask_again_soon(message: ReconcileMessage, error: OutscalerError, rt: Runtime) -> bool:
    """Whether the message was sent again, or another one like it is on its way; if not, the queue must keep it.

    Not for a scheduled pass, which the next tick asks for, nor for a person's mistake, which time does not correct.
    """
    if message.reason == Cause.SCHEDULE.value or isinstance(error, BadInput) or message.tries >= MOST:
        return False
    try:
        if _first(message.cluster, rt):
            again = msgspec.structs.replace(message, at=rt.clock(), tries=message.tries + 1)
            rt.sender.send(RECONCILE, encode(again), whole_delay(AFTER))
    except NotSent:
        return False
    logger.error(
        "pass failed, asked for again", cluster=message.cluster, after=AFTER, tries=message.tries + 1, **failure(error)
    )
    return True


def _first(cluster: str, rt: Runtime) -> bool:
    """Whether no other failed wake-up of the cluster has asked for this already; True where the table fails too."""
    try:
        return rt.store.debounce.first_use(cluster, "retry", AFTER - _CLOCKS, kind="retry")
    except StoreError:
        return True
