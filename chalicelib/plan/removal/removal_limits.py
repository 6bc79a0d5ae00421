"""What removals may still use in this pass: one object from which every method draws.

A draw has two filters, in the order in which budgets are used. The first checks conditions of the
node itself (the method's own, then minimums, windows, cooldowns); the nodes that pass are what the
plan wants to remove, and each of them reduces the room of the next. The second limits how many go:
disruption budgets, the circuit breaker, then parallelism. The first failing check is a node's
verdict. A zero-or-max group is one unit: all of it passes a filter, or nothing. What one draw takes
is missing from the next one of the pass. See docs/reference/scale-down.md "Removal selection".

A cooldown only blocks removals. Unneeded timers continue, so that a node is removed as soon
as the last cooldown ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import HOUR, BreakerState
from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind, OperationSpec, RemovalTarget
from chalicelib.model.plan import Removal
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, GPU_LABELS, GPU_RESOURCES, MEMORY
from chalicelib.plan.demand.scaling_rules.allocation_rate import RuleRemovalGuard
from chalicelib.plan.removal.bought_back import bought_back
from chalicelib.plan.removal.node_disruption_budgets import DisruptionBudgets
from chalicelib.plan.removal.pod_disruption_budgets import PodDisruptionBudgets
from chalicelib.plan.removal.simulate import SimulatedRemoval
from chalicelib.plan.scale_up.scale_up_limits import ResourceLimiter
from chalicelib.plan.state.cluster_state import ClusterState, removals_pause
from chalicelib.plan.state.pools import at_minimum, pools, spares
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.schedules.maintenance_windows import outside

Condition = Callable[[SimulatedRemoval], Reason | None]
_NODES, _PODS = 1, 2  # positions in BreakerState.removals


class RemovalLimits:
    """All budgets of one pass. pdbs: the disruptions that PodDisruptionBudgets still allow; the
    removal simulation uses them. breaker: the circuit breaker. hold: why no node is removed in this
    pass. grown: group -> nodes that the scale-up of this pass adds; as an attribute, with the
    groups of commands. taken: nodes that this pass removes. guard: what metric rules would buy
    again, None if there is no such rule."""

    def __init__(
        self,
        state: ClusterState,
        hold: Reason | None = None,
        grown: Mapping[str, int] | None = None,
        guard: RuleRemovalGuard | None = None,
    ) -> None:
        self._bought = grown or {}
        self.state, self.grown, self.guard = state, frozenset(self._bought), guard
        self._purchasable: ResourceLimiter | None = None
        self.taken: frozenset[str] = frozenset()
        self.pdbs = PodDisruptionBudgets(state.snapshot.budgets, state.snapshot.classes)
        self.breaker, self._parallelism = CircuitBreaker(state), _Parallelism(state)
        self._disruption = DisruptionBudgets(state)
        self.minimums, self._stop, self._cooldown = (
            _ClusterMinimums(state),
            _stop(state, hold),
            _cooldown(state),
        )
        # why a metric rule needs the unit that is being checked
        self._needed_by_rule: Reason | None = None
        # A target that is being lowered counts as lowered, and one that is being raised counts
        # as unchanged: a removal at the same time may only use capacity that is certain to exist.
        lowered = {
            op.spec.group: op.spec.to_size
            for op in state.memory.operations
            if op.is_open and op.spec.kind is OperationKind.DECREASE_TARGET
        }
        self._sizes = {
            group.id: min(group.group.target, lowered.get(group.id, group.target)) - group.leaving
            for group in state.groups.values()
        }
        self.pool_spares = spares(state.groups, lambda group: self._sizes[group.id])

    @property
    def paused(self) -> Reason | None:
        """What blocks all removals, if anything does."""
        return self._stop or self._cooldown or self.breaker.trip

    def pause_of(self, reason: DisruptionReason) -> Reason | None:
        """Return what blocks all removals with this reason, if anything does:
        cooldowns hold no repair."""
        return self._stop or self.breaker.trip if reason is DisruptionReason.REPAIR else self.paused

    def purchasable(self) -> ResourceLimiter:
        """Return a copy of what the cluster and its pools may still get in this pass, after its
        scale-ups and the purchases of replacements."""
        if self._purchasable is None:
            self._purchasable = ResourceLimiter(self.state)
            for name, nodes in self._bought.items():
                group = self.state.groups[name]
                if group.template is not None:
                    self._purchasable.take(group.template.node, nodes, group.group)
        return self._purchasable.copy()

    def buy(self, limiter: ResourceLimiter) -> None:
        """Count purchases. limiter: what `purchasable` returned, after they were taken."""
        self._purchasable = limiter

    def size_of(self, group: str) -> int:
        """Return how many nodes of a group count above its minimum."""
        return self._sizes[group]

    def standing_refusal(
        self, removal: SimulatedRemoval, reason: DisruptionReason = DisruptionReason.CONSOLIDATION
    ) -> Reason | None:
        """Return why a node does not go in this pass whatever else goes: its own cooldowns and
        failures, or a pause of all removals."""
        checks = [
            check
            for check in _STANDING
            if reason is not DisruptionReason.REPAIR or check not in _COOLDOWNS
        ]
        return next((why for check in checks if (why := check(self, removal)) is not None), None)

    def disruption_refusal(
        self, group: str, nodes: Sequence[str], reason: DisruptionReason
    ) -> Reason | None:
        """Return which disruption budget these nodes of a group exceed, None if they may go."""
        return self._disruption.refuse(group, nodes, reason)

    def draw(
        self,
        removals: Sequence[SimulatedRemoval],
        condition: Condition,
        reason: DisruptionReason = DisruptionReason.UNNEEDED,
        *,
        keeps_size: bool = False,
    ) -> tuple[list[SimulatedRemoval], dict[str, Reason]]:
        """Return the removals that are done now, empty nodes first, and why each other node stays.
        removals: in the order in which they were found, which decides among equals. condition: the
        method's own; it is checked before all others. reason: why the nodes go. keeps_size: they
        come back, so minimums do not keep them.

        Unneeded nodes that wait keep their room above the minimums, because they go later, and all
        of them together may trip the circuit breaker. A node that goes for another reason is a
        choice of this pass: one that is refused leaves its room to the next, and the share is a
        limit."""
        refused: dict[str, Reason] = {}
        chosen: list[SimulatedRemoval] = []
        unneeded, stop = reason is DisruptionReason.UNNEEDED, self.breaker.trip
        skipped = (
            *(_COOLDOWNS if reason is DisruptionReason.REPAIR else ()),
            *(_MINIMUMS if keeps_size else ()),
        )
        checks = [check for check in _CHECKS if check not in skipped]
        passing = (
            fit
            for unit in self._units(removals)
            if (fit := self._passing(unit, condition, refused, checks))
        )
        units: Iterable[list[SimulatedRemoval]] = passing
        if unneeded:
            units = list(passing)
            stop = self.breaker.check_share(sum(len(unit) for unit in units))
        for unit in units:
            why = stop or self._refuse(unit, reason)
            if why is not None:
                refused.update((removal.node.name, why) for removal in unit)
                if not unneeded:
                    self._count_as_removed(unit, -1)
                continue
            nodes, drains, pods = _amounts(unit)
            self.breaker.take(nodes, pods)
            self._parallelism.take(nodes, drains, atomic=self._is_atomic(unit[0]))
            self._disruption.take(removal.node.name for removal in unit)
            chosen += unit
        self.taken |= {removal.node.name for removal in chosen}
        return sorted(chosen, key=_harm), refused

    def evacuate(self, removals: Sequence[Removal]) -> None:
        """Count nodes that their vendor takes back, whatever room there is. They never
        trip the circuit breaker."""
        for removal in removals:
            pool = self.state.groups[removal.group].group.pool
            self._sizes[removal.group] -= 1
            if pool is not None and pool.id in self.pool_spares:
                self.pool_spares[pool.id] -= 1
        self.breaker.take(
            len(removals), sum(len(removal.evict) for removal in removals), interrupted=True
        )
        self._parallelism.take(
            len(removals), sum(bool(removal.evict) for removal in removals), atomic=False
        )
        self.taken |= {removal.node for removal in removals}

    def promise(self, nodes: Iterable[str]) -> None:
        """Count nodes as on their way out by the disruption budgets: something
        is bought for their pods."""
        self._disruption.take(nodes)

    def disruption_room(self, pool_id: str, reason: DisruptionReason) -> list[tuple[int, Reason]]:
        """Return how many nodes of a pool may still go by each disruption budget that holds now,
        and the reason of the next one."""
        pool = pools(self.state).get(pool_id)
        return self._disruption.rooms(pool.groups, reason) if pool is not None else []

    def counted_out(self, nodes: Iterable[str]) -> list[bool]:
        """Return which of these nodes the disruption budgets count as on their way out already."""
        return self._disruption.counted(nodes)

    def _refuse(self, unit: Sequence[SimulatedRemoval], reason: DisruptionReason) -> Reason | None:
        """Return why a unit that passed the first filter waits. The disruption budgets come first,
        because a unit that waits for the circuit breaker holds back those behind it."""
        nodes, drains, pods = _amounts(unit)
        if (
            why := self._disruption.refuse(
                unit[0].group, [removal.node.name for removal in unit], reason
            )
        ) is not None:
            return why
        if (
            reason is not DisruptionReason.UNNEEDED
            and (why := self.breaker.refuse_share(nodes)) is not None
        ):
            return why
        atomic = self._is_atomic(unit[0])
        return self.breaker.refuse(nodes, pods) or self._parallelism.refuse(
            nodes, drains, atomic=atomic
        )

    def _is_atomic(self, removal: SimulatedRemoval) -> bool:
        return self.state.groups[removal.group].group.options.zero_or_max

    def _units(self, removals: Iterable[SimulatedRemoval]) -> list[list[SimulatedRemoval]]:
        """Return the units in the order of selection: zero-or-max groups with empty nodes, those
        that only need drains, then single nodes: empty ones, drains, risky drains."""
        atomic: dict[str, list[SimulatedRemoval]] = {}
        single: list[list[SimulatedRemoval]] = []
        for removal in removals:
            if self._is_atomic(removal):
                atomic.setdefault(removal.group, []).append(removal)
            else:
                single.append([removal])
        return [
            *sorted(atomic.values(), key=lambda unit: all(removal.evict for removal in unit)),
            *sorted(single, key=lambda unit: _harm(unit[0])),
        ]

    def _passing(
        self,
        unit: Sequence[SimulatedRemoval],
        condition: Condition,
        refused: dict[str, Reason],
        checks: Sequence[_Check],
    ) -> list[SimulatedRemoval]:
        """Return which nodes of a unit pass the first filter; the others get
        their reasons in `refused`."""
        group = self.state.groups[unit[0].group]
        self._needed_by_rule = (
            self.guard.refuse([removal.node for removal in unit])
            if self.guard is not None
            else None
        )
        fit: list[SimulatedRemoval] = []
        for removal in unit:
            why = condition(removal)
            why = why or next(
                (own for check in checks if (own := check(self, removal)) is not None), None
            )
            if why is not None:
                refused[removal.node.name] = why
                continue
            fit.append(removal)
            self._count_as_removed([removal], 1)
        if group.group.options.zero_or_max:
            # All of it: the target size or all registered nodes. While some are being removed, only
            # the complete remainder suffices, because it is unknown whether the provider's target
            # still includes the others.
            leaving = self.state.leaving - self.state.restarting
            registered = sum(node.name not in leaving for node in group.nodes) + len(
                group.contested
            )
            if len(fit) != registered and (len(fit) != group.target or group.leaving):
                whole = max(registered, group.target - group.leaving)
                incomplete = Reason.of(ReasonCode.ATOMIC_FAILED, nodes=len(fit), of=whole)
                self._count_as_removed(fit, -1)
                refused.update((removal.node.name, incomplete) for removal in fit)
                return []
        return fit

    def _count_as_removed(self, unit: Sequence[SimulatedRemoval], times: int) -> None:
        """Take the room of these nodes above the minimums and for metric
        rules; times -1 gives it back."""
        for removal in unit:
            pool = self.state.groups[removal.group].group.pool
            self._sizes[removal.group] -= times
            if pool is not None and pool.id in self.pool_spares:
                self.pool_spares[pool.id] -= times
            self.minimums.take(removal.node, times)
            if self.guard is not None:
                self.guard.take([removal.node], times)

    def failed_removal(self, removal: SimulatedRemoval) -> Reason | None:
        """A node whose removal failed recently waits, so that other nodes go first. An instant too
        far away comes from a wrong clock."""
        now, longest = self.state.now, self.state.options.max_node_group_backoff_duration
        failed = self.state.groups[removal.group].memory.failed_removals.get(removal.node.name)
        if failed is None or failed.taken_back or not now < failed.until <= now + longest:
            return None
        return Reason.of(ReasonCode.REMOVAL_FAILED, until=failed.until, detail=failed.why)

    def bought_back(self, removal: SimulatedRemoval) -> Reason | None:
        """Removals that moved pods of the same owners were bought back."""
        return bought_back(removal, self.state)

    def pod_to_complete(self, removal: SimulatedRemoval) -> Reason | None:
        """A pod with `safe-to-evict: "on-completion"` must have completed."""
        pod = removal.waits_for
        return Reason.of(ReasonCode.BLOCKED_BY_ON_COMPLETION_POD, pod=pod) if pod else None

    def node_cooldown(self, removal: SimulatedRemoval) -> Reason | None:
        """A node must be older than its group's cooldown, which applies in
        addition to the cluster's."""
        delay = self.state.groups[removal.group].group.options.scale_down_cooldown
        # unset: a node "from the future" comes from an API server's skewed clock
        if not delay or removal.node.created + delay <= self.state.now:
            return None
        return Reason.of(ReasonCode.NODE_COOLDOWN, until=removal.node.created + delay)

    def group_growth(self, removal: SimulatedRemoval) -> Reason | None:
        """A group waits while a scale-up of it is not recorded yet. It may be requested again after
        a crash if the size is what it was before; a removal in between would restore that size, and
        a node would be bought twice (tests/faults, seed 190)."""
        growing = removal.group in self.grown or self.state.groups[removal.group].growing
        return Reason.of(ReasonCode.GROUP_GROWING) if growing else None

    def group_minimum(self, removal: SimulatedRemoval) -> Reason | None:
        """The group's minimum; nodes in removal and those selected before count as gone."""
        least, size = self.state.groups[removal.group].group.min, self._sizes[removal.group]
        return (
            Reason.of(ReasonCode.GROUP_MIN_SIZE, min=least, target=size) if size <= least else None
        )

    def pool_minimum(self, removal: SimulatedRemoval) -> Reason | None:
        """The shared minimum of all groups of a pool."""
        return at_minimum(self.state.groups[removal.group].group, self.pool_spares)

    def cluster_minimum(self, removal: SimulatedRemoval) -> Reason | None:
        """The cluster's minimums of cores, memory and GPUs."""
        return self.minimums.refuse(removal.node)

    def metric_rules(self, removal: SimulatedRemoval) -> Reason | None:  # noqa: ARG002 - answered for the whole unit
        """Metric rules would not buy the node again; a zero-or-max group is never removed in
        part."""
        return self._needed_by_rule

    def pause(self, removal: SimulatedRemoval) -> Reason | None:
        """Removals are paused in the cluster or the group."""
        return self._stop or self.state.groups[removal.group].removals_paused

    def cluster_cooldown(self, removal: SimulatedRemoval) -> Reason | None:  # noqa: ARG002 - of the whole cluster
        """A cooldown of the cluster, which holds no repair: a cluster that grows all day
        would never be repaired."""
        return self._cooldown

    def group_cooldown(self, removal: SimulatedRemoval) -> Reason | None:
        """Groups have their own cooldowns only with scale_down_delay_type_local."""
        memory, options = self.state.groups[removal.group].memory, self.state.options
        if not options.scale_down_delay_type_local:
            return None
        return _last_cooldown(
            (memory.last_add, memory.last_delete, memory.last_failure), options, self.state.now
        )


