"""Node templates of pools."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.node import Node, Taint
from chalicelib.providers.exoscale.decoding import ExoscaleTaint as Given
from chalicelib.providers.exoscale.decoding import InstanceType, Ref
from tests.cases import each_row
from tests.unit.providers.exoscale.fake_api import (
    MEDIUM,
    NP_A,
    NP_B,
    A,
    B,
    FakeApiPool,
    FakeExoscaleApi,
    seen,
    uuid,
    warnings,
)

GPU = InstanceType(MEDIUM, "gpu3", "large", 16, 120 * 2**30, gpus=2, zones=("ch-gva-2", "de-fra-1"))
PREFIX = "k8s.io/cluster-autoscaler/node-template/"


def zone(**nodepool: object) -> FakeExoscaleApi:
    """An empty Nodepool, and a named standalone pool."""
    return FakeExoscaleApi(FakeApiPool(nodepool=nodepool), FakeApiPool(B, "db", "", NP_B, size=1))


def template(api: FakeExoscaleApi, group: str = A, **settings: Any) -> Node:
    found = seen(api, "0:9:web", "1:9:db", **settings)[group].template
    assert found is not None
    return found


def test_exoscale_template_of_an_empty_nodepool_is_complete() -> None:
    api = zone(
        labels={"tier": "web"}, taints={"dedicated": Given("web", "NoSchedule")}, kubelet_max_pods=64, disk_size=200
    )
    api.kinds[MEDIUM] = GPU
    node = template(api)
    assert node.capacity == {
        "cpu": 16000,
        "memory": 120 * 2**30,
        "pods": 64,
        "ephemeral-storage": 200 * 2**30,
        "nvidia.com/gpu": 2,
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
    node = template(zone(), reservedCpu="500m", reservedMemory="1Gi", reservedEphemeralStorage="100Gi")
    assert (node.allocatable["cpu"], node.allocatable["memory"], node.allocatable["ephemeral-storage"]) == (
        1500,
        3 * 2**30,
        0,
    )
    assert node.capacity["cpu"] == 2000


def test_exoscale_template_vendor_labels_override_nodepool_labels() -> None:
    assert template(zone(labels={"kubernetes.io/arch": "arm64"})).labels["kubernetes.io/arch"] == "amd64"


def test_exoscale_template_standalone_pool_labels_are_the_clouds_unless_overridden() -> None:
    api = zone()
    api.all[B].more["labels"] = {
        "team": "blue",
        f"{PREFIX}label/tier": "db",
        f"{PREFIX}taint/dedicated": "db:NoExecute",
        f"{PREFIX}resources/example.com/dongle": "3",
    }
    node = template(api, B)
    assert (node.labels.get("team"), node.labels["tier"]) == (None, "db")
    assert node.taints == (Taint("dedicated", "NoExecute", "db"),)
    assert node.allocatable["example.com/dongle"] == 3
    assert "node.exoscale.net/nodepool-id" not in node.labels


@each_row(
    ("key", "value"),
    [("label/-", "x"), ("taint/dedicated", "x:Never"), ("resources/example.com/d", "many"), ("label/ok", "no blanks")],
)
def test_exoscale_template_impossible_label_value_is_omitted_and_reported(key: str, value: str) -> None:
    api = zone()
    api.all[B].more["labels"] = {PREFIX + key: value}
    assert template(api, B).taints == ()
    assert PREFIX + key in warnings(api, "1:9:db")


def test_exoscale_template_invalid_labels_and_taints_are_omitted_and_reported() -> None:
    api = zone(labels={"a b": "c", "ok": "yes"}, taints={"t": Given("x", "Whatever")})
    assert template(api).labels["ok"] == "yes"
    reported = warnings(api, "0:9:web")
    assert "label a b" in reported
    assert "taint t" in reported


@each_row(
    ("kind", "problem"),
    [
        (msgspec.structs.replace(GPU, authorized=False), "may not have instance type gpu3.large"),
        (msgspec.structs.replace(GPU, zones=("de-fra-1",)), "no instance type gpu3.large in ch-gva-2"),
        (msgspec.structs.replace(GPU, cpus=0), "without its cpus"),
        (msgspec.structs.replace(GPU, family=""), "without its cpus"),
        (None, "there is no instance type"),
    ],
)
def test_exoscale_template_unavailable_type_is_reported_instead(kind: InstanceType | None, problem: str) -> None:
    api = zone()
    api.kinds = {} if kind is None else {MEDIUM: kind}
    group = seen(api, "0:9:web")[A]
    assert group.template is None
    assert problem in group.template_error
    assert not group.error


def test_exoscale_template_group_without_a_type_says_so() -> None:
    api = zone(instance_type=Ref())
    api.all[A].more["instance_type"] = Ref()
    assert seen(api, "0:9:web")[A].template_error == "it says no instance type"


def test_exoscale_template_type_missing_from_the_list_is_reported() -> None:
    api = zone(instance_type=Ref(uuid(5, "t")))
    api.instance_types = lambda ids: {}  # type: ignore[method-assign]
    assert "could not be read" in seen(api, "0:9:web")[A].template_error
