"""Plans all scaling rules of one pass after the pending pods have been served: cron rules
first, then metric rules.

Cron rules: each occurrence is handled once, or dropped when it expires. See
docs/reference/scaling-rules.md "Cron rules".

    due ──► the pool is scaling ────────────────────────► pending until it is not
        ──► unhealthy, unreadable, all backed off ──────► pending, dropped half an hour after its
        instant ──► nodes are added (or limits reached) ────────► handled; target size: the pool's
        size with all of these nodes

While the target size is not reached, missing nodes are added in other groups of the pool, for half
an hour. A pass is saved with its memory and its operations, or not at all, so nothing is added
twice and nothing is lost.

Metric rules add nodes to a pool whose allocation rate is above a threshold. Only the last action
is remembered: each pass measures again, and missed actions are not made up for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec

from chalicelib.model.group import InstanceState
from chalicelib.model.memory import RuleMemory
from chalicelib.model.node import Node
from chalicelib.model.plan import RuleVerdict
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.model.scaling_rules import Metric, RuleObject
from chalicelib.plan.demand import blocking_reason
from chalicelib.plan.demand.scaling_rules.allocation_rate import (
    RESOURCE,
    Rate,
    Rates,
    RuleRemovalGuard,
)
from chalicelib.plan.demand.scaling_rules.sources import BoundRule, sources, threshold
from chalicelib.plan.prices import instance_type
from chalicelib.plan.scale_up.balancing import split
from chalicelib.plan.scale_up.scale_up_search import ScaleUpSearch
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.pools import PoolFacts
from chalicelib.plan.state.readiness import Bucket, announces_device, lacks_device, works
from chalicelib.schedules.cron import LocalClock

LATE = 1800.0  # seconds after which an occurrence is dropped and a target size abandoned
_GRACE = 60.0  # seconds before a rule's first evaluation that still count
_FAR_FUTURE = 3600.0  # an instant this far in the future was written by a wrong clock
_SCALING = "scaling"
# Temporary reasons; limits are not among them.
TEMPORARY = frozenset(
    {
        ReasonCode.GROUP_BACKOFF,
        ReasonCode.GROUP_UNREADABLE,
        ReasonCode.GROUP_UNHEALTHY,
        ReasonCode.NO_TEMPLATE,
    }
)


class RuleResults(msgspec.Struct, frozen=True):
    """The results of scaling rules. memory, objects: complete, for the next pass; by_group: group
    -> keys of the rules that want nodes of it; notes: for Plan.notes; needs: which nodes metric
    rules need, None if none is in force."""

    verdicts: tuple[RuleVerdict, ...] = ()
    memory: dict[str, RuleMemory] = {}
    objects: dict[str, RuleObject] = {}
    by_group: dict[str, tuple[str, ...]] = {}
    notes: tuple[Reason, ...] = ()
    needs: RuleRemovalGuard | None = None


def plan_rules(search: ScaleUpSearch, *, served: bool) -> RuleResults:
    """Add the nodes that rules want (search.add). served: pending pods got nodes in this pass,
    which blocks metric rules.

    Disabled rules are removed from memory, so that missed occurrences are not made up for
    when they are enabled again.
    """
    collected = sources(search.state)
    if not search.state.policy.scale_up.rules:
        off = Reason.of(ReasonCode.RULES_OFF)
        verdicts = tuple(rule_verdict(bound, off) for bound in collected.bound)
        return RuleResults(verdicts=verdicts, objects=collected.objects, notes=collected.notes)
    context = RuleContext(search)
    reported: dict[str, RuleVerdict] = {}
    # metric rules; pools and rules are in the order of the rules
    by_pool: dict[str, list[BoundRule]] = {}
    for bound in collected.bound:
        if bound.rule.metric is None:
            reported[bound.owner] = run_cron_rule(context, bound)
        else:
            by_pool.setdefault(bound.pool.id, []).append(bound)
    for rules in by_pool.values():
        verdicts_of_pool = run_metric_rules(context, rules[0].pool, rules, served=served)
        reported.update(zip((bound.owner for bound in rules), verdicts_of_pool, strict=True))
    # Rules whose pools could not be found may return in the next pass, with an occurrence that is
    # still open, or with a handled one that must not be repeated.
    lost = {
        key: memory
        for key, memory in search.state.memory.rules.items()
        if collected.lost
        and any(key[:at] in collected.lost for at, letter in enumerate(key) if letter == "@")
    }
    # Computing rates is expensive: no guard if no metric rule is in force.
    in_force = [
        bound
        for bound in collected.bound
        if bound.rule.metric is not None and bound.verdict is None
    ]
    return RuleResults(
        verdicts=(*(reported[bound.owner] for bound in collected.bound), *collected.verdicts),
        memory=dict(sorted({**lost, **context.memory}.items())),
        objects=collected.objects,
        by_group={name: tuple(keys) for name, keys in sorted(context.by_group.items())},
        notes=(*collected.notes, *context.notes),
        needs=RuleRemovalGuard(context.state, in_force, context.rates) if in_force else None,
    )


class RuleContext:
    """What the rules of one pass share: the cluster state and the results so far.

    memory: of rules, for the next pass. by_group: group -> keys of the rules that want nodes of it.
    taken: pool -> the cron rule that acts on it in this pass, or waits to.
    """

    def __init__(self, search: ScaleUpSearch) -> None:
        self.search, self.state = search, search.state
        self.clock = LocalClock(search.state.now)
        self.memory: dict[str, RuleMemory] = {}
        self.by_group: dict[str, list[str]] = {}
        self.taken: dict[str, str] = {}
        self.notes: list[Reason] = []
        self._scaling: dict[str, str] = {}
        self._unreadable: dict[str, Reason | None] = {}
        self._busy = {
            name: "pending pods or its minimum" for name, nodes in search.grown.items() if nodes > 0
        }

    @cached_property
    def rates(self) -> Rates:
        """The allocation rates, computed when the first metric rule needs them."""
        return Rates(self.state)

    @cached_property
    def unhealthy(self) -> Reason | None:
        """Why no group in the whole cluster may scale up."""
        return blocking_reason(self.state)

    def unreadable(self, pool: PoolFacts) -> Reason | None:
        """Return why the size of a pool is unknown, None if all of it could be read."""
        if pool.id not in self._unreadable:
            reasons = (group.unreadable for group in pool_members(pool, self.state))
            self._unreadable[pool.id] = next(filter(None, reasons), None)
        return self._unreadable[pool.id]

    def scaling(self, pool: PoolFacts) -> Reason | None:
        """Return why a pool counts as scaling, including scale-ups of this pass."""
        if pool.id not in self._scaling:
            self._scaling[pool.id] = scaling_detail(pool, self.state)
        grown = (
            f"{group.id} is grown in this pass for {self._busy[group.id]}"
            for group in pool_members(pool, self.state)
            if group.id in self._busy
        )
        detail = self._scaling[pool.id] or next(grown, "")
        return (
            Reason.of(ReasonCode.RULE_SCALING, pool=pool.name or pool.id, detail=detail)
            if detail
            else None
        )

    def add_nodes(self, bound: BoundRule, demand: NodeDemand) -> Allocation:
        """Add nodes for a rule, and record them as the rule's."""
        allocation = allocate(self.search, bound.pool, demand)
        for name in allocation.nodes:
            self.by_group.setdefault(name, []).append(bound.rule.key)
            self._busy[name] = f"rule {bound.rule.key}"
        return allocation


