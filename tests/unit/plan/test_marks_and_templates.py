"""Marks of a horizon are no part of what a node is: of templates, learning, drift and balancing
(docs/reference/consolidation.md "Marks")."""

from __future__ import annotations

import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.node import LEAVING_MARKS, Taint
from chalicelib.plan.scale_up.balancing import Likeness
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.node_lifecycle import DriftAction, NodeLifecycle
from tests.builders import NOW, cluster
from tests.unit.plan.lifecycle_fixture import decide, full_nodes, policy

MARKS = tuple(Taint(key, "PreferNoSchedule", "h1") for key in LEAVING_MARKS)
LASTING = Taint("dedicated", "PreferNoSchedule", "db")


@pytest.mark.parametrize("age", [3_600.0, 300.0], ids=["settled", "young"])
def test_steer_24_the_template_of_a_marked_node_has_no_mark(age: float) -> None:
    build = cluster().node("n", "2", group="g", taints=[*MARKS, LASTING], created=NOW - age)
    build.running("n", 1, "2").group("g", max=3)
    state = build_cluster_state(build.snapshot(), Policy(name="c"), Memory(), NOW)
    template = state.groups["g"].template
    assert template is not None
    assert template.node.taints == (LASTING,)
    _, memory = build.decide()
    assert [learnt.node.taints for learnt in memory.templates.values()] == [(LASTING,)]


def test_steer_24_a_marked_node_has_not_drifted() -> None:
    drifts = policy(NodeLifecycle(drift=DriftAction.REPLACE))
    first = decide(full_nodes("a", "b"), drifts)
    second = decide(full_nodes("a", "b", taints=MARKS), drifts, first.memory, now=NOW + 60.0)
    assert (second.bought, second.held) == ({}, {})
    assert "NodeDrifted" not in second.notes
    assert not any(node.drifted_since for node in second.memory.nodes.values())
    learnt = second.memory.templates["g"]
    assert (learnt.node.taints, learnt.differs_since) == ((), 0.0)


def test_steer_24_a_marked_group_is_similar_to_one_without_marks() -> None:
    build = cluster()
    build.node("a", "4", "16Gi", group="marked", taints=MARKS).running("a", 1, "4")
    build.node("b", "4", "16Gi", group="plain").running("b", 1, "4")
    build.group("marked", max=9).group("plain", max=9)
    state = build_cluster_state(build.snapshot(), Policy(name="c"), Memory(), NOW)
    likeness = Likeness(state.snapshot.classes, state.options)
    similar = likeness.similar(state.groups["marked"], [state.groups["plain"]])
    assert [group.id for group in similar] == ["plain"]
    plan, _ = build.pending(4, "4").decide(balance_similar_node_groups=True)
    assert sorted(up.group for up in plan.scale_ups) == ["marked", "plain"]
