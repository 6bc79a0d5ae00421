"""Decoding of answers, including malformed ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.providers.huaweicloud import decoding
from chalicelib.providers.huaweicloud.decoding import instant, read_pool
from chalicelib.providers.huaweicloud.models import (
    Autoscaling,
    CceCondition,
    CceNode,
    CceTaint,
    ScaleGroup,
)
from chalicelib.providers.kit.errors import Transient, Unknown
from chalicelib.providers.kit.http import VendorResponse
from infra.emulators.vendor_common.http_messages import scripted
from tests.cases import each_row
from tests.providers.huaweicloud.emulated import AZ1 as AZ
from tests.providers.huaweicloud.emulated import bent, script

Changes = dict[str, Any]
POOL = "7d48eca7-3419-11ea-bc29-0255ac1001a8"
NODE, OTHER = "cc697ad9-9563-11e8-8ea7-0255ac106311", "cc697ad9-9563-11e8-8ea7-0255ac106312"
SERVER = "5b504f8d-33f1-4ab7-a600-b62dac967d72"
JOB = "661f6f7d-956c-11e8-a916-0255ac10575d"

# -- the documented examples

NODE_POOL: dict[str, Any] = {
    "kind": "NodePool",
    "apiVersion": "v3",
    "metadata": {"name": "pool-a", "uid": POOL},
    "spec": {
        "type": "vm",
        "initialNodeCount": 5,
        "autoscaling": {
            "enable": True,
            "minNodeCount": 0,
            "maxNodeCount": 10,
            "scaleDownCooldownTime": 15,
            "priority": 10,
        },
        "nodeTemplate": {
            "flavor": "c7.xlarge.2",
            "az": AZ,
            "billingMode": 0,
            "k8sTags": {"cce.cloud.com/cce-nodepool": "pool-a"},
            "taints": [{"key": "status", "value": "x", "effect": "NoSchedule"}],
            "runtime": {"name": "containerd"},
            "extendParam": {"maxPods": 40},
        },
        "extensionScaleGroups": [
            {
                "metadata": {"uid": "g2", "name": "c7-az2"},
                "spec": {
                    "flavor": "c7.xlarge.2",
                    "az": "cn-north-4b",
                    "autoscaling": {
                        "enable": True,
                        "extensionPriority": 5,
                        "minNodeCount": 1,
                        "maxNodeCount": 6,
                    },
                },
            }
        ],
    },
    "status": {
        "currentNode": 4,
        "creatingNode": 1,
        "deletingNode": 0,
        "activeNode": 4,
        "phase": "",
        "conditions": [{"type": "Scalable", "status": "True"}],
        "scaleGroupStatuses": [
            {
                "name": "default",
                "desiredNodeCount": 3,
                "existingNodeCount": {"total": 3},
                "upcomingNodeCount": {"total": 0},
                "conditions": [],
            },
            {
                "name": "c7-az2",
                "desiredNodeCount": 2,
                "existingNodeCount": {"total": 1},
                "upcomingNodeCount": {"total": 1},
                "scaleDownDisabledNodeCount": 1,
                "conditions": [
                    {"type": "ResourceInsufficient", "status": "True", "reason": "SoldOut"}
                ],
            },
        ],
    },
}
CCE_NODE: dict[str, Any] = {
    "kind": "Node",
    "apiVersion": "v3",
    "metadata": {
        "name": "pool-a-x7k2p",
        "uid": NODE,
        "creationTimestamp": "2020-02-01 08:20:49.944664515 +0000 UTC",
        "annotations": {"kubernetes.io/node-pool.id": POOL},
        "ownerReferences": {"nodepoolName": "pool-a", "nodepoolID": POOL},
    },
    "spec": {"flavor": "c7.xlarge.2", "az": AZ, "billingMode": 0},
    "status": {"phase": "Active", "serverId": SERVER, "privateIP": "192.168.0.69", "jobID": JOB},
}
C7 = {
    "id": "c7.xlarge.2",
    "name": "c7.xlarge.2",
    "vcpus": "4",
    "ram": 8192,
    "os_extra_specs": {
        "cond:operation:status": "normal",
        "cond:operation:az": "cn-north-4a(normal), cn-north-4b(sellout)",
    },
}


def many(*items: object, **more: object) -> dict[str, object]:
    """A list in CCE's form."""
    return {"kind": "List", "apiVersion": "v3", "items": list(items), **more}


def answer(body: object, status: int = 200) -> VendorResponse:
    return VendorResponse(
        "GET cce.example.com/x",
        status,
        {},
        body if isinstance(body, bytes) else json.dumps(body).encode(),
    )


