"""Removes and restarts machines by id, and lowers the size by machines that were
requested and never created.

One eviction removes all remaining targets and lowers the size. Every call first reads the pool and
continues from that state, so it may be repeated or interrupted at any point:

    our operation is pending                   poll again
    our operation has failed                   failed with its class, if any target is left
    all targets gone or leaving                done
    evicted, and still there                   poll again while the pool is changed; finally failed
    placeholders among them                    lower the size first, never below what exists
    the vendor is changing the pool            poll again: it may be an
                                               eviction whose response was lost
    members, and the group stays at or above its minimum: evict

A pool accepts one eviction at a time, with any number of machines. Other removals of the pool
that are ready therefore join it (`delete_together`); each is checked as if it were alone, and
continues by the same table.

An eviction is not repeated while its result is uncertain: two evictions could delete two
machines, or one machine and lower the size by two. Upstream's DeleteNodes does not check that the
machines belong to the pool.

Upstream's DecreaseTargetSize reports success and does nothing. For a smaller size the vendor
chooses which machines to delete, so the size is never set below the number of existing machines,
according to both the pool's list and the machines' own data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.exoscale.decoding import ExoscaleInstance, Work
from chalicelib.providers.exoscale.error_mapping import is_forbidden
from chalicelib.providers.exoscale.node_groups import least_of
from chalicelib.providers.exoscale.provider_ids import handle_of, identify
from chalicelib.providers.exoscale.scale_up import (
    ENOUGH_LOOKS,
    FOLLOWING,
    WORK,
    ExoscaleContext,
    check_settled,
    failure,
    has_failed,
    is_pending,
    known_work,
    poll_later,
    read_again,
    requested,
)
from chalicelib.providers.exoscale.zone import ExoscalePool, is_leaving
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
)
from chalicelib.providers.kit.group_builder import placeholder_group
from chalicelib.providers.kit.node_identity import PermanentConflict
from chalicelib.providers.kit.removal_guard import (
    Targets,
    check_minimum,
    check_nodes,
    read_targets,
    refuse_foreign,
)
from chalicelib.providers.kit.services import UNANSWERED
from chalicelib.providers.kit.sized_group import (
    Floor,
    SizedGroup,
    changed_size,
    check_sizes,
    look_again,
    lower_as_planned,
    lower_by_placeholders,
)

EVICTED = "evicted"  # data key: the eviction has been accepted
# Seconds until a removal tries again that has found its pool busy, unless the end of the change
# wakes it before. The operation runner retries only a few times, so with a shorter delay a drained
# node would be given up before its turn.
TURN = 90.0
_FEW = 3  # maximum machines read one by one instead of by the complete list


# -- targets


def targets_of(operation: Operation) -> Targets:
    """Return the targets; raises InvalidRequest."""
    return read_targets(operation, handle_of, placeholder_group, "machine at Exoscale")


def _machines(context: ExoscaleContext, names: Sequence[str]) -> dict[str, ExoscaleInstance]:
    """Return the current data of these machines; an absent one is gone. Raises ProviderError."""
    machines: dict[str, ExoscaleInstance] = {}
    if len(names) > _FEW:
        try:
            listed = context.api.instances()
        except ProviderError as error:
            if not is_forbidden(error):
                raise
            listed = ()
        machines = {
            machine.id.lower(): machine for machine in listed if machine.id.lower() in names
        }
    for name in names:  # the list contains only machines in pools
        if name not in machines:
            try:
                machines[name] = context.api.instance(name)
            except NotFound:
                continue
    return machines


def _remaining(context: ExoscaleContext, names: Sequence[str]) -> tuple[str, ...]:
    """Return the machines that the vendor knows and that are not leaving; raises ProviderError."""
    machines = _machines(context, names)
    return tuple(
        name for name in names if name in machines and not is_leaving(machines[name].state)
    )


def _targets_to_evict(
    context: ExoscaleContext, targets: Targets, pool: ExoscalePool
) -> tuple[str, ...]:
    """Return the targets that are members of the pool and not leaving. Raises
    InvalidRequest for a machine that exists and belongs to another pool or to none. One
    unknown to the vendor is gone."""
    outside = _machines(context, [name for name in targets.machines if name not in pool.members])
    foreign, late = {}, []
    for name, machine in outside.items():
        owner = machine.manager.id.lower() if machine.manager is not None else ""
        leaving = is_leaving(machine.state)
        if owner != pool.id.lower() and (owner or not leaving):
            foreign[name] = owner or "no pool"
        elif not leaving:
            late.append(name)
    refuse_foreign(foreign, pool.title)
    return (*(name for name in targets.machines if name in pool.members), *late)


def _check_nodes(context: ExoscaleContext, operation: Operation, machines: Sequence[str]) -> None:
    """Raise PermanentConflict if one of the machines is not, or not for certain, the node that was
    planned."""
    check_nodes(operation, context.joined, identify, machines, handle_of)


# -- removal


class ExoscaleEviction(msgspec.Struct, frozen=True):
    """Machines that their pool takes an eviction of now. room: how many others may go before
    the pool is at its minimum."""

    pool: ExoscalePool
    names: tuple[str, ...]
    room: int = 0


def delete_nodes(context: ExoscaleContext, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Writes nothing if a target
    does not belong to the pool."""
    return delete_together(context, operation, ())[0]


