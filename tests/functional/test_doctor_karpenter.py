"""`outscaler doctor` finds a Karpenter by its signs, and refuses one that buys for the
pods of the policy's groups.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec

from chalicelib.cli.doctor.finding import Finding
from chalicelib.cli.doctor.other_autoscalers import check_activity
from chalicelib.cluster.client import KubeClient
from chalicelib.model.group import Pool
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.providers.kit.errors import Transient
from infra.emulators.kube.auth import RbacRule
from tests.cases import each_row
from tests.functional.doctor_cases import ACTIVE, SHADOW, cluster, context, grouped, rules_of, told
from tests.functional.saved_cluster import node, pod
from tests.functional.test_doctor_autoscalers import deployment, lease

Json = dict[str, Any]
LEASE = lease("karpenter-leader-election")
ARM = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
GPU = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
IMAGES = (
    "registry.test/exoscale/karpenter-exoscale:1.0.0",
    "registry-cn.test/acs/karpenter-provider-alibabacloud:v0.2.4",
    "cloudpilotai/karpenter-provider-alibabacloud@sha256:00",
    "swr.test/cce/karpenter/controller:v0.3.1",
    "gcr.test:5000/karpenter-cluster-api/controller:v0.2.0",
    "public.ecr.test/karpenter/controller:1.8.0@sha256:00",
    "registry.test/karpenter:v1",
    "karpenter:v1",
)


def node_pool(
    name: str = "default",
    *requirements: Json,
    taints: Sequence[Json] = (),
    limits: Json | None = None,
    used: Json | None = None,
    **spec: Any,
) -> Json:
    """A NodePool of Karpenter. used: what its nodes have, for its limits."""
    template = {
        "metadata": {"labels": {}},
        "spec": {"requirements": list(requirements), "taints": list(taints)},
    }
    limited = {} if limits is None else {"limits": limits}
    return {
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template, **limited, **spec},
        "status": {"resources": used or {}},
    }


def within(namespace: str, thing: Json) -> Json:
    moved = copy.deepcopy(thing)
    moved["metadata"]["namespace"] = namespace
    return moved


def karpenter(image: str) -> Json:
    made = within("own", deployment(image=image))
    made["spec"]["template"]["spec"]["containers"] = [{"name": "controller", "image": image}]
    return made


def findings(
    *objects: Json, policy: Policy = ACTIVE, rules: Sequence[RbacRule] | None = None, **group: Any
) -> list[Finding]:
    """What is found in a cluster with one pending pod, and one group of one
    node that could grow for it."""
    here = [node("a", "g", **{"kubernetes.io/arch": "amd64"}), pod("web-1", "1"), *objects]
    with cluster(here, rules=rules) as (_, kube):
        return list(check_activity(context(kube, policy, snapshot=_grouped(kube, policy, **group))))


def _grouped(kube: KubeClient, policy: Policy, **group: Any) -> Snapshot:
    return grouped(context(kube, policy).required_snapshot, **group)


def marks(results: Sequence[Finding]) -> list[str]:
    return [f"{result.id} {result.severity}" for result in results]


@each_row("namespace", ["kube-system", "karpenter", "karpenter-provider-huawei-system", "own"])
def test_the_lease_of_karpenter_counts_in_any_namespace(namespace: str) -> None:
    assert marks(findings(within(namespace, LEASE))) == ["DR07 error"]
    assert marks(findings(within(namespace, LEASE), policy=SHADOW)) == ["DR07 info"]


def test_a_lease_of_karpenter_that_nobody_renews_is_no_sign() -> None:
    assert findings(lease("karpenter-leader-election", age=90)) == []


@each_row("image", IMAGES)
def test_an_image_with_karpenter_in_its_path_is_one(image: str) -> None:
    assert marks(findings(karpenter(image))) == ["DR07 error"]


@each_row(
    "image", ["karpenter.test/web:1", "registry.test/web:karpenter", "karpenter.test:5000/web"]
)
def test_karpenter_in_a_registry_or_a_tag_is_none(image: str) -> None:
    assert findings(karpenter(image)) == []


def test_a_cluster_autoscaler_of_other_groups_does_not_hide_karpenter() -> None:
    other = deployment("--cloud-provider=exoscale", "--nodes=1:3:batch")
    results = findings(lease(), other, karpenter(IMAGES[0]))
    assert marks(results) == ["DR07 info", "DR07 error"]
    assert results[1].fix == "kubectl -n own scale deploy cluster-autoscaler --replicas=0"


def test_a_node_pool_that_admits_pods_of_a_group_is_an_error() -> None:
    [result] = findings(LEASE, node_pool())
    assert (result.id, result.severity) == ("DR07", "error")
    assert "NodePool default and group web for shop/web-1" in result.message
    # before its first node, and without its lease
    assert marks(findings(node_pool())) == ["DR07 error"]
    assert marks(findings(node_pool(), policy=SHADOW)) == ["DR07 info"]


@each_row(
    "pool",
    [
        node_pool("arm", {"key": "team", "operator": "DoesNotExist"}, taints=[GPU]),
        node_pool(limits={"cpu": "8"}, used={"cpu": "8"}),
        node_pool(limits={"cpu": "8", "memory": "32Gi"}, used={"cpu": "2", "memory": "32Gi"}),
        node_pool(limits={"nodes": "0"}),
        node_pool(replicas=3),
    ],
)
def test_a_node_pool_that_buys_for_none_of_these_pods_is_a_warning(pool: Json) -> None:
    results = findings(LEASE, pool)
    assert marks(results) == ["DR09 warn"]
    assert "Lease kube-system/karpenter-leader-election" in str(results[0].evidence)


def test_one_node_pool_with_room_among_full_ones_is_an_error() -> None:
    full = node_pool("full", limits={"cpu": "8"}, used={"cpu": "9"})
    [result] = findings(full, node_pool("rest", limits={"cpu": "8"}, used={"cpu": "7500m"}))
    assert result.evidence["shared"] == ["rest"]


@each_row(
    "group",
    [
        {"max": 1},
        {"error": "it could not be read"},
        {"pool": Pool("p", max=1)},
    ],
)
def test_a_group_without_room_shares_no_pod_with_karpenter(group: Json) -> None:
    assert marks(findings(node_pool(), **group)) == ["DR09 warn"]


def test_pods_that_no_group_admits_are_not_shared_with_karpenter() -> None:
    arm = pod("web-1", "1", nodeSelector={"kubernetes.io/arch": "arm64"})
    with cluster([node("a", "g"), arm, pod("big", "64"), node_pool("arm", ARM)]) as (_, kube):
        given = context(kube, ACTIVE)
        assert told(
            check_activity, context(kube, ACTIVE, snapshot=grouped(given.required_snapshot))
        ) == ["DR09 warn"]


def test_pods_of_daemonsets_are_not_shared_with_karpenter() -> None:
    agent = pod("agent-1", "100m", on="a", owner="DaemonSet/agent")
    with cluster([node("a", "g"), agent, node_pool()]) as (_, kube):
        given = context(kube, ACTIVE)
        assert told(
            check_activity, context(kube, ACTIVE, snapshot=grouped(given.required_snapshot))
        ) == ["DR09 warn"]


def test_a_running_pod_counts_as_a_waiting_one() -> None:
    with cluster([node("a", "g"), pod("web-1", "1", on="a"), node_pool()]) as (_, kube):
        given = context(kube, ACTIVE)
        assert told(
            check_activity, context(kube, ACTIVE, snapshot=grouped(given.required_snapshot))
        ) == ["DR07 error"]


def test_a_malformed_node_pool_is_named_and_judged_as_unknown() -> None:
    bad = node_pool("bad", {"key": "x", "operator": "Near", "values": ["1"]})
    worse = {"kind": "NodePool", "metadata": {"name": "worse"}, "spec": {"template": [1]}}
    results = findings(bad, worse, node_pool("other", taints=[GPU]))
    assert marks(results) == ["DR09 warn", "DR07 unknown"]
    assert "bad (x: the operator 'Near' is not known)" in results[1].message
    assert "worse" in results[1].message


def test_a_lease_with_malformed_node_pools_alone_stays_an_error() -> None:
    worse = {"kind": "NodePool", "metadata": {"name": "worse"}, "spec": "none"}
    assert marks(findings(LEASE, worse)) == ["DR07 error", "DR07 unknown"]


def test_node_pools_beyond_the_limit_are_not_judged() -> None:
    pools = [node_pool(f"pool-{number}", taints=[GPU]) for number in range(120)]
    results = findings(*pools)
    assert marks(results) == ["DR09 warn", "DR07 unknown"]
    assert "more than 100" in results[1].message


def test_what_the_functions_may_not_list_is_unknown() -> None:
    results = findings(LEASE, node_pool(), rules=rules_of("rbac-workload.yaml"))
    assert {result.severity for result in results} == {"unknown"}
    text = " ".join(result.message for result in results)
    assert "NodePools of Karpenter may not be read" in text
    assert "leases of all namespaces may not be listed" in text


class Addons:
    """A provider that knows the add-ons of its managed cluster. name: see AddonReader."""

    name = "exoscale"

    def __init__(self, *names: str) -> None:
        self.names = names

    def addons(self, _groups: object) -> frozenset[str]:
        if not self.names:
            raise Transient("no answer")
        return frozenset(self.names)


@each_row(
    "names, objects, expected",
    [
        (("karpenter",), (), ["DR07 error"]),
        (("karpenter", "ccm"), (node_pool(taints=[GPU]),), ["DR09 warn"]),
        (("karpenter",), (node_pool(),), ["DR07 error"]),
        (("ccm",), (), []),
        ((), (), ["DR07 unknown"]),
    ],
)
def test_the_add_on_of_a_managed_cluster_is_a_sign(
    names: Sequence[str], objects: Sequence[Json], expected: list[str]
) -> None:
    with cluster([node("a", "g"), pod("web-1", "1"), *objects]) as (_, kube):
        snapshot = grouped(context(kube, ACTIVE).required_snapshot)
        providers = (("exoscale", Addons(*names)),)
        assert (
            told(check_activity, context(kube, ACTIVE, snapshot=snapshot, providers=providers))
            == expected
        )


def test_instant_scaling_of_ack_is_said_to_be_unchecked() -> None:
    policy = msgspec.structs.replace(ACTIVE, providers={"alicloud": {"region": "cn-hangzhou"}})
    [result] = findings(policy=policy)
    assert (result.id, result.severity) == ("DR07", "unknown")
    assert "instant scaling of ACK: not checked" in result.message
    assert result.fix.endswith("docs/providers/alicloud.md#limits")