def alone(**spec: object) -> Changes:
    """A pool of one group without group statuses."""
    return {
        "metadata": {"name": "p", "uid": POOL},
        "spec": {
            "initialNodeCount": 3,
            "autoscaling": {"enable": True},
            "nodeTemplate": {"flavor": "f", "az": AZ},
        }
        | spec,
        "status": {
            "currentNode": 2,
            "creatingNode": 1,
            "conditions": [{"type": "Scalable", "status": "False"}],
        },
    }


# -- pools


def test_huawei_api_pools_are_read_in_one_list_without_the_default_pool() -> None:
    default = {"metadata": {"name": "DefaultPool", "uid": "DefaultPool"}, "spec": {}, "status": {}}
    cce = script(scripted(200, many(default, NODE_POOL)))
    found = cce.api().pools()
    assert dict(cce.server.requests[0].query()) == {"advanceStatus": "true"}
    assert [pool.id for pool in found] == [POOL]


def test_huawei_api_pool_is_read_with_its_groups() -> None:
    pool = read_pool(NODE_POOL)
    assert (pool.id, pool.name, pool.type, pool.desired, pool.template.billing, pool.error) == (
        POOL,
        "pool-a",
        "vm",
        5,
        0,
        "",
    )
    assert (pool.current, pool.creating, pool.deleting, pool.active, pool.phase) == (4, 1, 0, 4, "")
    assert pool.autoscaling == Autoscaling(True, 0, 10, 15, 10)
    assert pool.template.taints == (CceTaint("status", "x", "NoSchedule"),)
    assert (pool.template.runtime, pool.template.extend) == ("containerd", {"maxPods": 40})
    assert pool.template.k8s_tags == {"cce.cloud.com/cce-nodepool": "pool-a"}
    assert pool.conditions == (CceCondition("Scalable", "True"),)
    assert pool.groups == (
        ScaleGroup("default", "", "c7.xlarge.2", AZ, True, None, None, 0, 3, 3, 0),
        ScaleGroup(
            "c7-az2",
            "g2",
            "c7.xlarge.2",
            "cn-north-4b",
            True,
            1,
            6,
            5,
            2,
            1,
            1,
            1,
            (CceCondition("ResourceInsufficient", "True", "SoldOut"),),
        ),
    )
    assert pool.group("c7-az2") == pool.groups[1]
    assert pool.group("nobody") is None


def test_huawei_api_pool_of_one_group_needs_no_group_statuses() -> None:
    pool = read_pool(alone())
    assert pool.desired == 3
    assert pool.groups == (
        ScaleGroup("default", "", "f", AZ, True, desired=3, existing=2, upcoming=1),
    )
    assert pool.conditions[0].false
    shrinking = read_pool(bent(alone(), "spec.initialNodeCount", 0))
    assert (shrinking.desired, shrinking.groups[0].desired, shrinking.groups[0].existing) == (
        0,
        0,
        2,
    )
    empty = read_pool({"metadata": {"uid": POOL}, "spec": {}})
    assert (empty.error, empty.desired, empty.groups[0].desired) == ("", 0, 0)


def test_CCE_DANGER_1_two_contradictory_sizes_are_both_kept_for_changes() -> None:
    assert read_pool(bent(NODE_POOL, "spec.initialNodeCount", 4)).desired == 4
    assert read_pool(bent(NODE_POOL, "spec.initialNodeCount", 9)).desired == 9
    assert read_pool(bent(NODE_POOL, "spec.initialNodeCount", ...)).desired == 5


def test_huawei_api_group_without_a_status_gets_the_remaining_size_or_unknown() -> None:
    of_one = bent(
        NODE_POOL, "status.scaleGroupStatuses", NODE_POOL["status"]["scaleGroupStatuses"][:1]
    )
    assert [
        (each.desired, each.existing, each.upcoming, each.error)
        for each in read_pool(of_one).groups
    ] == [
        (3, 3, 0, ""),
        (2, 1, 1, ""),
    ]
    of_none = bent(NODE_POOL, "status.scaleGroupStatuses", None)
    assert all("not said" in each.error for each in read_pool(of_none).groups)
    nothing = bent(bent(of_none, "spec.initialNodeCount", 0), "status", {})
    assert [(each.desired, each.error) for each in read_pool(nothing).groups] == [(0, ""), (0, "")]
    silent = bent(NODE_POOL, "status.scaleGroupStatuses.1.desiredNodeCount", ...)
    assert [(each.desired, each.existing) for each in read_pool(silent).groups] == [(3, 3), (2, 1)]


