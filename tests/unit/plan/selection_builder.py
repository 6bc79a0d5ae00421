"""Builds removal candidates for the selection without any simulation: empty nodes (e…) and drained nodes (d…) of
groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.operation import Operation, OperationKind, OperationState, RemovalTarget
from chalicelib.model.pod import Pod
from chalicelib.model.policy import MaxDisruption, Mode, Options, Policy, Window
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_down.candidates import PodsToMove
from chalicelib.plan.scale_down.removal_simulation.removal_trial import UnneededNode
from chalicelib.plan.scale_down.selection import Selection, select_removals
from chalicelib.plan.state.cluster_state import ClusterState, build_cluster_state
from tests.builders import NOW, OLD, ClusterBuilder, cluster
from tests.operations import new_operation

DRAINS = 5  # max-drain-parallelism in upstream's cases


class SelectionBuilderPool:
    """A cluster of groups without pods; every node is a candidate unless `only` names some."""

    def __init__(self) -> None:
        self.build: ClusterBuilder = cluster()
        self.candidates: list[UnneededNode] = []
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
        """Adds a group with that many empty candidates, drains of that many pods each, and nodes that are not
        candidates."""
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
            evict = tuple(Pod("default", f"{each}-{at}", "", 0) for at in range(pods)) if "-d" in each else ()
            moves = PodsToMove(by_name[each], name, evict, waits_for=waits_for)
            self.candidates.append(UnneededNode(moves, {}, risky))
        return self

    def going(self, group: str, *nodes: str, drained: bool = False) -> SelectionBuilderPool:
        """Adds removals in flight, one operation per node; the nodes need not be registered any more."""
        for each in nodes:
            target = RemovalTarget(each, f"test://{group}/{each}", evict=("default/x",) if drained else ())
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
        **options: Any,
    ) -> ClusterState:
        """Returns the cluster state of the pass. options: override upstream's defaults, with five parallel drains."""
        known = memory or Memory()
        options = {"max_drain_parallelism": DRAINS, **options}
        policy = Policy(
            name="test",
            mode=Mode.ACTIVE,
            options=msgspec.structs.replace(Options(), **options),
            max_disruption=max_disruption or MaxDisruption(),
            maintenance_windows=tuple(windows),
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
    ) -> Selection:
        """Runs the selection. since: when all candidates became unneeded."""
        wanted = [each for each in self.candidates if not only or each.node.name in only]
        timers = {each.node.name: NodeMemory(since, now) for each in wanted}
        return select_removals(self.world(memory, now=now, **more), wanted, timers, hold)


def counts(picked: Selection) -> tuple[int, int]:
    """Returns (empty, drained), as upstream's cases count them."""
    drained = sum(bool(each.evict) for each in picked.chosen)
    return len(picked.chosen) - drained, drained


def goes(picked: Selection) -> list[str]:
    """Names of the selected nodes, in the order of removal."""
    return [each.node.name for each in picked.chosen]


def why(picked: Selection) -> set[ReasonCode]:
    """Reason codes of all nodes that stay."""
    return {reason.code for reason in picked.refused.values()}
