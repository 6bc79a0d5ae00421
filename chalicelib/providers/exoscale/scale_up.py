"""Growth: one request with the absolute size, then the vendor's operation followed (exoscale.md §3, §5; §6, 5 to 7, 9).

    size == to_size    ─────────────────► follow    (an earlier attempt got through, or somebody did the same)
    size == from_size  ─► check ─► write ─► follow
    any other size     ─────────────────► conflict, nothing is written

    the operation is   then
    pending            come back, each time later; after ten minutes the scale-up request's own timer takes over,
                       for a growth that is given up at its deadline (plan/patience.py) would back the group off while
                       its nodes arrive
    failure            failed, with the class of its reason: no stock and no quota are known in the next message
    success, timeout   look at the pool: until the machines are there, or the vendor has stopped making any; failed
                       where the size is as it was before

The size is absolute, so that asking again after a lost answer adds nothing. A failure leaves it standing: placeholders
show what is missing until the core takes it back.
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


def grow(context: ExoscaleContext, operation: Operation) -> Outcome:
    """from_size -> to_size, once however often it is called; raises ProviderError."""
    if operation.spec.to_size <= operation.spec.from_size:
        raise InvalidRequest(f"from {operation.spec.from_size} to {operation.spec.to_size} is no growth")
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


def poll_growth(context: ExoscaleContext, operation: Operation) -> Outcome:
    """Where the change stands; without a known one, grow once more, which finds what it has come to. Raises
    ProviderError."""
    work = known_work(context, operation)
    if is_pending(work):
        return _pending(operation, f"operation {operation.status.data[WORK]} is under way")
    if work is None and LOOKS not in operation.status.data:
        return grow(context, operation)
    site = context.site(operation.spec.group)
    if work is not None and has_failed(work):
        return failure(site.title, work, _facts(operation, site))
    return _look(operation, site, work)


def _look(operation: Operation, site: ExoscalePool, work: Work | None) -> Outcome:
    """How far the pool has come with a change that is not known to have failed. An operation that is over may be a
    moment ahead of what the pool says, so one look at a pool that rests is not believed."""
    there = len(site.members)
    size = site.target
    if size == operation.spec.to_size and there >= size and not site.busy:
        return Succeeded(_facts(operation, site))
    told = f"{site.title} has {there} of {operation.spec.to_size} machines ({site.states})"
    if site.busy:
        return _pending(operation, told)
    looks = counted(operation.status.data, LOOKS) + 1
    if looks < ENOUGH_LOOKS:
        return InProgress(pause(operation).after, STEP, {**operation.status.data, LOOKS: str(looks)}, told)
    if work is not None and (
        size == operation.spec.from_size or (size == operation.spec.to_size and work.state == "timeout")
    ):
        # Nobody else has moved it: the vendor says that it is over and has made nothing of it. As a Conflict it would
        # be tried for ever, and no other group would get the pods.
        return failure(told, work, _facts(operation, site))
    return (
        Succeeded({**_facts(operation, site), "note": told})
        if size == operation.spec.to_size
        else other_size(operation, site)
    )


def _pending(operation: Operation, note: str) -> Outcome:
    wait = pause(operation)
    if wait.enough:
        return Succeeded({"from": operation.spec.from_size, "to": operation.spec.to_size, "note": note})
    return InProgress(wait.after, STEP, wait.data, note)


def _facts(operation: Operation, site: ExoscalePool) -> dict[str, str | int]:
    made = max(0, min(len(site.members), operation.spec.to_size) - operation.spec.from_size)
    known = operation.status.data.get(WORK, "")
    return {
        "from": operation.spec.from_size,
        "to": operation.spec.to_size,
        "created": made,
        **({WORK: known} if known else {}),
    }


def _for_want_of_quota(
    context: ExoscaleContext, operation: Operation, site: ExoscalePool, error: InvalidRequest
) -> ProviderError:
    """How the vendor says that the quota is used up is not documented: a refusal while it is, is taken for it (§3)."""
    try:
        quota = context.api.quota_now()
    except ProviderError:
        return error
    if quota.limit == NO_LIMIT or operation.spec.to_size - site.target <= quota.limit - quota.usage:
        return error
    return QuotaExceeded(
        f"{error.message}; of the account's quota of {quota.limit} instances {quota.usage} are in use",
        code=error.code,
        request_id=error.request_id,
    )


def _within_quota(context: ExoscaleContext, operation: Operation, site: ExoscalePool) -> None:
    """Raises QuotaExceeded where the account has no room; one that cannot be read forbids nothing (§6, 4), for the
    vendor has the last word."""
    try:
        quota = context.api.quota_now()
    except ProviderError:
        return
    if quota.limit == NO_LIMIT:
        most = max(context.settings.unlimited, site.target)
        if operation.spec.to_size > most:
            raise InvalidRequest(
                f"{site.title}: {operation.spec.to_size} is above {most}, the largest size of a group that "
                "has no maximum (providers.exoscale.unlimitedMax)"
            )
    elif operation.spec.to_size - site.target > quota.limit - quota.usage:
        raise QuotaExceeded(
            f"{site.title}: {operation.spec.to_size - site.target} more are above the account's quota of "
            f"{quota.limit} instances, of which {quota.usage} are in use",
            code="quota",
        )
