"""Lowers the size without deleting a machine: only the part that was requested and never created is given up.

Upstream's DecreaseTargetSize reports success and does nothing. For a smaller size the vendor chooses which machines to
delete, so the size is never set below the number of existing machines, according to both the pool's list and the
machines' own data.
"""

from __future__ import annotations

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.errors import InvalidRequest, ProviderError
from chalicelib.providers.exoscale.context import ExoscaleContext, other_size
from chalicelib.providers.exoscale.error_mapping import is_forbidden
from chalicelib.providers.exoscale.instance_states import is_leaving
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