_Check = Callable[[RemovalLimits, SimulatedRemoval], Reason | None]
_STANDING: tuple[_Check, ...] = (
    RemovalLimits.failed_removal,
    RemovalLimits.bought_back,
    RemovalLimits.pod_to_complete,
    RemovalLimits.node_cooldown,
    RemovalLimits.group_growth,
    RemovalLimits.pause,
    RemovalLimits.cluster_cooldown,
    RemovalLimits.group_cooldown,
)
_CHECKS: tuple[_Check, ...] = (
    RemovalLimits.failed_removal,
    RemovalLimits.pod_to_complete,
    RemovalLimits.node_cooldown,
    RemovalLimits.group_growth,
    RemovalLimits.group_minimum,
    RemovalLimits.pool_minimum,
    RemovalLimits.cluster_minimum,
    RemovalLimits.metric_rules,
    RemovalLimits.pause,
    RemovalLimits.cluster_cooldown,
    RemovalLimits.group_cooldown,
)
_COOLDOWNS = (
    RemovalLimits.node_cooldown,
    RemovalLimits.bought_back,
    RemovalLimits.cluster_cooldown,
    RemovalLimits.group_cooldown,
)
"""Checks that hold no repair."""
_MINIMUMS = (
    RemovalLimits.group_minimum,
    RemovalLimits.pool_minimum,
    RemovalLimits.cluster_minimum,
    RemovalLimits.metric_rules,
)
"""Checks that hold no node that comes back."""


