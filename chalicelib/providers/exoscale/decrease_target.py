"""A smaller size that costs no machine: only what was asked for and never came is taken back (exoscale.md §5; §6, 8).

Upstream's DecreaseTargetSize says that it is done and does nothing. The vendor chooses whom it deletes for a smaller
size, so none below what exists is ever asked for, by the pool's list and by the machines' own word.
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


def shrink(context: ExoscaleContext, operation: Operation) -> Outcome:
    """Lower the size to to_size where no machine would have to go for it, and see it lowered; raises ProviderError."""
    if operation.spec.to_size < 0:
        raise InvalidRequest(f"{operation.spec.group}: {operation.spec.to_size} is no size")
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


def _not_lowered(operation: Operation, site: ExoscalePool, work: Work) -> Outcome:
    """The vendor's operation is over and the size stands; the pool may be a moment behind."""
    if has_failed(work):
        return failure(site.title, work, {"from": operation.spec.from_size, "to": operation.spec.to_size})
    looks = counted(operation.status.data, LOOKS) + 1
    if looks < ENOUGH_LOOKS:
        return InProgress(pause(operation).after, STEP, {**operation.status.data, LOOKS: str(looks)}, site.restless)
    return Failed("Unknown", f"{site.title} still has the size {site.target} after operation {work.id}")


def take_back(context: ExoscaleContext, operation: Operation, site: ExoscalePool, count: int) -> Outcome | None:
    """Lower the size by so many that were never made; None where there is nothing to lower (any more). From the planned
    size, so that it may be repeated; a size that is lower already is ours or a removal's beside us, and the next pass
    sees what is left. Failed if it has grown. Raises ProviderError."""
    if site.target > operation.spec.from_size:
        return other_size(operation, site)
    goal = max(least_now(context, site), site.least, operation.spec.from_size - count)
    if goal >= site.target:
        return None
    context.check_idle(site)
    return begun(context.scale(site, goal))


def least_now(context: ExoscaleContext, site: ExoscalePool) -> int:
    """The machines that exist: by the pool, and by the machines, which count where the pool leaves its list out. Raises
    ProviderError; a key that may not list machines has the pool's word alone."""
    try:
        listed = [
            each
            for each in context.api.instances()
            if each.manager is not None and each.manager.id == site.id and not is_leaving(each.state)
        ]
    except ProviderError as error:
        if not is_forbidden(error):
            raise
        listed = []
    return max(len(site.members), len(listed))
