"""Of the nodes that could go, which go now (scale-down.md §7, §8): timers, minimum sizes, limits, cooldowns, budgets.

The first check that fails is the node's verdict. Each node that is picked lowers what the next one may use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from chalicelib.model.memory import Brake, NodeMemory
from chalicelib.model.node import Node
from chalicelib.model.operation import Kind
from chalicelib.model.reason import Code, Reason
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.cooldown import cooldown
from chalicelib.plan.readiness import Bucket
from chalicelib.plan.world import World


class Removable(Protocol):
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


_T = TypeVar("_T", bound=Removable)


class Picked(msgspec.Struct, Generic[_T], frozen=True):
    """chosen: the candidates that go now, empty ones first. held: the reason of each that stays. paused: what holds all
    removals back, if anything does. brake: what removals have taken, this plan's included, for the next memory."""

    chosen: tuple[_T, ...]
    held: dict[str, Reason]
    paused: Reason | None
    brake: Brake


def pick(world: World, candidates: Sequence[_T], memory: Mapping[str, NodeMemory],
         hold: Reason | None = None) -> Picked[_T]:
    """Choose. memory: the next memory of every candidate, with its timer. hold: why none goes in this pass."""
    tally = _Tally(world)
    chosen: list[_T] = []
    held: dict[str, Reason] = {}
    for candidate in sorted(candidates, key=lambda c: (bool(c.evict), c.risky, c.node.name)):
        reason = _waits(world, candidate, memory[candidate.node.name]) or hold or tally.refuse(candidate)
        if reason is None:
            chosen.append(candidate)
            tally.take(candidate)
        else:
            held[candidate.node.name] = reason
    return Picked(tuple(chosen), held, hold or tally.pause, world.memory.brake)


def _waits(world: World, candidate: Removable, known: NodeMemory) -> Reason | None:
    """The node's own timer; strictly longer than the threshold, 0 means at once."""
    ready = world.buckets[candidate.node.name] is Bucket.READY
    own, options = world.groups[candidate.group].group.options, world.options
    mine, default, code = (
        (own.scale_down_unneeded_time, options.scale_down_unneeded_time, Code.NOT_UNNEEDED_LONG_ENOUGH) if ready else
        (own.scale_down_unready_time, options.scale_down_unready_time, Code.NOT_UNREADY_LONG_ENOUGH))
    needs = default if mine is None else mine
    if needs > 0 and not known.unneeded_since + needs < world.now:
        return Reason.of(code, since=known.unneeded_since, needs=needs)
    if candidate.waits_for:
        return Reason.of(Code.BLOCKED_BY_ON_COMPLETION_POD, pod=candidate.waits_for)
    return None


class _Tally:
    """What removals have used up so far, those of operations in flight included."""

    def __init__(self, world: World) -> None:
        options = world.options
        self.world = world
        self.pause = _paused(world)
        self.sizes = {facts.id: facts.target - facts.leaving for facts in world.groups.values()}
        running = [op for op in world.memory.operations if op.is_open and op.kind is Kind.REMOVE]
        self.removing = sum(len(op.targets) for op in running)
        self.draining = sum(bool(target.evict) for op in running for target in op.targets)
        self.limits = (options.max_scale_down_parallelism, options.max_drain_parallelism)
        self.total = {CPU: 0, MEMORY: 0}
        for node in world.snapshot.nodes:
            for name, amount in _amounts(node).items():
                self.total[name] += amount
        self.least = {CPU: options.cores_total[0], MEMORY: options.memory_total[0]}

    def refuse(self, candidate: Removable) -> Reason | None:
        """Why a candidate may not go now, None if it may."""
        group = self.world.groups[candidate.group].group
        size, (most, most_drains) = self.sizes[candidate.group], self.limits
        short = [name for name, amount in _amounts(candidate.node).items()
                 if self.least[name] and self.total[name] - amount < self.least[name]]
        checks: tuple[tuple[bool, Reason | None], ...] = (
            (size <= group.min, Reason.of(Code.GROUP_MIN_SIZE, min=group.min, target=size)),
            (bool(short), Reason.of(Code.MINIMAL_RESOURCE_LIMIT, resources=", ".join(short))),
            (self.pause is not None, self.pause),
            (self.removing >= most, Reason.of(Code.PARALLELISM, limit=most)),
            (bool(candidate.evict) and self.draining >= most_drains, Reason.of(Code.PARALLELISM, limit=most_drains)),
        )
        return next((reason for fails, reason in checks if fails), None)

    def take(self, candidate: Removable) -> None:
        """Count a picked candidate."""
        self.sizes[candidate.group] -= 1
        self.removing += 1
        self.draining += bool(candidate.evict)
        for name, amount in _amounts(candidate.node).items():
            self.total[name] -= amount


def _paused(world: World) -> Reason | None:
    """What holds all removals back."""
    if not world.options.scale_down_enabled:
        return Reason.of(Code.SCALE_DOWN_DISABLED)
    if not world.health.healthy:
        return Reason.of(Code.CLUSTER_UNHEALTHY, unready=world.health.unready, registered=world.health.registered)
    return cooldown(world.memory, world.options, world.now)


def _amounts(node: Node) -> dict[str, int]:
    source = node.capacity or node.allocatable
    return {CPU: math.ceil(source.get(CPU, 0) / 1000), MEMORY: source.get(MEMORY, 0)}
