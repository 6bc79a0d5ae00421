"""Unreadable objects: a Node keeps its identity, and a pod blocks its node from removal."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.cluster.node_decoding import unreadable_object
from chalicelib.cluster.node_groups import read_node_groups
from chalicelib.model.errors import MALFORMED
from chalicelib.model.group import NodeGroup
from chalicelib.model.snapshot import MissingData
from chalicelib.providers.kit.base import Observation
from tests.cases import each_row
from tests.property import hostile_objects, hostile_tenants

LAST = f"n{hostile_objects.NODES - 1}"


@each_row(
    "status",
    [
        None,
        {},
        {"allocatable": {"cpu": "soon"}},
        {"capacity": []},
        5,
        {"allocatable": {f"r{at}": "1" for at in range(600)}},
    ],
)
def test_unreadable_node_counts_as_joined_and_is_blocked(status: Any) -> None:
    """Without its Node, its machine would count as one that never joined, and would be deleted."""
    plan = hostile_tenants.planned(
        [{**hostile_objects.node(hostile_objects.NODES - 1), "status": status}]
    )
    [gap] = plan.gaps
    assert (gap.kind, gap.node) == ("Node", LAST)
    assert {each.node: each.reason.code.value for each in plan.unremovable}[LAST] in {
        "UnexpectedError",
        "NodeNotStarted",
        "ScaleDownUnreadyDisabled",
    }
    assert LAST not in {each.node for each in plan.promises} | {each.node for each in plan.removals}
    assert sum(group.unregistered + group.long_unregistered for group in plan.groups) == 0
    assert hostile_tenants.served(plan) == hostile_objects.VICTIMS


@each_row(
    "spec",
    [
        {"containers": "none"},
        {"containers": [{"resources": {"requests": {"cpu": "1e" + "9" * 5_000}}}]},
        {"priority": 2**40},
        {"containers": [{"ports": [{"hostPort": 10**30}]}]},
        {"tolerations": {}},
    ],
)
def test_unreadable_pod_blocks_its_node(spec: Any) -> None:
    plan = hostile_tenants.planned([hostile_objects.pod("odd", node=LAST, **spec)])
    [gap] = plan.gaps
    assert (gap.kind, gap.name, gap.node) == ("Pod", "tenant/odd", LAST)
    assert LAST not in {each.node for each in plan.promises} | {each.node for each in plan.removals}


@each_row(
    ("raw", "node"),
    [
        (b'{"spec": {"nodeName": "n1"}}', "n1"),
        (b'{"spec": {"nodeName": "n1"}, "x": "\xed\xa0\x80"}', "n1"),
        (b'{"spec": {"nodeName": "n1"}, "x": "\\ud800"}', "n1"),
        (b'{"spec": {"nodeName": 5}}', "5"),
        (b"[", ""),
        (b'{"spec": {"nodeName": []}}', ""),
        (b'{"spec": null}', ""),
        (b'{"nodeName": "n1"' + b"[" * 5_000, "n1"),
    ],
)
def test_unreadable_object_names_its_node_if_the_node_name_is_legible(
    raw: bytes, node: str
) -> None:
    assert unreadable_object(raw).node == node


class _Failing:
    name = "odd"

    def __init__(self, error: Exception) -> None:
        self._error = error

    def observe(self, nodes: object) -> object:
        raise self._error


class _Working:
    name = "fine"

    def observe(self, nodes: object) -> Observation:
        return Observation((NodeGroup("g", "fine"),))


@each_row(
    "error",
    [
        ValueError("x" * 10_000),
        OverflowError(),
        KeyError("k"),
        RecursionError(),
        msgspec.ValidationError("v"),
        AttributeError("a"),
    ],
)
def test_provider_with_an_unexpected_error_loses_only_its_own_groups(error: Exception) -> None:
    observed = read_node_groups((_Failing(error), _Working()), ())  # type: ignore[arg-type]
    gaps = observed.gaps
    assert isinstance(error, MALFORMED)
    assert [group.id for group in observed.groups] == ["g"]
    assert [(gap.kind, len(gap.detail) < 500) for gap in gaps] == [("provider/odd", True)]
    assert isinstance(gaps[0], MissingData)