def rule_verdict(
    bound: BoundRule,
    reason: Reason | None = None,
    *,
    nodes: int = 0,
    due: float = 0.0,
    rate: float | None = None,
) -> RuleVerdict:
    """Return the report on a rule on a pool."""
    return RuleVerdict(bound.rule.name, bound.pool.id, bound.rule.source, nodes, due, rate, reason)


# -- states of a pool that block rules. An unhealthy cluster blocks all scale-up
# (demand.blocking_reason).


def pool_members(pool: PoolFacts, state: ClusterState) -> tuple[NodeGroupState, ...]:
    """Return all groups of the vendor's pool, even if a rule names only one of them,
    because they share one state."""
    members = [state.groups[name] for name in pool.groups]
    shared = members[0].group.pool
    if not pool.whole and shared is not None:
        members = [
            group
            for _, group in sorted(state.groups.items())
            if group.group.pool is not None and group.group.pool.id == shared.id
        ]
    return tuple(members)


def scaling_detail(pool: PoolFacts, state: ClusterState) -> str:
    """Return why a pool counts as scaling, "" if it does not: its target differs from what
    exists, or instances are being created or deleted. A node that only waits for its device's
    driver counts as existing."""
    return next(
        (
            f"{group.id}: {detail}"
            for group in pool_members(pool, state)
            for is_so, detail in _scaling_signs(group, state)
            if is_so
        ),
        "",
    )