def test_huawei_api_unset_fields_are_none() -> None:
    scaling: Changes = {
        "enable": True,
        "minNodeCount": -1,
        "scaleDownUnneededTime": -1,
        "scaleDownUtilizationThreshold": -1,
    }
    assert read_pool(alone(autoscaling=scaling)).autoscaling == Autoscaling(True)
    scaling = {
        "scaleDownUnneededTime": "7",
        "scaleDownUtilizationThreshold": 0.6,
        "scaleDownCooldownTime": None,
    }
    assert read_pool(alone(autoscaling=scaling)).autoscaling == Autoscaling(
        unneeded_minutes=7, utilization=0.6
    )


@each_row(
    ("path", "value", "why"),
    [
        ("spec.initialNodeCount", "many", "initialNodeCount"),
        ("spec.initialNodeCount", -1, "negative"),
        ("spec.initialNodeCount", True, "initialNodeCount"),
        ("spec.initialNodeCount", 10**12, "initialNodeCount"),
        ("spec.initialNodeCount", 2.5, "initialNodeCount"),
        ("spec", "none", "spec"),
        ("status", [1], "status"),
        ("spec.autoscaling.enable", "yes", "enable"),
        ("spec.autoscaling.maxNodeCount", {}, "maxNodeCount"),
        ("spec.autoscaling.scaleDownUtilizationThreshold", "half", "scaleDownUtilizationThreshold"),
        ("spec.nodeTemplate.taints", "x", "taints"),
        ("spec.nodeTemplate.k8sTags", {"a": 1}, "k8sTags"),
        ("spec.extensionScaleGroups", {"a": 1}, "extensionScaleGroups"),
        ("spec.extensionScaleGroups", [7], "objects"),
        ("spec.extensionScaleGroups.0.metadata.name", "", "no usable name"),
        ("spec.extensionScaleGroups.0.metadata.name", "a\nb", "no usable name"),
        ("spec.extensionScaleGroups.0.metadata.name", "default", "one name"),
        ("status.scaleGroupStatuses.1.name", "default", "one name"),
        ("status.scaleGroupStatuses.0.desiredNodeCount", -3, "negative"),
        ("status.scaleGroupStatuses.0.existingNodeCount", 3, "existingNodeCount"),
        ("status.currentNode", "x", "currentNode"),
    ],
)
def test_CCE_20_malformed_pool_stays_in_the_list_with_its_error(
    path: str, value: object, why: str
) -> None:
    bad = bent(NODE_POOL, path, value)
    good = bent(NODE_POOL, "metadata.uid", OTHER)
    first, second = decoding.pools_of(answer(many(bad, good)))
    assert (first.id, first.name, why in first.error, first.groups) == (POOL, "pool-a", True, ())
    assert (second.id, second.error, second.desired) == (OTHER, "", 5)
    with pytest.raises(Unknown, match=why):
        decoding.pool_of(answer(bad), POOL)


@each_row(
    "thing",
    [
        None,
        7,
        "pool",
        [],
        {},
        {"metadata": 1},
        {"metadata": {"uid": "../../x"}},
        {"metadata": {"uid": 5, "name": "n"}},
    ],
)
def test_CCE_20_pool_without_a_uid_is_reported(thing: object) -> None:
    found, _ = decoding.pools_of(answer(many(thing, NODE_POOL)))
    assert (found.id, found.error) == ("", "it has no uid")


def test_huawei_api_malformed_minor_fields_block_no_pool() -> None:
    pool = bent(
        bent(
            NODE_POOL, "status.conditions", [1, {"type": 3}, {"type": "Scalable", "status": True}]
        ),
        "spec.nodeTemplate.extendParam",
        "none",
    )
    found = read_pool(bent(pool, "spec.nodeTemplate.runtime", 3))
    assert (found.error, found.conditions, found.template.extend, found.template.runtime) == (
        "",
        (CceCondition("Scalable"),),
        {},
        "",
    )
    assert not found.conditions[0].true
    assert not found.conditions[0].false


# -- nodes


def test_huawei_api_node_is_read() -> None:
    (node,), marker = decoding.nodes_of(answer(many(CCE_NODE)))
    assert marker == ""
    assert node == CceNode(
        NODE,
        "pool-a-x7k2p",
        POOL,
        "pool-a",
        "c7.xlarge.2",
        AZ,
        "Active",
        SERVER,
        "192.168.0.69",
        0,
        {"kubernetes.io/node-pool.id": POOL},
        node.created,
    )
    assert node.created == pytest.approx(1580545249.944664)