def delete_together(
    context: ExoscaleContext, operation: Operation, others: Iterable[Operation]
) -> tuple[Outcome, dict[str, Outcome]]:
    """See OneChangeAtATime; raises ProviderError."""
    discard = operation.spec.kind is OperationKind.DELETE_INSTANCES
    try:
        step = _continue_removal(context, operation)
        if not isinstance(step, ExoscaleEviction):
            return step, {}
        if ready := tuple(others):
            step = _continue_removal(context, operation)  # seconds have passed
            if not isinstance(step, ExoscaleEviction):
                return step, {}
        if not discard:  # machines that never joined have been checked already
            context = _with_nodes_read_once(context)
            _check_nodes(context, operation, step.names)
        joined = _joining(context, step, ready)
        try:
            work = context.evict(
                step.pool, (*step.names, *(name for names in joined.values() for name in names))
            )
        except (Conflict, Throttled, Transient):
            raise
        except ProviderError:  # as a whole, and nothing was evicted: each is judged by itself
            if not joined:
                raise
            joined, work = {}, context.evict(step.pool, step.names)
    except PermanentConflict:
        raise
    except Conflict as error:
        if not discard and not error.retry_after:
            raise Conflict(
                error.message, code=error.code, request_id=error.request_id, retry_after=TURN
            ) from None
        raise
    outcome = requested(work, {EVICTED: "yes"})
    return outcome, dict.fromkeys(joined, outcome)


def _with_nodes_read_once(context: ExoscaleContext) -> ExoscaleContext:
    """Return the context with the cluster's nodes as they are now; raises Transient."""
    if context.joined is None:
        return context
    nodes = context.joined()
    return msgspec.structs.replace(context, joined=lambda: nodes)


def _joining(
    context: ExoscaleContext,
    eviction: ExoscaleEviction,
    ready: Sequence[Operation],
) -> dict[str, tuple[str, ...]]:
    """Return which of the other removals join the eviction, and their machines, by operation id.
    One that would be refused, or has nothing left to evict, finds that out by itself."""
    joined: dict[str, tuple[str, ...]] = {}
    evicted, room = set(eviction.names), eviction.room
    for operation in ready:
        try:
            targets = targets_of(operation)
            names = _targets_to_evict(context, targets, eviction.pool)
            _check_nodes(context, operation, names)
        except (ProviderError, BadInput):
            continue
        if names and len(names) <= room and not targets.placeholders and evicted.isdisjoint(names):
            joined[operation.spec.id] = names
            evicted.update(names)
            room -= len(names)
    return joined


