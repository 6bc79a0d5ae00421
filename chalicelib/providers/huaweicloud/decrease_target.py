"""A smaller size that costs no node: only what was asked for and never came is taken back (huaweicloud-cce.md B6).

CCE chooses whom it deletes for a lower total. So none below what exists is ever asked for, by the counters and by the
list of nodes, neither for the group nor for the pool; and none at all while the groups do not add up to the pool, since
one of the two is out of date then.
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
    """Nodes that exist, of the group and of its whole pool."""

    group: int
    pool: int


def shrink(context: CceContext, operation: Operation) -> Outcome:
    """Lower the size to to_size where no node would have to go for it, and see it lowered; raises ProviderError. Once
    the request was accepted nothing more is sent."""
    if operation.spec.to_size < 0:
        raise InvalidRequest(f"{operation.spec.group}: {operation.spec.to_size} is no size")
    site = context.site(operation.spec.group)
    if site.size <= operation.spec.to_size:
        return Succeeded({"from": operation.spec.from_size, "to": operation.spec.to_size})
    if SENT in operation.status.data:
        told = f"{site.title} still has the size {site.size} though CCE has taken {operation.spec.to_size}"
        return doubted(operation, told) or Failed("Unknown", told)
    if site.size != operation.spec.from_size:
        return other_size(operation, site)
    there = least(context, site)
    if operation.spec.to_size < there.group:
        raise InvalidRequest(f"{site.title}: {operation.spec.to_size} is below the {there.group} nodes that exist")
    lower(context, site, operation.spec.to_size, there)
    return InProgress(FIRST, STEP, {**operation.status.data, SENT: "yes"})


def take_back(context: CceContext, operation: Operation, site: Site, count: int) -> Failed | None:
    """Lower the size by so many that were never made; None where that is done, or there is nothing to lower (any more).
    From the planned size, so that it may be repeated; a size that is lower already is ours or a removal's beside us,
    and the next pass sees what is left. Failed if it has grown. Raises ProviderError."""
    if site.size > operation.spec.from_size:
        return other_size(operation, site)
    there = least(context, site)
    goal = max(there.group, operation.spec.from_size - count)
    if goal < site.size:
        lower(context, site, goal, there)
    return None


def least(context: CceContext, site: Site) -> Least:
    """How many nodes exist; those that are being made are counted, too, though they may fail. Raises ProviderError."""
    alive = _alive(context, site)
    own = _own(alive, site)
    return Least(max(site.group.existing, len(own)), max(site.pool.current, len(alive)))


def members(context: CceContext, site: Site) -> tuple[CceNode, ...]:
    """The group's nodes that are listed and not leaving, whatever phase they are in. Raises ProviderError."""
    return _own(_alive(context, site), site)


def _alive(context: CceContext, site: Site) -> tuple[CceNode, ...]:
    listed = context.api.nodes()
    if odd := [each.error for each in listed if each.error and each.pool in {"", site.pool.id}]:
        raise Unknown(f"{site.title}: a node that may be of its pool cannot be understood: {odd[0]}", code="Shape")
    return tuple(each for each in listed if each.pool == site.pool.id and not is_leaving(each))


def _own(alive: tuple[CceNode, ...], site: Site) -> tuple[CceNode, ...]:
    return tuple(each for each in alive if group_of(each, site.pool) == site.group)


def lower(context: CceContext, site: Site, size: int, there: Least) -> None:
    """Give the group a lower size. The caller has seen that it is none below the group's nodes. Raises Conflict where
    the pool's numbers do not hold, InvalidRequest where its nodes would have to go, and ProviderError."""
    if not is_settled(site.pool):
        raise Conflict(f"{site.title}: its pool is at {site.pool.desired}, and its scale groups do not add up to that")
    total = site.pool.desired - (site.size - size)
    if total < there.pool:
        raise InvalidRequest(f"{site.title}: {total} is below the {there.pool} nodes of its pool that exist")
    context.check_cluster()
    if context.moved(group_id(site.pool.id, site.group.name), site):
        raise Conflict(f"{site.title} was changed meanwhile")
    context.api.scale(site.pool.id, total, site.group.name, zero=total == 0)
