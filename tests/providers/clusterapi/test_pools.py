"""MachinePools as node groups."""

from __future__ import annotations

import pytest

from chalicelib.model.group import Instance, InstanceState, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.timestamps import parse_time
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers.clusterapi.capi_state import CapiState
from chalicelib.providers.clusterapi.node_groups import make_groups
from chalicelib.providers.clusterapi.settings import read_settings
from tests.cases import each_row
from tests.providers.clusterapi.objects import (
    Json,
    as_resource,
    bounds,
    capacity,
    in_v1beta1,
    leaving,
    machine_set,
    node,
    pool,
    pool_machine,
    pool_node,
)
from tests.providers.clusterapi.test_groups import OURS, groups, ids

VERSIONS = pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
CREATING, RUNNING, DELETING = InstanceState.CREATING, InstanceState.RUNNING, InstanceState.DELETING


def only(
    *objects: Json, nodes: tuple[Node, ...] = (), settings: dict[str, str] | None = None
) -> NodeGroup:
    [group] = groups(objects, [OURS, *nodes], settings).groups
    return group


@VERSIONS
def test_capi_pool_with_machines_is_read_like_any_group(version: str) -> None:
    objects = [
        pool(
            "mp",
            ["c:///1", "c:///2"],
            replicas=3,
            annotations={**bounds(1, 5), **capacity(cpu="4", memory="8Gi")},
        ),
        pool_machine("a", "mp", provider_id="c:///1", node="n1"),
        leaving(pool_machine("b", "mp", provider_id="c:///2", node="n2")),
        pool_machine("c", "mp"),
        pool_machine("d", "other", provider_id="c:///9"),
    ]
    shown = [in_v1beta1(each) if version == "v1beta1" else each for each in objects]
    group = only(*shown, nodes=(node("n1", "c:///1", of="a"), node("n2", "c:///2", of="b")))
    assert (group.id, group.min, group.max, group.target) == ("MachinePool/default/mp", 1, 5, 3)
    assert group.instances == (
        Instance("c:///1", RUNNING, handle="default/a", node="n1"),
        Instance("deleting-machine-default_b", DELETING, handle="default/b", node="n2"),
        Instance("pending-machine-default_c", CREATING, handle="default/c"),
    )
    assert group.template is not None
    assert (group.error, group.scale_down_held) == ("", "")


def test_capi_pool_instance_without_a_machine_yet_is_counted() -> None:
    group = only(
        pool("mp", ["c:////1", "c:///2"], replicas=2),
        pool_machine("a", "mp", provider_id="c:///1", node="n"),
        nodes=(node("n", "c:///1", of="a"), node("n2", "c:///2")),
    )
    assert [(each.id, each.handle) for each in group.instances] == [
        ("c:///1", "default/a"),
        ("c:///2", "listed:c:///2"),
    ]


def test_capi_pool_without_machines_has_the_instances_it_lists() -> None:
    listed = ["aws:///eu-a/i-1", "aws:///eu-a/i-2", "", "aws:///eu-a/i-2", "aws:///eu-a/i-3"]
    group = only(
        pool("mp", listed, replicas=4),
        nodes=(
            pool_node("n1", "aws:///eu-a/i-1", of="mp"),
            pool_node("n2", "aws:////i-2", of="mp"),  # spelled differently
            # not listed: gone, whatever its Node reports
            pool_node("n9", "aws:///eu-a/i-9", of="mp"),
        ),
    )
    assert group.instances == (
        Instance("aws:///eu-a/i-1", RUNNING, handle="listed:aws:///eu-a/i-1", node="n1"),
        Instance("aws:////i-2", RUNNING, handle="listed:aws:///eu-a/i-2", node="n2"),
        Instance("aws:///eu-a/i-3", CREATING, handle="listed:aws:///eu-a/i-3"),
    )


