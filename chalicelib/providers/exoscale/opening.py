"""Scales up groups of Outscaler's own, and opens those that do not exist yet.

    look         list by name and mark
    check        the policy allows this group, of this size and price
    found        compare it with what it was made as, and grow it as any other group; of the machine
                 that came with it nothing is undone. If its creation has failed: failed, too
    not found    an operation is pending          poll again
                 the operation has failed         failed, with its class
                 the operation has succeeded      look again for five minutes, then failed: it is
                                                  not made again, because it exists or was deleted
                 a creation was sent              look again for a minute, in case it appears late
                 otherwise                        create it with one machine, then look

A creation is sent once for each look of a minute, and recorded before it is sent. So if its answer
is lost, or the function ends, one machine too many is made at most.
"""

from __future__ import annotations

from chalicelib.model.managed_group import COPY_SOURCE_GONE, MANAGED_CHANGED
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome
from chalicelib.policy.vendors.exoscale import ExoscaleBounds
from chalicelib.providers.exoscale import scale_up as growth
from chalicelib.providers.exoscale.decoding import Nodepool
from chalicelib.providers.exoscale.managed_groups import (
    OriginalNodepool,
    changed_by_hand,
    changed_fields,
    copied,
    find_own,
    new_nodepool,
    own_sizes,
)
from chalicelib.providers.exoscale.scale_up import (
    WORK,
    ExoscaleContext,
    failure,
    has_failed,
    is_pending,
    known_work,
    poll_later,
)
from chalicelib.providers.exoscale.zone import CREATING
from chalicelib.providers.kit.errors import InvalidRequest, NotFound, Transient, Unknown
from chalicelib.providers.kit.managed_pools import GroupCandidate
from chalicelib.providers.kit.sized_group import check_sizes, counted

CREATIONS, LOOKS = "creations", "looks for it"
"""Keys of an operation's data: creations that were sent, and looks since the last one."""
_LOOKS, _LOOK_EVERY = 6, 10.0  # looks for a group, and the seconds between two
_LOOKS_FOR_MADE = 30  # where the vendor says that it has made the group
_MOST_CREATIONS = 3


def scale_up(context: ExoscaleContext, operation: Operation) -> Outcome:
    """Scale from from_size to to_size; idempotent. Raises ProviderError."""
    check_sizes(operation)
    clusters = context.api.clusters()
    context.listed.note(clusters)
    own = find_own(operation.spec.group, clusters, context.managed)
    own_id = own[1].id if own is not None else ""
    sizes = own_sizes(clusters, own_id, context.settings.zone, context.managed)
    candidate = context.managed.check(operation, sizes, exists=own is not None)
    if own is None:
        return _open(context, operation, candidate)
    nodepool = own[1]
    _verify(context, nodepool, candidate)
    if CREATIONS in operation.status.data:
        work = known_work(context, operation)
        if work is not None and has_failed(work):
            return failure(f"Nodepool {nodepool.name}", work, {"created": 0, WORK: work.id})
        if is_pending(work):
            return poll_later(operation, f"Nodepool {nodepool.name} is being made")
    if nodepool.state == CREATING:
        return poll_later(operation, f"Nodepool {nodepool.name} is being made")
    bounds = ExoscaleBounds(nodepool.name, 0, candidate.pool.limits.nodes)
    return growth.scale_up(context, _from_present_size(operation, nodepool), bounds)


def poll(context: ExoscaleContext, operation: Operation) -> Outcome:
    """Report the progress of a scale-up. Raises ProviderError."""
    if CREATIONS in operation.status.data:
        own = find_own(operation.spec.group, context.api.clusters(), context.managed)
        if own is None or own[1].size != operation.spec.to_size:
            return scale_up(context, operation)
    return growth.poll_growth(context, operation, scale_up)


def has_requested(context: ExoscaleContext, operation: Operation) -> bool:
    """Return whether a group was created or has the requested size. Raises ProviderError."""
    if CREATIONS in operation.status.data:
        return True
    try:
        return growth.has_requested(context, operation)
    except NotFound:
        return False


def _from_present_size(operation: Operation, nodepool: Nodepool) -> Operation:
    """Return the operation as one from the size with which the vendor has made the group."""
    is_new = operation.spec.from_size == 0 and nodepool.size == 1
    return operation.with_spec(from_size=1) if is_new and operation.spec.to_size > 1 else operation


def _verify(context: ExoscaleContext, nodepool: Nodepool, candidate: GroupCandidate) -> None:
    """Raise InvalidRequest if a group is not what it was made as."""
    original = _original(context, candidate)
    changed = changed_fields(nodepool, candidate, original)
    if changed:
        problem = f"Nodepool {nodepool.name} was {changed_by_hand(changed)}"
        raise InvalidRequest(problem, code=MANAGED_CHANGED)


def _original(context: ExoscaleContext, candidate: GroupCandidate) -> OriginalNodepool | str:
    """Return the Nodepool that a group is a copy of, or why it cannot be copied."""
    return copied(candidate.pool, context.listed.get(), context.settings, context.managed)


def _open(context: ExoscaleContext, operation: Operation, candidate: GroupCandidate) -> Outcome:
    """Create a group, or look whether an earlier creation has come about."""
    data, title = operation.status.data, f"Nodepool {operation.spec.group}"
    work = known_work(context, operation)
    if work is not None and has_failed(work):
        return failure(title, work, {"created": 0, WORK: work.id})
    if is_pending(work):
        return poll_later(operation, f"{title} is being made")
    creations, looks = counted(operation, CREATIONS), counted(operation, LOOKS)
    # one that the vendor has reported as made exists, or somebody has deleted it since
    is_made = work is not None and work.state == "success"
    if creations and looks < (_LOOKS_FOR_MADE if is_made else _LOOKS):
        progress = {**data, CREATIONS: str(creations), LOOKS: str(looks + 1)}
        return _look_again(progress, f"{title} is not listed yet")
    if is_made:
        return Failed(NotFound.__name__, f"{title} was made and is not listed")
    if creations >= _MOST_CREATIONS:
        return Failed(Unknown.__name__, f"{title} was created {creations} times and is not listed")
    return _create(context, operation, candidate, creations + 1)


def _create(
    context: ExoscaleContext, operation: Operation, candidate: GroupCandidate, number: int
) -> Outcome:
    """Send a creation. number: of creations that the operation has sent, this one included."""
    original = _original(context, candidate)
    if isinstance(original, str):
        raise InvalidRequest(original, code=COPY_SOURCE_GONE)
    progress = {CREATIONS: str(number), LOOKS: "0"}
    cluster, new = original.cluster.id, new_nodepool(candidate, original)
    name = f"{operation.spec.id}/create-{number}"
    try:
        answer = context.requests.send(name, lambda: context.api.create_nodepool(cluster, new).id)
    except Transient as error:
        return _look_again(progress, error.described)
    if not answer:
        return _look_again(progress, "its answer was lost")
    return growth.FOLLOWING.begin({**progress, WORK: answer})


def _look_again(progress: dict[str, str], note: str) -> InProgress:
    return InProgress(_LOOK_EVERY, growth.FOLLOWING.step, progress, note)
