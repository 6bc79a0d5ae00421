"""What becomes of a message whose pass this function does not make: another function makes
it, or it is sent again.

Two functions make passes, a small one and a large one. Which of them makes a pass depends on the
lease's row. A scheduled pass has read it before it acquires the lease, and a wake-up gets it with
the lease, so the decision costs a small cluster nothing. A failed hand-over is not an error: the
small function makes the pass itself, as it would without a large one.

The reconcile queue redelivers a failed message after its visibility timeout of twelve minutes,
which is right for a function that died. A cluster, a vendor or the table that was unreachable for
some seconds is available long before that. The message of a failed wake-up is therefore sent again
a few times; a longer outage is left to the queue and its dead-letter queue.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.passes.scan_scheduler import meant_after
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.messages import RECONCILE, Cause, ReconcileMessage, encode
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.senders import NotInvoked, NotSent, whole_delay
from chalicelib.store.errors import StoreError
from chalicelib.store.leases import Lease, ScanState
from chalicelib.store.pass_footprint import why_large

AFTER = 30.0
"""Seconds until a failed wake-up is tried again."""
MOST = 5
"""Attempts after the first."""
_LATER = 1.0  # seconds after the end of a lease at which a message for that case arrives
_EARLIER = 0.001  # seconds before the beginning of a pass; the pass itself supersedes its watch
# seconds of clock difference between two functions: the retry must find the window closed
_CLOCKS = 5.0


def why_large_before(scan: ScanState, runtime: Runtime) -> str:
    """Return why this pass needs the large function, "" where it does not. scan: the row
    before the lease is acquired. A lease that is still in force belongs to a running
    pass, not to one that died."""
    if runtime.hand_over is None:
        return ""
    now = runtime.clock()
    died = scan.memory.unended > 0 and scan.lease_until < now
    return why_large(scan.memory, runtime.memory_size, now, died=died)


def why_large_with(lease: Lease, runtime: Runtime) -> str:
    """Return the same with the lease, whose row already counts this pass."""
    if runtime.hand_over is None:
        return ""
    return why_large(
        lease.memory, runtime.memory_size, runtime.clock(), died=lease.memory.unended > 1
    )


def hand_over(message: ReconcileMessage, why: str, runtime: Runtime) -> bool:
    """Return whether the large function has accepted the message. If not, the log says why, and
    this function makes the pass."""
    if runtime.hand_over is None:
        return False
    cluster = message.cluster
    try:
        runtime.hand_over(encode(message))
    except NotInvoked as error:
        what = "large function not invoked; reconciling in the small one"
        logger.warning(what, cluster=cluster, why=why, **failure(error))
        return False
    logger.info("pass handed over to the large function", cluster=cluster, why=why)
    return True


def send_again(message: ReconcileMessage, after: float, runtime: Runtime) -> None:
    """Send the message once more, unless an equivalent one is under way. Raises StoreError,
    NotSent: then the queue redelivers the first one."""
    if runtime.store.debounce.first_use(message.cluster, "again", after, kind="again"):
        runtime.sender.send(
            RECONCILE,
            encode(msgspec.structs.replace(message, at=runtime.clock())),
            whole_delay(after),
        )


def send_unless_passed(
    policy: Policy, last_pass: float, remaining: float, runtime: Runtime
) -> None:
    """Send a scheduled message for the end of a lease that another pass holds, unless one is under
    way. If that pass has died, the message begins the next one; otherwise it is superseded.
    last_pass: when the last pass that ended has begun. remaining: seconds of the lease. Raises
    StoreError, NotSent."""
    after = max(remaining, 0.0) + _LATER
    if runtime.store.debounce.first_use(policy.name, "unless passed", after, kind="unless-passed"):
        _send_scheduled(policy, last_pass, after, runtime)


def watch(policy: Policy, began: float, lease_for: float, runtime: Runtime) -> None:
    """Send a scheduled message that begins another pass if the one that begins now is
    killed. A wake-up is not repeated for minutes otherwise. Where it cannot be sent,
    the pass is not watched."""
    try:
        _send_scheduled(policy, began - 2 * _EARLIER, lease_for + _LATER, runtime)
    except NotSent as error:
        logger.warning("pass not watched", cluster=policy.name, **failure(error))


def _send_scheduled(policy: Policy, last_pass: float, after: float, runtime: Runtime) -> None:
    """Send a scheduled message that any pass supersedes which began after `last_pass`."""
    at = meant_after(last_pass, policy.scan_interval)
    runtime.sender.send(RECONCILE, encode(ReconcileMessage(policy.name, at=at)), whole_delay(after))


def look_again(cluster: str, after: float, runtime: Runtime) -> None:
    """Request a pass after these seconds, because this one waits for pods. Raises nothing: the next
    scheduled pass follows in any case."""
    try:
        send_again(ReconcileMessage(cluster, reason=Cause.OPERATION.value), after, runtime)
    except (NotSent, StoreError) as error:
        logger.warning(
            "pass not requested; the next scheduled one follows", cluster=cluster, **failure(error)
        )


def retry_soon(message: ReconcileMessage, error: OutscalerError, runtime: Runtime) -> bool:
    """Return whether the message of a failed pass was sent again, or an equivalent one is under
    way; if not, the queue must keep it.

    Not for a scheduled pass, which the next tick requests, nor for an operator's mistake,
    which time does not correct.
    """
    if (
        message.reason == Cause.SCHEDULE.value
        or isinstance(error, BadInput)
        or message.tries >= MOST
    ):
        return False
    try:
        first = runtime.store.debounce.first_use(
            message.cluster, "retry", AFTER - _CLOCKS, kind="retry"
        )
    except StoreError:
        first = True
    tries = message.tries + 1
    try:
        if first:
            again = msgspec.structs.replace(message, at=runtime.clock(), tries=tries)
            runtime.sender.send(RECONCILE, encode(again), whole_delay(AFTER))
    except NotSent:
        return False
    logger.error(
        "pass failed; requeued", cluster=message.cluster, after=AFTER, tries=tries, **failure(error)
    )
    return True
