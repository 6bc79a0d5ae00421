"""Scales up with one request for the pool's new total, announced before it is sent and polled afterwards.

CCE expects the total of the pool, of which the group is a part. A total computed from an outdated read would remove
nodes of another group. Therefore each call first reads the pool, and a total is sent only for the state that was
recorded before, and never below the size just read:

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

Polling ends when CCE lists the group's nodes, created or being created, or reports why they do not come. The latter is
a failure with the class of the condition, so another group gets the pods at once. A condition that existed before the
request must persist for some polls, and a permanent one does not count against nodes that are listed. Polling also ends
if nothing is listed for three minutes. From then on the scale-up request's own timer runs: the sooner it starts, the
less often a group whose nodes never become ready is scaled up again (docs/reference/scale-up.md "Scale-up in flight").
"""

from __future__ import annotations

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.errors import InvalidRequest, OutOfStock, ProviderError, Unknown
from chalicelib.providers.huaweicloud.context import CceContext, Site, other_size
from chalicelib.providers.huaweicloud.decrease_target import members
from chalicelib.providers.huaweicloud.instance_states import ERROR, alone, failure, refusal
from chalicelib.providers.huaweicloud.operation_polling import (
    FIRST,
    MANY_LOOKS,
    SENT,
    STEP,
    counted,
    doubted,
    is_tired,
    later,
)
from chalicelib.providers.huaweicloud.provider_ids import is_zone
from chalicelib.providers.huaweicloud.size_bounds import is_ours, is_settled, total_of

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
