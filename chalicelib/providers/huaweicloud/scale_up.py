"""TODO"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.policy.vendors.huaweicloud import CceSettings
from chalicelib.providers.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    OutOfStock,
    ProviderError,
    Unauthorized,
    Unknown,
)
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.models import (
    ERROR,
    CceNode,
    NodePool,
    ScaleGroup,
    alone,
    cluster_off,
    failure,
    is_leaving,
    refusal,
)
from chalicelib.providers.huaweicloud.node_groups import (
    CceRange,
    group_range,
    is_ours,
    is_settled,
    pool_range,
    total_of,
)
from chalicelib.providers.huaweicloud.provider_ids import group_id, group_of, is_zone, split
from chalicelib.providers.node_identity import Seen


class Site(msgspec.Struct, frozen=True):
    """A scale group with its pool, both as just read, and their size bounds."""

    pool: NodePool
    group: ScaleGroup
    whole: CceRange
    within: CceRange

    @property
    def title(self) -> str:
        """The description for messages: `pool-a/default`."""
        return f"{self.pool.name or self.pool.id}/{self.group.name}"

    @property
    def size(self) -> int:
        """The desired size of the group."""
        return self.group.desired


class CceContext(msgspec.Struct, frozen=True):
    """joined: lists the cluster's current nodes; None if the cluster cannot be reached."""

    api: CceApi
    settings: CceSettings
    joined: Callable[[], tuple[Seen, ...]] | None = None

    def site(self, group: str) -> Site:
        """Return the current group; raises NotFound if pool or group are gone, Unknown if it cannot be decoded."""
        uid, name = split(group)
        pool = self.api.pool(uid)
        if pool.error:
            raise Unknown(f"node pool {uid}: {pool.error}", code="Shape")
        found = pool.group(name)
        if found is None:
            raise NotFound(f"node pool {pool.name or uid} has no scale group {name}")
        if found.error:
            raise Unknown(f"{pool.name or uid}/{name}: {found.error}", code="Shape")
        return Site(pool, found, pool_range(pool, self.settings), group_range(pool, found, self.settings))

    def moved(self, group: str, site: Site) -> bool:
        """Return whether the sizes have changed since they were read. Raises ProviderError.

        Called immediately before a total is sent, because any request in between is time in which the sizes may change.
        """
        now = self.site(group)
        return (now.pool.desired, now.size) != (site.pool.desired, site.size)

    def check_cluster(self) -> None:
        """Raise Conflict while the cluster accepts no change, InvalidRequest if waiting cannot resolve that.

        A key without the permission to read the phase is not a reason to refuse."""
        try:
            phase = self.api.cluster_phase()
        except Unauthorized:
            return
        text, passes = cluster_off(phase)
        if text:
            raise Conflict(text, code=phase) if passes else InvalidRequest(text, code=phase)


def other_size(operation: Operation, site: Site) -> Failed:
    """Return the failure for a size that was changed outside this operation."""
    planned = f"from {operation.spec.from_size} to {operation.spec.to_size}"
    return Failed("Conflict", f"{site.title} has the size {site.size}, but {planned} was planned")


POLLS, LOOKS, SENT = "polls", "looks", "sent"
STEP = "follow"
FIRST, LONGEST, PATIENCE = 5.0, 60.0, 600.0
_GROWS = 1.5
# Polls before numbers that contradict the request are accepted, because they may lag behind. The same number of
# polls applies before a pool with inconsistent numbers is given up: a minute of waiting loses nothing.
ENOUGH_LOOKS, MANY_LOOKS = 5, 13


def counted(data: Mapping[str, str], key: str) -> int:
    """Return a count in the data; 0 if it cannot be read."""
    text = data.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 0


def later(operation: Operation, note: str, step: str = STEP) -> InProgress:
    """Return Pending with a growing delay of up to a minute."""
    polls = counted(operation.status.data, POLLS)
    return InProgress(round(_pause(polls), 1), step, {**operation.status.data, POLLS: str(polls + 1)}, note)


def is_tired(operation: Operation, patience: float = PATIENCE) -> bool:
    """Whether the polls so far took this many seconds. From then on the planner waits, with its own timer."""
    return sum(_pause(number) for number in range(min(counted(operation.status.data, POLLS), 100))) >= patience