def _scaling_signs(group: NodeGroupState, state: ClusterState) -> Iterator[tuple[bool, str]]:
    instances = group.group.instances
    yield (
        any(op.is_open and op.spec.group == group.id for op in state.memory.operations),
        "an operation is under way",
    )
    without_driver = sum(
        state.buckets[node.name] is Bucket.STARTING
        and node.name in state.lacking
        and works(node, state.options)
        for node in group.nodes
    )
    yield group.upcoming > without_driver, "nodes are on their way"
    yield (
        group.leaving > 0 or any(node.name in state.leaving for node in group.nodes),
        "nodes are leaving",
    )
    unfinished = any(instance.state is not InstanceState.RUNNING for instance in instances)
    yield unfinished, "machines are being made or deleted"
    existing = len({instance.id for instance in instances})
    yield (
        group.group.target != existing,
        f"its size is {existing} and shall be {group.group.target}",
    )


def without_device(pool: PoolFacts, state: ClusterState) -> str:
    """Return the first node of a pool that should offer an accelerator, by a label or by its
    group's template, but offers none; "" if there is none. Leaving nodes are ignored."""
    for name in pool.groups:
        group = state.groups[name]
        announced = group.template is not None and announces_device(group.template.node)
        for node in sorted(group.nodes, key=lambda node: node.name):
            lacks = node.name in state.lacking or lacks_device(node, announced=announced)
            if lacks and node.name not in state.leaving:
                return node.name
    return ""


# -- cron rules


def run_cron_rule(context: RuleContext, bound: BoundRule) -> RuleVerdict:
    """Run one cron rule on one pool. Stores its state in context.memory."""
    times = context.clock.times(bound.rule.cron, bound.rule.time_zone)
    stored, now = context.state.memory.rules.get(bound.owner), context.state.now
    invalid = bound.verdict
    if invalid is None and times.problem:
        invalid = Reason.of(ReasonCode.RULE_INVALID, rule=bound.rule.key, detail=times.problem)
    if invalid is not None:
        if stored is not None:
            context.memory[bound.owner] = stored
        return rule_verdict(bound, invalid)
    when = f"{bound.rule.cron} {bound.rule.time_zone}"
    if stored is None or stored.cron != when or stored.last_occurrence > now + _FAR_FUTURE:
        # A rule that is new, or whose time was changed, counts from a minute ago, but not from
        # before the creation of the object that contains it.
        stored = RuleMemory(last_occurrence=max(now - _GRACE, min(bound.created, now)), cron=when)
    memory = stored
    reported: RuleVerdict | None = None
    if times.last > stored.last_occurrence:
        memory, reported = _handle_occurrence(context, bound, stored, times.last)
    elif stored.target_size:
        memory, reported = _add_missing_nodes(context, bound, stored)
    context.memory[bound.owner] = memory
    if reported is None:
        until = {"until": times.following} if times.following else {}
        return rule_verdict(bound, Reason.of(ReasonCode.RULE_NOT_DUE, **until))
    return reported


def _handle_occurrence(
    context: RuleContext, bound: BoundRule, rule_memory: RuleMemory, due: float
) -> tuple[RuleMemory, RuleVerdict]:
    """Handle an open occurrence. One that waits for a scaling pool waits without limit, even if a
    later one has replaced it; all others wait for a limited time."""
    waits = (
        rule_memory.pending_occurrence > rule_memory.last_occurrence and rule_memory.why == _SCALING
    )
    blocked = _cron_blocked(context, bound)
    handled = msgspec.structs.replace(
        rule_memory, last_occurrence=due, pending_occurrence=0.0, why=""
    )
    if context.state.now - due > LATE and not (
        waits and (blocked is None or blocked.code is ReasonCode.RULE_SCALING)
    ):
        reason = Reason.of(
            ReasonCode.RULE_EXPIRED, due=due, rule=bound.rule.key, pool=bound.pool.id
        )
        context.notes.append(reason)
        return handled, rule_verdict(bound, reason, due=due)
    allocation = (
        context.add_nodes(bound, FixedCount(bound.rule.add)) if blocked is None else Allocation()
    )
    if blocked is None and not allocation.total and allocation.later:
        blocked = allocation.stop
    if blocked is not None or allocation.total:
        context.taken.setdefault(bound.pool.id, bound.rule.key)
    if blocked is not None:
        word = _SCALING if blocked.code is ReasonCode.RULE_SCALING else blocked.code.value
        waiting = msgspec.structs.replace(rule_memory, pending_occurrence=due, why=word)
        return waiting, rule_verdict(bound, blocked, due=due)
    target_size = 0
    if allocation.total:
        later = min(max(0, bound.rule.add - allocation.total), allocation.later)
        target_size = bound.pool.size + allocation.total + later
        handled = msgspec.structs.replace(handled, last_scaled_at=context.state.now)
    handled = msgspec.structs.replace(handled, target_size=target_size)
    return handled, rule_verdict(bound, allocation.stop, nodes=allocation.total, due=due)


