"""Plans all scaling rules of one pass after the pending pods have been served: cron rules first, then metric rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec

from chalicelib.model.group import InstanceState
from chalicelib.model.memory import RuleMemory
from chalicelib.model.plan import RuleVerdict
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.scaling_rules import Metric, RuleObject
from chalicelib.plan.scale_up.limits import blocking_reason
from chalicelib.plan.scale_up.scaling_rules.allocation import (
    Allocation,
    BelowThreshold,
    FixedCount,
    NodeDemand,
    allocate,
    first_choice,
)
from chalicelib.plan.scale_up.scaling_rules.allocation_rate import RESOURCE, Rate, Rates, RuleRemovalGuard
from chalicelib.plan.scale_up.scaling_rules.sources import SourceBound, Sources, sources, threshold
from chalicelib.plan.scale_up.search import ScaleUpSearch
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.pools import PoolFacts
from chalicelib.plan.state.readiness import Bucket, announces_device, lacks_device, works
from chalicelib.schedules.cron import LocalClock


class RuleResults(msgspec.Struct, frozen=True):
    """The results of scaling rules. memory, objects: complete, for the next pass; by_group: group -> keys of the rules
    that want nodes of it; notes: for Plan.notes; needs: which nodes metric rules need, None if none is in force."""

    verdicts: tuple[RuleVerdict, ...] = ()
    memory: dict[str, RuleMemory] = {}
    objects: dict[str, RuleObject] = {}
    by_group: dict[str, tuple[str, ...]] = {}
    notes: tuple[Reason, ...] = ()
    needs: RuleRemovalGuard | None = None


def plan_rules(search: ScaleUpSearch, *, served: bool) -> RuleResults:
    """Add the nodes that rules want (search.add). served: pending pods got nodes in this pass, which blocks metric
    rules.

    Disabled rules are removed from memory, so that missed occurrences are not made up for when they are enabled again.
    """
    found = sources(search.state)
    if not search.state.policy.scale_up.rules:
        off = Reason.of(ReasonCode.RULES_OFF)
        return RuleResults(
            verdicts=tuple(rule_verdict(each, off) for each in found.bound), objects=found.objects, notes=found.notes
        )
    turn = RuleContext(search)
    reported: dict[str, RuleVerdict] = {}
    for each in found.bound:
        if each.rule.metric is None:
            reported[each.key] = run_cron_rule(turn, each)
    for rules in _metric_rules_by_pool(found.bound).values():
        for each, said in zip(rules, run_metric_rules(turn, rules[0].pool, rules, served=served), strict=True):
            reported[each.key] = said
    return RuleResults(
        verdicts=(*(reported[each.key] for each in found.bound), *found.verdicts),
        memory=dict(sorted({**_memory_of_lost_rules(search, found), **turn.memory}.items())),
        objects=found.objects,
        by_group={name: tuple(keys) for name, keys in sorted(turn.by_group.items())},
        notes=(*found.notes, *turn.notes),
        needs=_removal_guard(turn, found.bound),
    )


def _removal_guard(context: RuleContext, bound: tuple[SourceBound, ...]) -> RuleRemovalGuard | None:
    """Return the removal guard, None if no metric rule is in force: computing rates is expensive."""
    in_force = [each for each in bound if each.rule.metric is not None and not each.invalid]
    return RuleRemovalGuard(context.state, in_force, context.rates) if in_force else None


def _metric_rules_by_pool(bound: tuple[SourceBound, ...]) -> dict[str, list[SourceBound]]:
    """Return metric rules by the id of their pool; pools and rules are in the order of the rules."""
    found: dict[str, list[SourceBound]] = {}
    for each in bound:
        if each.rule.metric is not None:
            found.setdefault(each.pool.id, []).append(each)
    return found


def _memory_of_lost_rules(search: ScaleUpSearch, sources: Sources) -> dict[str, RuleMemory]:
    """Return the memory of rules whose pools could not be sources: they may return in the next pass, with an occurrence
    that is still open, or with a handled one that must not be repeated."""
    if not sources.lost:
        return {}
    return {
        key: known
        for key, known in search.state.memory.rules.items()
        if any(key[:at] in sources.lost for at, letter in enumerate(key) if letter == "@")
    }


# DOC chalicelib/plan/scale_up/scaling_rules/context.py: The context that the rules of one pass share: the cluster state and the results so far.
class RuleContext:
    """memory: of rules, for the next pass. by_group: group -> keys of the rules that want nodes of it. taken: pool ->
    the cron rule that acts on it in this pass, or waits to."""

    def __init__(self, search: ScaleUpSearch) -> None:
        self.search, self.state = search, search.state
        self.clock = LocalClock(search.state.now)
        self.memory: dict[str, RuleMemory] = {}
        self.by_group: dict[str, list[str]] = {}
        self.taken: dict[str, str] = {}
        self.notes: list[Reason] = []
        self._scaling: dict[str, str] = {}
        self._unreadable: dict[str, Reason | None] = {}
        self._busy = {name: "pending pods or its minimum" for name, nodes in search.grown.items() if nodes > 0}

    @cached_property
    def rates(self) -> Rates:
        """The allocation rates, computed when the first metric rule needs them."""
        return Rates(self.state)

    @cached_property
    def unhealthy(self) -> Reason | None:
        """Why no group in the whole cluster may scale up."""
        return blocking_reason(self.state)

    def unreadable(self, pool: PoolFacts) -> Reason | None:
        """Return why the size of a pool is unknown."""
        if pool.id not in self._unreadable:
            self._unreadable[pool.id] = unreadable_reason(pool, self.state)
        return self._unreadable[pool.id]

    def scaling(self, pool: PoolFacts) -> Reason | None:
        """Return why a pool counts as scaling, including scale-ups of this pass."""
        if pool.id not in self._scaling:
            self._scaling[pool.id] = scaling_detail(pool, self.state)
        detail = self._scaling[pool.id] or next(
            (
                f"{facts.id} is grown in this pass for {self._busy[facts.id]}"
                for facts in pool_members(pool, self.state)
                if facts.id in self._busy
            ),
            "",
        )
        return Reason.of(ReasonCode.RULE_SCALING, pool=pool.name or pool.id, detail=detail) if detail else None

    def give(self, bound: SourceBound, demand: NodeDemand) -> Allocation:
        """Add nodes for a rule, and record them as the rule's."""
        given = allocate(self.search, bound.pool, demand)
        for name in given.nodes:
            self.by_group.setdefault(name, []).append(bound.rule.key)
            self._busy[name] = f"rule {bound.rule.key}"
        return given


