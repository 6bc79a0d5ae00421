"""What is checked for every vendor before machines are removed."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.providers.kit.errors import InvalidRequest
from chalicelib.providers.kit.node_identity import Identity, PermanentConflict, Seen
from chalicelib.providers.kit.removal_guard import (
    Targets,
    check_minimum,
    check_nodes,
    read_targets,
    refuse_foreign,
)
from tests.cases import each_row
from tests.operations import new_operation


def change(
    kind: OperationKind,
    from_size: int = 3,
    to_size: int = 5,
    targets: tuple[RemovalTarget, ...] = (),
) -> Operation:
    operation = new_operation(
        "change-1", "shop", "vendor", "g", kind, "plan", 0.0, from_size, to_size
    )
    return operation.with_spec(targets=targets)


def group_of(handle: str) -> str | None:
    return handle.partition("/")[0] if "/" in handle else None


def target(handle: str) -> RemovalTarget:
    return RemovalTarget(f"node-{handle}", f"id-{handle}", handle)


def targets_of(*handles: str) -> Targets:
    order = change(OperationKind.DELETE_NODES, 3, 1, tuple(map(target, handles)))
    return read_targets(order, lambda each: each.handle, group_of, "machine")


def test_targets_are_read_once_each() -> None:
    targets = targets_of("a", "g/1", "b", "a", "g/1")
    assert targets == Targets(("a", "b"), ("g/1",))
    assert targets.removed(change(OperationKind.DELETE_NODES)).facts == {"removed": 3, "group": "g"}


@each_row(
    ("handle", "problem"),
    [("", "node-: no machine is known for it"), ("other/1", "other/1 does not belong to g")],
)
def test_target_that_names_nothing_of_the_group_is_refused(handle: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        targets_of("a", handle)


def identify(nodes: tuple[Seen, ...]) -> Identity[str, Seen]:
    return Identity(nodes, lambda node: (node.provider_id,) if node.provider_id else ())


@each_row(
    ("kind", "nodes", "problem"),
    [
        (OperationKind.DELETE_NODES, (Seen("node-a", "a"),), ""),
        (OperationKind.DELETE_NODES, (), ""),
        (OperationKind.DELETE_NODES, (Seen("other", "a"),), "node other now"),
        (OperationKind.DELETE_NODES, (Seen("node-a", ""),), "no longer identifies itself"),
        (OperationKind.DELETE_NODES, (Seen("node-b", "x"),), ""),  # b is not deleted now
        (OperationKind.DELETE_INSTANCES, (), ""),
        (OperationKind.DELETE_INSTANCES, (Seen("node-b", "b"),), ""),
        (
            OperationKind.DELETE_INSTANCES,
            (Seen("node-a", "a"),),
            "the machine a has joined the cluster",
        ),
    ],
)
def test_current_nodes_are_checked_for_the_machines_of_this_call(
    kind: OperationKind, nodes: tuple[Seen, ...], problem: str
) -> None:
    def check() -> None:
        order = change(kind, 3, 1, (target("a"), target("b")))
        check_nodes(
            order,
            lambda: nodes,
            identify,
            ("a",),
            lambda each: each.handle,
            lambda name: f"the machine {name}",
        )

    if not problem:
        check()
        return
    with pytest.raises(PermanentConflict, match=problem):
        check()


def test_without_a_cluster_no_node_is_checked() -> None:
    order = change(OperationKind.DELETE_INSTANCES, 3, 2, (target("a"),))
    check_nodes(order, None, identify, ("a",), lambda each: each.handle)


def test_machine_elsewhere_is_refused_with_its_place() -> None:
    refuse_foreign({}, "pool g")
    with pytest.raises(InvalidRequest, match="a is in pool x; b is in no pool, and not in pool g"):
        refuse_foreign({"b": "no pool", "a": "pool x"}, "pool g")


def test_removal_stops_at_the_minimum() -> None:
    check_minimum("pool g", 2, 2)
    with pytest.raises(InvalidRequest, match=r"pool g: 1 would be below the minimum 2$"):
        check_minimum("pool g", 1, 2)
    with pytest.raises(InvalidRequest, match=r"minimum 2 of its pool$"):
        check_minimum("pool g", 1, 2, " of its pool")