def test_capi_pool_node_is_matched_by_its_owner_where_ids_are_similar() -> None:
    nodes = (
        pool_node("mine", "c://b/7", of="mp"),
        pool_node("theirs", "c://c/7", of="other"),
        node("of-a-machine", "c://d/7", of="m"),
    )
    assert [each.node for each in only(pool("mp", ["c://a/7"]), nodes=nodes).instances] == ["mine"]
    twins = (*nodes, pool_node("twin", "c://e/7", of="mp"))
    assert [each.node for each in only(pool("mp", ["c://a/7"]), nodes=twins).instances] == [""]
    assert [each.node for each in only(pool("mp", ["c://a/7"]), nodes=nodes[1:2]).instances] == [""]


def test_capi_pool_node_is_never_two_instances() -> None:
    group = only(pool("mp", ["c://a/7", "c://b/7"]), nodes=(pool_node("n", "c://b/7", of="mp"),))
    assert sorted(each.node for each in group.instances) == ["", "n"]


@each_row(
    ("value", "is_group"),
    [(None, True), ("false", True), ("False", True), ("x", False), ("true", False), ("", False)],
)
def test_capi_pool_sized_by_another_scaler_is_not_a_group(
    value: str | None, is_group: bool
) -> None:
    observed = groups([pool("mp", managed_by=value)])
    assert ids(observed) == (["MachinePool/default/mp"] if is_group else [])
    assert [(gap.name, "managed by" in gap.detail) for gap in observed.gaps] == (
        [] if is_group else [("default/mp", True)]
    )
    # not intended to be a group
    assert groups([pool("mp", managed_by=value, annotations={})]).gaps == ()


@each_row(
    ("listed", "replicas", "settings", "held"),
    [
        (2, 2, {}, True),
        (2, 1, {}, True),
        (1, 1, {}, False),  # it can only become empty
        (2, 2, {"allowPoolShrink": "true"}, False),
        (2, 3, {}, False),  # one instance is missing: the size may decrease to two
        (0, 2, {}, False),
    ],
)
def test_capi_pool_without_machines_blocks_removals_before_a_node_is_drained(
    listed: int, replicas: int, settings: dict[str, str], held: bool
) -> None:
    group = only(
        pool("mp", [f"c:///{at}" for at in range(listed)], replicas=replicas), settings=settings
    )
    assert ("allowPoolShrink" in group.scale_down_held) is held
    assert bool(group.scale_down_held) is held


def test_capi_pool_can_be_named_in_the_policy_and_paused_like_any_group() -> None:
    [group] = groups(
        [pool("mp", annotations={})], policies=[GroupPolicy("clusterapi", "mp", max=4)]
    ).groups
    assert group.max == 4
    paused = pool("mp", annotations={**bounds(), "cluster.x-k8s.io/paused": ""})
    assert groups([paused, machine_set("alone")]).groups[0].id == "MachineSet/default/alone"


@VERSIONS
@pytest.mark.parametrize(
    ("replicas", "status", "since", "reported"),
    [
        (2, "False", "2026-01-01T00:00:00Z", "QuotaExceeded"),
        (1, "False", "2026-01-01T00:00:00Z", ""),  # all requested instances are listed
        (2, "True", "2026-01-01T00:00:00Z", ""),
        (2, "False", "2026-01-01T00:59:59Z", ""),  # not for long
        (2, "False", "yesterday", ""),
    ],
)
def test_capi_pool_reports_why_its_instances_are_missing(
    replicas: int, status: str, since: str, reported: str, version: str
) -> None:
    condition = {
        "type": "InfrastructureReady",
        "status": status,
        "reason": "Failed",
        "lastTransitionTime": since,
        "message": "the quota of 8 vCPUs would be exceeded",
    }
    made = pool("mp", ["c:///1"], replicas=replicas, status={"conditions": [condition]})
    shown = in_v1beta1(made) if version == "v1beta1" else made
    settings = read_settings({"clusterName": "c1", "stuckAfter": "10m"})
    world = CapiState({"MachinePool": (as_resource(shown),)}, ())
    observed = make_groups(world, [OURS], settings, (), now=parse_time("2026-01-01T01:00:00Z"))
    assert [each.id for each in observed.groups] == ["MachinePool/default/mp"]
    gaps = [gap.detail for gap in observed.gaps if "infrastructure is not ready" in gap.detail]
    assert [reported in gap and "quota of 8 vCPUs" in gap for gap in gaps] == (
        [True] if reported else []
    )