def rule_verdict(
    bound: SourceBound, reason: Reason | None = None, *, nodes: int = 0, due: float = 0.0, rate: float | None = None
) -> RuleVerdict:
    """Return the report on a rule on a pool."""
    return RuleVerdict(bound.rule.name, bound.pool.id, bound.rule.source, nodes, due, rate, reason)


# DOC chalicelib/plan/scale_up/scaling_rules/pool_state.py: Detects pool states that block rules: the pool is scaling, unreadable, or lacks a device. An unhealthy cluster blocks
# DOC all scale-up: plan/scale_up/limits.py.
def pool_members(pool: PoolFacts, state: ClusterState) -> tuple[NodeGroupState, ...]:
    """Return all groups of the vendor's pool, even if a rule names only one of them, because they share one state."""
    mine = [state.groups[name] for name in pool.groups]
    shared = mine[0].group.pool
    if pool.whole or shared is None:
        return tuple(mine)
    return tuple(
        facts
        for _, facts in sorted(state.groups.items())
        if facts.group.pool is not None and facts.group.pool.id == shared.id
    )


def unreadable_reason(pool: PoolFacts, state: ClusterState) -> Reason | None:
    """Return why the size of a pool is unknown, None if all of it could be read."""
    found = next((facts.group.error for facts in pool_members(pool, state) if facts.group.error), "")
    return Reason.of(ReasonCode.GROUP_UNREADABLE, detail=found) if found else None