def _amounts(unit: Sequence[SimulatedRemoval]) -> tuple[int, int, int]:
    """Return how many nodes, drained nodes and pods go with a unit."""
    return (
        len(unit),
        sum(bool(removal.evict) for removal in unit),
        sum(len(removal.evict) for removal in unit),
    )


def _harm(removal: SimulatedRemoval) -> tuple[bool, bool]:
    """Sort key: empty nodes, drains, risky drains."""
    return bool(removal.evict), bool(removal.evict) and removal.risky


def _stop(state: ClusterState, hold: Reason | None) -> Reason | None:
    """Return what blocks all removals beside cooldowns, permanent causes before temporary ones."""
    health, options = state.health, state.options
    if not options.scale_down_enabled:
        return Reason.of(ReasonCode.SCALE_DOWN_DISABLED)
    if not health.healthy:
        return Reason.of(
            ReasonCode.CLUSTER_UNHEALTHY, unready=health.unready, registered=health.registered
        )
    return (
        hold
        or removals_pause(state.policy.pauses)
        or outside(state.policy.maintenance_windows, state.now)
    )


def _cooldown(state: ClusterState) -> Reason | None:
    """Return the cooldown of the cluster; with scale_down_delay_type_local
    only groups have cooldowns."""
    memory, options = state.memory, state.options
    if options.scale_down_delay_type_local:
        return None
    instants = memory.last_scale_up, memory.last_scale_down, memory.last_scale_down_failure
    return _last_cooldown(instants, options, state.now)