def _cron_blocked(context: RuleContext, bound: BoundRule) -> Reason | None:
    """Return what prevents a cron rule from acting on its pool at all, None if nothing does."""
    return context.unreadable(bound.pool) or context.scaling(bound.pool) or context.unhealthy


def _add_missing_nodes(
    context: RuleContext, bound: BoundRule, rule_memory: RuleMemory
) -> tuple[RuleMemory, RuleVerdict | None]:
    """Handle an occurrence whose nodes have not all arrived: missing nodes are added if nothing
    else changes in the pool."""
    since, due = rule_memory.last_scaled_at, rule_memory.last_occurrence
    lacks = rule_memory.target_size - bound.pool.size
    blocked = _cron_blocked(context, bound)
    settled = blocked is None or blocked.code not in {
        ReasonCode.RULE_SCALING,
        ReasonCode.GROUP_UNREADABLE,
    }
    groups = [context.state.groups[name].memory for name in bound.pool.groups]
    failed = any(
        group.backoff is not None and group.backoff.last_failed >= since for group in groups
    )
    # The pool is smaller because nodes were removed since, and not because some failed to arrive.
    removed = not failed and any(group.last_delete > since for group in groups)
    if abs(context.state.now - since) > LATE or (settled and (lacks <= 0 or removed)):
        return msgspec.structs.replace(rule_memory, target_size=0), None
    context.taken.setdefault(bound.pool.id, bound.rule.key)
    if blocked is not None:
        return rule_memory, rule_verdict(bound, blocked, due=due)
    # Never more than the rule adds: groups that could not be read make a pool
    # look smaller than it is.
    allocation = context.add_nodes(bound, FixedCount(min(lacks, bound.rule.add)))
    return rule_memory, rule_verdict(bound, allocation.stop, nodes=allocation.total, due=due)


# -- metric rules


def run_metric_rules(
    context: RuleContext, pool: PoolFacts, rules: Sequence[BoundRule], *, served: bool
) -> list[RuleVerdict]:
    """Run the metric rules of one pool in the given order; at most one of them acts. served:
    pods got nodes in this pass."""
    memory = context.state.memory.rules
    context.memory.update(
        (bound.owner, memory[bound.owner]) for bound in rules if bound.owner in memory
    )
    rates = [context.rates.of(pool, bound.rule.metric or Metric.CPU) for bound in rules]
    blocked = _pool_blocked(context, pool, served=served)
    silent = [
        _why_silent(context, bound, rate, blocked) for bound, rate in zip(rules, rates, strict=True)
    ]
    firing = [at for at, reason in enumerate(silent) if reason is None]
    node = first_choice(context.search, pool) if firing else None

    def nodes_before_limits(at: int) -> tuple[int, bool]:
        nodes = (
            _node_demand(context, rules[at], rates[at]).nodes(node)
            if node is not None
            else rules[at].rule.add
        )
        return nodes, rules[at].rule.metric is Metric.CPU

    best = max(firing, key=nodes_before_limits, default=-1)
    reported = []
    for at, (bound, rate) in enumerate(zip(rules, rates, strict=True)):
        reason, nodes = silent[at], 0
        if at == best:
            allocation = context.add_nodes(bound, _node_demand(context, bound, rate))
            reason, nodes = allocation.stop, allocation.total
            if nodes:
                stored = context.memory.get(bound.owner, RuleMemory())
                context.memory[bound.owner] = msgspec.structs.replace(
                    stored, last_scaled_at=context.state.now
                )
        elif reason is None:
            reason = Reason.of(ReasonCode.RULE_SUPERSEDED, by=rules[best].rule.key)
        percent = rate.percent if rate.allocatable > 0 else None
        reported.append(rule_verdict(bound, reason, nodes=nodes, rate=percent))
    return reported


