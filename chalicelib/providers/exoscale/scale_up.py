"""Scales up: one request with the absolute size, then polls of the vendor's operation;
and what all changes share.

    size == to_size    ─────────────────► poll    (an earlier attempt succeeded, or
                                                  a user set the same size)
    size == from_size  ─► check ─► write ─► poll
    any other size     ─────────────────► conflict, nothing is written

    the operation is   then
    pending            poll again with growing delay; after ten minutes the scale-up request's own
                       timer takes over. A scale-up that is given up at its deadline
                       (policy/timeouts.py) would back the group off while its nodes arrive
    failure            failed, with the class of its reason: missing stock or quota is
                       known in the next message
    success, timeout   read the pool until the machines exist or the vendor has stopped creating
                       them; failed if the size is unchanged

The size is absolute, so repeating a request after a lost response adds nothing. A failure leaves it
in place, and placeholders show the missing machines until the planner lowers it.

Upstream gives up on an accepted change after a minute and blocks its loop for up to twenty. Here a
change ends its step with the operation's id in the data, and each later poll is one call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from chalicelib.model.managed_group import NAME_TAKEN, is_own_name
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.policy.vendors.exoscale import ExoscaleBounds, ExoscaleSettings
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.decoding import Quota, Work
from chalicelib.providers.exoscale.error_mapping import work_error
from chalicelib.providers.exoscale.managed_groups import (
    ListedClusters,
    find_own,
    is_foreign,
    mark_of,
    own_bounds,
)
from chalicelib.providers.exoscale.provider_ids import is_id
from chalicelib.providers.exoscale.zone import ExoscalePool, make_pools
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    ProviderError,
    QuotaExceeded,
    Unknown,
)
from chalicelib.providers.kit.managed_pools import ManagedPools
from chalicelib.providers.kit.node_identity import Seen
from chalicelib.providers.kit.services import OneTimeRequests
from chalicelib.providers.kit.sized_group import (
    LOOKS,
    Polls,
    check_sizes,
    look_again,
    other_size,
)

WORK = "work"  # key of an operation's data: the vendor's operation
FOLLOWING = Polls("follow", first=3.0, growth=1.5, longest=60.0)  # as in the vendor's own clients
PATIENCE = 600.0  # seconds of polls in total
# checks of a pool at rest before its numbers are accepted, because they may lag behind
ENOUGH_LOOKS = 5


class ExoscaleContext(msgspec.Struct, frozen=True):
    """What all changes need. requests: makes reboots once per operation. managed: the declarations
    of managed pools; listed: the SKS clusters as first listed. joined: lists the
    cluster's current nodes; None if the cluster cannot be reached."""

    api: ExoscaleApi
    settings: ExoscaleSettings
    requests: OneTimeRequests
    managed: ManagedPools
    listed: ListedClusters
    joined: Callable[[], tuple[Seen, ...]] | None = None
    currency: str = ""

    def pool(self, group: str) -> ExoscalePool:
        """Return the current pool with its Nodepool. Raises NotFound also for one that is being
        deleted, Unknown for one whose numbers cannot be decoded, InvalidRequest for one that
        another Outscaler has made."""
        if is_own_name(group):
            pool = self._own_pool(group)
        else:
            described = self.api.pool(group)
            pool = ExoscalePool(described)
            if pool.is_sks:
                pool = make_pools([described], self.api.clusters())[0]
        if pool.unreadable:
            raise Unknown(pool.unreadable, code="Shape")
        if pool.ending:
            raise NotFound(f"{pool.title} is being deleted")
        if not self._named(pool) and is_foreign(pool.nodepool, self.managed):
            text = f"{pool.title} has the name or mark of an own group, but is not one"
            raise InvalidRequest(text, code=NAME_TAKEN)
        return pool

    def _own_pool(self, group: str) -> ExoscalePool:
        """Return the pool of a group that Outscaler has made, by its name and mark."""
        own = find_own(group, self.api.clusters(), self.managed)
        if own is None:
            raise NotFound(f"there is no Nodepool {group}")
        cluster, nodepool = own
        if not nodepool.instance_pool.id:
            raise Conflict(f"Nodepool {group} has no instance pool yet", code="busy")
        described = self.api.pool(nodepool.instance_pool.id)
        return ExoscalePool(described, cluster, nodepool, group)

    def bounds(self, pool: ExoscalePool) -> ExoscaleBounds | None:
        """Return the policy's bounds of a pool. The pass has verified that a bare name means this
        pool. If it were another cluster's, no change would have been planned."""
        if is_own_name(pool.name) and self.managed.is_own(pool.name, mark_of(pool.nodepool)):
            return own_bounds(pool)
        return self._named(pool)

    def _named(self, pool: ExoscalePool) -> ExoscaleBounds | None:
        exact = (entry for entry in self.settings.groups if entry.name in pool.exact_names)
        return next(exact, None) or next(
            (entry for entry in self.settings.groups if entry.name == pool.name), None
        )

    def resizer(self, pool: ExoscalePool) -> Callable[[int], Work]:
        """Return the call that sets the size of this kind of pool; it raises ProviderError."""
        if pool.is_sks:
            return partial(self.api.scale_nodepool, *_owner(pool))
        return partial(self.api.scale_pool, pool.id)

    def evict(self, pool: ExoscalePool, instances: Sequence[str]) -> Work:
        """Remove these members with the call for its kind of pool; raises ProviderError."""
        if not pool.is_sks:
            return self.api.evict_pool(pool.id, instances)
        return self.api.evict_nodepool(*_owner(pool), instances)