def _last_cooldown(instants: Iterable[float], options: Options, now: float) -> Reason | None:
    """Return the cooldown that ends last; it is over at its exact end. instants: the last scale-up,
    removal and failure, 0.0 for never."""
    names = ("scaleDownDelayAfterAdd", "scaleDownDelayAfterDelete", "scaleDownDelayAfterFailure")
    ends = [
        (at + delay, which)
        for at, which, delay in zip(instants, names, options.cooldowns, strict=True)
        if at and at + delay > now
    ]
    if not ends:
        return None
    until, which = max(ends)
    return Reason.of(ReasonCode.IN_COOLDOWN, which=which, until=until)


def _open_specs(state: ClusterState, kind: OperationKind) -> list[OperationSpec]:
    """Return what the open operations of a kind do."""
    return [op.spec for op in state.memory.operations if op.is_open and op.spec.kind is kind]


def _targets(specs: Iterable[OperationSpec]) -> list[RemovalTarget]:
    return [target for spec in specs for target in spec.targets]


class CircuitBreaker:
    """Limits how much removals may take, however much is unneeded (Policy.max_disruption).

    It has two limits per rolling hour, and a share. The limits only slow removals down: what
    exceeds them waits. The share stops all removals: a plan that would remove a large part of the
    cluster at once is more often the result of a mistake (a vendor that returns wrong data, a
    deleted Deployment, a wrong threshold) than intended. Nothing is removed until an operator has
    reviewed it (`outscaler release`).

    - It counts what was planned, whether or not it was completed;
      operations in flight are included.
    - It counts only pods that must move: DaemonSet pods and pods that go with
      the node are not counted.
    - While it is released, neither the limits nor the share apply; removals are still counted
      for the time afterwards.
    - A cluster without maxDisruption stores no state for it.
    """

    def __init__(self, state: ClusterState) -> None:
        self._now, self._allowed = state.now, state.policy.max_disruption
        self._released = state.memory.released_until > state.now
        self._before = state.memory.breaker
        self._counts = self._allowed != MaxDisruption()
        self._removals = self._before.last_hour(self._now) if self._counts else ()
        self._tripped_at = (
            self._before.tripped_at if self._allowed.share > 0 and not self._released else 0.0
        )
        self._wanted = self._before.wanted if self._tripped_at else 0
        registered = {
            node.name
            for group in state.groups.values()
            if not group.group.error
            for node in group.nodes
        }
        self._registered = len(registered)
        removals = _open_specs(state, OperationKind.DELETE_NODES)
        self._in_removal = len({target.node for target in _targets(removals)} & registered)
        interrupted = _targets(spec for spec in removals if spec.interrupted)
        self._interrupted = len({target.node for target in interrupted} & registered)
        self._nodes = self._pods = 0
        self._full: dict[int, Reason] = {}

    @property
    def trip(self) -> Reason | None:
        """Why all removals are blocked, if the breaker is tripped."""
        if not self._tripped_at:
            return None
        share = self._allowed.share
        return Reason.of(
            ReasonCode.DISRUPTION_BRAKE, nodes=self._wanted, of=self._registered, share=share
        )

    def check_share(self, nodes: int) -> Reason | None:
        """Return why none of these nodes may be removed. nodes: how many would be if only
        parallelism and the hourly limits applied.

        Nodes that are being removed but are still registered count as well, because the share
        limits the part of the cluster that is missing at one time. At least one node may always be
        removed. A plan of a single node never trips the breaker: while other nodes are being
        removed, it waits for them (PARALLELISM). Nodes that their vendor takes back are missing,
        too, but no plan wanted that: they make others wait, and never trip the breaker.
        """
        share = self._allowed.share
        if share <= 0 or self._released:
            return None
        most, missing = self._most_at_once(), nodes + self._nodes + self._in_removal
        wanted = missing - self._interrupted
        if wanted > most and not self._tripped_at and nodes > 1:
            self._tripped_at, self._wanted = self._now, wanted
        return self.trip or (
            Reason.of(ReasonCode.PARALLELISM, limit=most) if missing > most and nodes else None
        )

    def rooms(self) -> list[tuple[str, int, Reason]]:
        """Return what is left for a method that stays within all limits: "nodes" or "pods", how
        many of them, and the reason of what has no room. Nothing is left where a unit waits for
        room already. The share counts nodes in removal and never trips."""
        rooms = []
        for column, limit, what in (
            (_NODES, self._allowed.nodes_per_hour, "nodes"),
            (_PODS, self._allowed.pods_per_hour, "pods"),
        ):
            if limit <= 0 or self._released:
                continue
            if column in self._full:
                rooms.append((what, 0, self._full[column]))
                continue
            removals = (*self._removals, (self._now, self._nodes, self._pods))
            left = max(0, limit - sum(int(removal[column]) for removal in removals))
            until = self._wait(column, limit, left + 1) or self._now + HOUR
            reason = Reason.of(
                ReasonCode.DISRUPTION_LIMIT, what=f"{what} per hour", limit=limit, until=until
            )
            rooms.append((what, left, reason))
        if (left_of_share := self._share_left()) is not None:
            rooms.append(("nodes", left_of_share, self._beyond_share()))
        return rooms

    def refuse_share(self, nodes: int) -> Reason | None:
        """Return why a unit exceeds the share, for a method that limits itself to it. What such a
        method wants beyond the share is no mistake and does not trip the breaker."""
        left = self._share_left()
        return None if left is None or nodes <= left else self._beyond_share()

    def _beyond_share(self) -> Reason:
        return Reason.of(ReasonCode.DISRUPTION_LIMIT, what="share", limit=self._most_at_once())

    def _share_left(self) -> int | None:
        """Return how many more nodes the share allows at once, None if it does not apply."""
        if self._allowed.share <= 0 or self._released:
            return None
        return (
            0 if self._tripped_at else max(0, self._most_at_once() - self._nodes - self._in_removal)
        )

    def _most_at_once(self) -> int:
        return max(1, int(self._allowed.share * self._registered + 1e-9))

    def refuse(self, nodes: int, pods: int) -> Reason | None:
        """Return why a unit (a node or a zero-or-max group) must wait for room in the hour.

        Units do not overtake each other: once a unit waits for room, all later units that need the
        same room wait behind it, so that small units never starve a large one. A unit larger than
        the whole limit is removed when the hour is empty.
        """
        if self._released:
            return None
        for column, limit, need, what in (
            (_NODES, self._allowed.nodes_per_hour, nodes, "nodes per hour"),
            (_PODS, self._allowed.pods_per_hour, pods, "pods per hour"),
        ):
            if limit <= 0 or not need:
                continue
            if column not in self._full and (until := self._wait(column, limit, need)) is not None:
                self._full[column] = Reason.of(
                    ReasonCode.DISRUPTION_LIMIT, what=what, limit=limit, until=until
                )
            if column in self._full:
                return self._full[column]
        return None

    def take(self, nodes: int, pods: int, *, interrupted: bool = False) -> None:
        """Count a unit that is removed. interrupted: because its vendor takes it back."""
        self._interrupted += nodes if interrupted else 0
        self._nodes += nodes
        self._pods += pods

    def after(self) -> BreakerState:
        """Return the state for the next pass, unchanged if nothing happened."""
        removals = (
            *self._removals,
            *([(self._now, self._nodes, self._pods)] if self._nodes and self._counts else []),
        )
        return msgspec.structs.replace(
            self._before, removals=removals, tripped_at=self._tripped_at, wanted=self._wanted
        )

    def _wait(self, column: int, limit: int, need: int) -> float | None:
        """Return when enough of the counted removals are over an hour old; None where there is room
        now. An instant in the future expires later than in an hour."""
        removals = sorted(
            (*self._removals, (self._now, self._nodes, self._pods)), key=lambda removal: removal[0]
        )
        used = sum(int(removal[column]) for removal in removals)
        if used + need <= limit or (need > limit and not used):
            return None
        for removal in removals:
            used -= int(removal[column])
            if removal[column] and used + min(need, limit) <= limit:
                return removal[0] + HOUR
        return self._now + HOUR


