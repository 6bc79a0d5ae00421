"""Taint updates: leftover taints to remove, and soft taints on unneeded nodes
(docs/reference/drain.md "Soft taints", "Stale taints")."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.node import DELETION_CANDIDATE, TO_BE_DELETED, Taint
from chalicelib.model.operation import Operation, OperationKind, OperationState, RemovalTarget
from chalicelib.model.plan import TaintUpdate
from chalicelib.plan.removal.taint_updates import TAKEN_BACK_AFTER, taint_updates
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.timeouts import operation_timeout
from tests.builders import NOW, ClusterBuilder, cluster
from tests.cases import each_row
from tests.operations import new_operation

SOFT = Taint(DELETION_CANDIDATE, "PreferNoSchedule", str(int(NOW) - 60))
NOTE = "outscaler.dev/operation"
LONGEST = operation_timeout(OperationKind.DELETE_NODES, Options())


def hard(age: float = 60.0, value: str | None = None) -> Taint:
    return Taint(TO_BE_DELETED, "NoSchedule", str(int(NOW - age)) if value is None else value)


def operation(
    node: str, state: OperationState = OperationState.WAITING, name: str = "remove-1"
) -> Operation:
    return new_operation(
        id=name,
        cluster="c",
        provider="clusterapi",
        group="g",
        kind=OperationKind.DELETE_NODES,
        plan="p",
        created_at=NOW - 60,
        targets=(RemovalTarget(node, f"i://{node}"),),
        state=state,
    )


def found(
    build: ClusterBuilder, *unneeded: str, operations: tuple[Operation, ...] = (), **options: Any
) -> tuple[TaintUpdate, ...]:
    policy = Policy(name="c", options=Options(**options))
    return taint_updates(
        build_cluster_state(build.snapshot(), policy, Memory(operations=operations), NOW), unneeded
    )


def one(*taints: Taint, **annotations: str) -> ClusterBuilder:
    return cluster().node("n", group="g", taints=list(taints), annotations=annotations).group("g")


def test_cluster_without_taints_needs_no_taint_updates() -> None:
    assert found(one()) == ()


def test_own_leftover_taint_is_removed_once_its_operation_is_over() -> None:
    left = one(hard(5.0), **{NOTE: "remove-1", "outscaler.dev/cordoned": "true"})
    assert found(left) == (TaintUpdate("n", "cleanup", cordoned=True),)
    assert found(left, operations=(operation("n", OperationState.FAILED),)) == (
        TaintUpdate("n", "cleanup", cordoned=True),
    )


def test_foreign_cordon_is_kept() -> None:
    assert found(one(hard(), **{NOTE: "remove-1"})) == (TaintUpdate("n", "cleanup"),)


@pytest.mark.parametrize(
    "state", [OperationState.PLANNED, OperationState.RUNNING, OperationState.WAITING]
)
def test_taints_on_nodes_of_open_operations_are_kept(state: OperationState) -> None:
    going = (operation("n", state),)
    assert found(one(hard(), **{NOTE: "remove-1"}), operations=going) == ()
    assert found(one(hard(9e5)), operations=going) == ()  # planned, but not yet tainted by us
    assert found(one(), "n", operations=going) == ()
    assert found(one(SOFT), operations=going) == ()


def test_taint_of_an_open_operation_is_kept_whatever_its_targets_are() -> None:
    assert found(one(hard(), **{NOTE: "remove-1"}), operations=(operation("other"),)) == ()


@pytest.mark.parametrize(
    ("taint", "goes"),
    [
        (hard(30.0), False),  # a removal is in progress
        (hard(LONGEST - 1.0), False),
        (hard(LONGEST + 2.0), True),
        (hard(value=""), True),
        (hard(value="yesterday"), True),
        (hard(value=str(int(NOW * 1000))), True),  # milliseconds, which are not a valid taint time
        (hard(-120.0), False),  # a clock ahead of ours
        (hard(-7 * 86400.0), True),
        (hard(value="-5"), True),
        (hard(value="٣"), True),
    ],
)
def test_foreign_taint_is_kept_until_its_removal_must_have_ended(taint: Taint, goes: bool) -> None:
    assert found(one(taint)) == ((TaintUpdate("n", "cleanup", cordoned=True),) if goes else ())


def test_foreign_taint_is_kept_longer_with_drain_priority_groups() -> None:
    groups = ((0, 600), (1000, 600))
    assert found(one(hard(LONGEST + 600.0)), drain_priority_config=groups) == ()
    assert found(one(hard(LONGEST + 1500.0)), drain_priority_config=groups) == (
        TaintUpdate("n", "cleanup", cordoned=True),
    )


def test_unneeded_nodes_get_a_soft_taint_and_needed_nodes_lose_it() -> None:
    build = (
        cluster()
        .node("b", group="g")
        .node("a", group="g")
        .node("d", group="g", taints=[SOFT])
        .node("c", group="g", taints=[SOFT])
        .node("e", group="g", taints=[SOFT])
        .group("g")
    )
    assert found(build, "a", "b", "e") == (
        TaintUpdate("c", "unsoften"),
        TaintUpdate("d", "unsoften"),
        TaintUpdate("a", "soften"),
        TaintUpdate("b", "soften"),
    )


def test_hard_taint_is_removed_first_and_separately() -> None:
    build = (
        cluster()
        .node("z", group="g", taints=[hard(9e5), SOFT])
        .node("y", group="g", taints=[hard()])
        .node("a", group="g")
        .group("g")
    )
    assert found(build, "a", "y", "z") == (
        TaintUpdate("z", "cleanup", cordoned=True),
        TaintUpdate("a", "soften"),
    )


def test_disabled_soft_taints_are_removed() -> None:
    assert found(one(SOFT), "n", max_bulk_soft_taint_count=0) == (TaintUpdate("n", "unsoften"),)
    assert found(one(), "n", max_bulk_soft_taint_count=0) == ()


def test_taints_of_nodes_without_a_readable_group_are_kept() -> None:
    assert found(cluster().node("n", taints=[hard(9e5), SOFT])) == ()
    unread = one(hard(9e5), SOFT)
    snapshot = unread.snapshot()
    groups = tuple(
        msgspec.structs.replace(group, error="Unauthorized") for group in snapshot.groups
    )
    world = build_cluster_state(
        msgspec.structs.replace(snapshot, groups=groups), Policy(name="c"), Memory(), NOW
    )
    assert taint_updates(world, ()) == ()


def test_equal_cluster_states_give_equal_taint_updates_in_equal_order() -> None:
    build = cluster().node("b", group="g").node("a", group="g", taints=[SOFT]).group("g")
    assert found(build, "b") == found(build, "b")


def after_hand_over(build: ClusterBuilder, acting_for: float) -> list[str]:
    """The nodes whose hard taint is taken back by passes that have acted for this long."""
    memory = Memory(acting_since=NOW - acting_for)
    updates = taint_updates(
        build_cluster_state(build.snapshot(), Policy(name="c"), memory, NOW), ()
    )
    return [update.node for update in updates]


@each_row(
    "age, acting_for, expected",
    [
        (300.0, TAKEN_BACK_AFTER - 1, []),
        (300.0, TAKEN_BACK_AFTER, ["n"]),
        (TAKEN_BACK_AFTER - 20, TAKEN_BACK_AFTER, []),
        (300.0, 3600.0, []),
    ],
    ids=[
        "passes act for too short",
        "begun before passes act",
        "begun while they act",
        "begun an hour later",
    ],
)
def test_removal_that_another_began_before_passes_act_is_taken_back(
    age: float, acting_for: float, expected: list[str]
) -> None:
    assert after_hand_over(one(hard(age)), acting_for) == expected


def test_removal_of_another_whose_pods_are_ending_is_not_taken_back() -> None:
    draining = one(hard(300.0)).running("n", 1, "100m", pod={"deleted": NOW + 20})
    assert after_hand_over(draining, 200.0) == []
    stuck = one(hard(300.0)).running("n", 1, "100m", pod={"deleted": NOW - 400})
    assert after_hand_over(stuck, 200.0) == ["n"]
