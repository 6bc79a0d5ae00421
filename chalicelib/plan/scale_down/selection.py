"""Selects which of the removable nodes are removed now.

Two filters run in the order in which budgets are used. The first checks conditions of the node itself (timers,
minimums, windows, cooldowns); the nodes that pass are what the plan wants to remove, and each of them reduces the room
of the next. The second limits the rate: the circuit breaker (circuit_breaker.py), then parallelism. The first failing
check is a node's verdict. A zero-or-max group is one unit: all of it passes a filter, or nothing. See
docs/reference/scale-down.md "Removal selection".

A cooldown only blocks removals. Unneeded timers continue, so that a node is removed as soon as the last cooldown ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.memory import BreakerState, NodeMemory
from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind
from chalicelib.model.policy import Options
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, GPU_LABELS, GPU_RESOURCES, MEMORY
from chalicelib.plan.demand.scaling_rules.allocation_rate import RuleRemovalGuard
from chalicelib.plan.scale_down.circuit_breaker import CircuitBreaker, nodes_in_removal
from chalicelib.plan.scale_down.removal_simulation.removal_trial import UnneededNode
from chalicelib.plan.state.cluster_state import ClusterState, removals_pause
from chalicelib.plan.state.pools import at_minimum, spares
from chalicelib.plan.state.readiness import Bucket
from chalicelib.schedules.maintenance_windows import outside


class Selection(msgspec.Struct, frozen=True):
    """chosen: the candidates that are removed now, empty ones first. refused: the reason of each candidate that stays.
    paused: what blocks all removals, if anything does. breaker: the circuit breaker's state with this plan's removals,
    for the next memory."""

    chosen: tuple[UnneededNode, ...]
    refused: dict[str, Reason]
    paused: Reason | None
    breaker: BreakerState


def select_removals(
    state: ClusterState,
    candidates: Sequence[UnneededNode],
    memory: Mapping[str, NodeMemory],
    hold: Reason | None = None,
    grown: Collection[str] = (),
    guard: RuleRemovalGuard | None = None,
) -> Selection:
    """Select removals. candidates: in the order in which they were found, which decides among equals. memory: the next
    memory of every candidate, with its timer. hold: why no node is removed in this pass. grown: groups that this
    pass scales up. guard: what metric rules would buy again, None if there is no such rule."""
    conditions = _NodeConditions(state, memory, _pause(state, hold), frozenset(grown), guard)
    breaker, parallelism = CircuitBreaker(state), _Parallelism(state)
    refused: dict[str, Reason] = {}
    units = [fit for unit in _units(state, candidates) if (fit := conditions.passing(unit, refused))]
    stop, trip = breaker.check_share(sum(len(unit) for unit in units))
    chosen: list[UnneededNode] = []
    for unit in units:
        atomic = _is_atomic(state, unit[0])
        drains, pods = sum(bool(node.evict) for node in unit), sum(len(node.evict) for node in unit)
        reason = stop or breaker.refuse(len(unit), pods) or parallelism.refuse(len(unit), drains, atomic=atomic)
        if reason is not None:
            refused.update((candidate.node.name, reason) for candidate in unit)
            continue
        breaker.take(len(unit), pods)
        parallelism.take(len(unit), drains, atomic=atomic)
        chosen += unit
    return Selection(tuple(sorted(chosen, key=_harm)), refused, conditions.pause or trip, breaker.after())


def _pause(state: ClusterState, hold: Reason | None) -> Reason | None:
    """Return what blocks all removals, permanent causes before temporary ones."""
    health = state.health
    if not state.options.scale_down_enabled:
        return Reason.of(ReasonCode.SCALE_DOWN_DISABLED)
    if not health.healthy:
        return Reason.of(ReasonCode.CLUSTER_UNHEALTHY, unready=health.unready, registered=health.registered)
    return (
        hold
        or removals_pause(state.policy.pauses)
        or outside(state.policy.maintenance_windows, state.now)
        or _cluster_cooldown(state)
    )


def _cluster_cooldown(state: ClusterState) -> Reason | None:
    """Return the cluster's cooldown that ends last, None if there is none; with scale_down_delay_type_local only groups
    have cooldowns."""
    memory, options = state.memory, state.options
    if options.scale_down_delay_type_local:
        return None
    return _last_cooldown(
        (memory.last_scale_up, memory.last_scale_down, memory.last_scale_down_failure), options, state.now
    )


def _last_cooldown(instants: Iterable[float], options: Options, now: float) -> Reason | None:
    """Return the cooldown that ends last; it is over at its exact end. instants: the last scale-up, removal and
    failure, 0.0 for never."""
    delays = (
        ("scaleDownDelayAfterAdd", options.scale_down_delay_after_add),
        ("scaleDownDelayAfterDelete", options.scale_down_delay_after_delete),
        ("scaleDownDelayAfterFailure", options.scale_down_delay_after_failure),
    )
    ends = [(at + delay, which) for at, (which, delay) in zip(instants, delays, strict=True) if at and at + delay > now]
    if not ends:
        return None
    until, which = max(ends)
    return Reason.of(ReasonCode.IN_COOLDOWN, which=which, until=until)


def _harm(candidate: UnneededNode) -> tuple[bool, bool]:
    """Sort key: empty nodes, drains, risky drains."""
    return bool(candidate.evict), bool(candidate.evict) and candidate.risky


def _is_atomic(state: ClusterState, candidate: UnneededNode) -> bool:
    return state.groups[candidate.group].group.options.zero_or_max


def _units(state: ClusterState, candidates: Iterable[UnneededNode]) -> list[list[UnneededNode]]:
    """Return the units in the order of selection: zero-or-max groups with empty nodes, those that only need drains,
    then single nodes: empty ones, drains, risky drains."""
    atomic: dict[str, list[UnneededNode]] = {}
    single: list[list[UnneededNode]] = []
    for candidate in candidates:
        if _is_atomic(state, candidate):
            atomic.setdefault(candidate.group, []).append(candidate)
        else:
            single.append([candidate])
    return [
        *sorted(atomic.values(), key=lambda unit: all(candidate.evict for candidate in unit)),
        *sorted(single, key=lambda unit: _harm(unit[0])),
    ]


class _NodeConditions:
    """The first filter, with the sizes and minimums left after the units that have passed."""

    def __init__(
        self,
        state: ClusterState,
        memory: Mapping[str, NodeMemory],
        pause: Reason | None,
        grown: frozenset[str],
        guard: RuleRemovalGuard | None,
    ) -> None:
        self.state, self.memory, self.pause, self.grown, self.guard = state, memory, pause, grown, guard
        self.needed_by_rule: Reason | None = None  # why a metric rule needs the unit that is being checked
        # A target that is being lowered counts as lowered, and one that is being raised counts as unchanged: a
        # removal at the same time may only use capacity that is certain to exist.
        lowered = {
            op.spec.group: op.spec.to_size
            for op in state.memory.operations
            if op.is_open and op.spec.kind is OperationKind.DECREASE_TARGET
        }
        self.sizes = {
            group.id: min(group.group.target, lowered.get(group.id, group.target)) - group.leaving
            for group in state.groups.values()
        }
        self.spares = spares(state.groups, lambda group: self.sizes[group.id])
        self.minimums = _ClusterMinimums(state)

    def passing(self, unit: Sequence[UnneededNode], refused: dict[str, Reason]) -> list[UnneededNode]:
        """Return which nodes of a unit pass this filter; the others get their reasons in `refused`."""
        group = unit[0].group
        room, size, spare = dict(self.minimums.room), self.sizes[group], dict(self.spares)
        self.needed_by_rule = (
            self.guard.refuse([candidate.node for candidate in unit]) if self.guard is not None else None
        )
        fit: list[UnneededNode] = []
        for candidate in unit:
            reason = next((reason for check in _CHECKS if (reason := check(self, candidate)) is not None), None)
            if reason is not None:
                refused[candidate.node.name] = reason
                continue
            fit.append(candidate)
            self.sizes[group] -= 1
            pool = self.state.groups[group].group.pool
            if pool is not None and pool.id in self.spares:
                self.spares[pool.id] -= 1
            self.minimums.take(candidate.node)
        incomplete = self._incomplete(group, len(fit)) if _is_atomic(self.state, unit[0]) else None
        if incomplete is None:
            if self.guard is not None:
                self.guard.take([candidate.node for candidate in fit])
            return fit
        self.minimums.room, self.sizes[group], self.spares = room, size, spare
        refused.update((candidate.node.name, incomplete) for candidate in fit)
        return []

    def _incomplete(self, group_id: str, fit: int) -> Reason | None:
        """Return why these nodes are not all of a zero-or-max group: neither its target size nor all registered nodes.
        While some are being removed, only the complete remainder suffices, because it is unknown whether the
        provider's target still includes the others."""
        group = self.state.groups[group_id]
        registered = sum(node.name not in self.state.leaving for node in group.nodes) + len(group.contested)
        if fit == registered or (fit == group.target and not group.leaving):
            return None
        return Reason.of(ReasonCode.ATOMIC_FAILED, nodes=fit, of=max(registered, group.target - group.leaving))

    def timer(self, candidate: UnneededNode) -> Reason | None:
        """The node's own timer must be strictly longer than the threshold, and 0 means at once."""
        own, options = self.state.groups[candidate.group].group.options, self.state.options
        needs, default, code = (
            (own.scale_down_unneeded_time, options.scale_down_unneeded_time, ReasonCode.NOT_UNNEEDED_LONG_ENOUGH)
            if self.state.buckets[candidate.node.name] is Bucket.READY
            else (own.scale_down_unready_time, options.scale_down_unready_time, ReasonCode.NOT_UNREADY_LONG_ENOUGH)
        )
        needs = default if needs is None else needs
        since = self.memory[candidate.node.name].unneeded_since
        return None if needs <= 0 or since + needs < self.state.now else Reason.of(code, since=since, needs=needs)

    def failed_removal(self, candidate: UnneededNode) -> Reason | None:
        """A node whose removal failed recently waits, so that other nodes go first. An instant too far away comes from
        a wrong clock."""
        now, longest = self.state.now, self.state.options.max_node_group_backoff_duration
        failed = self.state.groups[candidate.group].memory.failed_removals.get(candidate.node.name)
        if failed is None or not now < failed.until <= now + longest:
            return None
        return Reason.of(ReasonCode.REMOVAL_FAILED, until=failed.until, detail=failed.why)

    def pod_to_complete(self, candidate: UnneededNode) -> Reason | None:
        """A pod with `safe-to-evict: "on-completion"` must have completed."""
        pod = candidate.waits_for
        return Reason.of(ReasonCode.BLOCKED_BY_ON_COMPLETION_POD, pod=pod) if pod else None

    def node_cooldown(self, candidate: UnneededNode) -> Reason | None:
        """A node must be older than its group's cooldown, which applies in addition to the cluster's."""
        delay = self.state.groups[candidate.group].group.options.scale_down_cooldown
        # unset: a node "from the future" comes from an API server's skewed clock
        if not delay or candidate.node.created + delay <= self.state.now:
            return None
        return Reason.of(ReasonCode.NODE_COOLDOWN, until=candidate.node.created + delay)

    def group_growth(self, candidate: UnneededNode) -> Reason | None:
        """A group waits while a scale-up of it is not recorded yet. It may be requested again after a crash if the size
        is what it was before; a removal in between would restore that size, and a node would be bought twice
        (tests/faults, seed 190)."""
        growing = candidate.group in self.grown or self.state.groups[candidate.group].growing
        return Reason.of(ReasonCode.GROUP_GROWING) if growing else None

    def group_minimum(self, candidate: UnneededNode) -> Reason | None:
        """The group's minimum; nodes in removal and those selected before count as gone."""
        least, size = self.state.groups[candidate.group].group.min, self.sizes[candidate.group]
        return Reason.of(ReasonCode.GROUP_MIN_SIZE, min=least, target=size) if size <= least else None

    def pool_minimum(self, candidate: UnneededNode) -> Reason | None:
        """The shared minimum of all groups of a pool."""
        return at_minimum(self.state.groups[candidate.group].group, self.spares)

    def cluster_minimum(self, candidate: UnneededNode) -> Reason | None:
        """The cluster's minimums of cores, memory and GPUs."""
        return self.minimums.refuse(candidate.node)

    def metric_rules(self, candidate: UnneededNode) -> Reason | None:  # noqa: ARG002 - answered for the whole unit
        """Metric rules would not buy the node again; a zero-or-max group is never removed in part."""
        return self.needed_by_rule

    def paused(self, candidate: UnneededNode) -> Reason | None:
        """Removals are paused in the cluster or the group."""
        return self.pause or self.state.groups[candidate.group].removals_paused

    def group_cooldown(self, candidate: UnneededNode) -> Reason | None:
        """Groups have their own cooldowns only with scale_down_delay_type_local."""
        memory, options = self.state.groups[candidate.group].memory, self.state.options
        if not options.scale_down_delay_type_local:
            return None
        return _last_cooldown((memory.last_add, memory.last_delete, memory.last_failure), options, self.state.now)


