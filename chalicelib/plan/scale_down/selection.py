"""Selects which of the removable nodes are removed now.

Two filters run in the order in which budgets are used. The first checks conditions of the node itself (timers,
minimums, windows, cooldowns); the nodes that pass are what the plan wants to remove, and each of them reduces the room
of the next. The second limits the rate: the circuit breaker (circuit_breaker.py), then parallelism (parallelism.py).
The first failing check is a node's verdict. A zero-or-max group is one unit: all of it passes a filter, or nothing. See
docs/reference/scale-down.md "Removal selection".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from chalicelib.model.memory import BreakerState, NodeMemory
from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_down.circuit_breaker import DisruptionBreaker
from chalicelib.plan.scale_down.cluster_minimums import ClusterMinimums
from chalicelib.plan.scale_down.cooldown import cooldown, group_cooldown, young
from chalicelib.plan.scale_down.parallelism import Parallelism
from chalicelib.plan.scale_up.scaling_rules.allocation_rate import RuleRemovalGuard
from chalicelib.plan.state.cluster_state import ClusterState, removals_pause
from chalicelib.plan.state.pools import at_minimum, spares
from chalicelib.plan.state.readiness import Bucket
from chalicelib.schedules.maintenance_windows import outside


class RemovalCandidate(Protocol):
    """The attributes of a candidate that the selection needs (scale_down/planner.py)."""

    @property
    def node(self) -> Node:
        """The node."""

    @property
    def group(self) -> str:
        """Its group."""

    @property
    def evict(self) -> tuple[str, ...]:
        """Pods that must move; without any, the node is empty."""

    @property
    def risky(self) -> bool:
        """True if a PodDisruptionBudget has fewer disruptions left than this drain needs at once."""

    @property
    def waits_for(self) -> str:
        """A pod that must complete first."""


_T = TypeVar("_T", bound=RemovalCandidate)


class Selection(msgspec.Struct, Generic[_T], frozen=True):
    """chosen: the candidates that are removed now, empty ones first. held: the reason of each candidate that stays.
    paused: what blocks all removals, if anything does. brake: the circuit breaker's state with this plan's removals,
    for the next memory."""

    chosen: tuple[_T, ...]
    held: dict[str, Reason]
    paused: Reason | None
    brake: BreakerState


def select_removals(
    state: ClusterState,
    candidates: Sequence[_T],
    memory: Mapping[str, NodeMemory],
    hold: Reason | None = None,
    grown: Collection[str] = (),
    guard: RuleRemovalGuard | None = None,
) -> Selection[_T]:
    """Select removals. candidates: in the order in which they were found, which decides among equals. memory: the next
    memory of every candidate, with its timer. hold: why no node is removed in this pass. grown: groups that this
    pass scales up. guard: what metric rules would buy again, None if there is no such rule."""
    sieve = _Sieve(state, memory, _pause(state, hold), frozenset(grown), guard)
    braking, parallelism = DisruptionBreaker(state), Parallelism(state)
    held: dict[str, Reason] = {}
    wanted = [fit for unit in _units(state, candidates) if (fit := sieve.through(unit, held))]
    stop, pulled = braking.pull(sum(len(unit) for unit in wanted))
    chosen: list[_T] = []
    for unit in wanted:
        atomic = _atomic(state, unit[0])
        drains, pods = sum(bool(each.evict) for each in unit), sum(len(each.evict) for each in unit)
        reason = stop or braking.refuse(len(unit), pods) or parallelism.refuse(len(unit), drains, atomic=atomic)
        if reason is not None:
            held.update((each.node.name, reason) for each in unit)
            continue
        braking.take(len(unit), pods)
        parallelism.take(len(unit), drains, atomic=atomic)
        chosen += unit
    return Selection(tuple(sorted(chosen, key=_by_harm)), held, sieve.pause or pulled, braking.after())


def _pause(state: ClusterState, hold: Reason | None) -> Reason | None:
    """Return what blocks all removals, permanent causes before temporary ones."""
    health = state.health
    checks: tuple[Callable[[], Reason | None], ...] = (
        lambda: None if state.options.scale_down_enabled else Reason.of(ReasonCode.SCALE_DOWN_DISABLED),
        lambda: (
            None
            if health.healthy
            else Reason.of(ReasonCode.CLUSTER_UNHEALTHY, unready=health.unready, registered=health.registered)
        ),
        lambda: hold,
        lambda: removals_pause(state.policy.pauses),
        lambda: outside(state.policy.maintenance_windows, state.now),
        lambda: cooldown(state.memory, state.options, state.now),
    )
    return next((reason for check in checks if (reason := check()) is not None), None)


def _by_harm(candidate: RemovalCandidate) -> tuple[bool, bool]:
    return bool(candidate.evict), bool(candidate.evict) and candidate.risky


def _atomic(state: ClusterState, candidate: RemovalCandidate) -> bool:
    return state.groups[candidate.group].group.options.zero_or_max


def _units(state: ClusterState, candidates: Iterable[_T]) -> list[list[_T]]:
    """Return the units in the order of selection: zero-or-max groups with empty nodes, those that only need drains,
    then single nodes: empty ones, drains, risky drains."""
    atomic: dict[str, list[_T]] = {}
    single: list[list[_T]] = []
    for candidate in candidates:
        if _atomic(state, candidate):
            atomic.setdefault(candidate.group, []).append(candidate)
        else:
            single.append([candidate])
    return [
        *sorted(atomic.values(), key=lambda unit: all(each.evict for each in unit)),
        *sorted(single, key=lambda unit: _by_harm(unit[0])),
    ]


class _Sieve:
    """The first filter, with the sizes and minimums left after the units that have passed."""

    def __init__(
        self,
        state: ClusterState,
        memory: Mapping[str, NodeMemory],
        pause_reason: Reason | None,
        grown: frozenset[str],
        guard: RuleRemovalGuard | None,
    ) -> None:
        self.state, self.memory, self.pause, self.grown, self.needs = state, memory, pause_reason, grown, guard
        self.needed: Reason | None = None  # why a metric rule needs the unit that is being checked
        # A target that is being lowered counts as lowered, and one that is being raised counts as unchanged: a
        # removal at the same time may only use capacity that is certain to exist.
        lowered = {
            op.spec.group: op.spec.to_size
            for op in state.memory.operations
            if op.is_open and op.spec.kind is OperationKind.DECREASE_TARGET
        }
        self.sizes = {
            facts.id: min(facts.group.target, lowered.get(facts.id, facts.target)) - facts.leaving
            for facts in state.groups.values()
        }
        self.spares = spares(state.groups, lambda facts: self.sizes[facts.id])
        self.minima = ClusterMinimums(state)

    def through(self, unit: Sequence[_T], held: dict[str, Reason]) -> list[_T]:
        """Return which nodes of a unit pass this filter; the others get their reasons in `held`."""
        atomic = _atomic(self.state, unit[0])
        mark, size, spare = self.minima.checkpoint(), self.sizes[unit[0].group], dict(self.spares)
        self.needed = self.needs.refuse([each.node for each in unit]) if self.needs is not None else None
        fit: list[_T] = []
        for candidate in unit:
            reason = next((reason for check in _CHECKS if (reason := check(self, candidate)) is not None), None)
            if reason is None:
                fit.append(candidate)
                self.sizes[candidate.group] -= 1
                pool = self.state.groups[candidate.group].group.pool
                if pool is not None and pool.id in self.spares:
                    self.spares[pool.id] -= 1
                self.minima.take(candidate.node)
            else:
                held[candidate.node.name] = reason
        lacks = self._lacks(unit[0].group, len(fit)) if atomic else None
        if lacks is None:
            if self.needs is not None:
                self.needs.take([each.node for each in fit])
            return fit
        self.minima.rollback(mark)
        self.sizes[unit[0].group], self.spares = size, spare
        held.update((each.node.name, lacks) for each in fit)
        return []

    def _lacks(self, group: str, fit: int) -> Reason | None:
        """Return why these nodes are not all of a zero-or-max group: neither its target size nor all registered nodes.
        While some are being removed, only the complete remainder suffices, because it is unknown whether the
        provider's target still includes the others."""
        facts = self.state.groups[group]
        registered = sum(node.name not in self.state.leaving for node in facts.nodes) + len(facts.contested)
        if fit == registered or (fit == facts.target and not facts.leaving):
            return None
        return Reason.of(ReasonCode.ATOMIC_FAILED, nodes=fit, of=max(registered, facts.target - facts.leaving))