def _pool_blocked(context: RuleContext, pool: PoolFacts, *, served: bool) -> Reason | None:
    """Return what blocks all metric rules of a pool, None if nothing does."""
    if context.unhealthy is not None:
        return context.unhealthy
    if served:
        return Reason.of(ReasonCode.RULE_PODS_FIRST)
    if (unreadable := context.unreadable(pool)) is not None:
        return unreadable
    if pool.id in context.taken:
        return Reason.of(ReasonCode.RULE_SUPERSEDED, by=context.taken[pool.id])
    if node := without_device(pool, context.state):
        return Reason.of(ReasonCode.RULE_DEVICES, node=node)
    return context.scaling(pool)


def _why_silent(
    context: RuleContext, bound: BoundRule, rate: Rate, blocked: Reason | None
) -> Reason | None:
    """Return why one metric rule does nothing, None if it wants nodes. blocked: what
    blocks all rules of the pool."""
    if (reason := bound.verdict or blocked) is not None:
        return reason
    if rate.nodes == 0:
        return Reason.of(ReasonCode.RULE_NO_DATA, detail="the pool has no ready node")
    if rate.allocatable <= 0:
        return Reason.of(
            ReasonCode.RULE_NO_DATA, detail=f"its nodes offer no {bound.rule.metric or Metric.CPU}"
        )
    above = threshold(bound.rule, context.state)
    if not rate.above(above):
        return Reason.of(
            ReasonCode.RULE_BELOW, metric=str(bound.rule.metric), rate=rate.percent, above=above
        )
    # It must also wait after the last action on this pool (metricMinInterval).
    least, now = context.state.policy.scale_up.metric_min_interval, context.state.now
    actions = (
        rule_memory.last_scaled_at
        for key, rule_memory in context.state.memory.rules.items()
        if not rule_memory.cron and key.endswith(f"@{bound.pool.id}")
    )
    last = max(actions, default=0.0) if least > 0 else 0.0
    # A wrong clock wrote an action from the far future; it does not block any rule.
    return (
        Reason.of(ReasonCode.RULE_INTERVAL, until=last + least) if abs(now - last) < least else None
    )


def _node_demand(context: RuleContext, bound: BoundRule, rate: Rate) -> NodeDemand:
    if bound.rule.add > 0:
        return FixedCount(bound.rule.add)
    resource = RESOURCE[bound.rule.metric or Metric.CPU]
    return BelowThreshold(
        resource, rate.requests, rate.allocatable, threshold(bound.rule, context.state)
    )


# -- allocation to groups. See docs/reference/scaling-rules.md "Allocation to groups".
#
# The highest rank comes first. Groups of one rank whose nodes have the same type are filled so that
# their sizes even out; what one of them cannot take goes to the others. Then the next rank follows:
# a flavour that is out of stock is skipped.


class FixedCount:
    """A fixed number of nodes of any type that are still needed."""

    def __init__(self, count: int) -> None:
        self.count = count

    @property
    def enough(self) -> bool:
        """True if no more nodes are needed."""
        return self.count <= 0

    def nodes(self, _node: Node) -> int:
        """Return how many more nodes like this one are needed."""
        return self.count

    def add(self, _node: Node, count: int) -> None:
        """Record that `count` nodes like this one were added."""
        self.count -= count


class BelowThreshold:
    """The fewest nodes that bring a rate strictly below a threshold (automatic calculation).

    requests and offers in millicores or bytes, percent from 1. Requests of DaemonSets on the
    new nodes are not included.
    """

    def __init__(self, resource: str, requests: int, offers: int, percent: int) -> None:
        self.resource, self.requests, self.offers, self.percent = (
            resource,
            requests,
            offers,
            percent,
        )

    @property
    def enough(self) -> bool:
        """True if no more nodes are needed: the rate is strictly below the threshold."""
        return 100 * self.requests < self.percent * self.offers

    def nodes(self, node: Node) -> int:
        """Return (100 R - T sum(A)) / (T Af), rounded down, plus one; 0 for a
        node without the resource."""
        per_node = node.allocatable.get(self.resource, 0)
        if per_node <= 0:
            return 0
        return (100 * self.requests - self.percent * self.offers) // (self.percent * per_node) + 1

    def add(self, node: Node, count: int) -> None:
        """Add the resources of the new nodes to what the pool offers."""
        self.offers += count * node.allocatable.get(self.resource, 0)


NodeDemand = FixedCount | BelowThreshold


