"""Lowers the size without deleting a node: only the part that was requested and never created is given up.

For a lower total CCE chooses which nodes to delete. Therefore the size is never set below the number of existing nodes,
according to both the counters and the list of nodes, for the group and for the pool. It is not lowered at all while the
groups' sizes do not add up to the pool's, because one of them is then outdated.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.errors import Conflict, InvalidRequest, Unknown
from chalicelib.providers.huaweicloud.context import CceContext, Site, other_size
from chalicelib.providers.huaweicloud.instance_states import is_leaving
from chalicelib.providers.huaweicloud.models import CceNode
from chalicelib.providers.huaweicloud.operation_polling import FIRST, SENT, STEP, doubted
from chalicelib.providers.huaweicloud.provider_ids import group_id, group_of
from chalicelib.providers.huaweicloud.size_bounds import is_settled


class Least(msgspec.Struct, frozen=True):
    """The existing nodes of the group and of its whole pool."""

    group: int
    pool: int


def decrease_target(context: CceContext, operation: Operation) -> Outcome:
    """Lower the size to to_size if no node has to be deleted for it, and verify the result; raises ProviderError.

    After the request was accepted, nothing more is sent."""
    if operation.spec.to_size < 0:
        raise InvalidRequest(f"{operation.spec.group}: {operation.spec.to_size} is not a valid size")
    site = context.site(operation.spec.group)
    if site.size <= operation.spec.to_size:
        return Succeeded({"from": operation.spec.from_size, "to": operation.spec.to_size})
    if SENT in operation.status.data:
        reported = f"{site.title} still has the size {site.size} though CCE has taken {operation.spec.to_size}"
        return doubted(operation, reported) or Failed("Unknown", reported)
    if site.size != operation.spec.from_size:
        return other_size(operation, site)
    there = least(context, site)
    if operation.spec.to_size < there.group:
        raise InvalidRequest(f"{site.title}: {operation.spec.to_size} is below the {there.group} nodes that exist")
    lower(context, site, operation.spec.to_size, there)
    return InProgress(FIRST, STEP, {**operation.status.data, SENT: "yes"})


def take_back(context: CceContext, operation: Operation, site: Site, count: int) -> Failed | None:
    """Lower the size by a number of nodes that were never created; None if it is done or nothing is left to lower.

    The new size is computed from the planned size, so the call may be repeated. If the size is lower already, this
    operation or a concurrent removal has lowered it, and the next pass sees the remainder. Failed if it has increased.
    Raises ProviderError."""
    if site.size > operation.spec.from_size:
        return other_size(operation, site)
    there = least(context, site)
    goal = max(there.group, operation.spec.from_size - count)
    if goal < site.size:
        lower(context, site, goal, there)
    return None


def least(context: CceContext, site: Site) -> Least:
    """Return how many nodes exist. Nodes being created count, although they may fail. Raises ProviderError."""
    alive = _alive(context, site)
    own = _own(alive, site)
    return Least(max(site.group.existing, len(own)), max(site.pool.current, len(alive)))


def members(context: CceContext, site: Site) -> tuple[CceNode, ...]:
    """Return the group's nodes that are listed and not leaving, in any phase. Raises ProviderError."""
    return _own(_alive(context, site), site)


def _alive(context: CceContext, site: Site) -> tuple[CceNode, ...]:
    listed = context.api.nodes()
    if odd := [each.error for each in listed if each.error and each.pool in {"", site.pool.id}]:
        raise Unknown(f"{site.title}: a node that may be of its pool cannot be understood: {odd[0]}", code="Shape")
    return tuple(each for each in listed if each.pool == site.pool.id and not is_leaving(each))


def _own(alive: tuple[CceNode, ...], site: Site) -> tuple[CceNode, ...]:
    return tuple(each for each in alive if group_of(each, site.pool) == site.group)


def lower(context: CceContext, site: Site, size: int, least: Least) -> None:
    """Set a lower size of the group. The caller has verified that it is not below the group's nodes.

    Raises Conflict if the pool's numbers are inconsistent, InvalidRequest if nodes of the pool would have to be
    deleted, and ProviderError."""
    if not is_settled(site.pool):
        raise Conflict(f"{site.title}: its pool is at {site.pool.desired}, and its scale groups do not add up to that")
    total = site.pool.desired - (site.size - size)
    if total < least.pool:
        raise InvalidRequest(f"{site.title}: {total} is below the {least.pool} nodes of its pool that exist")
    context.check_cluster()
    if context.moved(group_id(site.pool.id, site.group.name), site):
        raise Conflict(f"{site.title} was changed meanwhile")
    context.api.scale(site.pool.id, total, site.group.name, zero=total == 0)