def _unneeded_for_long(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    """Return why the node's own timer has not expired; it must be strictly longer than the threshold, and 0 means at
    once."""
    state = sieve.state
    own, options = state.groups[candidate.group].group.options, state.options
    mine, default, code = (
        (own.scale_down_unneeded_time, options.scale_down_unneeded_time, ReasonCode.NOT_UNNEEDED_LONG_ENOUGH)
        if state.buckets[candidate.node.name] is Bucket.READY
        else (own.scale_down_unready_time, options.scale_down_unready_time, ReasonCode.NOT_UNREADY_LONG_ENOUGH)
    )
    needs = default if mine is None else mine
    since = sieve.memory[candidate.node.name].unneeded_since
    return None if needs <= 0 or since + needs < state.now else Reason.of(code, since=since, needs=needs)


def _on_completion(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    del sieve
    waits_for = candidate.waits_for
    return Reason.of(ReasonCode.BLOCKED_BY_ON_COMPLETION_POD, pod=waits_for) if waits_for else None


def _young(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    return young(candidate.node, sieve.state.groups[candidate.group].group.options, sieve.state.now)


def _failed_before(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    """Return a reason if its removal failed recently, so that other nodes go first. An instant too far away comes from
    a wrong clock."""
    state = sieve.state
    failed = state.groups[candidate.group].memory.failed_removals.get(candidate.node.name)
    if failed is None or not state.now < failed.until <= state.now + state.options.max_node_group_backoff_duration:
        return None
    return Reason.of(ReasonCode.REMOVAL_FAILED, until=failed.until, detail=failed.why)


def _growing(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    """Return a reason while a scale-up of the group is not recorded yet. It may be requested again after a crash if the
    size is what it was before; a removal in between would restore that size, and a node would be bought twice
    (tests/faults, seed 190)."""
    growing = candidate.group in sieve.grown or sieve.state.groups[candidate.group].growing
    return Reason.of(ReasonCode.GROUP_GROWING) if growing else None


def _group_minimum(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    """Check the group's minimum; nodes in removal and those selected before count as gone."""
    least, size = sieve.state.groups[candidate.group].group.min, sieve.sizes[candidate.group]
    return Reason.of(ReasonCode.GROUP_MIN_SIZE, min=least, target=size) if size <= least else None


def _pool_minimum(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    """Check the shared minimum of all groups of a pool."""
    return at_minimum(sieve.state.groups[candidate.group].group, sieve.spares)


def _cluster_minimum(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    return sieve.minima.refuse(candidate.node)


def _metric_rules(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    """Check metric rules; a zero-or-max group is checked as a whole because it is never removed in part."""
    del candidate
    return sieve.needed


def _paused(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    return sieve.pause or sieve.state.groups[candidate.group].removals_paused


def _group_cooldown(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    state = sieve.state
    return group_cooldown(state.groups[candidate.group].memory, state.options, state.now)


_CHECKS: tuple[Callable[[_Sieve, RemovalCandidate], Reason | None], ...] = (
    _unneeded_for_long,
    _failed_before,
    _on_completion,
    _young,
    _growing,
    _group_minimum,
    _pool_minimum,
    _cluster_minimum,
    _metric_rules,
    _paused,
    _group_cooldown,
)