def _owner(pool: ExoscalePool) -> tuple[str, str]:
    if pool.cluster is None or pool.nodepool is None:
        raise InvalidRequest(pool.no_scale_up)
    return pool.cluster.id, pool.nodepool.id


def check_settled(pool: ExoscalePool) -> None:
    """Raise Conflict while the vendor is changing the pool. The data just read may already be
    outdated, and the pool accepts no second change (it would refuse it as busy)."""
    if pool.unsettled:
        raise Conflict(pool.unsettled, code="busy")


# -- polls of the vendor's operations

poll_later = FOLLOWING.later


def read_again(operation: Operation, note: str) -> InProgress | None:
    """Return Pending for another read of a pool at rest, whose numbers may lag behind;
    None after enough of them."""
    pending = InProgress(
        FOLLOWING.pause(operation), FOLLOWING.step, dict(operation.status.data), note
    )
    return look_again(operation, pending, ENOUGH_LOOKS)


def requested(work: Work, data: Mapping[str, str] | None = None) -> InProgress:
    """Return the Pending outcome of a change that the vendor has accepted."""
    return FOLLOWING.begin({**(data or {}), WORK: work.id})


def known_work(context: ExoscaleContext, operation: Operation) -> Work | None:
    """Return the state of the change that was started; None if there is none or the vendor no
    longer knows it. Raises ProviderError."""
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
    """Whether the vendor reports a failure. A timeout means that the vendor stopped waiting,
    not that the change ended."""
    return work is not None and work.state == "failure"


def failure(title: str, work: Work, facts: Mapping[str, str | int]) -> Failed:
    """Return the vendor's reason, with the error class that selects the backoff."""
    error = work_error(work)
    return Failed(error.error_class, f"{title}: {error.message}", error.code, facts=dict(facts))


# -- scale-up


def scale_up(
    context: ExoscaleContext, operation: Operation, checked_bounds: ExoscaleBounds | None = None
) -> Outcome:
    """Scale from from_size to to_size; idempotent. checked_bounds: of a group that Outscaler has
    made, after the policy was found to allow its growth. Raises ProviderError."""
    spec = operation.spec
    check_sizes(operation)
    pool = context.pool(spec.group)
    bounds = checked_bounds or context.bounds(pool)
    if bounds is not None and bounds.max is not None and spec.to_size > bounds.max:
        raise InvalidRequest(
            f"{pool.title}: {spec.to_size} is above the policy's maximum {bounds.max}"
        )
    if pool.target == spec.to_size:
        return _progress(operation, pool, None)
    if pool.target != spec.from_size:
        return other_size(operation, pool.title, pool.target)
    if pool.no_scale_up:
        raise InvalidRequest(pool.no_scale_up)
    check_settled(pool)
    if bounds is None or bounds.max is None:
        _check_quota(context, operation, pool)
    try:
        return requested(context.resizer(pool)(spec.to_size))
    except InvalidRequest as error:
        raise _quota_error(context, operation, pool, error) from None