def doubted(operation: Operation, note: str, step: str = STEP, enough: int = ENOUGH_LOOKS) -> InProgress | None:
    """Return Pending for another read of inconsistent numbers; None after enough polls."""
    looks = counted(operation.status.data, LOOKS) + 1
    if looks >= enough:
        return None
    return InProgress(FIRST, step, {**operation.status.data, LOOKS: str(looks)}, note)


def _pause(number: int) -> float:
    return float(min(LONGEST, FIRST * _GROWS ** min(number, 20)))


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


ANNOUNCE = "announce"
BASE, TOTAL, WAS = "base", "total", "was"
UNSEEN = 180.0  # seconds of polls without a result; later passes see the outcome (instances.py)


def scale_up(context: CceContext, operation: Operation) -> Outcome:
    """Scale from from_size to to_size; idempotent. Raises ProviderError."""
    if operation.spec.to_size <= operation.spec.from_size:
        raise InvalidRequest(f"from {operation.spec.from_size} to {operation.spec.to_size} does not increase the size")
    site = context.site(operation.spec.group)
    if site.size == operation.spec.to_size:
        return _look(context, operation.with_status(data={**operation.status.data, SENT: "yes"}), site)
    if site.size != operation.spec.from_size:
        return other_size(operation, site)
    announced = TOTAL in operation.status.data
    if announced and site.pool.desired != counted(operation.status.data, BASE):
        return _moved(operation, site)
    if (wait := _unsure(operation, site)) is not None:
        return wait
    check(context, operation, site)
    return _ask(context, operation, site) if announced else _announce(operation, site)


def has_requested(context: CceContext, operation: Operation) -> bool:
    """Return whether the group has the requested size, or its pool the announced total; raises ProviderError."""
    if SENT in operation.status.data:
        return True
    site = context.site(operation.spec.group)
    announced = TOTAL in operation.status.data
    return site.size == operation.spec.to_size or (
        announced and site.pool.desired == counted(operation.status.data, TOTAL)
    )


def poll_growth(context: CceContext, operation: Operation) -> Outcome:
    """Report the group's progress. Raises ProviderError.

    Sends nothing itself; if no request was accepted yet, the scale-up is called again."""
    if SENT not in operation.status.data:
        return scale_up(context, operation)
    return _look(context, operation, context.site(operation.spec.group))


def check(context: CceContext, operation: Operation, site: Site) -> None:
    """Raise the reason why the group must not, or cannot, reach that size."""
    pool, delta = site.pool, operation.spec.to_size - operation.spec.from_size
    rows = (
        (alone(pool), f"node pool {pool.name} {alone(pool)}"),
        (site.within.error, f"{site.title}: {site.within.error}"),
        (not is_ours(pool, site.group, context.settings), f"{site.title} is switched off for autoscaling"),
        (
            operation.spec.to_size > site.within.max,
            f"{site.title}: {operation.spec.to_size} is above its maximum {site.within.max}",
        ),
        (
            0 <= site.whole.max < pool.desired + delta,
            f"{site.title}: {pool.desired + delta} is above the maximum {site.whole.max} of its pool",
        ),
    )
    for applies, text in rows:
        if applies:
            raise InvalidRequest(text)
    if reason := refusal(pool, site.group):
        raise _titled(site, reason)
    if _sold_out(context, site):
        raise OutOfStock(f"{site.title}: {site.group.flavor} is sold out in {site.group.az}", code="sellout")
    context.check_cluster()


def _sold_out(context: CceContext, site: Site) -> bool:
    """Return the vendor's hint that a flavour is sold out. If the hint is unavailable, CCE is asked for nodes
    anyway."""
    if not is_zone(site.group.az):
        return False
    try:
        flavor = context.api.flavors(site.group.az).get(site.group.flavor)
    except ProviderError:
        return False
    return flavor is not None and flavor.sold_out(site.group.az)


def _announce(operation: Operation, site: Site) -> InProgress:
    """Record what the next call will request."""
    before = failure(site.pool, site.group)
    total = site.pool.desired + operation.spec.to_size - operation.spec.from_size
    data = {BASE: str(site.pool.desired), TOTAL: str(total), WAS: before.code if before is not None else ""}
    return InProgress(0.0, ANNOUNCE, data, f"{site.title}: its pool is to go from {site.pool.desired} to {total}")


