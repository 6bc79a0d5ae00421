"""Scales up with one request for the pool's new total, announced before it is sent;
and what all changes share.

CCE expects the total of the pool, of which the group is a part. A total computed from an outdated
read would remove nodes of another group. Therefore each call first reads the pool, and a total is
sent only for the state that was recorded before, and never below the size just read:

    group == to_size                    ─► poll       (an earlier attempt succeeded)
    group is neither                    ─► conflict, nothing is written
    the groups' sizes do not add up to the pool's, or more nodes exist than requested
                                        ─► read again; failed if it persists
    nothing announced                   ─► check, announce: the pool is at B and will be at B + n
    announced, the pool is still at B   ─► check, send B + n
    the pool is at B + n, and its groups do not add up to that yet
                                        ─► poll       (the request succeeded, its response was lost)
    the pool has another size, and its groups add up to it
                                        ─► announce again: another group was changed concurrently
    the pool has another size, and they do not
                                        ─► read again; a conflict if it persists

A lost request that arrives after its repetition asks for the same total, so it adds nothing.

Polling ends when CCE lists the group's nodes, created or being created, or reports why they do not
come. The latter is a failure with the class of the condition, so another group gets the pods at
once. A condition that existed before the request must persist for some polls, and a permanent one
does not count against nodes that are listed. Polling also ends if nothing is listed for three
minutes. From then on the scale-up request's own timer runs: the sooner it starts, the less often a
group whose nodes never become ready is scaled up again (docs/reference/scale-up.md "Scale-up in
flight").
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.policy.vendors.huaweicloud import CceSettings
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.models import (
    ERROR,
    CceNode,
    NodePool,
    ScaleGroup,
    cluster_off,
    failure,
    is_leaving,
    refusal,
    unchangeable,
)
from chalicelib.providers.huaweicloud.node_groups import (
    CceRange,
    group_range,
    is_node_group,
    is_settled,
    pool_range,
    total_of,
)
from chalicelib.providers.huaweicloud.provider_ids import group_of, is_zone, split
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    OutOfStock,
    ProviderError,
    Unauthorized,
    Unknown,
)
from chalicelib.providers.kit.node_identity import Seen
from chalicelib.providers.kit.sized_group import Polls, check_sizes, counted, look_again, other_size

SENT = "sent"  # key of an operation's data: a request was accepted
FOLLOWING = Polls("follow", first=5.0, growth=1.5, longest=60.0)
PATIENCE = 600.0  # seconds of polls in total
# Polls before numbers that contradict the request are accepted, because they may lag behind.
# The same number of polls applies before a pool with inconsistent numbers is given up: a minute
# of waiting loses nothing.
ENOUGH_LOOKS, MANY_LOOKS = 5, 13
ANNOUNCE = "announce"
BASE, TOTAL, WAS = "base", "total", "was"
UNSEEN = 180.0  # seconds of polls without a result; later passes see the outcome (node_groups.py)


class CceGroup(msgspec.Struct, frozen=True):
    """A scale group with its pool, both as just read, and their size bounds."""

    pool: NodePool
    scale_group: ScaleGroup
    pool_sizes: CceRange
    sizes: CceRange

    @property
    def title(self) -> str:
        """The description for messages: `pool-a/default`."""
        return f"{self.pool.name or self.pool.id}/{self.scale_group.name}"

    @property
    def size(self) -> int:
        """The desired size of the group."""
        return self.scale_group.desired


class CceContext(msgspec.Struct, frozen=True):
    """What all changes need. joined: lists the cluster's current nodes; None if the
    cluster cannot be reached."""

    api: CceApi
    settings: CceSettings
    joined: Callable[[], tuple[Seen, ...]] | None = None

    def group(self, name: str) -> CceGroup:
        """Return the current group; raises NotFound if pool or group are gone, Unknown
        if it cannot be decoded."""
        uid, group_name = split(name)
        pool = self.api.pool(uid)
        if pool.error:
            raise Unknown(f"node pool {uid}: {pool.error}", code="Shape")
        group = pool.group(group_name)
        if group is None:
            raise NotFound(f"node pool {pool.name or uid} has no scale group {group_name}")
        if group.error:
            raise Unknown(f"{pool.name or uid}/{group_name}: {group.error}", code="Shape")
        return CceGroup(
            pool, group, pool_range(pool, self.settings), group_range(pool, group, self.settings)
        )

    def has_moved(self, name: str, group: CceGroup) -> bool:
        """Return whether the sizes have changed since they were read. Raises ProviderError.
        Called immediately before a total is sent, because any request in between is time in
        which the sizes may change."""
        now = self.group(name)
        return (now.pool.desired, now.size) != (group.pool.desired, group.size)

    def check_cluster(self) -> None:
        """Raise Conflict while the cluster accepts no change, InvalidRequest if waiting cannot
        resolve that. A key without the permission to read the phase is not a reason to refuse."""
        try:
            phase = self.api.cluster_phase()
        except Unauthorized:
            return
        text, passes = cluster_off(phase)
        if text:
            raise Conflict(text, code=phase) if passes else InvalidRequest(text, code=phase)

    def nodes_of_pool(self, group: CceGroup) -> tuple[CceNode, ...]:
        """Return the nodes of the group's pool that are listed and not leaving, in any
        phase. Raises ProviderError."""
        listed = self.api.nodes()
        if undecoded := [
            node.error for node in listed if node.error and node.pool in {"", group.pool.id}
        ]:
            text = (
                f"{group.title}: a node that may be of its pool cannot be understood: "
                f"{undecoded[0]}"
            )
            raise Unknown(text, code="Shape")
        return tuple(node for node in listed if node.pool == group.pool.id and not is_leaving(node))


def nodes_of_group(nodes: tuple[CceNode, ...], group: CceGroup) -> tuple[CceNode, ...]:
    """Return those of the pool's nodes that are the group's."""
    return tuple(node for node in nodes if group_of(node, group.pool) == group.scale_group)


def read_again(
    operation: Operation, note: str, step: str = FOLLOWING.step, enough: int = ENOUGH_LOOKS
) -> InProgress | None:
    """Return Pending for another read of inconsistent numbers; None after enough polls."""
    pending = InProgress(FOLLOWING.first, step or FOLLOWING.step, dict(operation.status.data), note)
    return look_again(operation, pending, enough)


# -- scale-up


def scale_up(context: CceContext, operation: Operation) -> Outcome:
    """Scale from from_size to to_size; idempotent. Raises ProviderError."""
    from_size, to_size = operation.spec.from_size, operation.spec.to_size
    check_sizes(operation)
    group = context.group(operation.spec.group)
    if group.size == to_size:
        return _progress(
            context, operation.with_status(data={**operation.status.data, SENT: "yes"}), group
        )
    if group.size != from_size:
        return other_size(operation, group.title, group.size)
    announced = TOTAL in operation.status.data
    if announced and group.pool.desired != counted(operation, BASE):
        return _after_other_change(operation, group)
    if problem := _inconsistency(operation, group):
        return read_again(operation, problem, ANNOUNCE, MANY_LOOKS) or Failed("Unknown", problem)
    _check_scale_up(context, operation, group)
    return _send_total(context, operation, group) if announced else _announce(operation, group)


def has_requested(context: CceContext, operation: Operation) -> bool:
    """Return whether the group has the requested size, or its pool the announced
    total; raises ProviderError."""
    if SENT in operation.status.data:
        return True
    group = context.group(operation.spec.group)
    announced = TOTAL in operation.status.data
    return group.size == operation.spec.to_size or (
        announced and group.pool.desired == counted(operation, TOTAL)
    )


def poll_growth(context: CceContext, operation: Operation) -> Outcome:
    """Report the group's progress. Raises ProviderError. Sends nothing itself; if no request was
    accepted yet, the scale-up is called again."""
    if SENT not in operation.status.data:
        return scale_up(context, operation)
    return _progress(context, operation, context.group(operation.spec.group))


def _new_total(operation: Operation, group: CceGroup) -> int:
    return group.pool.desired + operation.spec.to_size - operation.spec.from_size


def _check_scale_up(context: CceContext, operation: Operation, group: CceGroup) -> None:
    """Raise the reason why the group must not, or cannot, reach that size."""
    pool, to_size, total = group.pool, operation.spec.to_size, _new_total(operation, group)
    fixed, most = unchangeable(pool), group.pool_sizes.max
    rows = (
        (fixed, f"node pool {pool.name} {fixed}"),
        (group.sizes.error, f"{group.title}: {group.sizes.error}"),
        (
            not is_node_group(pool, group.scale_group, context.settings),
            f"{group.title} is switched off for autoscaling",
        ),
        (
            to_size > group.sizes.max,
            f"{group.title}: {to_size} is above its maximum {group.sizes.max}",
        ),
        (0 <= most < total, f"{group.title}: {total} is above the maximum {most} of its pool"),
    )
    for applies, text in rows:
        if applies:
            raise InvalidRequest(text)
    if error := refusal(pool, group.scale_group):
        raise _titled(group, error)
    flavor, az = group.scale_group.flavor, group.scale_group.az
    # The vendor's hint that a flavour is sold out. If the hint is unavailable, CCE
    # is asked for nodes anyway.
    try:
        hint = context.api.flavors(az).get(flavor) if is_zone(az) else None
    except ProviderError:
        hint = None
    if hint is not None and hint.sold_out(az):
        raise OutOfStock(f"{group.title}: {flavor} is sold out in {az}", code="sellout")
    context.check_cluster()


def _announce(operation: Operation, group: CceGroup) -> InProgress:
    """Record what the next call will request."""
    before, total = failure(group.pool, group.scale_group), _new_total(operation, group)
    data = {
        BASE: str(group.pool.desired),
        TOTAL: str(total),
        WAS: before.code if before is not None else "",
    }
    return InProgress(
        0.0,
        ANNOUNCE,
        data,
        f"{group.title}: its pool is to go from {group.pool.desired} to {total}",
    )


def _after_other_change(operation: Operation, group: CceGroup) -> Outcome:
    """Handle a pool whose size has changed since the announcement, while the group's has not."""
    if is_settled(group.pool):
        return _announce(operation, group)
    if group.pool.desired == counted(operation, TOTAL):
        return FOLLOWING.begin(
            {**operation.status.data, SENT: "yes"},
            f"{group.title}: the pool is growing",
        )
    # It is unknown which group has changed.
    text = _unsettled(group)
    return read_again(operation, text, ANNOUNCE) or Failed("Conflict", text)