_CHECKS: tuple[Callable[[_NodeConditions, UnneededNode], Reason | None], ...] = (
    _NodeConditions.timer,
    _NodeConditions.failed_removal,
    _NodeConditions.pod_to_complete,
    _NodeConditions.node_cooldown,
    _NodeConditions.group_growth,
    _NodeConditions.group_minimum,
    _NodeConditions.pool_minimum,
    _NodeConditions.cluster_minimum,
    _NodeConditions.metric_rules,
    _NodeConditions.paused,
    _NodeConditions.group_cooldown,
)


class _Parallelism:
    """How many more nodes may be in removal at once, and how many of them may be draining, after removals in flight.

    An atomic group is taken whole or not at all. The first one of a plan may exceed what is left, because otherwise a
    large group could never be removed; it may not if nothing is left. See docs/reference/scale-down.md "Parallelism".
    """

    def __init__(self, state: ClusterState) -> None:
        targets = nodes_in_removal(state)
        self._most = state.options.max_scale_down_parallelism
        self._most_drains = state.options.max_drain_parallelism
        self._left = max(0, self._most - len(targets))
        self._drains_left = max(0, self._most_drains - sum(bool(target.evict) for target in targets))
        self._may_overflow = True

    def refuse(self, nodes: int, drains: int, *, atomic: bool) -> Reason | None:
        """Return why a unit of this many nodes, some of which need a drain, may not be removed now. Drained nodes count
        as nodes too, so the node limit also applies to them."""
        if nodes <= self._left and drains <= self._drains_left:
            return None
        if atomic and self._may_overflow and self._left and (self._drains_left or not drains):
            return None
        return Reason.of(ReasonCode.PARALLELISM, limit=self._most if nodes > self._left else self._most_drains)

    def take(self, nodes: int, drains: int, *, atomic: bool) -> None:
        """Count a unit that is removed. After an overflow nothing is left."""
        self._left = max(0, self._left - nodes)
        self._drains_left = max(0, self._drains_left - drains)
        self._may_overflow = self._may_overflow and not atomic


