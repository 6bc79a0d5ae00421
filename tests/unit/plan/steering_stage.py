"""A stage for the cases of a horizon: a cluster on virtual time, its scheduler with all default
scores, and what every pass has planned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from chalicelib.model.memory import Horizon
from chalicelib.model.node import mark_level
from chalicelib.model.plan import HorizonReport, Plan, TaintUpdate
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import PodDisruptionBudget, Snapshot
from chalicelib.plan.removal.taint_updates import SET_MARKS
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import ConsolidationMode
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.benchmarks.consolidation_world import MINUTE, Outscaler, World
from tests.benchmarks.scheduler_referee import SchedulerScores
from tests.builders import ClusterBuilder
from tests.unit.plan.consolidation_fixture import (
    TYPES,
    Machine,
    PodCounts,
    grouped,
    machines,
    pods,
    policy,
)

HALF = pods(4)
"""Half of a node m."""
ONE_AT_A_TIME = {"disruption_budgets": (DisruptionBudget("one", NodeLimit(nodes=1)),)}


def halves(number: int = 40, prefix: str = "n") -> dict[str, tuple[str, PodCounts]]:
    """Nodes of type m, each half empty."""
    return {f"{prefix}-{at:02d}": ("m", HALF) for at in range(number)}


def pool_of(
    nodes: Mapping[str, tuple[str, PodCounts]],
    types: Mapping[str, Machine] = TYPES,
    *,
    build: ClusterBuilder | None = None,
    **more: Any,
) -> ClusterBuilder:
    """Nodes of these types with their pods, in groups that do not grow."""
    return grouped(machines(nodes, types, build=build), types, **{"grows": (), **more})


def steering(types: Mapping[str, Machine] = TYPES, **more: Any) -> Policy:
    """A policy under which nothing waits but for marks."""
    return policy(types, **{"mode": ConsolidationMode.REMOVE, "quiet_time": 0.0, **more})


class MarkedWorld(World):
    """most: marks that a pass can write; refusing: nodes whose marks never come."""

    most: int | None = None
    refusing: Collection[str] = ()

    def mark(self, updates: Iterable[TaintUpdate]) -> None:
        marks = [update for update in updates if update.action == SET_MARKS]
        super().mark(update for update in marks[: self.most] if update.node not in self.refusing)

    def set_budgets(self, *budgets: PodDisruptionBudget) -> None:
        """Other PodDisruptionBudgets from now on."""
        self._start = msgspec.structs.replace(self._start, budgets=budgets)


def in_the_world(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the instance ids that a world knows."""
    ids = {node.name: f"bench:{node.provider_id.partition(':')[2]}" for node in snapshot.nodes}
    nodes = [msgspec.structs.replace(node, provider_id=ids[node.name]) for node in snapshot.nodes]
    groups = [
        msgspec.structs.replace(
            group,
            instances=tuple(
                msgspec.structs.replace(machine, id=ids[machine.node], handle=ids[machine.node])
                for machine in group.instances
            ),
        )
        for group in snapshot.groups
    ]
    return msgspec.structs.replace(snapshot, nodes=tuple(nodes), groups=tuple(groups))


class SteeringStage:
    """plans: of all passes."""

    def __init__(
        self,
        build: ClusterBuilder | Snapshot,
        document: Policy | None = None,
        *,
        scores: SchedulerScores = SchedulerScores.DEFAULT,
        seed: int = 0,
    ) -> None:
        snapshot = in_the_world(build.snapshot()) if isinstance(build, ClusterBuilder) else build
        self.world = MarkedWorld(snapshot, scores=scores, seed=seed)
        self.outscaler = Outscaler(document or steering())
        self.plans: list[Plan] = []

    def play(self, passes: int = 1, seconds: float = MINUTE) -> SteeringStage:
        """Passes, so many seconds apart."""
        for _ in range(passes):
            self.outscaler.act(self.world)
            assert self.outscaler.plan is not None
            self.plans.append(self.outscaler.plan)
            self.world.bind()
            self.world.advance(seconds)
            self.world.join_started()
        return self

    def obey(self, document: Policy) -> None:
        """Another policy from now on."""
        memory = self.outscaler.memory
        self.outscaler = Outscaler(document)
        self.outscaler.memory = memory

    @property
    def horizon(self) -> Horizon | None:
        """The one that stands."""
        return self.outscaler.memory.consolidation.horizon

    @property
    def going(self) -> list[str]:
        """Nodes that leave."""
        return sorted(self.horizon.going) if self.horizon is not None else []

    @property
    def marked(self) -> dict[str, int]:
        """node -> number of its marks, where it has any."""
        levels = {node.name: mark_level(node) for node in self.world.snapshot().nodes}
        return {name: level for name, level in levels.items() if level}

    @property
    def updates(self) -> list[dict[str, int]]:
        """Of each pass: node -> number of marks that it is to get."""
        return [marks_of(plan) for plan in self.plans]

    @property
    def removals(self) -> list[list[str]]:
        """Of each pass: the nodes that it removes."""
        return [[removal.node for removal in plan.removals] for plan in self.plans]

    @property
    def ids(self) -> list[str]:
        """Of each pass: the horizon that it reports, "" for none."""
        reports = [report_of(plan) for plan in self.plans]
        return [report.id if report is not None else "" for report in reports]

    def notes(self, code: ReasonCode) -> list[list[Reason]]:
        """Of each pass: its notes of a code."""
        return [[note for note in plan.notes if note.code is code] for plan in self.plans]


def marks_of(plan: Plan) -> dict[str, int]:
    """node -> number of marks that it is to get."""
    return {update.node: update.level for update in plan.marks if update.action == SET_MARKS}


def report_of(plan: Plan) -> HorizonReport | None:
    """What a pass says of the horizon."""
    assert plan.consolidation is not None
    return plan.consolidation.horizon