def _inconsistency(operation: Operation, group: CceGroup) -> str:
    """Return why no total may be computed from the numbers, which is then
    waited for; "" if one may.

    A recent change shows first at the pool and later at its groups, or in the reverse order. A
    total from the lower number would remove nodes, and one from the higher would buy nodes that
    were just removed. A size below the number of existing nodes would remove some of them. An
    inconsistency that persists is an error of the vendor and not a Conflict, which would be retried
    at once."""
    if not is_settled(group.pool):
        return _unsettled(group)
    existing, current, total = (
        group.scale_group.existing,
        group.pool.current,
        _new_total(operation, group),
    )
    if total >= current and operation.spec.to_size >= existing:
        return ""
    return (
        f"{group.title} has {existing} nodes and its pool {current}, which are more than the "
        f"sizes {operation.spec.to_size} and {total} that it was to grow to"
    )


def _unsettled(group: CceGroup) -> str:
    total = total_of(group.pool)
    return (
        f"{group.title}: its pool is at {group.pool.desired}, and its scale groups add up to "
        f"{total}"
    )


def _send_total(context: CceContext, operation: Operation, group: CceGroup) -> Outcome:
    name = operation.spec.group
    if context.has_moved(name, group):
        return InProgress(
            0.0, ANNOUNCE, dict(operation.status.data), f"{group.title} was changed meanwhile"
        )
    try:
        context.api.scale(group.pool.id, _new_total(operation, group), group.scale_group.name)
    except (InvalidRequest, Unknown) as error:
        # The code for "sold out" is not documented, so the conditions take
        # precedence over the code.
        now = context.group(name)
        reason = refusal(now.pool, now.scale_group) or failure(now.pool, now.scale_group)
        raise (_titled(group, reason) if reason is not None else error) from None
    return FOLLOWING.begin({**operation.status.data, SENT: "yes"})