class _Parallelism:
    """How many more nodes may be in removal at once, and how many of them may be draining, after
    removals in flight and the drains of restarts.

    An atomic group is taken whole or not at all. The first one of a plan may exceed what is left,
    because otherwise a large group could never be removed; it may not if nothing is left. See
    docs/reference/scale-down.md "Parallelism".
    """

    def __init__(self, state: ClusterState) -> None:
        targets = _targets(_open_specs(state, OperationKind.DELETE_NODES))
        drained = [*targets, *_targets(_open_specs(state, OperationKind.RESTART_NODE))]
        self._most = state.options.max_scale_down_parallelism
        self._most_drains = state.options.max_drain_parallelism
        self._left = max(0, self._most - len(targets))
        self._drains_left = max(
            0, self._most_drains - sum(bool(target.evict) for target in drained)
        )
        self._may_overflow = True

    def refuse(self, nodes: int, drains: int, *, atomic: bool) -> Reason | None:
        """Return why a unit of this many nodes, some of which need a drain, may not be removed now.
        Drained nodes count as nodes too, so the node limit also applies to them."""
        if nodes <= self._left and drains <= self._drains_left:
            return None
        if atomic and self._may_overflow and self._left and (self._drains_left or not drains):
            return None
        return Reason.of(
            ReasonCode.PARALLELISM, limit=self._most if nodes > self._left else self._most_drains
        )

    def take(self, nodes: int, drains: int, *, atomic: bool) -> None:
        """Count a unit that is removed. After an overflow nothing is left."""
        self._left = max(0, self._left - nodes)
        self._drains_left = max(0, self._drains_left - drains)
        self._may_overflow = self._may_overflow and not atomic