def scaling_detail(pool: PoolFacts, state: ClusterState) -> str:
    """Return why a pool counts as scaling, "" if it does not: its target differs from what exists, or instances are
    being created or deleted. A node that only waits for its device's driver counts as existing."""
    found = (f"{facts.id}: {detail}" for facts in pool_members(pool, state) if (detail := _group_scaling(facts, state)))
    return next(found, "")


def _group_scaling(group: NodeGroupState, state: ClusterState) -> str:
    return next((detail for is_so, detail in _scaling_signs(group, state) if is_so), "")


def _scaling_signs(group: NodeGroupState, state: ClusterState) -> Iterator[tuple[bool, str]]:
    instances = group.group.instances
    yield (any(op.is_open and op.spec.group == group.id for op in state.memory.operations), "an operation is under way")
    without_driver = sum(
        state.buckets[node.name] is Bucket.NOT_STARTED and node.name in state.lacking and works(node, state.options)
        for node in group.nodes
    )
    yield group.upcoming > without_driver, "nodes are on their way"
    yield group.leaving > 0 or any(node.name in state.leaving for node in group.nodes), "nodes are leaving"
    yield (
        any(instance.state is not InstanceState.RUNNING for instance in instances),
        "machines are being made or deleted",
    )
    there = len({instance.id for instance in instances})
    yield group.group.target != there, f"its size is {there} and shall be {group.group.target}"


def without_device(pool: PoolFacts, state: ClusterState) -> str:
    """Return the first node of a pool that should offer an accelerator, by a label or by its group's template, but
    offers none; "" if there is none. Leaving nodes are ignored."""
    for name in pool.groups:
        facts = state.groups[name]
        promised = facts.template is not None and announces_device(facts.template.node)
        for node in sorted(facts.nodes, key=lambda each: each.name):
            lacks = node.name in state.lacking or lacks_device(node, announced=promised)
            if lacks and node.name not in state.leaving:
                return node.name
    return ""


# DOC chalicelib/plan/scale_up/scaling_rules/cron_rules.py: Cron rules: each occurrence is handled once, or dropped when it expires. See docs/reference/scaling-rules.md "Cron
# DOC rules".
# DOC
# DOC     due ──► the pool is scaling ────────────────────────► pending until it is not
# DOC         ──► unhealthy, unreadable, all backed off ──────► pending, dropped half an hour after its instant
# DOC         ──► nodes are added (or limits reached) ────────► handled; target size: the pool's size with all of these nodes
# DOC
# DOC While the target size is not reached, missing nodes are added in other groups of the pool, for half an hour. A pass is
# DOC saved with its memory and its operations, or not at all, so nothing is added twice and nothing is lost.
# DOC
LATE = 1800.0  # seconds after which an occurrence is dropped and a target size abandoned
_GRACE = 60.0  # seconds before a rule's first evaluation that still count
_FAR_FUTURE = 3600.0  # an instant this far in the future was written by a wrong clock
_SCALING = "scaling"


def run_cron_rule(context: RuleContext, bound: SourceBound) -> RuleVerdict:
    """Run one cron rule on one pool. Stores its state in turn.memory."""
    times = context.clock.times(bound.rule.cron, bound.rule.time_zone)
    known = context.state.memory.rules.get(bound.key)
    problem = bound.invalid or times.problem
    if problem:
        if known is not None:
            context.memory[bound.key] = known
        return rule_verdict(bound, Reason.of(ReasonCode.RULE_INVALID, rule=bound.rule.key, detail=problem))
    mine = _rule_memory(bound, known, context.state.now)
    due = times.last if times.last > mine.last_occurrence else 0.0
    after, reported = mine, None
    if due:
        after, reported = _handle_occurrence(context, bound, mine, due)
    elif mine.target_size:
        after, reported = _add_missing_nodes(context, bound, mine)
    context.memory[bound.key] = after
    if reported is None:
        until = {"until": times.following} if times.following else {}
        return rule_verdict(bound, Reason.of(ReasonCode.RULE_NOT_DUE, **until))
    return reported


