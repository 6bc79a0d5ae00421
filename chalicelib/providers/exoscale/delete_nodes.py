"""TODO"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, ProviderError
from chalicelib.providers.exoscale.decoding import ExoscaleInstance, Work
from chalicelib.providers.exoscale.error_mapping import is_forbidden
from chalicelib.providers.exoscale.node_groups import least_of
from chalicelib.providers.exoscale.provider_ids import handle_of, identify, is_id, is_placeholder, placeholder_pool
from chalicelib.providers.exoscale.scale_up import (
    ENOUGH_LOOKS,
    LOOKS,
    STEP,
    WORK,
    ExoscaleContext,
    begun,
    counted,
    failure,
    has_failed,
    is_pending,
    known_work,
    other_size,
    pause,
)
from chalicelib.providers.exoscale.zone import SHRINKING, ExoscalePool, is_leaving
from chalicelib.providers.joined_nodes import joined_of, refuse_changed, refuse_joined

_FEW = 3  # maximum machines read one by one instead of by the complete list


class ExoscaleTargets(msgspec.Struct, frozen=True):
    """The targets of a removal: machines and placeholders."""

    instances: tuple[str, ...]
    placeholders: tuple[str, ...]


def read_targets(operation: Operation) -> ExoscaleTargets:
    """Return the targets, each once; raises InvalidRequest for one without an id, or for another pool's placeholder."""
    handles: dict[str, None] = {}
    for target in operation.spec.targets:
        handle = handle_of(target)
        if not is_id(handle) and not is_placeholder(handle):
            raise InvalidRequest(f"{target.node or target.instance}: no machine at Exoscale is known for it")
        if is_placeholder(handle) and placeholder_pool(handle) != operation.spec.group:
            raise InvalidRequest(f"{handle} does not belong to {operation.spec.group}")
        handles[handle] = None
    return ExoscaleTargets(
        tuple(each for each in handles if not is_placeholder(each)),
        tuple(each for each in handles if is_placeholder(each)),
    )


def machines(context: ExoscaleContext, ids: Sequence[str]) -> dict[str, ExoscaleInstance]:
    """Return the current data of these machines; an absent one is gone. Raises ProviderError."""
    found: dict[str, ExoscaleInstance] = {}
    if len(ids) > _FEW:
        try:
            found = {each.id.lower(): each for each in context.api.instances() if each.id.lower() in ids}
        except ProviderError as error:
            if not is_forbidden(error):
                raise
    for name in ids:  # the list contains only machines in pools
        if name not in found:
            try:
                found[name] = context.api.instance(name)
            except NotFound:
                continue
    return found


def members(
    context: ExoscaleContext, operation: Operation, targets: ExoscaleTargets, pool: ExoscalePool
) -> tuple[str, ...]:
    """Return the targets that are members of the pool and not leaving.

    Raises InvalidRequest for a machine that exists and belongs to another pool or to none. One unknown to the vendor is
    gone."""
    inside = [each for each in targets.instances if each in pool.members]
    outside = [each for each in targets.instances if each not in pool.members]
    found = machines(context, outside)
    strangers = {
        name: _pool_of(each) for name, each in found.items() if _pool_of(each) not in {"", operation.spec.group}
    }
    strangers |= {name: "no pool" for name, each in found.items() if not _pool_of(each) and not is_leaving(each.state)}
    if strangers:
        reported = "; ".join(f"{name} is in {where}" for name, where in sorted(strangers.items()))
        raise InvalidRequest(f"{reported}, and not in {pool.title}")
    late = [name for name, each in found.items() if not is_leaving(each.state)]
    return (*inside, *late)


def lives(context: ExoscaleContext, pool: ExoscalePool, names: Sequence[str]) -> tuple[str, ...]:
    """Return the machines that the pool still has and that are not leaving; raises ProviderError."""
    return remaining(context, [each for each in names if each in pool.members])


def remaining(context: ExoscaleContext, names: Sequence[str]) -> tuple[str, ...]:
    """Return the machines that the vendor knows and that are not leaving; raises ProviderError."""
    found = machines(context, names)
    return tuple(name for name in names if name in found and not is_leaving(found[name].state))