@each_row(
    ("owner", "annotation", "pool"),
    [
        ({"nodepoolID": OTHER}, POOL, OTHER),
        ({"nodepoolID": OTHER.upper()}, "", OTHER),
        (None, POOL, POOL),
        ({}, POOL, POOL),
        ([{"nodepoolID": OTHER}], POOL, OTHER),
        ({"nodepoolID": "DefaultPool"}, POOL, ""),
        (None, "cn-north-4a#c7.xlarge.2#EulerOS 2.9", ""),
        (None, "", ""),
        ("x", "", ""),
        ({"nodepoolID": 7}, POOL, POOL),
    ],
)
def test_CCE_20_node_belongs_to_its_owner_or_its_annotation_or_no_pool(
    owner: object, annotation: str, pool: str
) -> None:
    node = bent(
        bent(CCE_NODE, "metadata.ownerReferences", owner),
        "metadata.annotations",
        {"kubernetes.io/node-pool.id": annotation},
    )
    assert decoding.node_of(answer(node), NODE).pool == pool


def test_CCE_20_nodes_are_paged_by_marker() -> None:
    third = bent(CCE_NODE, "metadata.uid", JOB)
    cce = script(
        scripted(200, many(CCE_NODE, pageInfo={"currentCount": 1, "nextMarker": "a b/c~"})),
        scripted(
            200, many(bent(CCE_NODE, "metadata.uid", OTHER), CCE_NODE, pageInfo={"nextMarker": "2"})
        ),
        scripted(200, many(third, pageInfo={"currentCount": 1})),
    )
    found = cce.api().nodes()
    assert [node.id for node in found] == [NODE, OTHER, JOB]
    assert [dict(request.query()) for request in cce.server.requests] == [
        {"limit": "1000"},
        {"limit": "1000", "marker": "a b/c~"},
        {"limit": "1000", "marker": "2"},
    ]


def test_CCE_20_region_without_paging_answers_everything_at_once() -> None:
    cce = script(scripted(200, many(CCE_NODE)))
    assert len(cce.api().nodes()) == 1
    assert len(cce.server.requests) == 1


def test_CCE_20_node_list_with_a_repeated_marker_is_an_error() -> None:
    cce = script(*[scripted(200, many(CCE_NODE, pageInfo={"nextMarker": "1"}))] * 9)
    with pytest.raises(Unknown, match="marker"):
        cce.api().nodes()
    assert len(cce.server.requests) == 2


def test_CCE_20_failed_page_fails_the_whole_list() -> None:
    first = scripted(200, many(CCE_NODE, pageInfo={"nextMarker": "1"}))
    with pytest.raises(Transient):
        script(first, *[scripted(502, b"<html>")] * 3).api().nodes()


@each_row(
    "body",
    [
        {},
        [],
        {"kind": "Node"},
        {"items": {}},
        many(7),
        many({}),
        many({"metadata": {}}),
        many({"metadata": {"uid": "i/../x"}}),
        many(CCE_NODE, pageInfo=[1]),
        many(CCE_NODE, pageInfo={"nextMarker": 3}),
        {"errorCode": "x"},
    ],
)
def test_CCE_20_answer_that_is_not_a_node_list_does_not_mean_nodes_are_gone(body: object) -> None:
    with pytest.raises(Unknown):
        decoding.nodes_of(answer(body))


def test_huawei_api_empty_list_may_omit_its_items() -> None:
    for body in ({"kind": "List"}, {"kind": "NodePoolList", "items": None}, many()):
        assert decoding.nodes_of(answer(body)) == ((), "")
        assert decoding.pools_of(answer(body)) == ()


@each_row(
    ("text", "wanted"),
    [
        ("2020-02-01 08:20:49.944664515 +0000 UTC", 1580545249.944664515),
        ("2020-02-01 08:20:49 +0000 UTC", 1580545249.0),
        ("2020-02-01T08:20:49Z", 1580545249.0),
        ("2020-02-01 08:20:49.5 +0000", 1580545249.5),
        ("2020-13-41 08:20:49 +0000 UTC", 0.0),
        ("yesterday", 0.0),
        ("", 0.0),
        (None, 0.0),
        (7, 0.0),
    ],
)
def test_huawei_api_times_in_the_vendors_format(text: object, wanted: float) -> None:
    assert instant(text) == pytest.approx(wanted)
