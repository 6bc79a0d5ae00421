"""Marks of a horizon: which nodes get them, keep them and lose them
(docs/reference/consolidation.md "Marks")."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from chalicelib.model.memory import ConsolidationMemory, Horizon, Memory
from chalicelib.model.node import LEAVING_MARKS, TO_BE_DELETED, Taint, mark_level
from chalicelib.model.operation import Operation, OperationKind, OperationState, RemovalTarget
from chalicelib.model.plan import TaintUpdate
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.removal.taint_updates import taint_updates
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode, Steering
from tests.builders import NOW, ClusterBuilder, cluster, node
from tests.cases import each_row
from tests.operations import new_operation

FIRST, SECOND, THIRD = LEAVING_MARKS


def marks(level: int, value: str = "h1") -> list[Taint]:
    return [Taint(key, "PreferNoSchedule", value) for key in LEAVING_MARKS[:level]]


def soft(*keys: str) -> list[Taint]:
    return [Taint(key, "PreferNoSchedule", "h1") for key in keys]


def update(name: str, level: int, value: str = "h2") -> TaintUpdate:
    return TaintUpdate(name, "mark", level=level, value=value)


def found(
    build: ClusterBuilder, levels: Mapping[str, int], operations: tuple[Operation, ...] = ()
) -> tuple[TaintUpdate, ...]:
    memory = Memory(operations=operations)
    state = build_cluster_state(build.snapshot(), Policy(name="c"), memory, NOW)
    return taint_updates(state, (), levels, "h2")


def one(*taints: Taint) -> ClusterBuilder:
    return cluster().node("n", group="g", taints=taints).group("g")


@each_row(
    "taints, level",
    [
        ([], 0),
        (soft(FIRST), 1),
        (soft(SECOND, FIRST), 2),
        (soft(THIRD, SECOND, FIRST), 3),
        (soft(SECOND), -1),
        (soft(FIRST, THIRD), -1),
        ([Taint(FIRST, "NoSchedule")], 0),
        ([Taint(FIRST, "NoSchedule"), *soft(FIRST)], 1),
        ([*soft("example.com/other"), *soft(FIRST)], 1),
    ],
    ids=["none", "one", "two", "three", "not the first", "gap", "other effect", "both", "foreign"],
)
def test_the_level_of_a_node_is_the_number_of_its_first_marks(
    taints: list[Taint], level: int
) -> None:
    assert mark_level(node("n", taints=taints)) == level


@each_row(
    "taints, wanted, expected",
    [
        ([], 2, (update("n", 2),)),
        (marks(1), 2, (update("n", 2),)),
        (marks(3), 2, (update("n", 2),)),
        (soft(SECOND), 1, (update("n", 1),)),
        (soft(SECOND), 0, (update("n", 0),)),
        (marks(2), 0, (update("n", 0),)),
        (marks(2), 2, ()),
        ([], 0, ()),
        ([Taint(FIRST, "NoSchedule")], 0, ()),
    ],
)
def test_a_node_whose_marks_differ_from_the_horizon_gets_them(
    taints: list[Taint], wanted: int, expected: tuple[TaintUpdate, ...]
) -> None:
    assert found(one(*taints), {"n": wanted} if wanted else {}) == expected


def test_a_new_name_of_the_horizon_alone_writes_no_mark() -> None:
    assert found(one(*marks(1, "an older one")), {"n": 1}) == ()


def test_marks_come_last_and_new_ones_before_those_that_go() -> None:
    build = cluster()
    for name, taints in {"d": [], "c": marks(1), "b": [], "a": marks(2)}.items():
        build.node(name, group="g", taints=taints)
    state = build_cluster_state(build.group("g").snapshot(), Policy(name="c"), Memory(), NOW)
    assert taint_updates(state, ("b", "d"), {"b": 2, "d": 1, "gone": 1}, "h2") == (
        TaintUpdate("b", "soften"),
        TaintUpdate("d", "soften"),
        update("b", 2),
        update("d", 1),
        update("a", 0),
        update("c", 0),
    )


def test_marks_have_no_limit_in_a_plan() -> None:
    build = cluster()
    names = [f"n-{number:03d}" for number in range(740)]
    for name in names:
        build.node(name, group="g")
    assert [mark.node for mark in found(build.group("g"), dict.fromkeys(names, 1))] == names


def test_a_node_that_goes_or_cannot_be_read_keeps_its_marks() -> None:
    hard = Taint(TO_BE_DELETED, "NoSchedule", str(int(NOW)))
    assert found(one(hard, *marks(1)), {}) == ()
    assert found(one(hard), {"n": 1}) == ()
    going = new_operation(
        id="remove-1",
        cluster="c",
        provider="clusterapi",
        group="g",
        kind=OperationKind.DELETE_NODES,
        plan="p",
        created_at=NOW - 60,
        targets=(RemovalTarget("n", "i://n"),),
        state=OperationState.WAITING,
    )
    assert found(one(*marks(1)), {}, (going,)) == ()
    assert found(cluster().node("n", taints=marks(1)), {}) == ()


def test_the_value_of_a_mark_is_the_horizon_and_its_effect_soft() -> None:
    (only,) = found(one(), {"n": 1})
    assert (only.value, only.level) == ("h2", 1)


HORIZON = Horizon("h2", NOW - 60, {"a": 1}, ("a",), 1)
STANDING = Memory(consolidation=ConsolidationMemory(horizon=HORIZON))
ON = Consolidation(mode=ConsolidationMode.REMOVE)


@pytest.mark.parametrize(
    "policy",
    [
        Policy(name="c"),
        Policy(name="c", consolidation=Consolidation(mode=ConsolidationMode.SHADOW)),
        Policy(
            name="c",
            consolidation=msgspec.structs.replace(ON, steering=Steering.OFF),
        ),
        Policy(name="c", consolidation=ON, options=Options(max_bulk_soft_taint_count=0)),
    ],
    ids=["consolidation off", "consolidation in shadow", "steering off", "no soft taints"],
)
def test_steer_7_marks_go_where_consolidation_may_not_steer(policy: Policy) -> None:
    build = cluster().node("a", group="g").node("b", group="g", taints=marks(1))
    plan, _ = plan_cluster(build.group("g").snapshot(), policy, STANDING, NOW, 0)
    assert [mark for mark in plan.marks if mark.action == "mark"] == [update("b", 0, "")]