def _pool_of(instance: ExoscaleInstance) -> str:
    return instance.manager.id.lower() if instance.manager is not None else ""


def spare_the_joined(context: ExoscaleContext, instances: Iterable[str]) -> None:
    """Raises PermanentConflict if one of the instances is a node by now. Without a connection to the cluster nothing is
    checked: the caller has looked by name."""
    if context.joined is None:
        return
    refuse_joined(joined_of(instances, identify(context.joined())))


def check_nodes(context: ExoscaleContext, operation: Operation, instances: Collection[str]) -> None:
    """Raises PermanentConflict if one of the instances is not, or not for certain, the node that was planned.
    Without a connection to the cluster nothing is checked."""
    if context.joined is None:
        return
    nodes = context.joined()
    identity = identify(nodes)

    def among(target: RemovalTarget) -> str | None:
        return name if (name := handle_of(target)) in instances else None

    refuse_changed(operation.spec.targets, among, identity, nodes)


def decrease_target(context: ExoscaleContext, operation: Operation) -> Outcome:
    """Lower the size to to_size if no machine has to be deleted for it, and verify the result; raises ProviderError."""
    if operation.spec.to_size < 0:
        raise InvalidRequest(f"{operation.spec.group}: {operation.spec.to_size} is not a valid size")
    work = known_work(context, operation)
    if is_pending(work):
        wait = pause(operation)
        return InProgress(wait.after, STEP, wait.data, f"operation {operation.status.data[WORK]} is under way")
    site = context.site(operation.spec.group)
    if site.target <= operation.spec.to_size:
        return Succeeded({"from": operation.spec.from_size, "to": operation.spec.to_size})
    if work is not None:
        return _not_lowered(operation, site, work)
    if site.target != operation.spec.from_size:
        return other_size(operation, site)
    there = least_now(context, site)
    if operation.spec.to_size < there:
        raise InvalidRequest(f"{site.title}: {operation.spec.to_size} is below the {there} machines that exist")
    if operation.spec.to_size < site.least:
        raise InvalidRequest(
            f"{site.title}: {operation.spec.to_size} is below {site.least}, the least the vendor takes"
        )
    context.check_idle(site)
    return begun(context.scale(site, operation.spec.to_size))


def _not_lowered(operation: Operation, pool: ExoscalePool, work: Work) -> Outcome:
    """Return the outcome if the vendor's operation is over and the size is unchanged. The pool may lag briefly
    behind."""
    if has_failed(work):
        return failure(pool.title, work, {"from": operation.spec.from_size, "to": operation.spec.to_size})
    looks = counted(operation.status.data, LOOKS) + 1
    if looks < ENOUGH_LOOKS:
        return InProgress(pause(operation).after, STEP, {**operation.status.data, LOOKS: str(looks)}, pool.restless)
    return Failed("Unknown", f"{pool.title} still has the size {pool.target} after operation {work.id}")


def take_back(context: ExoscaleContext, operation: Operation, pool: ExoscalePool, count: int) -> Outcome | None:
    """Lower the size by a number of machines that were never created; None if there is nothing left to lower.

    The new size is computed from the planned size, so the call may be repeated. If the size is lower already, this
    operation or a concurrent removal has lowered it, and the next pass sees the remainder. Failed if it has increased.
    Raises ProviderError."""
    if pool.target > operation.spec.from_size:
        return other_size(operation, pool)
    goal = max(least_now(context, pool), pool.least, operation.spec.from_size - count)
    if goal >= pool.target:
        return None
    context.check_idle(pool)
    return begun(context.scale(pool, goal))


def least_now(context: ExoscaleContext, pool: ExoscalePool) -> int:
    """Return the number of existing machines.

    The larger of the pool's list and the machine list is used, because the pool may omit its list. A key that may not
    list machines has only the pool's list. Raises ProviderError."""
    try:
        listed = [
            each
            for each in context.api.instances()
            if each.manager is not None and each.manager.id == pool.id and not is_leaving(each.state)
        ]
    except ProviderError as error:
        if not is_forbidden(error):
            raise
        listed = []
    return max(len(pool.members), len(listed))


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
