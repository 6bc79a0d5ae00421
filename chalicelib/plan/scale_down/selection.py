"""Of the nodes that could go, which go now (scale-down.md §7, §8).

Two sieves, both in the order in which budgets are spent. The first asks what must hold of a node whatever else goes on
(timers, minima, windows, cooldowns); what passes it is what the plan wants to remove, and each node that passes lowers
what the next one finds. The second rations the wish: the brake (brake.py), then parallelism (parallelism.py). The first
check that fails is a node's verdict. A zero-or-max group is one unit: all of it passes a sieve, or nothing.
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
from chalicelib.plan.scale_up.scaling_rules.removal_guard import RuleRemovalGuard
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pools import at_minimum, spares
from chalicelib.plan.state.readiness import Bucket
from chalicelib.schedules.maintenance_windows import outside


class RemovalCandidate(Protocol):
    """What picking needs of a candidate (plan/shrink.Candidate)."""

    @property
    def node(self) -> Node:
        """The node."""

    @property
    def group(self) -> str:
        """Its group."""

    @property
    def evict(self) -> tuple[str, ...]:
        """Pods that must move; none: the node is empty."""

    @property
    def risky(self) -> bool:
        """A budget has fewer disruptions left than this drain needs at once."""

    @property
    def waits_for(self) -> str:
        """A pod that must complete first."""


_T = TypeVar("_T", bound=RemovalCandidate)


class Selection(msgspec.Struct, Generic[_T], frozen=True):
    """chosen: the candidates that go now, empty ones first. held: the reason of each that stays. paused: what holds all
    removals back, if anything does. brake: what removals have taken, this plan's included, for the next memory."""

    chosen: tuple[_T, ...]
    held: dict[str, Reason]
    paused: Reason | None
    brake: BreakerState


def select_removals(
    world: ClusterState,
    candidates: Sequence[_T],
    memory: Mapping[str, NodeMemory],
    hold: Reason | None = None,
    grown: Collection[str] = (),
    needs: RuleRemovalGuard | None = None,
) -> Selection[_T]:
    """Choose. candidates: in the order they were found, which decides among equals, so that one found before goes
    first. memory: the next memory of every candidate, with its timer. hold: why none goes in this pass. grown: groups
    that this pass makes larger. needs: what metric rules would buy again, None where there is no such rule."""
    sieve = _Sieve(world, memory, _pause(world, hold), frozenset(grown), needs)
    braking, parallelism = DisruptionBreaker(world), Parallelism(world)
    held: dict[str, Reason] = {}
    wanted = [fit for unit in _units(world, candidates) if (fit := sieve.through(unit, held))]
    stop, pulled = braking.pull(sum(len(unit) for unit in wanted))
    chosen: list[_T] = []
    for unit in wanted:
        atomic = _atomic(world, unit[0])
        drains, pods = sum(bool(each.evict) for each in unit), sum(len(each.evict) for each in unit)
        reason = stop or braking.refuse(len(unit), pods) or parallelism.refuse(len(unit), drains, atomic=atomic)
        if reason is not None:
            held.update((each.node.name, reason) for each in unit)
            continue
        braking.take(len(unit), pods)
        parallelism.take(len(unit), drains, atomic=atomic)
        chosen += unit
    return Selection(tuple(sorted(chosen, key=_by_harm)), held, sieve.pause or pulled, braking.after())


def _pause(world: ClusterState, hold: Reason | None) -> Reason | None:
    """What holds all removals back, the lasting before the passing."""
    health = world.health
    checks: tuple[Callable[[], Reason | None], ...] = (
        lambda: None if world.options.scale_down_enabled else Reason.of(ReasonCode.SCALE_DOWN_DISABLED),
        lambda: (
            None
            if health.healthy
            else Reason.of(ReasonCode.CLUSTER_UNHEALTHY, unready=health.unready, registered=health.registered)
        ),
        lambda: hold,
        lambda: outside(world.policy.maintenance_windows, world.now),
        lambda: cooldown(world.memory, world.options, world.now),
    )
    return next((reason for check in checks if (reason := check()) is not None), None)


def _by_harm(candidate: RemovalCandidate) -> tuple[bool, bool]:
    return bool(candidate.evict), bool(candidate.evict) and candidate.risky


def _atomic(world: ClusterState, candidate: RemovalCandidate) -> bool:
    return world.groups[candidate.group].group.options.zero_or_max


def _units(world: ClusterState, candidates: Iterable[_T]) -> list[list[_T]]:
    """What goes together, in the order of spending: zero-or-max groups with empty nodes, those that are only drained,
    then single nodes: empty ones, drains, risky drains (scale-down.md §7, §8)."""
    atomic: dict[str, list[_T]] = {}
    single: list[list[_T]] = []
    for candidate in candidates:
        if _atomic(world, candidate):
            atomic.setdefault(candidate.group, []).append(candidate)
        else:
            single.append([candidate])
    return [
        *sorted(atomic.values(), key=lambda unit: all(each.evict for each in unit)),
        *sorted(single, key=lambda unit: _by_harm(unit[0])),
    ]