def _progress(context: CceContext, operation: Operation, group: CceGroup) -> Outcome:
    """Report what became of a request that was accepted."""
    size, existing = group.size, group.scale_group.existing
    if size < operation.spec.to_size:
        return _smaller_than_requested(operation, group)
    facts = _facts(operation, existing)
    if existing >= size:
        return Succeeded(facts)
    listed = sum(
        node.phase != ERROR for node in nodes_of_group(context.nodes_of_pool(group), group)
    )
    if listed >= size:
        return Succeeded(_facts(operation, listed))
    note = f"{group.title} has {existing} of {size} nodes"
    if (why := failure(group.pool, group.scale_group)) is not None:
        again = (
            read_again(operation, note) if why.code == operation.status.data.get(WAS, "") else None
        )
        return again or Failed(why.error_class, f"{note}: {why.message}", why.code, facts=facts)
    if FOLLOWING.have_taken(operation, UNSEEN):
        return Succeeded({**facts, "note": note})
    return FOLLOWING.later(operation, note)


def _smaller_than_requested(operation: Operation, group: CceGroup) -> Outcome:
    size, to_size, total = group.size, operation.spec.to_size, group.pool.desired
    if total > total_of(group.pool) and not FOLLOWING.have_taken(operation, PATIENCE):
        return FOLLOWING.later(operation, f"{group.title} is at {size}, and its pool is at {total}")
    again = read_again(operation, f"{group.title} is at {size} and was asked to go to {to_size}")
    if again is not None or size != operation.spec.from_size:
        return again or other_size(operation, group.title, group.size)
    facts = _facts(operation, group.scale_group.existing)
    return Failed(
        "Unknown", f"{group.title} is at {size} though CCE has taken {to_size}", facts=facts
    )


def _facts(operation: Operation, nodes: int) -> dict[str, str | int]:
    created = max(0, min(nodes, operation.spec.to_size) - operation.spec.from_size)
    return {"from": operation.spec.from_size, "to": operation.spec.to_size, "created": created}


def _titled(group: CceGroup, error: ProviderError) -> ProviderError:
    return type(error)(
        f"{group.title}: {error.message}", code=error.code, retry_after=error.retry_after
    )