def _continue_removal(context: ExoscaleContext, operation: Operation) -> Outcome | ExoscaleEviction:
    targets = targets_of(operation)
    work = known_work(context, operation)
    if is_pending(work):
        return poll_later(operation, f"operation {operation.status.data[WORK]} is under way")
    try:
        pool = context.pool(operation.spec.group)
    except NotFound:
        return _removal_without_pool(context, operation, targets)
    if EVICTED in operation.status.data:
        return _after_eviction(context, operation, targets, pool, work)
    if work is not None and has_failed(work):  # the operation that lowered the size
        return failure(pool.title, work, {"removed": 0, WORK: work.id})
    return _eviction(context, operation, targets, pool)


def _eviction(
    context: ExoscaleContext, operation: Operation, targets: Targets, pool: ExoscalePool
) -> Outcome | ExoscaleEviction:
    names = _targets_to_evict(context, targets, pool)
    discard = operation.spec.kind is OperationKind.DELETE_INSTANCES
    if discard and names:
        _check_nodes(context, operation, names)
    if pool.unsettled and (names or targets.placeholders):
        # The change may be our own request. A Conflict as long as this operation has recorded none:
        # the caller then checks the node again before it retries.
        if not targets.placeholders and not _remaining(context, names):
            return targets.removed(operation)
        if WORK not in operation.status.data:
            check_settled(pool)
        return poll_later(operation, pool.unsettled)
    lowered = lower_by_placeholders(operation, targets, _sized_group(context, pool))
    if lowered is not None:
        return lowered
    if not names:
        return targets.removed(operation)
    if discard:
        return ExoscaleEviction(pool, names)
    # The pool is at rest here; while it is being changed, its numbers may already
    # include our own request.
    least = least_of(pool, context.bounds(pool))
    size = pool.target - len(names)
    check_minimum(pool.title, size, least)
    return ExoscaleEviction(pool, names, size - least)


def _after_eviction(
    context: ExoscaleContext,
    operation: Operation,
    targets: Targets,
    pool: ExoscalePool,
    work: Work | None,
) -> Outcome:
    """Continue after an eviction whose operation has ended or is no longer known to the vendor. A
    machine that the pool does not list any more may still exist."""
    being_changed = (
        poll_later(operation, f"{pool.title} is being changed ({pool.states})")
        if pool.busy
        else None
    )
    if being_changed is not None and not pool.members.isdisjoint(targets.machines):
        return being_changed
    remaining = _remaining(context, targets.machines)
    if not remaining:
        return targets.removed(operation)
    if being_changed is not None:
        return being_changed
    names = ", ".join(remaining)
    facts: dict[str, str | int] = {
        "removed": len(targets.machines) - len(remaining),
        "left": ",".join(remaining),
    }
    if work is not None and has_failed(work):
        return failure(
            f"{pool.title}: {names} could not be removed", work, {**facts, WORK: work.id}
        )
    again = look_again(operation, poll_later(operation, f"{names}: still listed"), ENOUGH_LOOKS)
    return again or Failed(
        "Unknown",
        f"{pool.title}: the vendor says that {names} was evicted and lists it still",
        facts=facts,
    )


def _removal_without_pool(
    context: ExoscaleContext, operation: Operation, targets: Targets
) -> Outcome:
    """Continue after the pool, and its machines with it, is gone or leaving. Machines
    that remain are not deleted."""
    names = ", ".join(_remaining(context, targets.machines))
    if not names:
        return targets.removed(operation)
    if operation.status.data:
        return poll_later(operation, f"{operation.spec.group} is gone; {names} is still there")
    raise NotFound(
        f"there is no instance pool {operation.spec.group} (it may have been deleted), but {names} "
        "is still there"
    )


def cancel_delete(context: ExoscaleContext, operation: Operation) -> bool:
    """Return whether any target is still there and not leaving. There is nothing to undo, because
    the vendor is not modified before the eviction. Raises Conflict while the pool shrinks, because
    it is then unknown which machines will go, and ProviderError."""
    targets = targets_of(operation)
    try:
        pool = context.pool(operation.spec.group)
    except NotFound:
        return False
    if _remaining(context, [name for name in targets.machines if name in pool.members]):
        if pool.shrinking:
            raise Conflict(
                f"{pool.title} shrinks ({pool.states}): who of it stays is not known yet",
                code="busy",
            )
        return True
    return bool(targets.placeholders) and pool.target >= operation.spec.from_size