def has_requested(context: ExoscaleContext, operation: Operation) -> bool:
    """Return whether the size is the requested one; raises ProviderError."""
    return context.pool(operation.spec.group).target == operation.spec.to_size


def poll_growth(
    context: ExoscaleContext,
    operation: Operation,
    again: Callable[[ExoscaleContext, Operation], Outcome] = scale_up,
) -> Outcome:
    """Report the progress of the change; raises ProviderError. again: the scale-up, which is called
    if the operation is unknown, and finds its result."""
    work = known_work(context, operation)
    if is_pending(work):
        return _wait_for_machines(
            operation, f"operation {operation.status.data[WORK]} is under way"
        )
    if work is None and LOOKS not in operation.status.data:
        return again(context, operation)
    pool = context.pool(operation.spec.group)
    if work is not None and has_failed(work):
        return failure(pool.title, work, _facts(operation, pool))
    return _progress(operation, pool, work)


def _progress(operation: Operation, pool: ExoscalePool, work: Work | None) -> Outcome:
    """Report the progress from the pool, for a change that is not known to have failed.
    The pool may lag briefly behind an operation that is over, so one read of a pool at
    rest is not accepted as final."""
    existing, size, to_size = len(pool.members), pool.target, operation.spec.to_size
    if size == to_size and existing >= size and not pool.busy:
        return Succeeded(_facts(operation, pool))
    note = f"{pool.title} has {existing} of {to_size} machines ({pool.states})"
    if pool.busy:
        return _wait_for_machines(operation, note)
    if (again := read_again(operation, note)) is not None:
        return again
    if work is not None and (
        size == operation.spec.from_size or (size == to_size and work.state == "timeout")
    ):
        # The size was not changed by another party: the vendor reports the end and has
        # created nothing. As a Conflict the scale-up would be retried forever, and no other
        # group would get the pods.
        return failure(note, work, _facts(operation, pool))
    if size != to_size:
        return other_size(operation, pool.title, pool.target)
    return Succeeded({**_facts(operation, pool), "note": note})


def _wait_for_machines(operation: Operation, note: str) -> Outcome:
    if FOLLOWING.have_taken(operation, PATIENCE):
        return Succeeded(
            {"from": operation.spec.from_size, "to": operation.spec.to_size, "note": note}
        )
    return poll_later(operation, note)


def _facts(operation: Operation, pool: ExoscalePool) -> dict[str, str | int]:
    created = max(0, min(len(pool.members), operation.spec.to_size) - operation.spec.from_size)
    work = operation.status.data.get(WORK, "")
    return {
        "from": operation.spec.from_size,
        "to": operation.spec.to_size,
        "created": created,
        **({WORK: work} if work else {}),
    }


def _quota(context: ExoscaleContext) -> Quota | None:
    """Return the current quota; None if it cannot be read, which forbids nothing,
    because the vendor enforces it."""
    try:
        return context.api.quota_now()
    except ProviderError:
        return None


def _quota_error(
    context: ExoscaleContext, operation: Operation, pool: ExoscalePool, error: InvalidRequest
) -> ProviderError:
    """Return QuotaExceeded for a refusal while the quota is used up, otherwise the given error. The
    vendor's error for an exhausted quota is not documented."""
    quota = _quota(context)
    if quota is None or quota.left is None or operation.spec.to_size - pool.target <= quota.left:
        return error
    text = (
        f"{error.message}; of the account's quota of {quota.limit} instances {quota.usage} are in "
        "use"
    )
    return QuotaExceeded(text, code=error.code, request_id=error.request_id)


def _check_quota(context: ExoscaleContext, operation: Operation, pool: ExoscalePool) -> None:
    """Raise QuotaExceeded if the account's quota is too small."""
    quota, to_size = _quota(context), operation.spec.to_size
    if quota is None:
        return
    most, more = max(context.settings.unlimited_max, pool.target), to_size - pool.target
    if quota.left is None and to_size > most:
        raise InvalidRequest(
            f"{pool.title}: {to_size} is above {most}, the largest size of a group that "
            "has no maximum (providers.exoscale.unlimitedMax)"
        )
    if quota.left is not None and more > quota.left:
        raise QuotaExceeded(
            f"{pool.title}: {more} more are above the account's quota of "
            f"{quota.limit} instances, of which {quota.usage} are in use",
            code="quota",
        )
