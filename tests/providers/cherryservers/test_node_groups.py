"""Observation of pools, which exist only as tags of servers."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from chalicelib.model.group import Instance, InstanceState, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Succeeded
from chalicelib.providers.kit.base import Observation
from chalicelib.providers.kit.errors import (
    InvalidRequest,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
)
from infra.emulators.vendor_common.http_messages import Answer, scripted
from tests.cases import each_row
from tests.providers.cherryservers.emulated import (
    CLUSTER,
    CONFIG,
    POOL,
    EmulatedCloud,
    drive,
    node,
    operation,
    refusal,
    remove,
)

CREATING, RUNNING, DELETING = InstanceState.CREATING, InstanceState.RUNNING, InstanceState.DELETING
MASTER = "node-role.kubernetes.io/master"


def seen(cloud: EmulatedCloud, *nodes: Node) -> Observation:
    return cloud.build().observe(nodes)


def pool(cloud: EmulatedCloud, *nodes: Node) -> NodeGroup:
    return {each.id: each for each in seen(cloud, *nodes).groups}[POOL]


def by_handle(group: NodeGroup) -> dict[str, Instance]:
    return {each.handle: each for each in group.instances}


def test_cherry_quiet_pass_costs_one_list_and_one_plan() -> None:
    cloud = EmulatedCloud()
    cloud.add(3)
    cloud.add(2, "pool2")
    observation = seen(cloud)
    assert cloud.requests == ["servers", "plan e5_1620v4"]
    assert [(each.id, each.target, each.min, each.max) for each in observation.groups] == [
        ("pool3", 3, 0, 10),
        ("pool2", 2, 0, 10),
    ]
    assert observation.gaps == ()


@each_row(
    "tags",
    [
        {f"k8s-cluster-{CLUSTER}": "", f"k8s-nodepool-{POOL}": ""},
        {"cluster": f"k8s-cluster-{CLUSTER}", "pool": f"k8s-nodepool-{POOL}"},
    ],
)
def test_cherry_server_with_the_guides_tags_is_reported_and_not_counted(
    tags: dict[str, str],
) -> None:
    cloud = EmulatedCloud()
    (number,) = cloud.add()
    cloud.change(number, tags=tags)
    observation = seen(cloud)
    assert [each.target for each in observation.groups] == [0, 0]
    (gap,) = observation.gaps
    assert (gap.name, gap.place) == (POOL, f"spec.nodeGroups[provider=cherryservers, id={POOL}]")
    assert f"server {number} " in gap.detail
    assert f"give it the tags k8s-cluster: {CLUSTER} and k8s-nodepool: {POOL}" in gap.detail


@each_row(
    "tags",
    [
        {f"k8s-cluster-{CLUSTER}": ""},
        {"k8s-cluster-other": "", f"k8s-nodepool-{POOL}": ""},
        {
            f"k8s-cluster-{CLUSTER}": "",
            f"k8s-nodepool-{POOL}": "",
            "k8s-cluster": CLUSTER,
            "k8s-nodepool": POOL,
        },
    ],
)
def test_cherry_server_with_one_such_tag_or_with_both_forms_is_not_reported(
    tags: dict[str, str],
) -> None:
    cloud = EmulatedCloud()
    (number,) = cloud.add()
    cloud.change(number, tags=tags)
    assert seen(cloud).gaps == ()


def test_cherry_node_that_joined_without_the_label_pool_is_reported() -> None:
    cloud = EmulatedCloud()
    first, second = cloud.add(2)
    nodes = [
        msgspec.structs.replace(node(cloud.all[first].hostname, ""), labels={"pool": POOL}),
        msgspec.structs.replace(node(cloud.all[second].hostname, ""), labels={}),
    ]
    (gap,) = seen(cloud, *nodes).gaps
    assert gap.detail.startswith(f"node {nodes[1].name} has joined without the label pool")
    assert seen(cloud, nodes[0]).gaps == ()


def test_cherry_size_is_counted_again_in_every_pass() -> None:
    cloud = EmulatedCloud()
    first, _ = cloud.add(2)
    assert pool(cloud).target == 2
    cloud.cloud.vanish(first)
    assert pool(cloud).target == 1
    cloud.add(3)
    assert pool(cloud).target == 4


def test_cherry_failed_deployment_is_reported_at_once() -> None:
    cloud = EmulatedCloud()
    (failed,) = cloud.add(1, state="active", status="failed deployment")
    group = pool(cloud)
    instance = by_handle(group)[str(failed)]
    assert group.target == 1
    assert instance.state is CREATING
    assert instance.error is not None
    assert (instance.error.cls, instance.error.code) == ("Unknown", "failed deployment")


@each_row(
    ("state", "status", "expected"),
    [
        ("pending", "", CREATING),
        ("provisioning", "deploying", CREATING),
        ("active", "deploying", CREATING),
        ("active", "deployed", RUNNING),
        ("active", "allocated", RUNNING),
        ("active", "", RUNNING),
        ("inactive", "deployed", RUNNING),
        ("active", "rescue mode", RUNNING),
        ("terminating", "", DELETING),
        ("terminating", "failed deployment", DELETING),
        ("Active", "Deployed", RUNNING),
    ],
)
def test_cherry_documented_server_states(state: str, status: str, expected: InstanceState) -> None:
    cloud = EmulatedCloud()
    cloud.add(1, state=state, status=status)
    observation = seen(cloud)
    assert [each.state for each in observation.groups[0].instances] == [expected]
    assert observation.gaps == ()


def test_cherry_unknown_server_state_counts_as_running_and_is_reported_once() -> None:
    cloud = EmulatedCloud()
    cloud.add(3, state="dancing")
    cloud.add(1, "pool2", state="dancing")
    cloud.add(1, state="active", status="on fire")
    observation = seen(cloud)
    assert {each.state for group in observation.groups for each in group.instances} == {RUNNING}
    assert [gap.name for gap in observation.gaps] == [POOL, POOL]
    assert "'dancing'" in observation.gaps[0].detail
    assert "'on fire'" in observation.gaps[1].detail


def test_cherry_server_with_a_node_is_running_whatever_its_deployment_state() -> None:
    cloud = EmulatedCloud()
    (number,) = cloud.add(1, state="active", status="failed deployment")
    instance = pool(cloud, node("any", f"cherryservers://{number}")).instances[0]
    assert (instance.state, instance.error, instance.node) == (RUNNING, None, "any")


def test_cherry_nodes_and_servers_are_matched() -> None:
    cloud = EmulatedCloud()
    full, bare, other, empty = cloud.add(4)
    names = {number: cloud.all[number].hostname for number in (full, bare, other, empty)}
    nodes = [
        node("elsewhere-named", f"cherryservers://{full}"),
        node(names[bare], str(bare)),
        node(names[other], "aws://1"),
        node(names[empty].upper(), ""),
    ]
    found = by_handle(pool(cloud, *nodes))
    assert (found[str(full)].id, found[str(full)].node) == (
        f"cherryservers://{full}",
        "elsewhere-named",
    )
    assert (found[str(bare)].id, found[str(bare)].node) == (str(bare), names[bare])
    assert (found[str(other)].id, found[str(other)].node) == (f"cherryservers://{other}", "")
    assert (found[str(empty)].id, found[str(empty)].node) == (
        f"cherryservers://{empty}",
        names[empty].upper(),
    )


@each_row(
    "rubbish",
    [
        "cherryservers://",
        "cherryservers://x",
        "cherryservers://-1",
        "-1",
        "0",
        "1e3",
        "cherryservers:///1000",
        "cherryservers://1000/x",
        "9" * 40,
        "\u0661\u0660",
    ],
)
def test_cherry_invalid_provider_id_matches_no_server(rubbish: str) -> None:
    cloud = EmulatedCloud()
    cloud.add(1)
    instance = pool(cloud, node(cloud.all[1000].hostname, rubbish)).instances[0]
    assert (instance.id, instance.node) == ("cherryservers://1000", "")


def test_cherry_hostname_of_two_servers_matches_none() -> None:
    cloud = EmulatedCloud()
    one, two = cloud.add(2)
    cloud.change(one, hostname="twin")
    cloud.change(two, hostname="twin")
    assert [each.node for each in pool(cloud, node("twin", "")).instances] == ["", ""]
    cloud.change(one, state="terminating")
    assert by_handle(pool(cloud, node("twin", "")))[str(two)].node == "twin"


def test_cherry_unjoined_server_is_reported_with_its_future_node_name() -> None:
    cloud = EmulatedCloud()
    (number,) = cloud.add(1, state="pending")
    assert pool(cloud).instances[0].node == cloud.all[number].hostname


def test_cherry_pool_member_needs_both_tags_and_no_label() -> None:
    cloud = EmulatedCloud()
    (mine,) = cloud.add(1)
    (foreign,) = cloud.add(1)
    cloud.change(foreign, tags={"k8s-cluster": "theirs", "k8s-nodepool": POOL})
    (half,) = cloud.add(1)
    cloud.change(half, tags={"k8s-nodepool": POOL})
    (none,) = cloud.add(1)
    cloud.change(none, tags={})
    nodes = [
        node(f"n{number}", f"cherryservers://{number}", pool=POOL)
        for number in (mine, foreign, half, none)
    ]
    group = pool(cloud, *nodes)
    assert (group.target, [each.handle for each in group.instances]) == (1, [str(mine)])


@each_row("tags", ["text", {"k8s-cluster": CLUSTER, "k8s-nodepool": ["a"]}])
def test_cherry_server_with_unreadable_tags_makes_the_size_of_its_pool_unknown(tags: Any) -> None:
    cloud = EmulatedCloud()
    cloud.add(1)
    cloud.add(1, tags=tags)
    assert pool(cloud).error
    assert cloud.requests.count("servers") == 1


@each_row("label", [MASTER, "node-role.kubernetes.io/control-plane"])
def test_cherry_control_plane_with_the_tags_is_not_a_pool_member(label: str) -> None:
    cloud = EmulatedCloud()
    worker, master = cloud.add(2)
    nodes = (
        node("w", f"cherryservers://{worker}"),
        node("m", f"cherryservers://{master}", **{label: ""}),
    )
    observation = seen(cloud, *nodes)
    assert [each.handle for each in observation.groups[0].instances] == [str(worker)]
    assert observation.groups[0].target == 1
    assert "control plane" in observation.gaps[0].detail


def test_cherry_server_deleted_by_us_is_not_counted_though_listed_as_active() -> None:
    cloud = EmulatedCloud(delete_lag=90_000.0)
    numbers = cloud.add(3)
    assert isinstance(drive(cloud, remove(3, numbers[0])), Succeeded)
    group = pool(cloud)
    assert group.target == 2
    assert by_handle(group)[str(numbers[0])].state is DELETING
    cloud.settle(3601.0)
    assert pool(cloud).target == 3  # a server that still exists after an hour was not deleted


def test_cherry_clock_that_went_back_hides_no_server_forever() -> None:
    cloud = EmulatedCloud(delete_lag=90_000.0)
    first, _ = cloud.add(2)
    drive(cloud, remove(2, first))
    cloud.clock._now -= 86400.0
    assert pool(cloud).target == 2


def test_cherry_unreadable_plans_leave_the_sizes_known() -> None:
    cloud = EmulatedCloud()
    cloud.add(2)
    cloud.server.reply("GET /v1/plans", refusal(429, "slowly", Retry_After="9"))
    config = f'{CONFIG}[nodegroupdef "pool2"]\nplan=other\n'
    one, two = cloud.build(config=config).observe([]).groups
    assert (one.target, one.template) == (2, None)
    assert "slowly" in one.template_error
    assert "slowly" in two.template_error
    assert cloud.requests == ["servers", "plan e5_1620v4"]


@each_row(
    ("error", "text"),
    [
        ([refusal(403, "not yours")], "not yours"),
        ([scripted(200, {})], "is not a plan"),
        ([refusal(500, "broken")] * 3, "broken"),
    ],
)
def test_cherry_permanently_unreadable_plan_blocks_no_other_pool(
    error: list[Answer], text: str
) -> None:
    cloud = EmulatedCloud()
    cloud.cloud.plans["other"] = msgspec.structs.replace(
        cloud.cloud.plans["e5_1620v4"], slug="other"
    )
    cloud.server.reply("GET /v1/plans", *error)
    config = f'{CONFIG}[nodegroupdef "pool2"]\nplan=other\n'
    one, two = cloud.build(config=config).observe([]).groups
    assert (one.template, two.template_error) == (None, "")
    assert text in one.template_error
    assert two.template is not None


def test_cherry_plan_price_is_the_price_of_the_group() -> None:
    assert pool(EmulatedCloud()).price == 0.1726


@each_row(
    ("script", "reported"),
    [
        (b"kubeadm join {{.APIServerEndpoint}}", True),
        (b"echo --node-labels=pool={{.NodeGroup}} > /etc/default/kubelet; kubeadm join", False),
        (b"", False),
    ],
)
def test_cherry_script_that_does_not_label_its_machines_is_reported(
    script: bytes, reported: bool
) -> None:
    text = base64.b64encode(script).decode()
    config = f"{CONFIG}api-server-endpoint=203.0.113.10:6443\n" + (
        f"cloudinit={text}\n" if script else ""
    )
    observed = EmulatedCloud().build(config=config).observe([])
    assert [gap.name for gap in observed.gaps if "--node-labels=pool=" in gap.detail] == [
        POOL
    ] * reported
    assert all(group.template is not None for group in observed.groups)


def test_cherry_invalid_pool_has_its_error_and_blocks_no_other() -> None:
    cloud = EmulatedCloud()
    cloud.add(1, "pool2")
    config = f'{CONFIG}[nodegroupdef "{POOL}"]\ncloudinit=%%%\n'
    one, two = cloud.build(config=config).observe([]).groups
    assert "base64" in one.error
    assert (two.error, two.target) == ("", 1)


@each_row(("status", "cls"), [(401, Unauthorized), (500, Transient), (429, Throttled)])
def test_cherry_unreadable_server_list_is_raised(status: int, cls: type[ProviderError]) -> None:
    cloud = EmulatedCloud()
    cloud.fail("GET /v1/projects", status)
    with pytest.raises(cls):
        cloud.build().observe([])


def test_cherry_definition_errors_of_all_pools_are_raised() -> None:
    with pytest.raises(InvalidRequest, match="api-server"):
        EmulatedCloud().build(config=f"{CONFIG}api-server=x\n").observe([])


def test_cherry_observation_writes_nothing() -> None:
    cloud = EmulatedCloud()
    cloud.add(2)
    seen(cloud)
    assert cloud.changes() == []


@each_row("kind", list(OperationKind))
def test_cherry_pool_outside_the_policy_is_never_changed(kind: OperationKind) -> None:
    cloud = EmulatedCloud()
    (number,) = cloud.add(1, "stranger")
    asked = operation(
        kind,
        "stranger",
        1,
        2 if kind is OperationKind.SCALE_UP else 0,
        remove(1, number).spec.targets
        if kind in (OperationKind.DELETE_NODES, OperationKind.DELETE_INSTANCES)
        else (),
    )
    outcome = cloud.build().poll(asked)
    assert getattr(outcome, "error_class", "") == "InvalidRequest"
    assert cloud.changes() == []
