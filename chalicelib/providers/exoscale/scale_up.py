"""TODO"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.cluster_nodes import Seen
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, ProviderError, QuotaExceeded, Unknown
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.decoding import Work
from chalicelib.providers.exoscale.error_mapping import why
from chalicelib.providers.exoscale.node_groups import NO_LIMIT
from chalicelib.providers.exoscale.provider_ids import is_id
from chalicelib.providers.exoscale.settings import ExoscaleBounds, ExoscaleSettings
from chalicelib.providers.exoscale.zone import ExoscalePool, make_pools


class ExoscaleContext(msgspec.Struct, frozen=True):
    """joined: lists the cluster's current nodes; None if the cluster cannot be reached."""

    api: ExoscaleApi
    settings: ExoscaleSettings
    joined: Callable[[], tuple[Seen, ...]] | None = None

    def site(self, group: str) -> ExoscalePool:
        """Return the current pool with its Nodepool.

        Raises NotFound also for one that is being deleted, Unknown for one whose numbers cannot be decoded."""
        pool = self.api.pool(group)
        site = ExoscalePool(pool)
        if site.is_sks:
            site = make_pools([pool], self.api.clusters())[0]
        if site.unread:
            raise Unknown(site.unread, code="Shape")
        if site.ending:
            raise NotFound(f"{site.title} is being deleted")
        return site

    def bounds(self, pool: ExoscalePool) -> ExoscaleBounds | None:
        """Return the policy's bounds of a pool.

        The pass has verified that a bare name means this pool. If it were another cluster's, no change would have been
        planned."""
        exact = (each for each in self.settings.groups if each.name in pool.exact)
        return next(exact, None) or next((each for each in self.settings.groups if each.name == pool.name), None)

    def check_idle(self, pool: ExoscalePool) -> None:
        """Raise Conflict while the vendor is changing the pool.

        The data just read may already be outdated, and the pool accepts no second change (it would refuse it as busy).
        """
        if pool.restless:
            raise Conflict(pool.restless, code="busy")

    def scale(self, pool: ExoscalePool, size: int) -> Work:
        """Set the size with the call for its kind of pool; raises ProviderError."""
        if not pool.is_sks:
            return self.api.scale_pool(pool.id, size)
        return self.api.scale_nodepool(*self._owner(pool), size)

    def evict(self, pool: ExoscalePool, instances: Sequence[str]) -> Work:
        """Remove these members with the call for its kind of pool; raises ProviderError."""
        if not pool.is_sks:
            return self.api.evict_pool(pool.id, instances)
        return self.api.evict_nodepool(*self._owner(pool), instances)

    def _owner(self, pool: ExoscalePool) -> tuple[str, str]:
        if pool.cluster is None or pool.nodepool is None:
            raise InvalidRequest(pool.off)
        return pool.cluster.id, pool.nodepool.id


def other_size(operation: Operation, pool: ExoscalePool) -> Failed:
    """Return the failure for a size that was changed outside this operation."""
    planned = f"from {operation.spec.from_size} to {operation.spec.to_size}"
    return Failed("Conflict", f"{pool.title} has the size {pool.target}, but {planned} was planned")


WORK, POLLS, LOOKS = "work", "polls", "looks"
STEP = "follow"
FIRST, LONGEST, PATIENCE = 3.0, 60.0, 600.0
_GROWS = 1.5
ENOUGH_LOOKS = 5  # checks of a pool at rest before its numbers are accepted, because they may lag behind


class Pause(msgspec.Struct, frozen=True):
    """after: seconds; data: with this poll counted; enough: the limit of polls is reached."""

    after: float
    data: dict[str, str]
    enough: bool


def pause(operation: Operation, data: Mapping[str, str] | None = None) -> Pause:
    """Return the pause before the next poll: 3 s at first, then growing up to a minute, as in the vendor's own clients.

    Polls are counted because clocks of different functions may differ."""
    now = operation.status.data if data is None else data
    polls = counted(now, POLLS)
    waits = [min(LONGEST, FIRST * _GROWS ** min(n, 20)) for n in range(polls + 1)]
    return Pause(round(waits[-1], 1), {**now, POLLS: str(polls + 1)}, sum(waits[:-1]) >= PATIENCE)


def counted(data: Mapping[str, str], key: str) -> int:
    """Return a count in the data; 0 if it cannot be read."""
    text = data.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0


def begun(work: Work, data: Mapping[str, str] | None = None) -> InProgress:
    """Return the Pending outcome of a change that the vendor has accepted."""
    return InProgress(FIRST, STEP, {**(data or {}), WORK: work.id})


def known_work(context: ExoscaleContext, operation: Operation) -> Work | None:
    """Return the state of the change that was started; None if there is none or the vendor no longer knows it.

    Raises ProviderError."""
    name = operation.status.data.get(WORK, "")
    if not is_id(name):
        return None
    try:
        return context.api.work(name)
    except NotFound:
        return None


def is_pending(work: Work | None) -> bool:
    """Whether the operation is not over; an unknown state counts as not over."""
    return work is not None and work.state not in {"success", "failure", "timeout"}


def has_failed(work: Work | None) -> bool:
    """Whether the vendor reports a failure. A timeout means that the vendor stopped waiting, not that the change
    ended."""
    return work is not None and work.state == "failure"


def failure(title: str, work: Work, facts: Mapping[str, str | int]) -> Failed:
    """Return the vendor's reason, with the error class that selects the backoff."""
    error = why(work)
    return Failed(error.error_class, f"{title}: {error.message}", error.code, facts=dict(facts))


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
        most = max(context.settings.unlimited, pool.target)
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
