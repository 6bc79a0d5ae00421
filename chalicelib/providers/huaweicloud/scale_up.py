"""Growth: one request with the pool's new total, announced before and followed after (huaweicloud-cce.md B6; B11, 18).

The number that CCE is told is the total of the pool, of which the group is a part. A total made from an old reading
takes nodes away from somebody. So each call reads the pool first, and a total is sent only for the reading that was
written down before, and never below what was just read:

    group == to_size                    ─► follow     (an earlier attempt got through)
    group is neither                    ─► conflict, nothing is written
    its groups do not add up to it, or more exists than it is to grow to
                                        ─► look again; failed if it stays so
    nothing announced                   ─► check, announce: the pool is at B, it is to be at B + n
    announced, the pool is still at B   ─► check, send B + n
    the pool is at B + n, and its groups do not add up to that yet
                                        ─► follow     (the request got through, its answer did not)
    the pool is elsewhere, and its groups add up to that
                                        ─► announce anew: somebody else has changed another group
    the pool is elsewhere, and they do not
                                        ─► look again; a conflict if it stays so

A request that was lost and arrives after its repetition asks for the same total, so it adds nothing.

It is followed until CCE lists the group's nodes, being made or made, or says why they do not come: failed then, with
the class of the condition, so that another group gets the pods at once (A9.1). A condition that stood there before we
asked has to stay for some looks, and one that never goes away says nothing against nodes that are listed. Where nothing
is listed for three minutes it is over, too. From then on the scale-up request's own timer runs (A9.3): the sooner it
begins, the less often is a group that never gets its nodes ready asked for one more.
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
UNSEEN = 180.0  # seconds of looks at nothing; passes see what comes of it after that (members.py)


def grow(context: CceContext, operation: Operation) -> Outcome:
    """from_size -> to_size, once however often it is called; raises ProviderError."""
    if operation.spec.to_size <= operation.spec.from_size:
        raise InvalidRequest(f"from {operation.spec.from_size} to {operation.spec.to_size} is no growth")
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


def poll_growth(context: CceContext, operation: Operation) -> Outcome:
    """How far the group has come. Nothing is ever sent from here; without a request that was accepted it is a call of
    grow. Raises ProviderError."""
    if SENT not in operation.status.data:
        return grow(context, operation)
    return _look(context, operation, context.site(operation.spec.group))


def check(context: CceContext, operation: Operation, site: Site) -> None:
    """Raises the reason why the group may not, or cannot, become that large."""
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
    """A hint (B9): where it cannot be had, CCE is asked all the same."""
    if not is_zone(site.group.az):
        return False
    try:
        flavor = context.api.flavors(site.group.az).get(site.group.flavor)
    except ProviderError:
        return False
    return flavor is not None and flavor.sold_out(site.group.az)


def _announce(operation: Operation, site: Site) -> InProgress:
    """Write down what the next call will ask for."""
    before = failure(site.pool, site.group)
    total = site.pool.desired + operation.spec.to_size - operation.spec.from_size
    data = {BASE: str(site.pool.desired), TOTAL: str(total), WAS: before.code if before is not None else ""}
    return InProgress(0.0, ANNOUNCE, data, f"{site.title}: its pool is to go from {site.pool.desired} to {total}")


def _moved(operation: Operation, site: Site) -> Outcome:
    """The pool is not where it was when the growth was announced, and the group is."""
    if is_settled(site.pool):
        return _announce(operation, site)
    if site.pool.desired == counted(operation.status.data, TOTAL):
        return InProgress(FIRST, STEP, {**operation.status.data, SENT: "yes"}, f"{site.title}: the pool is growing")
    return _contradiction(operation, site)


def _unsure(operation: Operation, site: Site) -> Outcome | None:
    """Wait for numbers that do not agree; None where a total may be made of them.

    What somebody has just changed shows at the pool first and at its groups later, or the other way round. A total made
    of the lower number would take nodes away, and one of the higher would buy what was given back. A size below what
    exists would take away what is there, however it came about. What stays so is the vendor's fault, and no conflict:
    that would be tried again at once."""
    pool, total = site.pool, site.pool.desired + operation.spec.to_size - operation.spec.from_size
    told = ""
    if not is_settled(pool):
        told = f"{site.title}: its pool is at {pool.desired}, and its scale groups add up to {total_of(pool)}"
    elif total < pool.current or operation.spec.to_size < site.group.existing:
        told = (
            f"{site.title} has {site.group.existing} nodes and its pool {pool.current}, which are more than the "
            f"sizes {operation.spec.to_size} and {total} that it was to grow to"
        )
    return (doubted(operation, told, ANNOUNCE, MANY_LOOKS) or Failed("Unknown", told)) if told else None


def _contradiction(operation: Operation, site: Site) -> Outcome:
    """Somebody has changed the pool since the growth was announced, and nobody knows yet which group of it."""
    told = f"{site.title}: its pool is at {site.pool.desired}, and its scale groups add up to {total_of(site.pool)}"
    return doubted(operation, told, ANNOUNCE) or Failed("Conflict", told)


def _ask(context: CceContext, operation: Operation, site: Site) -> Outcome:
    if context.moved(operation.spec.group, site):
        return InProgress(0.0, ANNOUNCE, dict(operation.status.data), f"{site.title} was changed meanwhile")
    total = site.pool.desired + operation.spec.to_size - operation.spec.from_size
    try:
        context.api.scale(site.pool.id, total, site.group.name)
    except (InvalidRequest, Unknown) as error:
        # Which code says "sold out" is not documented: what the conditions say comes first, the code second (B8).
        now = context.site(operation.spec.group)
        reason = refusal(now.pool, now.group) or failure(now.pool, now.group)
        raise (_titled(site, reason) if reason is not None else error) from None
    return InProgress(FIRST, STEP, {**operation.status.data, SENT: "yes"})


def _look(context: CceContext, operation: Operation, site: Site) -> Outcome:
    size, there = site.size, site.group.existing
    facts = _facts(operation, there)
    told = f"{site.title} has {there} of {size} nodes"
    if size < operation.spec.to_size:
        if site.pool.desired > total_of(site.pool) and not is_tired(operation):  # the pool knows of it already
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
        again = doubted(operation, told) if why.code == operation.status.data.get(WAS, "") else None
        return again or Failed(why.error_class, f"{told}: {why.message}", why.code, facts=facts)
    return Succeeded({**facts, "note": told}) if is_tired(operation, UNSEEN) else later(operation, told)


def _facts(operation: Operation, there: int) -> dict[str, str | int]:
    made = max(0, min(there, operation.spec.to_size) - operation.spec.from_size)
    return {"from": operation.spec.from_size, "to": operation.spec.to_size, "created": made}


def _titled(site: Site, error: ProviderError) -> ProviderError:
    return type(error)(f"{site.title}: {error.message}", code=error.code, retry_after=error.retry_after)