class _Sieve:
    """The first sieve, with what is left of sizes and minima after those that have passed."""

    def __init__(
        self,
        world: ClusterState,
        memory: Mapping[str, NodeMemory],
        pause: Reason | None,
        grown: frozenset[str],
        needs: RuleRemovalGuard | None,
    ) -> None:
        self.world, self.memory, self.pause, self.grown, self.needs = world, memory, pause, grown, needs
        self.needed: Reason | None = None  # why a metric rule needs the unit that is in the sieve
        # A target that is being lowered is as low already, and one that is being raised may never be: what goes beside
        # either is taken from what is sure to be there.
        lowered = {
            op.spec.group: op.spec.to_size
            for op in world.memory.operations
            if op.is_open and op.spec.kind is OperationKind.DECREASE_TARGET
        }
        self.sizes = {
            facts.id: min(facts.group.target, lowered.get(facts.id, facts.target)) - facts.leaving
            for facts in world.groups.values()
        }
        self.spares = spares(world.groups, lambda facts: self.sizes[facts.id])
        self.minima = ClusterMinimums(world)

    def through(self, unit: Sequence[_T], held: dict[str, Reason]) -> list[_T]:
        """What of a unit may go as far as this sieve is concerned; the rest gets its reasons in `held`."""
        atomic = _atomic(self.world, unit[0])
        mark, size, spare = self.minima.checkpoint(), self.sizes[unit[0].group], dict(self.spares)
        self.needed = self.needs.refuse([each.node for each in unit]) if self.needs is not None else None
        fit: list[_T] = []
        for candidate in unit:
            reason = next((reason for check in _CHECKS if (reason := check(self, candidate)) is not None), None)
            if reason is None:
                fit.append(candidate)
                self.sizes[candidate.group] -= 1
                pool = self.world.groups[candidate.group].group.pool
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
        """Why so many nodes are not all of a zero-or-max group: neither its target size nor all that are registered
        (cases.md S6, S13). While some are on their way out, only all that stay behind will do: whether the provider's
        target still has the others in it cannot be known."""
        facts = self.world.groups[group]
        registered = sum(node.name not in self.world.leaving for node in facts.nodes) + len(facts.contested)
        if fit == registered or (fit == facts.target and not facts.leaving):
            return None
        return Reason.of(ReasonCode.ATOMIC_FAILED, nodes=fit, of=max(registered, facts.target - facts.leaving))


def _unneeded_for_long(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    """The node's own timer; strictly longer than the threshold, 0 means at once (cases.md S2)."""
    world = sieve.world
    own, options = world.groups[candidate.group].group.options, world.options
    mine, default, code = (
        (own.scale_down_unneeded_time, options.scale_down_unneeded_time, ReasonCode.NOT_UNNEEDED_LONG_ENOUGH)
        if world.buckets[candidate.node.name] is Bucket.READY
        else (own.scale_down_unready_time, options.scale_down_unready_time, ReasonCode.NOT_UNREADY_LONG_ENOUGH)
    )
    needs = default if mine is None else mine
    since = sieve.memory[candidate.node.name].unneeded_since
    return None if needs <= 0 or since + needs < world.now else Reason.of(code, since=since, needs=needs)


def _on_completion(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    del sieve
    waits_for = candidate.waits_for
    return Reason.of(ReasonCode.BLOCKED_BY_ON_COMPLETION_POD, pod=waits_for) if waits_for else None


def _young(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    return young(candidate.node, sieve.world.groups[candidate.group].group.options, sieve.world.now)


def _failed_before(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    """Its removal failed a while ago: others go first. An instant too far away comes from a clock that was wrong."""
    world = sieve.world
    failed = world.groups[candidate.group].memory.failed_removals.get(candidate.node.name)
    if failed is None or not world.now < failed.until <= world.now + world.options.max_node_group_backoff_duration:
        return None
    return Reason.of(ReasonCode.REMOVAL_FAILED, until=failed.until, detail=failed.why)


def _growing(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    """An increase that is not recorded yet may be asked for once more after a crash, if the size is what it was before.
    A removal in between would make it so, and a machine would be bought twice (tests/faults, seed 190)."""
    growing = candidate.group in sieve.grown or sieve.world.groups[candidate.group].growing
    return Reason.of(ReasonCode.GROUP_GROWING) if growing else None


def _group_minimum(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    """Nodes on their way out and those picked before are gone already (cases.md S5)."""
    least, size = sieve.world.groups[candidate.group].group.min, sieve.sizes[candidate.group]
    return Reason.of(ReasonCode.GROUP_MIN_SIZE, min=least, target=size) if size <= least else None


def _pool_minimum(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    """The same for all groups of a pool together (huaweicloud-cce.md A6.1)."""
    return at_minimum(sieve.world.groups[candidate.group].group, sieve.spares)


def _cluster_minimum(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    return sieve.minima.refuse(candidate.node)


def _metric_rules(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    """A zero-or-max group is asked as a whole: what is between all of it and nothing never comes about."""
    del candidate
    return sieve.needed


def _paused(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    del candidate
    return sieve.pause


def _group_cooldown(sieve: _Sieve, candidate: RemovalCandidate) -> Reason | None:
    world = sieve.world
    return group_cooldown(world.groups[candidate.group].memory, world.options, world.now)


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
