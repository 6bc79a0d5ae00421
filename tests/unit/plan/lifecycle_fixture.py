"""A cluster in which only age, drift and repair move nodes: nodes of group g, each full
of pods of its own owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import Memory, NodeMemory, SickCondition
from chalicelib.model.node import Condition
from chalicelib.model.plan import Plan
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_lifecycle import NodeLifecycle, RepairRule
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.builders import NOW, ClusterBuilder, cluster, node

HOUR, DAY = 3600.0, 86_400.0
ALL = DisruptionBudget("all", NodeLimit(share=1.0), reasons=tuple(DisruptionReason)[:-1])
AGE = NodeLifecycle(max_node_age=30 * DAY, jitter=0.0)
OLD_NODE = NOW - 31 * DAY
READY = RepairRule("Ready", 1800.0, status=("False", "Unknown"))
DEADLOCK = RepairRule("KernelDeadlock", 600.0)


def policy(lifecycle: NodeLifecycle | None = AGE, **more: Any) -> Policy:
    """A policy in which only the lifecycle moves nodes, with wide limits."""
    fields: dict[str, Any] = {
        "node_lifecycle": lifecycle,
        "disruption_budgets": (ALL,),
        "consolidation": Consolidation(max_surge=NodeLimit(share=1.0), max_replacements=100),
        "options": Options(
            max_drain_parallelism=100,
            max_scale_down_parallelism=100,
            scale_down_unneeded_time=1e6,
            **more.pop("opt", {}),
        ),
        **more,
    }
    return Policy("test", mode=Mode.ACTIVE, **fields)


class LifecyclePass(msgspec.Struct, frozen=True):
    """A pass: its plan and the next memory."""

    plan: Plan
    memory: Memory

    @property
    def goes(self) -> dict[str, str]:
        """node -> why it goes now."""
        return {removal.node: removal.reason.value for removal in self.plan.removals}

    @property
    def bought(self) -> dict[str, int]:
        """group -> nodes bought now."""
        return {up.group: up.to_size - up.from_size for up in self.plan.scale_ups}

    @property
    def held(self) -> dict[str, str]:
        """due node -> the code of what holds it."""
        return {
            verdict.node: verdict.held.code.value
            for verdict in self.plan.lifecycle
            if verdict.held is not None
        }

    @property
    def notes(self) -> list[str]:
        """Codes of the plan's notes."""
        return [note.code.value for note in self.plan.notes]


def decide(
    build: ClusterBuilder,
    document: Policy | None = None,
    memory: Memory | None = None,
    now: float = NOW,
) -> LifecyclePass:
    """A pass over the cluster."""
    return LifecyclePass(
        *plan_cluster(build.snapshot(), document or policy(), memory or Memory(), now, 0)
    )


def full_nodes(
    *names: str, group: Mapping[str, Any] | None = None, **fields: Any
) -> ClusterBuilder:
    """Nodes of group g, each full of pods of its own owner. fields: of the
    nodes; group: of the group."""
    build = cluster()
    for name in names:
        build.node(name, "4", "16Gi", group="g", **{"created": OLD_NODE, **fields}).running(
            name, 4, "1", "4Gi", owner=name
        )
    return build.group("g", **{"max": 100, "template": node("new", "4", "16Gi"), **(group or {})})


def machines(build: ClusterBuilder, **by_node: Mapping[str, Any]) -> ClusterBuilder:
    """Sets fields of the instances of these nodes."""
    [group] = build.groups
    instances = tuple(
        msgspec.structs.replace(instance, **by_node.get(instance.node.replace("-", "_"), {}))
        for instance in group.instances
    )
    build.groups[0] = msgspec.structs.replace(group, instances=instances)
    return build


def sick_since(
    since: float, key: str = "Ready=False,Unknown", seen: float = NOW - 60.0
) -> NodeMemory:
    """The memory of a node that is sick since an instant."""
    return NodeMemory(sick={key: SickCondition(since, seen)})


def unready(status: str = "Unknown", since: float = NOW - HOUR) -> dict[str, Any]:
    """Fields of a node whose kubelet does not report."""
    return {"conditions": (Condition("Ready", status, "NodeStatusUnknown", since),)}