def _rule_memory(bound: SourceBound, rule_memory: RuleMemory | None, now: float) -> RuleMemory:
    """Return the stored state. A rule that is new, or whose time was changed, counts from a minute ago, but not from
    before the creation of the object that contains it."""
    when = f"{bound.rule.cron} {bound.rule.time_zone}"
    if rule_memory is not None and rule_memory.cron == when and rule_memory.last_occurrence <= now + _FAR_FUTURE:
        return rule_memory
    return RuleMemory(last_occurrence=max(now - _GRACE, min(bound.created, now)), cron=when)


def _handle_occurrence(
    context: RuleContext, bound: SourceBound, rule_memory: RuleMemory, due: float
) -> tuple[RuleMemory, RuleVerdict | None]:
    """Handle an open occurrence. One that waits for a scaling pool waits without limit, even if a later one has
    replaced it; all others wait for a limited time."""
    waits = rule_memory.pending_occurrence > rule_memory.last_occurrence and rule_memory.why == _SCALING
    held = _blocked(context, bound)
    if context.state.now - due > LATE and not (waits and (held is None or held.code is ReasonCode.RULE_SCALING)):
        reason = Reason.of(ReasonCode.RULE_EXPIRED, due=due, rule=bound.rule.key, pool=bound.pool.id)
        context.notes.append(reason)
        return msgspec.structs.replace(rule_memory, last_occurrence=due, pending_occurrence=0.0, why=""), rule_verdict(
            bound, reason, due=due
        )
    if held is not None:
        return _wait(context, bound, rule_memory, due, held)
    size = bound.pool.size
    given = context.give(bound, FixedCount(bound.rule.add))
    if not given.total and given.later and given.stop is not None:
        return _wait(context, bound, rule_memory, due, given.stop)
    wanted = given.total + min(max(0, bound.rule.add - given.total), given.later)
    if given.total:
        context.taken.setdefault(bound.pool.id, bound.rule.key)
    after = msgspec.structs.replace(
        rule_memory,
        last_occurrence=due,
        pending_occurrence=0.0,
        why="",
        target_size=size + wanted if given.total else 0,
        last_scaled_at=context.state.now if given.total else rule_memory.last_scaled_at,
    )
    return after, rule_verdict(bound, given.stop, nodes=given.total, due=due)


def _blocked(context: RuleContext, bound: SourceBound) -> Reason | None:
    """Return what prevents a rule from acting on its pool at all, None if nothing does."""
    return context.unreadable(bound.pool) or context.scaling(bound.pool) or context.unhealthy


def _wait(
    context: RuleContext, bound: SourceBound, rule_memory: RuleMemory, due: float, reason: Reason
) -> tuple[RuleMemory, RuleVerdict | None]:
    context.taken.setdefault(bound.pool.id, bound.rule.key)
    word = _SCALING if reason.code is ReasonCode.RULE_SCALING else reason.code.value
    return msgspec.structs.replace(rule_memory, pending_occurrence=due, why=word), rule_verdict(bound, reason, due=due)


def _add_missing_nodes(
    context: RuleContext, bound: SourceBound, rule_memory: RuleMemory
) -> tuple[RuleMemory, RuleVerdict | None]:
    """Handle an occurrence whose nodes have not all arrived: missing nodes are added if nothing else changes in the
    pool."""
    lacks = rule_memory.target_size - bound.pool.size
    held = _blocked(context, bound)
    settled = held is None or held.code not in {ReasonCode.RULE_SCALING, ReasonCode.GROUP_UNREADABLE}
    if abs(context.state.now - rule_memory.last_scaled_at) > LATE or (
        settled and (lacks <= 0 or _nodes_were_removed(context, bound, rule_memory))
    ):
        return msgspec.structs.replace(rule_memory, target_size=0), None
    context.taken.setdefault(bound.pool.id, bound.rule.key)
    if held is not None:
        return rule_memory, rule_verdict(bound, held, due=rule_memory.last_occurrence)
    # Never more than the rule adds: groups that could not be read make a pool look smaller than it is.
    given = context.give(bound, FixedCount(min(lacks, bound.rule.add)))
    return rule_memory, rule_verdict(bound, given.stop, nodes=given.total, due=rule_memory.last_occurrence)


