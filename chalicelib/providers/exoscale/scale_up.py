"""Scales up: one request with the absolute size, then polls of the vendor's operation.

    size == to_size    ─────────────────► poll    (an earlier attempt succeeded, or a user set the same size)
    size == from_size  ─► check ─► write ─► poll
    any other size     ─────────────────► conflict, nothing is written

    the operation is   then
    pending            poll again with growing delay; after ten minutes the scale-up request's own timer takes over.
                       A scale-up that is given up at its deadline (model/timeouts.py) would back the group off while
                       its nodes arrive
    failure            failed, with the class of its reason: missing stock or quota is known in the next message
    success, timeout   read the pool until the machines exist or the vendor has stopped creating them; failed if the
                       size is unchanged

The size is absolute, so repeating a request after a lost response adds nothing. A failure leaves it in place, and
placeholders show the missing machines until the planner lowers it.
"""

from __future__ import annotations

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import InProgress, Outcome, Succeeded
from chalicelib.providers.errors import InvalidRequest, ProviderError, QuotaExceeded
from chalicelib.providers.exoscale.context import ExoscaleContext, other_size
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
from chalicelib.providers.exoscale.size_bounds import NO_LIMIT


def scale_up(context: ExoscaleContext, operation: Operation) -> Outcome:
    """Scale from from_size to to_size; idempotent. Raises ProviderError."""
    if operation.spec.to_size <= operation.spec.from_size:
        raise InvalidRequest(f"from {operation.spec.from_size} to {operation.spec.to_size} does not increase the size")
    site = context.site(operation.spec.group)
    bounds = context.bounds(site)
    if bounds is not None and bounds.max is not None and operation.spec.to_size > bounds.max:
        raise InvalidRequest(f"{site.title}: {operation.spec.to_size} is above the policy's maximum {bounds.max}")
    if site.target == operation.spec.to_size:
        return _look(operation, site, None)
    if site.target != operation.spec.from_size:
        return other_size(operation, site)
    if site.off:
        raise InvalidRequest(site.off)
    context.check_idle(site)
    if bounds is None or bounds.max is None:
        _within_quota(context, operation, site)
    try:
        return begun(context.scale(site, operation.spec.to_size))
    except InvalidRequest as error:
        raise _for_want_of_quota(context, operation, site, error) from None


def has_requested(context: ExoscaleContext, operation: Operation) -> bool:
    """Return whether the size is the requested one; raises ProviderError."""
    return context.site(operation.spec.group).target == operation.spec.to_size


def poll_growth(context: ExoscaleContext, operation: Operation) -> Outcome:
    """Report the progress of the change; raises ProviderError.

    If the operation is unknown, the scale-up is called again and finds its result."""
    work = known_work(context, operation)
    if is_pending(work):
        return _pending(operation, f"operation {operation.status.data[WORK]} is under way")
    if work is None and LOOKS not in operation.status.data:
        return scale_up(context, operation)
    site = context.site(operation.spec.group)
    if work is not None and has_failed(work):
        return failure(site.title, work, _facts(operation, site))
    return _look(operation, site, work)


def _look(operation: Operation, pool: ExoscalePool, work: Work | None) -> Outcome:
    """Report the progress from the pool, for a change that is not known to have failed.

    The pool may lag briefly behind an operation that is over, so one read of a pool at rest is not accepted as final.
    """
    there = len(pool.members)
    size = pool.target
    if size == operation.spec.to_size and there >= size and not pool.busy:
        return Succeeded(_facts(operation, pool))
    reported = f"{pool.title} has {there} of {operation.spec.to_size} machines ({pool.states})"
    if pool.busy:
        return _pending(operation, reported)
    looks = counted(operation.status.data, LOOKS) + 1
    if looks < ENOUGH_LOOKS:
        return InProgress(pause(operation).after, STEP, {**operation.status.data, LOOKS: str(looks)}, reported)
    if work is not None and (
        size == operation.spec.from_size or (size == operation.spec.to_size and work.state == "timeout")
    ):
        # The size was not changed by another party: the vendor reports the end and has created nothing. As a
        # Conflict the scale-up would be retried forever, and no other group would get the pods.
        return failure(reported, work, _facts(operation, pool))
    return (
        Succeeded({**_facts(operation, pool), "note": reported})
        if size == operation.spec.to_size
        else other_size(operation, pool)
    )


def _pending(operation: Operation, note: str) -> Outcome:
    wait = pause(operation)
    if wait.enough:
        return Succeeded({"from": operation.spec.from_size, "to": operation.spec.to_size, "note": note})
    return InProgress(wait.after, STEP, wait.data, note)


def _facts(operation: Operation, pool: ExoscalePool) -> dict[str, str | int]:
    made = max(0, min(len(pool.members), operation.spec.to_size) - operation.spec.from_size)
    known = operation.status.data.get(WORK, "")
    return {
        "from": operation.spec.from_size,
        "to": operation.spec.to_size,
        "created": made,
        **({WORK: known} if known else {}),
    }


def _for_want_of_quota(
    context: ExoscaleContext, operation: Operation, pool: ExoscalePool, error: InvalidRequest
) -> ProviderError:
    """Return QuotaExceeded for a refusal while the quota is used up, otherwise the given error.

    The vendor's error for an exhausted quota is not documented."""
    try:
        quota = context.api.quota_now()
    except ProviderError:
        return error
    if quota.limit == NO_LIMIT or operation.spec.to_size - pool.target <= quota.limit - quota.usage:
        return error
    return QuotaExceeded(
        f"{error.message}; of the account's quota of {quota.limit} instances {quota.usage} are in use",
        code=error.code,
        request_id=error.request_id,
    )


def _within_quota(context: ExoscaleContext, operation: Operation, pool: ExoscalePool) -> None:
    """Raise QuotaExceeded if the account's quota is too small.

    An unreadable quota forbids nothing, because the vendor enforces it anyway."""
    try:
        quota = context.api.quota_now()
    except ProviderError:
        return
    if quota.limit == NO_LIMIT:
        most = max(context.settings.unlimited_max, pool.target)
        if operation.spec.to_size > most:
            raise InvalidRequest(
                f"{pool.title}: {operation.spec.to_size} is above {most}, the largest size of a group that "
                "has no maximum (providers.exoscale.unlimitedMax)"
            )
    elif operation.spec.to_size - pool.target > quota.limit - quota.usage:
        raise QuotaExceeded(
            f"{pool.title}: {operation.spec.to_size - pool.target} more are above the account's quota of "
            f"{quota.limit} instances, of which {quota.usage} are in use",
            code="quota",
        )
