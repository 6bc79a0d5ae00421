"""Metric rules: add nodes to a pool whose allocation rate is above a threshold.

Only the last action is remembered: each pass measures again, and missed actions are not made up for.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chalicelib.model.memory import RuleMemory
from chalicelib.model.plan import RuleVerdict
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.scaling_rules import Metric
from chalicelib.plan.scale_up.scaling_rules.allocation import BelowThreshold, FixedCount, NodeDemand, first_choice
from chalicelib.plan.scale_up.scaling_rules.allocation_rate import RESOURCE, Rate
from chalicelib.plan.scale_up.scaling_rules.context import RuleContext, verdict
from chalicelib.plan.scale_up.scaling_rules.pool_state import without_device
from chalicelib.plan.scale_up.scaling_rules.sources import SourceBound, threshold
from chalicelib.plan.state.pools import PoolFacts


def run(context: RuleContext, pool: PoolFacts, rules: Sequence[SourceBound], *, served: bool) -> list[RuleVerdict]:
    """Run the metric rules of one pool in the given order; at most one of them acts. served: pods got nodes in this
    pass."""
    for each in rules:
        if (known := context.state.memory.rules.get(each.key)) is not None:
            context.memory[each.key] = known
    rates = [context.rates.of(pool, each.rule.metric or Metric.CPU) for each in rules]
    held = _held(context, pool, served=served)
    reasons = [_silent(context, each, rate, held) for each, rate in zip(rules, rates, strict=True)]
    firing = [at for at, reason in enumerate(reasons) if reason is None]
    reported = [_verdict(each, rate, reason) for each, rate, reason in zip(rules, rates, reasons, strict=True)]
    if not firing:
        return reported
    best = max(firing, key=lambda at: (_size(context, rules[at], rates[at]), rules[at].rule.metric is Metric.CPU))
    by = Reason.of(ReasonCode.RULE_SUPERSEDED, by=rules[best].rule.key)
    for at in firing:
        reported[at] = _verdict(rules[at], rates[at], by)
    reported[best] = _act(context, rules[best], rates[best])
    return reported


def _held(context: RuleContext, pool: PoolFacts, *, served: bool) -> Reason | None:
    """Return what blocks all metric rules of a pool, None if nothing does."""
    if context.unhealthy is not None:
        return context.unhealthy
    if served:
        return Reason.of(ReasonCode.RULE_PODS_FIRST)
    if (gone := context.unreadable(pool)) is not None:
        return gone
    if pool.id in context.taken:
        return Reason.of(ReasonCode.RULE_SUPERSEDED, by=context.taken[pool.id])
    if node := without_device(pool, context.state):
        return Reason.of(ReasonCode.RULE_DEVICES, node=node)
    return context.scaling(pool)


def _silent(context: RuleContext, bound: SourceBound, rate: Rate, reason: Reason | None) -> Reason | None:
    """Return why one metric rule does nothing, None if it wants nodes."""
    if bound.invalid:
        return Reason.of(ReasonCode.RULE_INVALID, rule=bound.rule.key, detail=bound.invalid)
    if reason is not None:
        return reason
    if rate.nodes == 0 or rate.allocatable <= 0:
        return Reason.of(
            ReasonCode.RULE_NO_DATA,
            detail="the pool has no ready node"
            if rate.nodes == 0
            else f"its nodes offer no {bound.rule.metric or Metric.CPU}",
        )
    above = threshold(bound.rule, context.state)
    if not rate.above(above):
        return Reason.of(ReasonCode.RULE_BELOW, metric=str(bound.rule.metric), rate=rate.percent, above=above)
    return _interval(context, bound.pool)


def _interval(context: RuleContext, pool: PoolFacts) -> Reason | None:
    """Return why a metric rule must wait after the last action on this pool (metricMinInterval)."""
    least, now = context.state.policy.scale_up.metric_min_interval, context.state.now
    metered = (
        [
            known.last_scaled_at
            for key, known in context.state.memory.rules.items()
            if not known.cron and key.endswith(f"@{pool.id}")
        ]
        if least > 0
        else []
    )
    last = max(metered, default=0.0)
    # A wrong clock wrote an action from the far future; it does not block any rule.
    return Reason.of(ReasonCode.RULE_INTERVAL, until=last + least) if abs(now - last) < least else None


def _want(context: RuleContext, bound: SourceBound, rate: Rate) -> NodeDemand:
    if bound.rule.add > 0:
        return FixedCount(bound.rule.add)
    resource = dict(RESOURCE)[bound.rule.metric or Metric.CPU]
    return BelowThreshold(resource, rate.requests, rate.allocatable, threshold(bound.rule, context.state))


def _size(context: RuleContext, bound: SourceBound, rate: Rate) -> int:
    """Return how many nodes a rule wants before any limit; rules of one pool are compared by this number."""
    node = first_choice(context.search, bound.pool)
    return _want(context, bound, rate).nodes(node) if node is not None else bound.rule.add


def _act(context: RuleContext, bound: SourceBound, rate: Rate) -> RuleVerdict:
    given = context.give(bound, _want(context, bound, rate))
    if given.total:
        known = context.memory.get(bound.key, RuleMemory())
        context.memory[bound.key] = msgspec.structs.replace(known, last_scaled_at=context.state.now)
    return verdict(bound, given.stop, nodes=given.total, rate=rate.percent)


def _verdict(bound: SourceBound, rate: Rate, reason: Reason | None) -> RuleVerdict:
    return verdict(bound, reason, rate=rate.percent if rate.allocatable > 0 else None)
