"""Node templates of pools."""

from __future__ import annotations

from typing import Any

from chalicelib.model.node import Node, Taint
from infra.emulators.vendor_common.http_messages import scripted
from tests.cases import each_row
from tests.providers.exoscale.fixture import MEDIUM, NP_A, A, B, ExoscaleFixture, opened

GPU = {
    "family": "gpu3",
    "size": "large",
    "cpus": 16,
    "memory": 120 * 2**30,
    "gpus": 1,
    "zones": ["ch-gva-2", "de-fra-1"],
}
PREFIX = "k8s.io/cluster-autoscaler/node-template/"


def zone(**nodepool: object) -> ExoscaleFixture:
    """An empty Nodepool, and a named standalone pool."""
    made = opened(("web", "prod", 0), ("db", "", 1))
    made.answers[NP_A] = nodepool
    return made


def template(api: ExoscaleFixture, group: str = A, **settings: Any) -> Node:
    found = api.groups("0:9:web", "1:9:db", **settings)[group].template
    assert found is not None
    return found


def test_exoscale_template_of_an_empty_nodepool_is_complete() -> None:
    taints = {"dedicated": {"value": "web", "effect": "NoSchedule"}}
    api = zone(labels={"tier": "web"}, taints=taints, **{"kubelet-max-pods": 64, "disk-size": 200})
    api.answers[MEDIUM] = GPU
    node = template(api)
    assert node.capacity == {
        "cpu": 16000,
        "memory": 120 * 2**30,
        "pods": 64,
        "ephemeral-storage": 200 * 2**30,
        "nvidia.com/gpu": 1,
    }
    assert node.taints == (Taint("dedicated", "NoSchedule", "web"),)
    assert node.labels == {
        "tier": "web",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "gpu3.large",
        "topology.kubernetes.io/region": "ch-gva-2",
        "topology.kubernetes.io/zone": "ch-gva-2",
        "node.exoscale.net/nodepool-id": NP_A,
        "kubernetes.io/hostname": node.name,
    }


def test_exoscale_template_without_gpus_omits_them() -> None:
    assert set(template(zone()).capacity) == {"cpu", "memory", "pods", "ephemeral-storage"}
    assert template(zone()).capacity["pods"] == 110


def test_exoscale_template_reserved_resources_are_not_allocatable() -> None:
    node = template(
        zone(), reservedCpu="500m", reservedMemory="1Gi", reservedEphemeralStorage="100Gi"
    )
    assert (
        node.allocatable["cpu"],
        node.allocatable["memory"],
        node.allocatable["ephemeral-storage"],
    ) == (
        1500,
        3 * 2**30,
        0,
    )
    assert node.capacity["cpu"] == 2000


def test_exoscale_template_vendor_labels_override_nodepool_labels() -> None:
    assert (
        template(zone(labels={"kubernetes.io/arch": "arm64"})).labels["kubernetes.io/arch"]
        == "amd64"
    )


def test_exoscale_template_standalone_pool_labels_are_the_clouds_unless_overridden() -> None:
    api = zone()
    labels = {
        "team": "blue",
        f"{PREFIX}label/tier": "db",
        f"{PREFIX}taint/dedicated": "db:NoExecute",
        f"{PREFIX}resources/example.com/dongle": "3",
    }
    api.answers[B] = {"labels": labels}
    node = template(api, B)
    assert (node.labels.get("team"), node.labels["tier"]) == (None, "db")
    assert node.taints == (Taint("dedicated", "NoExecute", "db"),)
    assert node.allocatable["example.com/dongle"] == 3
    assert "node.exoscale.net/nodepool-id" not in node.labels


@each_row(
    ("key", "value"),
    [
        ("label/-", "x"),
        ("taint/dedicated", "x:Never"),
        ("resources/example.com/d", "many"),
        ("label/ok", "no blanks"),
    ],
)
def test_exoscale_template_impossible_label_value_is_omitted_and_reported(
    key: str, value: str
) -> None:
    api = zone()
    api.answers[B] = {"labels": {PREFIX + key: value}}
    assert template(api, B).taints == ()
    assert PREFIX + key in api.warnings("1:9:db")


def test_exoscale_template_invalid_labels_and_taints_are_omitted_and_reported() -> None:
    api = zone(labels={"a b": "c", "ok": "yes"}, taints={"t": {"value": "x", "effect": "Whatever"}})
    assert template(api).labels["ok"] == "yes"
    reported = api.warnings("0:9:web")
    assert "label a b" in reported
    assert "taint t" in reported


@each_row(
    ("kind", "problem"),
    [
        ({"authorized": False}, "may not have instance type gpu3.large"),
        ({"zones": ["de-fra-1"]}, "no instance type gpu3.large in ch-gva-2"),
        ({"cpus": 0}, "without its cpus"),
        ({"family": ""}, "without its cpus"),
        (None, "there is no instance type"),
    ],
)
def test_exoscale_template_unavailable_type_is_reported_instead(
    kind: dict[str, object] | None, problem: str
) -> None:
    api = zone()
    api.answers[MEDIUM] = {**GPU, **(kind or {})}
    if kind is None:
        api.server.reply("GET /v2/instance-type", scripted(404, {"message": "no"}))
    group = api.groups("0:9:web")[A]
    assert group.template is None
    assert problem in group.template_error
    assert not group.error


def test_exoscale_template_group_without_a_type_says_so() -> None:
    api = zone(**{"instance-type": None})
    api.answers[A] = {"instance-type": None}
    assert api.groups("0:9:web")[A].template_error == "it says no instance type"


def test_exoscale_template_type_missing_from_the_list_is_reported() -> None:
    api = zone()
    api.answers[MEDIUM] = {"memory": "much"}
    assert "could not be read" in api.groups("0:9:web")[A].template_error
