"""Nodes whose kubelet does not answer any more
(docs/reference/node-lifecycle.md "Dead kubelets").
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.memory import Memory
from chalicelib.model.node import Condition
from chalicelib.policy.settings.node_lifecycle import DriftAction, NodeLifecycle
from tests.builders import NOW, ClusterBuilder, having
from tests.cases import each_row
from tests.unit.plan.lifecycle_fixture import (
    READY,
    LifecyclePass,
    decide,
    full_nodes,
    policy,
    sick_since,
)

SOON = NodeLifecycle(
    repair=(msgspec.structs.replace(READY, after=60.0),), max_unhealthy=1.0, drift=DriftAction.OFF
)
YOUNG = NOW - 300.0


def silent(
    reason: str, status: str = "Unknown", created: float = YOUNG, **fields: Any
) -> ClusterBuilder:
    conditions = (Condition("Ready", status, reason, NOW - 120.0),)
    return full_nodes("a", conditions=conditions, created=created, **fields)


def sick(build: ClusterBuilder) -> LifecyclePass:
    return decide(build, policy(SOON), Memory(nodes={"a": sick_since(NOW - 90.0)}))


@each_row(
    ("status", "reason", "held"),
    [
        ("Unknown", "NodeStatusUnknown", "InReplacement"),
        ("Unknown", "NodeStatusNeverUpdated", "NotStarted"),
        ("Unknown", "", "NotStarted"),
        ("False", "KubeletNotReady", "NotStarted"),
    ],
)
def test_a_young_node_that_was_ready_once_is_repaired(status: str, reason: str, held: str) -> None:
    result = sick(silent(reason, status))
    assert result.held == {"a": held}
    assert bool(result.bought) is (held == "InReplacement")


def test_a_young_dead_node_is_no_upcoming_node() -> None:
    dead, starting = silent("NodeStatusUnknown"), silent("NodeStatusNeverUpdated")
    for build in (dead, starting):
        build.pending(1, "4", "4Gi")
    document = policy(NodeLifecycle(drift=DriftAction.OFF))
    assert (decide(dead, document).bought, decide(starting, document).bought) == ({"g": 1}, {})
    health = [decide(build, document).plan.health for build in (dead, starting)]
    assert [(one.unready, one.not_started) for one in health] == [(1, 0), (0, 1)]


def test_pods_that_are_being_deleted_hold_no_dead_node() -> None:
    build = silent("NodeStatusUnknown", created=NOW - 86_400.0).budget("pdb", 0, having(app="a"))
    assert sick(build).held == {"a": "BlockedByPod"}
    for deleted in (NOW - 20.0, NOW + 500.0):
        build.pods = [msgspec.structs.replace(pod, deleted=deleted) for pod in build.pods]
        assert sick(build).goes == {"a": "repair"}


def test_a_sound_node_is_held_by_a_budget_of_pods_that_are_being_deleted() -> None:
    lifecycle = NodeLifecycle(max_node_age=86_400.0, jitter=0.0)
    build = full_nodes("a", created=NOW - 2 * 86_400.0).budget("pdb", 0, having(app="a"))
    build.pods = [msgspec.structs.replace(pod, deleted=NOW + 100.0) for pod in build.pods]
    assert decide(build, policy(lifecycle)).held == {"a": "BlockedByPod"}
