"""Scales up groups of Outscaler's own, and opens those that do not exist yet.

    check        the policy allows this group, of this size and price
    look         list by name and mark
    found        grow it as any other group; of the machine that came with it nothing is undone.
                 Failed if its creation could not make that machine
    not found    an operation is pending          poll again
                 the operation has failed         failed, with its class
                 a creation was sent              look again for a minute, in case it appears late
                 otherwise                        create it with one machine, then look

A creation is sent once for each look of a minute, and recorded before it is sent. So if its answer
is lost, or the function ends, one machine too many is made at most.
"""

from __future__ import annotations

from chalicelib.model.managed_group import is_own_name
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome
from chalicelib.providers.exoscale import scale_up as growth
from chalicelib.providers.exoscale.decoding import Nodepool
from chalicelib.providers.exoscale.managed_groups import (
    MANAGED_CHANGED,
    copied,
    find_own,
    mark_of,
    new_nodepool,
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
from chalicelib.providers.kit.errors import InvalidRequest, NotFound, Transient, Unknown
from chalicelib.providers.kit.managed_pools import Candidate, same_declaration

CREATIONS, LOOKS = "creations", "looks for it"
"""Keys of an operation's data: creations that were sent, and looks since the last one."""
_LOOKS, _LOOK_EVERY = 6, 10.0  # looks for a group, and the seconds between two
_MOST_CREATIONS = 3


def scale_up(context: ExoscaleContext, operation: Operation) -> Outcome:
    """Scale from from_size to to_size; idempotent. Raises ProviderError."""
    if not is_own_name(operation.spec.group):
        return growth.scale_up(context, operation)
    clusters = context.api.clusters()
    context.listed.note(clusters)
    others = sum(
        nodepool.size
        for cluster in clusters
        for nodepool in cluster.nodepools
        if nodepool.name != operation.spec.group
        and same_declaration(mark_of(nodepool), operation.spec.choice)
    )
    candidate = context.managed.check(operation, others)
    own = find_own(operation.spec.group, clusters, context.managed)
    if own is None:
        return _open(context, operation, candidate)
    _verify(own[1], candidate)
    work, title = known_work(context, operation), f"Nodepool {own[1].name}"
    if is_pending(work):
        return poll_later(operation, f"{title} is being made")
    if work is not None and has_failed(work) and CREATIONS in operation.status.data:
        return failure(title, work, {"created": 0, WORK: work.id})
    return growth.scale_up(context, _from_present_size(operation, own[1]))


def poll(context: ExoscaleContext, operation: Operation) -> Outcome:
    """Report the progress of a scale-up. Raises ProviderError."""
    if not is_own_name(operation.spec.group):
        return growth.poll_growth(context, operation)
    if CREATIONS in operation.status.data:
        own = find_own(operation.spec.group, context.api.clusters(), context.managed)
        if own is None or own[1].size != operation.spec.to_size:
            return scale_up(context, operation)
    return growth.poll_growth(context, operation)


def has_requested(context: ExoscaleContext, operation: Operation) -> bool:
    """Return whether a group was created or has the requested size. Raises ProviderError."""
    if not is_own_name(operation.spec.group):
        return growth.has_requested(context, operation)
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


def _verify(nodepool: Nodepool, candidate: Candidate) -> None:
    """Raise InvalidRequest if a group has other machines than its name says."""
    expected = candidate.machine.entry.vendor_id
    if nodepool.instance_type.id and nodepool.instance_type.id != expected:
        raise InvalidRequest(
            f"Nodepool {nodepool.name} has another instance type than it was made with",
            code=MANAGED_CHANGED,
        )


def _open(context: ExoscaleContext, operation: Operation, candidate: Candidate) -> Outcome:
    """Create a group, or look whether an earlier creation has come about."""
    data, title = operation.status.data, f"Nodepool {operation.spec.group}"
    work = known_work(context, operation)
    if work is not None and has_failed(work):
        return failure(title, work, {"created": 0, WORK: work.id})
    if is_pending(work):
        return poll_later(operation, f"{title} is being made")
    creations, looks = int(data.get(CREATIONS, "0")), int(data.get(LOOKS, "0"))
    if creations and looks < _LOOKS:
        progress = {**data, CREATIONS: str(creations), LOOKS: str(looks + 1)}
        return _look_again(progress, f"{title} is not listed yet")
    if creations >= _MOST_CREATIONS:
        return Failed(Unknown.__name__, f"{title} was created {creations} times and is not listed")
    return _create(context, operation, candidate, creations + 1)


def _create(
    context: ExoscaleContext, operation: Operation, candidate: Candidate, number: int
) -> Outcome:
    """Send a creation. number: of creations that the operation has sent, this one included."""
    original = copied(candidate.pool, context.listed.get(), context.settings.sks_cluster)
    if isinstance(original, str):
        raise InvalidRequest(original, code="CopySourceGone")
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