class Allocation(msgspec.Struct, frozen=True):
    """nodes: how many, by group. stop: why no more, None if the demand is met. later: how many more
    nodes there will be room for in groups that may not scale up now."""

    nodes: dict[str, int] = {}
    stop: Reason | None = None
    later: int = 0

    @property
    def total(self) -> int:
        """The number of nodes over all groups."""
        return sum(self.nodes.values())


def first_choice(search: ScaleUpSearch, pool: PoolFacts) -> Node | None:
    """Return the expected first new node of a pool; None: none of its groups may scale up."""
    return next((_new_node(search, equal[0]) for equal in _equal_groups(search, pool)), None)


def allocate(search: ScaleUpSearch, pool: PoolFacts, demand: NodeDemand) -> Allocation:
    """Add the requested nodes as far as limits allow. A zero-or-max group
    gets all its nodes or none."""
    nodes: dict[str, int] = {}
    stop: Reason | None = None
    for groups in _equal_groups(search, pool):
        while (
            not demand.enough and (count_needed := demand.nodes(_new_node(search, groups[0]))) > 0
        ):
            shares, limit = _even_shares(search, groups, count_needed)
            for group, count in shares:
                search.add(group.id, count)
                nodes[group.id] = nodes.get(group.id, 0) + count
                demand.add(_new_node(search, group), count)
            if not shares:
                stop = limit
                break
        if demand.enough:
            return Allocation(nodes)
    skipped = search.candidates.skipped
    waiting = [name for name in pool.groups if name in skipped and skipped[name].code in TEMPORARY]
    later = sum(_future_room(search, search.state.groups[name]) for name in waiting)
    reasons = [
        *([skipped[waiting[0]]] if later and not nodes else []),
        *([stop] if stop else []),
        *(skipped[name] for name in [*waiting, *pool.groups] if name in skipped),
    ]
    return Allocation(nodes, next(iter(reasons), None), later)


def _equal_groups(search: ScaleUpSearch, pool: PoolFacts) -> list[list[NodeGroupState]]:
    """Return the groups that may scale up, with those of one rank and type together: by rank, then
    the fewest nodes, then by name."""
    by_kind: dict[tuple[object, ...], list[NodeGroupState]] = {}
    for name in pool.groups:
        if name in search.candidates.shapes:
            group = search.state.groups[name]
            alone = name if group.group.options.zero_or_max else ""
            # Nodes that differ only in their location have the same type: the
            # vendor's, otherwise the size.
            node = _new_node(search, group)
            size = node.capacity or node.allocatable
            kind = instance_type(node) or (size.get(CPU, 0), size.get(MEMORY, 0))
            by_kind.setdefault((group.group.rank, alone, kind), []).append(group)
    return sorted(
        by_kind.values(),
        key=lambda groups: (
            -groups[0].group.rank,
            min((group.target, group.id) for group in groups),
        ),
    )


def _new_node(search: ScaleUpSearch, group: NodeGroupState) -> Node:
    """Return the expected new node of a group that may scale up."""
    return search.candidates.shapes[group.id].template.node


def _even_shares(
    search: ScaleUpSearch, groups: Sequence[NodeGroupState], wanted: int
) -> tuple[list[tuple[NodeGroupState, int]], Reason]:
    """Return how many of the nodes each group gets, and what prevents more. Limits that groups
    share are divided too: otherwise the first group would take all that remains of them, and
    sizes would not even out."""
    limiter, first = search.limiter, groups[0]
    allowances = [search.allowance(group) for group in groups]
    stop = min(allowances, key=lambda allowance: allowance.nodes).stop
    if first.group.options.zero_or_max:
        return ([(first, allowances[0].nodes)] if allowances[0].nodes > 0 else []), stop
    total = min(wanted, limiter.pool_room(first.group), limiter.room(_new_node(search, first)))
    sizes = [group.target + search.grown.get(group.id, 0) for group in groups]
    even = split(
        total, [(size, size + most.nodes) for size, most in zip(sizes, allowances, strict=True)]
    )
    return [
        (group, new - size)
        for group, size, new in zip(groups, sizes, even, strict=True)
        if new > size
    ], stop


def _future_room(search: ScaleUpSearch, group: NodeGroupState) -> int:
    """Return how many nodes a group that may not scale up now could get otherwise."""
    if group.template is None:
        return min(max(0, group.group.max - group.target), search.limiter.pool_room(group.group))
    return search.allowance(group).nodes