class _ClusterMinimums:
    """The room above each of the cluster's minimums of cores, memory and GPUs, reduced by every node that is taken.

    This is the counterpart of scale_up/limits.py and counts the same way: cores rounded up per node, no virtual-kubelet
    nodes. Nodes that are being removed count as gone, so that two passes never use the same room.
    """

    def __init__(self, state: ClusterState) -> None:
        options = state.options
        least = {CPU: options.cores_total[0], MEMORY: options.memory_total[0]}
        for kind, fewest, _ in options.gpu_total:
            least[kind] = max(fewest, least.get(kind, 0))
        self.room = {name: -amount for name, amount in least.items() if amount > 0}
        for node in state.snapshot.nodes if self.room else ():
            if node.name not in state.leaving and node.labels.get("type") != "virtual-kubelet":
                for name, amount in self._amounts(node).items():
                    self.room[name] += amount

    def refuse(self, node: Node) -> Reason | None:
        """Return why a node is still needed for a minimum. A node that has nothing of a resource does not affect that
        minimum."""
        short = [name for name, amount in self._amounts(node).items() if amount > max(0, self.room[name])]
        return Reason.of(ReasonCode.MINIMAL_RESOURCE_LIMIT, resources=", ".join(sorted(short))) if short else None

    def take(self, node: Node) -> None:
        """Count a node that is removed."""
        for name, amount in self._amounts(node).items():
            self.room[name] -= amount

    def _amounts(self, node: Node) -> dict[str, int]:
        """Return what a node counts for each resource with a minimum: cores, bytes, GPUs of a label's type."""
        if not self.room:
            return {}
        source = node.capacity or node.allocatable
        amounts = {CPU: math.ceil(source.get(CPU, 0) / 1000), MEMORY: source.get(MEMORY, 0)}
        if self.room.keys() <= amounts.keys():
            return {name: amounts[name] for name in self.room}
        types = {node.labels[label] for label in GPU_LABELS if label in node.labels}
        gpus = next((source[name] for name in GPU_RESOURCES if source.get(name)), 0)
        return {name: amounts.get(name, source.get(name, 0) or (gpus if name in types else 0)) for name in self.room}
