"""Regression tests for audit findings: removals while the target is being lowered, and an
empty list of instances.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.group import InstanceState
from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.operation import OPERATION_ANNOTATION, OperationKind
from tests.builders import NOW, ClusterBuilder, stays
from tests.operations import new_operation


def test_removals_respect_the_minimum_after_an_open_target_decrease() -> None:
    cluster = ClusterBuilder()
    for name in ("a", "b", "c", "d"):
        cluster.node(name, group="g")
    cluster.group("g", min=3, target=6)
    lowering = new_operation(
        id="o",
        cluster="test",
        provider="test",
        group="g",
        kind=OperationKind.DECREASE_TARGET,
        plan="p",
        created_at=NOW - 10.0,
        from_size=6,
        to_size=4,
    )
    plan = cluster.plan(Memory(operations=(lowering,)), unneeded=9999.0)
    assert [removal.node for removal in plan.removals] == ["a"]
    assert {v.reason.code.value for v in plan.unremovable} == {"NodeGroupMinSizeReached"}


def test_empty_instance_list_clears_no_timer() -> None:
    cluster = ClusterBuilder().node("a", group="g").node("b", group="g").group("g")
    known = Memory(
        nodes={
            name: NodeMemory(unneeded_since=NOW - 500.0, confirmed_at=NOW - 60.0) for name in "ab"
        }
    )
    cluster.groups[0] = msgspec.structs.replace(cluster.groups[0], instances=())
    paused = NodeMemory(unneeded_since=NOW - 440.0, confirmed_at=NOW)
    assert cluster.decide(known)[1].nodes == {"a": paused, "b": paused}


def test_node_with_an_instance_in_deletion_keeps_the_taint_of_a_finished_operation() -> None:
    mark: dict[str, Any] = {
        "taints": (Taint(TO_BE_DELETED, "NoSchedule", str(int(NOW) - 700)),),
        "annotations": {OPERATION_ANNOTATION: "remove-of-old"},
        "unschedulable": True,
    }
    cluster = ClusterBuilder().node("a", group="g", **mark).node("b", group="g", **mark).group("g")
    going, staying = cluster.groups[0].instances
    cluster.groups[0] = msgspec.structs.replace(
        cluster.groups[0],
        instances=(msgspec.structs.replace(going, state=InstanceState.DELETING), staying),
    )
    assert [(each.node, each.action) for each in cluster.plan().marks] == [("b", "cleanup")]


def test_nothing_is_removed_while_a_scale_up_is_not_recorded() -> None:
    """The scale-up may fail, and then its size never existed. If it is requested again, a lower
    size would buy the nodes twice."""
    cluster = ClusterBuilder()
    for name in ("a", "b", "c", "d"):
        cluster.node(name, group="g", unschedulable=True)
    cluster.group("g", min=3)
    growing = new_operation(
        id="o",
        cluster="test",
        provider="test",
        group="g",
        kind=OperationKind.SCALE_UP,
        plan="p",
        created_at=NOW - 10.0,
        from_size=4,
        to_size=8,
    )
    plan = cluster.plan(Memory(operations=(growing,)), unneeded=9999.0)
    assert plan.removals == ()
    assert stays(plan) == dict.fromkeys("abcd", "NodeGroupGrowing")