def _nodes_were_removed(context: RuleContext, bound: SourceBound, rule_memory: RuleMemory) -> bool:
    """Return whether the pool is smaller because nodes were removed since, and not because some failed to arrive."""
    groups = [context.state.groups[name].memory for name in bound.pool.groups]
    failed = any(each.backoff is not None and each.backoff.last_failed >= rule_memory.last_scaled_at for each in groups)
    return not failed and any(each.last_delete > rule_memory.last_scaled_at for each in groups)


# DOC chalicelib/plan/scale_up/scaling_rules/metric_rules.py: Metric rules: add nodes to a pool whose allocation rate is above a threshold.
# DOC
# DOC Only the last action is remembered: each pass measures again, and missed actions are not made up for.
# DOC
def run_metric_rules(
    context: RuleContext, pool: PoolFacts, rules: Sequence[SourceBound], *, served: bool
) -> list[RuleVerdict]:
    """Run the metric rules of one pool in the given order; at most one of them acts. served: pods got nodes in this
    pass."""
    for each in rules:
        if (known := context.state.memory.rules.get(each.key)) is not None:
            context.memory[each.key] = known
    rates = [context.rates.of(pool, each.rule.metric or Metric.CPU) for each in rules]
    held = _pool_blocked(context, pool, served=served)
    reasons = [_why_silent(context, each, rate, held) for each, rate in zip(rules, rates, strict=True)]
    firing = [at for at, reason in enumerate(reasons) if reason is None]
    reported = [_metric_verdict(each, rate, reason) for each, rate, reason in zip(rules, rates, reasons, strict=True)]
    if not firing:
        return reported
    best = max(
        firing, key=lambda at: (_nodes_wanted(context, rules[at], rates[at]), rules[at].rule.metric is Metric.CPU)
    )
    by = Reason.of(ReasonCode.RULE_SUPERSEDED, by=rules[best].rule.key)
    for at in firing:
        reported[at] = _metric_verdict(rules[at], rates[at], by)
    reported[best] = _apply_metric_rule(context, rules[best], rates[best])
    return reported


def _pool_blocked(context: RuleContext, pool: PoolFacts, *, served: bool) -> Reason | None:
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


def _why_silent(context: RuleContext, bound: SourceBound, rate: Rate, reason: Reason | None) -> Reason | None:
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
    return _why_wait(context, bound.pool)


def _why_wait(context: RuleContext, pool: PoolFacts) -> Reason | None:
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


def _node_demand(context: RuleContext, bound: SourceBound, rate: Rate) -> NodeDemand:
    if bound.rule.add > 0:
        return FixedCount(bound.rule.add)
    resource = dict(RESOURCE)[bound.rule.metric or Metric.CPU]
    return BelowThreshold(resource, rate.requests, rate.allocatable, threshold(bound.rule, context.state))


def _nodes_wanted(context: RuleContext, bound: SourceBound, rate: Rate) -> int:
    """Return how many nodes a rule wants before any limit; rules of one pool are compared by this number."""
    node = first_choice(context.search, bound.pool)
    return _node_demand(context, bound, rate).nodes(node) if node is not None else bound.rule.add


def _apply_metric_rule(context: RuleContext, bound: SourceBound, rate: Rate) -> RuleVerdict:
    given = context.give(bound, _node_demand(context, bound, rate))
    if given.total:
        known = context.memory.get(bound.key, RuleMemory())
        context.memory[bound.key] = msgspec.structs.replace(known, last_scaled_at=context.state.now)
    return rule_verdict(bound, given.stop, nodes=given.total, rate=rate.percent)


def _metric_verdict(bound: SourceBound, rate: Rate, reason: Reason | None) -> RuleVerdict:
    return rule_verdict(bound, reason, rate=rate.percent if rate.allocatable > 0 else None)
