"""What becomes of a message whose pass this function does not make: another function makes
it, or it is sent again.

| The pass | Its message |
|---|---|
| needs the large function | is handed over |
| finds the lease of another pass | is sent again: a wake-up soon, a scheduled one for its end |
| may be killed | is watched by another one, which arrives when its lease has ended |
| waits for pods, or was overtaken by executors | is sent again, within seconds |
| failed | a wake-up is sent again, a few times; then, and at once if scheduled, the queue has it |

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
from chalicelib.passes.lease_renewal import LEASE_FOR
from chalicelib.passes.scan_scheduler import meant_after
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.messages import RECONCILE, Cause, ReconcileMessage, encode
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.senders import NotInvoked, NotSent, whole_delay
from chalicelib.store.errors import LeaseHeld, StoreError
from chalicelib.store.leases import Lease, ScanState
from chalicelib.store.pass_footprint import why_large

AFTER = 30.0
"""Seconds until a failed wake-up is tried again."""
MOST = 5
"""Attempts after the first."""
BUSY_FOR = 5.0
"""Maximum seconds until a pass that could not start is retried."""
BUSY_AT_FIRST = 1.0
"""The same while the other pass is younger than BUSY_FOR: most passes end within a second or
two."""
SOON = 10.0
"""Seconds between scheduled passes up to which a pass that finds a lease of a dead
one is not repeated for it."""
_LATER = 1.0  # seconds after the end of a lease at which a message for that case arrives
_EARLIER = 0.001  # seconds before the beginning of a pass; the pass itself supersedes its watch
# seconds of clock difference between two functions: the retry must find the window closed
_CLOCKS = 5.0

AGAIN, UNLESS_PASSED, RETRY = "again", "unless-passed", "retry"
"""Kinds of messages that are sent once within their window."""


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


def acquire(
    message: ReconcileMessage, policy: Policy, runtime: Runtime, last_pass: float = 0.0
) -> Lease | None:
    """Return the lease; None where another pass has it. A wake-up is then queued again, once: it
    may report a change that the other pass has not seen. A scheduled message is queued again for
    the case that the other pass has died. last_pass: when the last pass that ended has begun, for a
    scheduled message. Raises StoreError, NotSent."""
    try:
        return runtime.store.leases.acquire(policy.name, runtime.owner(), LEASE_FOR)
    except LeaseHeld as error:
        remaining = error.until - runtime.clock()
        if message.reason == Cause.SCHEDULE.value:
            # The message has arrived; leaving the marker would make the
            # next ticks skip the cluster.
            runtime.store.scan_states.clear_queued(policy.name)
            if policy.scan_interval > SOON:
                after = max(remaining, 0.0) + _LATER
                scheduled = _scheduled(message, policy, last_pass)
                _send_once(scheduled, after, UNLESS_PASSED, after, runtime)
            return None
        young = remaining > LEASE_FOR - BUSY_FOR
        after = BUSY_AT_FIRST if young else min(max(remaining, 1.0), BUSY_FOR)
        send_again(message, after, runtime)
        return None


def hand_over(message: ReconcileMessage, why: str, runtime: Runtime) -> bool:
    """Return whether the large function has accepted the message. If not, the log says why, and
    this function makes the pass."""
    if runtime.hand_over is None:
        return False
    cluster = message.cluster
    try:
        runtime.hand_over(message)
    except NotInvoked as error:
        what = "large function not invoked; reconciling in the small one"
        logger.warning(what, cluster=cluster, why=why, **failure(error))
        return False
    logger.info("pass handed over to the large function", cluster=cluster, why=why)
    return True


def watch(message: ReconcileMessage, policy: Policy, began: float, runtime: Runtime) -> None:
    """Send a scheduled message that begins another pass if the one that begins now is
    killed. A wake-up is not repeated for minutes otherwise. Where it cannot be sent,
    the pass is not watched."""
    try:
        scheduled = _scheduled(message, policy, began - 2 * _EARLIER)
        _send(scheduled, LEASE_FOR + _LATER, runtime)
    except NotSent as error:
        logger.warning("pass not watched", cluster=policy.name, **failure(error))


def send_again(message: ReconcileMessage, after: float, runtime: Runtime) -> None:
    """Send the message once more, unless an equivalent one is under way. Raises StoreError,
    NotSent: then the queue redelivers the first one."""
    again = msgspec.structs.replace(message, at=runtime.clock())
    _send_once(again, after, AGAIN, after, runtime)


def look_again(message: ReconcileMessage, after: float, runtime: Runtime) -> None:
    """Request a pass after these seconds, because this one waits for pods, or had no time for all
    that it takes back. Raises nothing: the next scheduled pass follows if there is any."""
    try:
        again = msgspec.structs.replace(message, reason=Cause.OPERATION.value, tries=0)
        send_again(again, after, runtime)
    except (NotSent, StoreError) as error:
        logger.warning(
            "pass not requested; the next scheduled one follows",
            cluster=message.cluster,
            **failure(error),
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
    tries = message.tries + 1
    again = msgspec.structs.replace(message, at=runtime.clock(), tries=tries)
    try:
        try:
            _send_once(again, AFTER, RETRY, AFTER - _CLOCKS, runtime)
        except StoreError:  # whether one is under way is not known
            _send(again, AFTER, runtime)
    except NotSent:
        return False
    logger.error(
        "pass failed; requeued", cluster=message.cluster, after=AFTER, tries=tries, **failure(error)
    )
    return True


def _scheduled(message: ReconcileMessage, policy: Policy, last_pass: float) -> ReconcileMessage:
    """Return a scheduled message that any pass supersedes which began after `last_pass`."""
    at = meant_after(last_pass, policy.scan_interval)
    return msgspec.structs.replace(message, reason=Cause.SCHEDULE.value, at=at, tries=0)


def _send_once(
    message: ReconcileMessage, after: float, kind: str, window: float, runtime: Runtime
) -> None:
    """Send the message, unless one of this kind was sent within the window. Raises StoreError,
    NotSent."""
    key = kind.replace("-", " ")
    if runtime.store.debounce.first_use(message.cluster, key, window, kind=kind):
        _send(message, after, runtime)


def _send(message: ReconcileMessage, after: float, runtime: Runtime) -> None:
    """Send the message so that it arrives after these seconds. Raises NotSent."""
    runtime.sender.send(RECONCILE, encode(message), whole_delay(after))
