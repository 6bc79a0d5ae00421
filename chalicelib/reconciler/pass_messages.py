"""TODO"""

from __future__ import annotations

import msgspec

from chalicelib.dispatch.errors import NotInvoked, NotSent
from chalicelib.dispatch.messages import RECONCILE, Cause, ReconcileMessage, encode
from chalicelib.dispatch.sqs import whole_delay
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.pass_footprint import why_large
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.errors import StoreError
from chalicelib.store.leases import Lease
from chalicelib.store.scan_state import ScanState


def wanted_before(scan: ScanState, runtime: Runtime) -> str:
    """Return why this pass needs the large function, "" where it does not. scan: the row before the lease is acquired.
    A lease that is still in force belongs to a running pass, not to one that died."""
    if runtime.hand_over is None:
        return ""
    now = runtime.clock()
    died = scan.memory.unended > 0 and scan.lease_until < now
    return why_large(scan.memory, runtime.memory_size, now, died=died)


def wanted_with(lease: Lease, runtime: Runtime) -> str:
    """Return the same with the lease, whose row already counts this pass."""
    if runtime.hand_over is None:
        return ""
    return why_large(lease.memory, runtime.memory_size, runtime.clock(), died=lease.memory.unended > 1)


def handed_over(message: ReconcileMessage, why: str, runtime: Runtime) -> bool:
    """Return whether the large function has accepted the message. If not, the log says why, and this function makes the
    pass."""
    if runtime.hand_over is None:
        return False
    try:
        runtime.hand_over(encode(message))
    except NotInvoked as error:
        logger.warning(
            "large function not invoked; reconciling in the small one",
            cluster=message.cluster,
            why=why,
            **failure(error),
        )
        return False
    logger.info("pass handed over to the large function", cluster=message.cluster, why=why)
    return True


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
