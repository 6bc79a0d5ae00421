"""Builds removal candidates for the selection without any simulation: empty nodes (e…) and
drained nodes (d…) of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from chalicelib.model.memory import BreakerState, Memory, NodeMemory
from chalicelib.model.operation import Operation, OperationKind, OperationState, RemovalTarget
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal.methods.unneeded import timer_reason
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.removal.simulate import SimulatedRemoval
from chalicelib.plan.state.cluster_state import ClusterState, build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.mode import Mode
from tests.builders import NOW, OLD, ClusterBuilder, cluster
from tests.operations import new_operation

DRAINS = 5  # max-drain-parallelism in upstream's cases


class Picked(NamedTuple):
    """What one draw from the budgets of a pass answers, and the pass's pause and
    circuit breaker after it."""

    chosen: tuple[SimulatedRemoval, ...]
    refused: dict[str, Reason]
    paused: Reason | None
    breaker: BreakerState


class SelectionBuilderPool:
    """A cluster of groups without pods; every node is a candidate unless `only` names some."""

    def __init__(self) -> None:
        self.build: ClusterBuilder = cluster()
        self.candidates: list[SimulatedRemoval] = []
        self.operations: list[Operation] = []

    def group(
        self,
        name: str,
        empty: int = 0,
        drain: int = 0,
        *,
        pods: int = 1,
        others: int = 0,
        cpu: str = "1",
        node: Mapping[str, Any] | None = None,
        risky: bool = False,
        waits_for: str = "",
        **group: Any,
    ) -> SelectionBuilderPool:
        """Adds a group with that many empty candidates, drains of that many pods each, and nodes
        that are not candidates."""
        nodes = [
            f"{name}-{kind}{at:02d}"
            for kind, count in (("e", empty), ("d", drain), ("o", others))
            for at in range(count)
        ]
        for each in nodes:
            self.build.node(each, cpu, group=name, **(node or {}))
        self.build.group(name, **group)
        by_name = {each.name: each for each in self.build.nodes}
        for each in nodes[: empty + drain]:
            evict = tuple(f"default/{each}-{at}" for at in range(pods)) if "-d" in each else ()
            self.candidates.append(
                SimulatedRemoval(by_name[each], name, evict, {}, waits_for, risky)
            )
        return self

    def going(self, group: str, *nodes: str, drained: bool = False) -> SelectionBuilderPool:
        """Adds removals in flight, one operation per node; the nodes need
        not be registered any more."""
        for each in nodes:
            target = RemovalTarget(
                each, f"test://{group}/{each}", evict=("default/x",) if drained else ()
            )
            self.operations.append(
                new_operation(
                    id=f"remove-{each}",
                    cluster="test",
                    provider="test",
                    group=group,
                    kind=OperationKind.DELETE_NODES,
                    plan="p",
                    created_at=NOW - 60,
                    targets=(target,),
                    state=OperationState.WAITING,
                )
            )
        return self

    def world(
        self,
        memory: Memory | None = None,
        *,
        now: float = NOW,
        max_disruption: MaxDisruption | None = None,
        windows: Sequence[Window] = (),
        budgets: Sequence[DisruptionBudget] = (),
        **options: Any,
    ) -> ClusterState:
        """Returns the cluster state of the pass. options: override upstream's defaults,
        with five parallel drains."""
        known = memory or Memory()
        options = {"max_drain_parallelism": DRAINS, **options}
        policy = Policy(
            name="test",
            mode=Mode.ACTIVE,
            options=msgspec.structs.replace(Options(), **options),
            max_disruption=max_disruption or MaxDisruption(),
            maintenance_windows=tuple(windows),
            disruption_budgets=tuple(budgets),
        )
        return build_cluster_state(
            self.build.snapshot(),
            policy,
            msgspec.structs.replace(known, operations=(*known.operations, *self.operations)),
            now,
        )

    def pick(
        self,
        memory: Memory | None = None,
        *,
        now: float = NOW,
        only: Sequence[str] = (),
        since: float = OLD,
        hold: Reason | None = None,
        **more: Any,
    ) -> Picked:
        """Draws all candidates at once. since: when they became unneeded."""
        wanted = [each for each in self.candidates if not only or each.node.name in only]
        timers = {each.node.name: NodeMemory(since, now) for each in wanted}
        world = self.world(memory, now=now, **more)
        budgets = RemovalLimits(world, hold)
        chosen, refused = budgets.draw(wanted, lambda each: timer_reason(each, timers, world))
        return Picked(tuple(chosen), refused, budgets.paused, budgets.breaker.after())


def counts(picked: Picked) -> tuple[int, int]:
    """Returns (empty, drained), as upstream's cases count them."""
    drained = sum(bool(each.evict) for each in picked.chosen)
    return len(picked.chosen) - drained, drained


def goes(picked: Picked) -> list[str]:
    """Names of the selected nodes, in the order of removal."""
    return [each.node.name for each in picked.chosen]


def why(picked: Picked) -> set[ReasonCode]:
    """Reason codes of all nodes that stay."""
    return {reason.code for reason in picked.refused.values()}