class _ClusterMinimums:
    """The room above each of the cluster's minimums of cores, memory and GPUs, reduced by
    every node that is taken.

    This is the counterpart of scale_up/scale_up_limits.py and counts the same way: cores rounded up
    per node, no virtual-kubelet nodes. Nodes that are being removed count as gone, so that two
    passes never use the same room.
    """

    def __init__(self, state: ClusterState) -> None:
        options = state.options
        least = {CPU: options.cores_total[0], MEMORY: options.memory_total[0]}
        for kind, fewest, _ in options.gpu_total:
            least[kind] = max(fewest, least.get(kind, 0))
        self.room = {name: -amount for name, amount in least.items() if amount > 0}
        for node in state.snapshot.nodes if self.room else ():
            if (
                node.name not in state.leaving - state.restarting
                and node.labels.get("type") != "virtual-kubelet"
            ):
                for name, amount in self.amounts(node).items():
                    self.room[name] += amount

    def refuse(self, node: Node) -> Reason | None:
        """Return why a node is still needed for a minimum. A node that has nothing of a resource
        does not affect that minimum."""
        short = [
            name for name, amount in self.amounts(node).items() if amount > max(0, self.room[name])
        ]
        return (
            Reason.of(ReasonCode.MINIMAL_RESOURCE_LIMIT, resources=", ".join(sorted(short)))
            if short
            else None
        )

    def take(self, node: Node, times: int) -> None:
        """Count a node that is removed; times -1: one that stays after all."""
        for name, amount in self.amounts(node).items():
            self.room[name] -= times * amount

    def amounts(self, node: Node) -> dict[str, int]:
        """Return what a node counts for each resource with a minimum: cores,
        bytes, GPUs of a label's type."""
        if not self.room:
            return {}
        source = node.capacity or node.allocatable
        amounts = {CPU: math.ceil(source.get(CPU, 0) / 1000), MEMORY: source.get(MEMORY, 0)}
        if self.room.keys() <= amounts.keys():
            return {name: amounts[name] for name in self.room}
        types = {node.labels[label] for label in GPU_LABELS if label in node.labels}
        gpus = next((source[name] for name in GPU_RESOURCES if source.get(name)), 0)
        return {
            name: amounts.get(name, source.get(name, 0) or (gpus if name in types else 0))
            for name in self.room
        }