def _moved(operation: Operation, site: Site) -> Outcome:
    """Handle a pool whose size has changed since the announcement, while the group's has not."""
    if is_settled(site.pool):
        return _announce(operation, site)
    if site.pool.desired == counted(operation.status.data, TOTAL):
        return InProgress(FIRST, STEP, {**operation.status.data, SENT: "yes"}, f"{site.title}: the pool is growing")
    return _contradiction(operation, site)


def _unsure(operation: Operation, site: Site) -> Outcome | None:
    """Wait while numbers are inconsistent; None if a total may be computed from them.

    A recent change shows first at the pool and later at its groups, or in the reverse order. A total from the lower
    number would remove nodes, and one from the higher would buy nodes that were just removed. A size below the number
    of existing nodes would remove some of them. An inconsistency that persists is an error of the vendor and not a
    Conflict, which would be retried at once."""
    pool, total = site.pool, site.pool.desired + operation.spec.to_size - operation.spec.from_size
    reported = ""
    if not is_settled(pool):
        reported = f"{site.title}: its pool is at {pool.desired}, and its scale groups add up to {total_of(pool)}"
    elif total < pool.current or operation.spec.to_size < site.group.existing:
        reported = (
            f"{site.title} has {site.group.existing} nodes and its pool {pool.current}, which are more than the "
            f"sizes {operation.spec.to_size} and {total} that it was to grow to"
        )
    return (doubted(operation, reported, ANNOUNCE, MANY_LOOKS) or Failed("Unknown", reported)) if reported else None


def _contradiction(operation: Operation, site: Site) -> Outcome:
    """Handle a pool that was changed since the announcement, while it is unknown which group has changed."""
    reported = f"{site.title}: its pool is at {site.pool.desired}, and its scale groups add up to {total_of(site.pool)}"
    return doubted(operation, reported, ANNOUNCE) or Failed("Conflict", reported)


def _ask(context: CceContext, operation: Operation, site: Site) -> Outcome:
    if context.moved(operation.spec.group, site):
        return InProgress(0.0, ANNOUNCE, dict(operation.status.data), f"{site.title} was changed meanwhile")
    total = site.pool.desired + operation.spec.to_size - operation.spec.from_size
    try:
        context.api.scale(site.pool.id, total, site.group.name)
    except (InvalidRequest, Unknown) as error:
        # The code for "sold out" is not documented, so the conditions take precedence over the code.
        now = context.site(operation.spec.group)
        reason = refusal(now.pool, now.group) or failure(now.pool, now.group)
        raise (_titled(site, reason) if reason is not None else error) from None
    return InProgress(FIRST, STEP, {**operation.status.data, SENT: "yes"})


def _look(context: CceContext, operation: Operation, site: Site) -> Outcome:
    size, there = site.size, site.group.existing
    facts = _facts(operation, there)
    reported = f"{site.title} has {there} of {size} nodes"
    if size < operation.spec.to_size:
        if site.pool.desired > total_of(site.pool) and not is_tired(operation):  # the pool shows the request already
            return later(operation, f"{site.title} is at {size}, and its pool is at {site.pool.desired}")
        again = doubted(operation, f"{site.title} is at {size} and was asked to go to {operation.spec.to_size}")
        gone = Failed(
            "Unknown", f"{site.title} is at {size} though CCE has taken {operation.spec.to_size}", facts=facts
        )
        return again or (gone if size == operation.spec.from_size else other_size(operation, site))
    if there >= size:
        return Succeeded(facts)
    listed = sum(each.phase != ERROR for each in members(context, site))
    if listed >= size:
        return Succeeded(_facts(operation, listed))
    if (why := failure(site.pool, site.group)) is not None:
        again = doubted(operation, reported) if why.code == operation.status.data.get(WAS, "") else None
        return again or Failed(why.error_class, f"{reported}: {why.message}", why.code, facts=facts)
    return Succeeded({**facts, "note": reported}) if is_tired(operation, UNSEEN) else later(operation, reported)


def _facts(operation: Operation, there: int) -> dict[str, str | int]:
    made = max(0, min(there, operation.spec.to_size) - operation.spec.from_size)
    return {"from": operation.spec.from_size, "to": operation.spec.to_size, "created": made}


def _titled(site: Site, error: ProviderError) -> ProviderError:
    return type(error)(f"{site.title}: {error.message}", code=error.code, retry_after=error.retry_after)
