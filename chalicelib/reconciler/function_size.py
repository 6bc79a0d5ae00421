"""Decides which function makes a pass: the small one, or the large one that it hands the message over to.

The decision uses the lease's row. A scheduled pass has read it before it acquires the lease, and a wake-up gets it with
the lease, so the decision costs a small cluster nothing. A failed hand-over is not an error: the small function makes
the pass itself, as it would without a large one.
"""

from __future__ import annotations

from chalicelib.dispatch.messages import ReconcileMessage, encode
from chalicelib.dispatch.senders import NotInvoked
from chalicelib.model.pass_footprint import why_large
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.leases import Lease, ScanState


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
