"""`outscaler doctor` finds what stands in the way in a cluster: kubeconfig, templates,
budgets, pods and nodes.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
import yaml

from chalicelib.cli.doctor.cluster_state import (
    check_apis,
    check_expander,
    check_machines,
    check_provider_ids,
    check_removals,
    check_simulation,
    check_spot,
    check_startup_taints,
    check_zones,
)
from chalicelib.cli.doctor.drains import check_budgets, check_drains, check_overlaps
from chalicelib.cli.doctor.kubeconfig_checks import (
    check_address,
    check_clocks,
    check_ends,
    check_login,
)
from chalicelib.cli.doctor.node_templates import check_architectures, check_templates
from chalicelib.cluster.client import KubeClient
from chalicelib.model.group import Instance, InstanceError
from chalicelib.model.memory import Memory
from chalicelib.model.node import LEAVING_MARKS, Node
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.timestamps import format_time
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.spot import Spot
from infra.emulators.kube.faults import KubeFault
from tests.cases import each_row
from tests.functional.doctor_cases import (
    ACTIVE,
    NOW,
    SHADOW,
    cluster,
    context,
    grouped,
    told,
    with_options,
)
from tests.functional.saved_cluster import node, pod, workload

DAY = 86400.0
GIB = 2**30


def kubeconfig(**user: Any) -> str:
    return yaml.safe_dump(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://prod.example.com"}}],
            "users": [{"name": "u", "user": user}],
        }
    )


def jwt(**claims: Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


def test_DOC_14_a_private_address_is_an_error() -> None:
    with cluster() as (_, kube):
        [finding] = check_address(context(kube))
    assert (finding.id, finding.severity) == ("DR01", "error")


@each_row(
    "user, expected",
    [
        ({"token": "t"}, []),
        ({"exec": {"command": "aws"}}, ["DR02 error"]),
        ({"auth-provider": {"name": "oidc"}}, ["DR02 error"]),
        ({"tokenFile": "/var/token"}, ["DR02 error"]),
    ],
)
def test_logins_that_functions_cannot_use_are_errors(
    user: dict[str, Any], expected: list[str]
) -> None:
    with cluster() as (_, kube):
        assert told(check_login, context(kube, kubeconfig_text=kubeconfig(**user))) == expected


@each_row(
    "token, expected",
    [
        (jwt(sub="x"), []),
        (jwt(exp=NOW - DAY), ["DR03 error"]),
        (jwt(exp=NOW + DAY / 2), ["DR03 error"]),
        (jwt(exp=NOW + 3 * DAY), ["DR03 warn"]),
        (jwt(exp=NOW + 300 * DAY), []),
        ("opaque", ["DR03 info"]),
        (jwt(**{"kubernetes.io": {"pod": {"name": "p"}}}), ["DR03 error"]),
        ("a.b.c", ["DR03 info"]),
    ],
)
def test_DOC_13_the_end_of_a_token_is_told(token: str, expected: list[str]) -> None:
    with cluster() as (_, kube):
        given = context(kube, kubeconfig_text=kubeconfig(token=token))
        assert told(check_ends, given) == expected
        assert all(token not in each.message for each in check_ends(given))


@each_row(
    "difference, expected",
    [
        (10, []),
        (90, ["DR06 warn"]),
        (400, ["DR06 error"]),
        (-400, ["DR06 error"]),
        (None, ["DR06 unknown"]),
    ],
)
def test_DOC_15_clocks_are_compared(difference: float | None, expected: list[str]) -> None:
    from email.utils import formatdate

    class Shifted(KubeClient):
        def server_time(self) -> float | None:
            return None if difference is None else NOW + difference

    assert formatdate(NOW)
    with cluster() as (_, kube):
        kube.__class__ = Shifted
        assert told(check_clocks, context(kube)) == expected


def test_the_clock_of_a_server_is_read_from_its_answer() -> None:
    with cluster() as (_, kube):
        assert kube.server_time() is not None


def template(**allocatable: int) -> Node:
    offered = {"cpu": 2000, "memory": 8 * GIB, "pods": 110} | allocatable
    return Node(
        name="template",
        labels={"kubernetes.io/arch": "amd64"},
        allocatable=offered,
        capacity=offered,
    )


def templated(snapshot: Snapshot, made: Node | None, **fields: Any) -> Snapshot:
    return grouped(snapshot, template=made, **fields)


@each_row(
    "cpu, expected",
    [(2430, ["DR15 error"]), (2000, []), (2030, []), (1900, ["DR15 info"])],
)
def test_DOC_17_templates_are_compared_with_real_nodes(cpu: int, expected: list[str]) -> None:
    with cluster([node("a", "g")]) as (_, kube):
        given = context(kube)
        snapshot = templated(given.required_snapshot, template(cpu=cpu))
        assert told(check_templates, context(kube, snapshot=snapshot)) == expected


@pytest.mark.parametrize("used", [True, False])
def test_DOC_18_a_label_that_the_template_lacks_counts_if_pods_select_by_it(used: bool) -> None:
    selector: dict[str, Any] = {"nodeSelector": {"disk": "ssd"}} if used else {}
    objects = [node("a", "g", disk="ssd"), pod("web-1", "1", labels={"app": "web"}, **selector)]
    with cluster(objects) as (_, kube):
        snapshot = templated(context(kube).required_snapshot, template())
        assert told(check_templates, context(kube, snapshot=snapshot)) == (
            ["DR15 warn"] if used else []
        )


def test_a_group_without_node_and_template_can_never_grow() -> None:
    with cluster() as (_, kube):
        empty = grouped(context(kube).required_snapshot, target=0, instances=())
        assert told(check_templates, context(kube, snapshot=empty)) == ["DR16 error"]


def template_of(daemonset: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = daemonset["spec"].setdefault("template", {}).setdefault("spec", {})
    return spec


@pytest.mark.parametrize("selects", [True, False])
def test_DOC_23_daemonsets_of_another_architecture_are_told(selects: bool) -> None:
    daemonset = workload("DaemonSet", "cni", namespace="kube-system")
    if selects:
        template_of(daemonset)["nodeSelector"] = {"kubernetes.io/arch": "amd64"}
    arm = msgspec.structs.replace(template(), labels={"kubernetes.io/arch": "arm64"})
    with cluster([node("a", "g", **{"kubernetes.io/arch": "amd64"}), daemonset]) as (_, kube):
        snapshot = grouped(
            context(kube).required_snapshot, "arm", target=0, instances=(), template=arm
        )
        assert told(check_architectures, context(kube, snapshot=snapshot)) == (
            ["DR17 warn"] if selects else []
        )


def budget(
    name: str, labels: dict[str, str], expected: int = 3, healthy: int = 3, **spec: Any
) -> dict[str, Any]:
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": {"matchLabels": labels}, **spec},
        "status": {
            "expectedPods": expected,
            "currentHealthy": healthy,
            "desiredHealthy": 2,
            "disruptionsAllowed": max(0, healthy - 2),
        },
    }


@each_row(
    "spec, expected",
    [
        ({"minAvailable": "100%"}, ["DR18 warn"]),
        ({"minAvailable": 3}, ["DR18 warn"]),
        ({"maxUnavailable": 0}, ["DR18 warn"]),
        ({"maxUnavailable": 1, "expected": 1, "healthy": 1}, ["DR18 info"]),
        ({"minAvailable": 1, "expected": 1, "healthy": 1}, ["DR18 warn"]),
        ({"minAvailable": 2}, []),
        ({"minAvailable": 2, "healthy": 2}, ["DR18 info"]),
        ({"minAvailable": 2, "healthy": 0}, ["DR20 warn"]),
        (
            {"minAvailable": 2, "healthy": 0, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
            ["DR18 info"],
        ),
        ({"minAvailable": 1, "expected": 0, "healthy": 0}, []),
    ],
)
def test_DOC_19_DOC_20_budgets_that_never_allow_an_eviction(
    spec: dict[str, Any], expected: list[str]
) -> None:
    with cluster([budget("web", {"app": "web"}, **spec)]) as (_, kube):
        assert told(check_budgets, context(kube)) == expected


def test_DOC_21_pods_under_two_budgets_are_told_once_per_pair() -> None:
    pods = [pod(f"web-{at}", "1", on="a", labels={"app": "web"}) for at in (1, 2)]
    objects = [node("a", "g"), *pods, budget("x", {"app": "web"}), budget("y", {})]
    with cluster(objects) as (_, kube):
        [finding] = check_overlaps(context(kube))
    assert finding.id == "DR19"
    assert "shop/web-1, shop/web-2 are under the budgets shop/x and shop/y" in finding.message


def test_DOC_22_pods_that_hold_their_nodes_are_counted_by_rule() -> None:
    held = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    objects = [node(name, "g") for name in ("a", "b", "c", "d")]
    objects += [pod(f"cache-{name}", "1", on=name, annotations=held) for name in ("a", "b")]
    objects += [workload("ReplicaSet", "rs", 2)]
    with cluster(objects) as (_, kube):
        snapshot = templated(context(kube).required_snapshot, template())
        [finding] = check_drains(context(kube, snapshot=snapshot))
        assert (finding.id, finding.severity) == ("DR21", "warn")
        assert (
            "2 of 4 nodes cannot be drained at present: NotSafeToEvictAnnotation 2"
            in finding.message
        )
        assert "shop/cache-a" in finding.message


def test_pending_pods_that_are_not_simulated_are_told() -> None:
    with cluster([pod("a", "1", schedulerName="volcano"), pod("b", "1")]) as (_, kube):
        [finding] = check_simulation(context(kube))
        assert "1 pending pods are not simulated: 1 with scheduler volcano" in finding.message
        policy = with_options(ACTIVE, bypassed_scheduler_names=("volcano",))
        assert list(check_simulation(context(kube, policy))) == []


def test_nodes_of_no_provider_are_told() -> None:
    none = node("b", "g")
    del none["spec"]["providerID"]
    right = node("c", "g")
    right["spec"]["providerID"] = "exoscale://0"
    with cluster([node("a", "g"), none, right]) as (_, kube):
        found = list(check_provider_ids(context(kube)))
    assert [each.evidence["nodes"] for each in found] == [["b"], ["a"]]


def test_taints_of_young_nodes_should_be_startup_taints() -> None:
    young = node("new", "g")
    young["metadata"]["creationTimestamp"] = format_time(NOW - 30)
    young["spec"]["taints"] = [{"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}]
    young["spec"]["taints"] += [{"key": key, "effect": "PreferNoSchedule"} for key in LEAVING_MARKS]
    old = node("old", "g")
    old["metadata"]["creationTimestamp"] = format_time(NOW - DAY)
    with cluster([old, young]) as (_, kube):
        [finding] = check_startup_taints(context(kube))
        assert finding.fix == "options.startupTaint: [node.cilium.io/agent-not-ready]"
        known = with_options(ACTIVE, startup_taint=("node.cilium.io/agent-not-ready",))
        assert list(check_startup_taints(context(kube, known))) == []


def test_missing_api_versions_are_told() -> None:
    with cluster() as (server, kube):
        assert list(check_apis(context(kube))) == []
        server.faults.add(
            KubeFault("GET", "csistoragecapacities", status=404, body=b"{}", times=10)
        )
        assert told(check_apis, context(kube)) == ["DR26 warn"]


def test_untainted_gpu_groups_are_told() -> None:
    gpu = template(**{"nvidia.com/gpu": 1})
    with cluster([node("a", "g")]) as (_, kube):
        snapshot = grouped(
            templated(context(kube).required_snapshot, template()),
            "gpu",
            instances=(),
            target=0,
            template=gpu,
        )
        assert told(check_expander, context(kube, snapshot=snapshot)) == ["DR31 warn"]
        priced = with_options(ACTIVE, expander=("price",))
        assert list(check_expander(context(kube, priced, snapshot=snapshot))) == []


@each_row(
    "policy, group, label, expected",
    [
        (ACTIVE, False, {}, []),
        (ACTIVE, True, {}, ["DR33 warn"]),
        (ACTIVE, False, {"cluster.x-k8s.io/interruptible": ""}, ["DR33 warn"]),
        (msgspec.structs.replace(ACTIVE, spot=Spot()), True, {}, []),
    ],
)
def test_spot_without_a_word_in_the_policy_is_told(
    policy: Policy, group: bool, label: dict[str, str], expected: list[str]
) -> None:
    labelled = node("a", "g")
    labelled["metadata"]["labels"] |= label
    with cluster([labelled]) as (_, kube):
        snapshot = grouped(
            context(kube).required_snapshot, "cheap", instances=(), target=0, spot=group
        )
        assert told(check_spot, context(kube, policy, snapshot=snapshot)) == expected


@each_row(
    ("zones", "vendor", "pod_needs", "expected"),
    [
        (("a", "b"), (), True, ["DR34 warn"]),
        (("a", "a"), ("a", "b"), True, ["DR34 warn"]),
        (("a", "a"), ("",), True, ["DR34 warn"]),
        (("a", "a"), (), True, []),
        (("a", "b"), (), False, []),
    ],
)
def test_group_in_several_zones_is_told_where_pods_need_one(
    zones: tuple[str, str], vendor: tuple[str, ...], pod_needs: bool, expected: list[str]
) -> None:
    key = "topology.kubernetes.io/zone"
    nodes = [node(f"n-{number}", "g") for number in range(2)]
    for made, zone in zip(nodes, zones, strict=True):
        made["metadata"]["labels"][key] = zone
    needing = pod("db", "1")
    needing["spec"]["nodeSelector"] = {key: "b"} if pod_needs else {}
    with cluster([*nodes, needing]) as (_, kube):
        snapshot = grouped(context(kube).required_snapshot, "web", zones=vendor)
        findings = list(check_zones(context(kube, snapshot=snapshot)))
    assert [f"{each.id} {each.severity}" for each in findings] == expected
    assert all("web" in each.message for each in findings)


def test_first_removals_are_listed_before_they_happen() -> None:
    with cluster([node("a", "g"), node("b", "g")]) as (_, kube):
        snapshot = templated(context(kube).required_snapshot, template())
        plan, _ = plan_cluster(snapshot, ACTIVE, Memory(), NOW, 0, assume_unneeded_for=700.0)
        [finding] = check_removals(context(kube, snapshot=snapshot, plan=plan))
    assert finding.message.startswith("first removals in mode active: 2 nodes (a, b)")


@each_row("policy, severity", [(SHADOW, "warn"), (ACTIVE, "info")], ids=["shadow", "active"])
def test_machines_on_their_way_are_named_with_their_groups(policy: Policy, severity: str) -> None:
    with cluster([node("a", "g")]) as (_, kube):
        given = context(kube, policy)
        coming = grouped(given.required_snapshot, target=3)
        coming = grouped(coming, "unread", target=9, error="HTTP 503")
        [machines] = check_machines(context(kube, policy, snapshot=coming))
        arrived = list(
            check_machines(context(kube, policy, snapshot=grouped(given.required_snapshot)))
        )
    assert (machines.id, machines.severity) == ("DR35", severity)
    assert machines.message.startswith("2 machines are on their way (web 2): ")
    assert arrived == []


def test_machine_that_could_not_be_created_is_not_on_its_way() -> None:
    broken = Instance(id="exoscale://x", error=InstanceError("OutOfResources", "Sold", ""))
    with cluster([node("a", "g")]) as (_, kube):
        snapshot = context(kube, SHADOW).required_snapshot
        snapshot = grouped(snapshot, target=1, instances=(broken,))
        assert list(check_machines(context(kube, SHADOW, snapshot=snapshot))) == []
