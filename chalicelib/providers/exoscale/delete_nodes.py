"""Removes machines by id, with one eviction for all remaining targets, which also lowers the size.

Every call first reads the pool and continues from that state, so it may be repeated or interrupted at any point:

    our operation is pending                   poll again
    our operation has failed                   failed with its class, if any target is left
    all targets gone or leaving                done
    evicted, and still members                 poll again while the pool is changed; finally failed
    placeholders among them                    lower the size first, never below what exists
    the vendor is changing the pool            poll again: it may be an eviction whose response was lost
    members, and the group stays at or above its minimum: evict

An eviction is not repeated while its result is uncertain: two evictions could delete two machines, or one machine and
lower the size by two.
"""

from __future__ import annotations

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound
from chalicelib.providers.exoscale.context import ExoscaleContext
from chalicelib.providers.exoscale.decrease_target import take_back
from chalicelib.providers.exoscale.instance_states import SHRINKING
from chalicelib.providers.exoscale.models import Work
from chalicelib.providers.exoscale.operation_polling import (
    ENOUGH_LOOKS,
    LOOKS,
    STEP,
    WORK,
    begun,
    counted,
    failure,
    has_failed,
    is_pending,
    known_work,
    pause,
)
from chalicelib.providers.exoscale.pools import ExoscalePool
from chalicelib.providers.exoscale.size_bounds import least_of
from chalicelib.providers.exoscale.targets import (
    ExoscaleTargets,
    check_nodes,
    lives,
    members,
    read_targets,
    remaining,
    spare_the_joined,
)

EVICTED = "evicted"  # data key: the eviction has been accepted
# Seconds until a removal tries again. A pool accepts one eviction at a time, and a plan removes several machines of
# it. The operation runner retries only a few times, so with a shorter delay a drained node would be given up before
# its turn.
TURN = 90.0


def delete_nodes(context: ExoscaleContext, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Writes nothing if a target does not belong to the pool."""
    try:
        return _step(context, operation)
    except Conflict as error:
        if operation.spec.kind is OperationKind.DELETE_NODES and not error.retry_after:
            raise Conflict(error.message, code=error.code, request_id=error.request_id, retry_after=TURN) from None
        raise


def _step(context: ExoscaleContext, operation: Operation) -> Outcome:
    targets = read_targets(operation)
    work = known_work(context, operation)
    if is_pending(work):
        return _wait(operation, f"operation {operation.status.data[WORK]} is under way")
    try:
        site = context.site(operation.spec.group)
    except NotFound:
        return _without_pool(context, operation, targets)
    if EVICTED in operation.status.data:
        return _evicted(context, operation, targets, site, work)
    if work is not None and has_failed(work):  # the operation that lowered the size
        return failure(site.title, work, {"removed": 0, WORK: work.id})
    return _begin(context, operation, targets, site)


def _begin(context: ExoscaleContext, operation: Operation, targets: ExoscaleTargets, pool: ExoscalePool) -> Outcome:
    left = members(context, operation, targets, pool)
    if operation.spec.kind is OperationKind.DELETE_INSTANCES and left:
        spare_the_joined(context, left)
    if pool.restless and (left or targets.placeholders):
        return _hold(context, operation, targets, pool, left)
    if targets.placeholders and (outcome := take_back(context, operation, pool, len(targets.placeholders))):
        return outcome
    if not left:
        return _done(operation, targets)
    _permitted(context, operation, pool, left)
    if operation.spec.kind is OperationKind.DELETE_NODES:
        check_nodes(context, operation, left)
    return begun(context.evict(pool, left), {EVICTED: "yes"})


def _hold(
    context: ExoscaleContext, operation: Operation, targets: ExoscaleTargets, pool: ExoscalePool, left: tuple[str, ...]
) -> Outcome:
    """Wait while the pool is changing, because the change may be our own request.

    Raises Conflict as long as this operation has recorded no request. The caller then checks the node again before it
    retries."""
    if not targets.placeholders and not remaining(context, left):
        return _done(operation, targets)
    if WORK not in operation.status.data:
        raise Conflict(pool.restless, code="busy")
    return _wait(operation, pool.restless)


def cancel_delete(context: ExoscaleContext, operation: Operation) -> bool:
    """Return whether any target is still there and not leaving.

    There is nothing to undo, because the vendor is not modified before the eviction. Raises Conflict while the pool
    shrinks, because it is then unknown which machines will go, and ProviderError."""
    targets = read_targets(operation)
    try:
        site = context.site(operation.spec.group)
    except NotFound:
        return False
    if lives(context, site, targets.instances):
        nodepool = site.nodepool.state if site.nodepool is not None else ""
        if {site.pool.state, nodepool} & SHRINKING or len(site.members) > site.target:
            raise Conflict(f"{site.title} shrinks ({site.states}): who of it stays is not known yet", code="busy")
        return True
    return bool(targets.placeholders) and site.target >= operation.spec.from_size


def _evicted(
    context: ExoscaleContext, operation: Operation, targets: ExoscaleTargets, pool: ExoscalePool, work: Work | None
) -> Outcome:
    """Continue after an eviction whose operation has ended or is no longer known to the vendor."""
    left = [each for each in targets.instances if each in pool.members]
    if not left:
        return _done(operation, targets)
    if pool.busy:
        return _wait(operation, f"{pool.title} is being changed ({pool.states})")
    left = list(lives(context, pool, left))
    if not left:
        return _done(operation, targets)
    facts: dict[str, str | int] = {"removed": len(targets.instances) - len(left), "left": ",".join(left)}
    if work is not None and has_failed(work):
        return failure(f"{pool.title}: {', '.join(left)} could not be removed", work, {**facts, WORK: work.id})
    looks = counted(operation.status.data, LOOKS) + 1
    if looks < ENOUGH_LOOKS:
        wait = pause(operation)
        return InProgress(wait.after, STEP, {**wait.data, LOOKS: str(looks)}, f"{', '.join(left)}: still listed")
    return Failed(
        "Unknown", f"{pool.title}: the vendor says that {', '.join(left)} was evicted and lists it still", facts=facts
    )


def _wait(operation: Operation, note: str) -> InProgress:
    """Return Pending without a limit of polls. The caller limits the total time; a leaving machine is not given up
    here."""
    wait = pause(operation)
    return InProgress(wait.after, STEP, wait.data, note)


def _done(operation: Operation, targets: ExoscaleTargets) -> Succeeded:
    return Succeeded({"removed": len(targets.instances) + len(targets.placeholders), "group": operation.spec.group})


def _without_pool(context: ExoscaleContext, operation: Operation, targets: ExoscaleTargets) -> Outcome:
    """Continue after the pool, and its machines with it, is gone or leaving. Machines that remain are not deleted."""
    left = remaining(context, targets.instances)
    if not left:
        return _done(operation, targets)
    if operation.status.data:
        return _wait(operation, f"{operation.spec.group} is gone; {', '.join(left)} is still there")
    raise NotFound(
        f"there is no instance pool {operation.spec.group} (it may have been deleted), "
        f"but {', '.join(left)} is still there"
    )


def _permitted(context: ExoscaleContext, operation: Operation, pool: ExoscalePool, left: tuple[str, ...]) -> None:
    """Raise InvalidRequest if the group would fall below its minimum.

    The pool is at rest here; while it is being changed, its numbers may already include our own request."""
    if operation.spec.kind is OperationKind.DELETE_INSTANCES:
        return
    least = least_of(pool, context.bounds(pool))
    if pool.target - len(left) < least:
        raise InvalidRequest(f"{pool.title}: {pool.target - len(left)} would be below the minimum {least}")
