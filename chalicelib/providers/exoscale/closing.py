"""How Nodepools that Outscaler has made end: deleted, or without their mark.

An empty one is deleted. The vendor takes no condition and deletes the
members of a Nodepool with it, so its emptiness is read several times before.

    looks       three over forty seconds, each with size 0 and no machine
    deleted     once; then polled until it is listed no more
    not empty   left alone: somebody uses it
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from chalicelib.model.managed_group import NAME_TAKEN, is_own_name
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.exoscale.decoding import Nodepool, SksCluster
from chalicelib.providers.exoscale.managed_groups import find_own, mark_of
from chalicelib.providers.exoscale.scale_up import (
    FOLLOWING,
    WORK,
    ExoscaleContext,
    failure,
    has_failed,
    is_pending,
    known_work,
    poll_later,
)
from chalicelib.providers.exoscale.zone import DELETING
from chalicelib.providers.kit.errors import Conflict, InvalidRequest, NotFound, Unknown
from chalicelib.providers.kit.managed_pools import MARK

_EMPTY = "empty looks"
_LOOKS, _LOOK_EVERY = 3, 20.0
IN_USE = "InUse"
"""Code of an error: a group that was to be deleted has machines again."""


def remove_group(context: ExoscaleContext, operation: Operation) -> Outcome:
    """Delete an empty own group; idempotent. Raises ProviderError."""
    group, data = operation.spec.group, operation.status.data
    work = known_work(context, operation)
    if is_pending(work):
        return poll_later(operation, f"Nodepool {group} is being deleted")
    own = _find(context, group)
    if own is None:
        return Succeeded({"deleted": group})
    if work is not None and has_failed(work):
        return failure(f"Nodepool {group}", work, {WORK: work.id})
    cluster, nodepool = own
    looks = int(data.get(_EMPTY, "0")) + 1
    pool = context.api.pool(nodepool.instance_pool.id)
    if nodepool.size or pool.size or pool.instances:
        return Failed(Conflict.__name__, f"Nodepool {group} has machines again", IN_USE)
    return _delete(context, cluster, nodepool, looks)


def own_marks(context: ExoscaleContext) -> dict[str, Callable[[], None]]:
    """See PoolMaker. Raises ProviderError."""
    return {
        f"Nodepool {nodepool.name} ({nodepool.id})": partial(_unmark, context, cluster, nodepool)
        for cluster in context.api.clusters()
        for nodepool in cluster.nodepools
        if context.managed.is_own(nodepool.name, mark_of(nodepool))
    }


def _unmark(context: ExoscaleContext, cluster: SksCluster, nodepool: Nodepool) -> None:
    labels = {key: text for key, text in (nodepool.labels or {}).items() if key != MARK}
    work = context.api.label_nodepool(cluster.id, nodepool.id, labels)
    if has_failed(work):
        raise Unknown(f"its labels were not changed: {work.state}")


def _find(context: ExoscaleContext, group: str) -> tuple[SksCluster, Nodepool] | None:
    """Return the Nodepool of an own group, None if there is none. A second one of a name is known
    by the id of its pool. Raises InvalidRequest for one that Outscaler has not made, and
    ProviderError."""
    clusters = context.api.clusters()
    if is_own_name(group):
        return find_own(group, clusters, context.managed)
    for cluster in clusters:
        for nodepool in cluster.nodepools:
            if nodepool.instance_pool.id.lower() != group or nodepool.state == DELETING:
                continue
            if not context.managed.is_own(nodepool.name, mark_of(nodepool)):
                problem = f"Outscaler has not made Nodepool {nodepool.name}"
                raise InvalidRequest(problem, code=NAME_TAKEN)
            return cluster, nodepool
    return None


def _delete(
    context: ExoscaleContext, cluster: SksCluster, nodepool: Nodepool, looks: int
) -> Outcome:
    """Delete a Nodepool that enough looks have shown empty. looks: with this one."""
    group = nodepool.name
    if looks < _LOOKS:
        note = f"Nodepool {group} is empty, as {looks} of {_LOOKS} looks have shown"
        return InProgress(_LOOK_EVERY, FOLLOWING.step, {_EMPTY: str(looks)}, note)
    try:
        answer = context.api.delete_nodepool(cluster.id, nodepool.id)
    except NotFound:
        return Succeeded({"deleted": group})
    return FOLLOWING.begin({_EMPTY: str(looks), WORK: answer.id})