# -- restart


def restart(context: ExoscaleContext, operation: Operation) -> Outcome:
    """Reboot the one target, once, and follow the vendor's operation; raises ProviderError. A
    reboot whose answer was lost has no operation that could be followed and counts as done: a node
    that stays sick is replaced."""
    targets = targets_of(operation)
    if len(targets.machines) != 1 or targets.placeholders:
        raise InvalidRequest(f"{operation.spec.group}: a restart is of one machine")
    (name,) = targets.machines
    facts: dict[str, str | int] = {"restarted": name, "group": operation.spec.group}
    work = known_work(context, operation)
    if is_pending(work):
        return poll_later(operation, f"operation {operation.status.data[WORK]} is under way")
    if work is not None and work.state != "success":
        return failure(f"{name} could not be restarted", work, {WORK: work.id})
    if WORK in operation.status.data:  # over, or no longer known to the vendor
        return Succeeded(facts)
    pool = context.pool(operation.spec.group)
    if name not in _targets_to_evict(context, targets, pool) or not _remaining(context, (name,)):
        raise NotFound(f"{name} is gone or being deleted")
    _check_nodes(context, operation, (name,))
    try:
        begun = context.requests.send(operation.spec.id, lambda: context.api.reboot(name).id)
    except Unauthorized as error:
        if not is_forbidden(error):
            raise
        # one permission is missing, and the key is good for everything else
        raise InvalidRequest(
            f"{error.message}; allow reboot-instance to the API key", code=error.code
        ) from None
    return FOLLOWING.begin({WORK: begun}) if begun else Succeeded({**facts, "note": UNANSWERED})


# -- lower size


def decrease_target(context: ExoscaleContext, operation: Operation) -> Outcome:
    """Lower the size to to_size if no machine has to be deleted for it, and verify the
    result; raises ProviderError."""
    check_sizes(operation)
    work = known_work(context, operation)
    if is_pending(work):
        return poll_later(operation, f"operation {operation.status.data[WORK]} is under way")
    pool = context.pool(operation.spec.group)
    if pool.target <= operation.spec.to_size:
        return changed_size(operation)
    if work is not None:  # it is over, and the size is unchanged; the pool may lag briefly behind
        return _not_lowered(operation, pool, work)
    lowered = lower_as_planned(operation, _sized_group(context, pool))
    return lowered or changed_size(operation)


def _not_lowered(operation: Operation, pool: ExoscalePool, work: Work) -> Outcome:
    if has_failed(work):
        return failure(pool.title, work, changed_size(operation).facts)
    again = read_again(operation, pool.unsettled)
    return again or Failed(
        "Unknown", f"{pool.title} still has the size {pool.target} after operation {work.id}"
    )


def _sized_group(context: ExoscaleContext, pool: ExoscalePool) -> SizedGroup:
    def floors() -> tuple[Floor, ...]:
        existing = _existing_machines(context, pool)
        return (
            Floor(existing, f"the {existing} machines that exist"),
            Floor(pool.least, f"{pool.least}, the least the vendor takes"),
        )

    def lower(size: int) -> InProgress:
        check_settled(pool)
        return requested(context.resizer(pool)(size))

    return SizedGroup(pool.title, pool.target, floors, lower)


def _existing_machines(context: ExoscaleContext, pool: ExoscalePool) -> int:
    """Return the number of existing machines. The larger of the pool's list and the machine list is
    used, because the pool may omit its list. A key that may not list machines has only the pool's
    list. Raises ProviderError."""
    try:
        machines = context.api.instances()
    except ProviderError as error:
        if not is_forbidden(error):
            raise
        machines = ()
    listed = sum(
        machine.manager is not None
        and machine.manager.id == pool.id
        and not is_leaving(machine.state)
        for machine in machines
    )
    return max(len(pool.members), listed)
