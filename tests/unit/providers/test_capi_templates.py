"""Template nodes from annotations: clusterapi.md §5; cases 18, 19 and 20 of §11."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.node import Node, Taint
from chalicelib.providers.clusterapi.settings import Settings, read_settings
from chalicelib.providers.clusterapi.templates import Template, make_template, parse_taint
from tests.contract.clusterapi.objects import CAPACITY, as_resource, capacity, deployment

GIB = 2**30


def template(
    annotations: dict[str, str], settings: Settings | None = None, real: Node | None = None, **more: Any
) -> Template:
    resource = as_resource(deployment("md-0", annotations=annotations, **more))
    return make_template("MachineDeployment/default/md-0", resource, settings or Settings(), real)


def offers(annotations: dict[str, str]) -> dict[str, int]:
    made = template(annotations)
    assert made.node is not None, made.problem
    return made.node.capacity


def labels(annotations: dict[str, str], **more: Any) -> dict[str, str]:
    made = template({**capacity(cpu="1", memory="1Gi"), **annotations}, **more).node
    assert made is not None
    return made.labels


def taints(annotation: str = "", spec: list[dict[str, str]] | None = None) -> tuple[list[str], tuple[str, ...]]:
    annotations = {**capacity(cpu="1", memory="1Gi"), CAPACITY + "taints": annotation}
    made = template(annotations, template={"taints": spec or []})
    assert made.node is not None
    return [str(taint) for taint in made.node.taints], made.warnings


def test_CAPI_18_capacity_from_annotations() -> None:
    everything = capacity(cpu="16000m", memory="128G", ephemeral_disk="100Gi", gpu_type="nvidia.com/gpu",
                          gpu_count="2", maxPods="200")
    assert offers(everything) == {
        "cpu": 16000, "memory": 128 * 10**9, "ephemeral-storage": 100 * GIB, "nvidia.com/gpu": 2, "pods": 200,
    }
    assert offers(capacity(cpu="2", memory="2048Mi")) == {"cpu": 2000, "memory": 2 * GIB, "pods": 110}


@pytest.mark.parametrize("pods", ["0", ""])
def test_CAPI_18_no_number_of_pods_is_110(pods: str) -> None:
    assert offers(capacity(cpu="1", memory="1Gi", maxPods=pods))["pods"] == 110


@pytest.mark.parametrize(
    "gpu", [{"gpu_type": "nvidia.com/gpu"}, {"gpu_count": "2"}, {"gpu_type": "nvidia.com/gpu", "gpu_count": "0"}]
)
def test_CAPI_18_gpus_need_a_type_and_a_count(gpu: dict[str, str]) -> None:
    assert set(offers(capacity(cpu="1", memory="1Gi", **gpu))) == {"cpu", "memory", "pods"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "cpu"),
        ({"cpu": "1"}, "memory"),
        ({"cpu": "0", "memory": "1Gi"}, "cpu"),
        ({"cpu": "", "memory": "1Gi"}, "cpu"),
        ({"cpu": "500mb", "memory": "1Gi"}, "500mb"),
        ({"cpu": "1", "memory": "1Gi", "ephemeral_disk": "1.5Gii"}, "1.5Gii"),     # one bad value fails them all
        ({"cpu": "1", "memory": "1Gi", "gpu_type": "x/y", "gpu_count": "1.5"}, "gpu-count"),
        ({"cpu": "1", "memory": "1Gi", "maxPods": "many"}, "maxPods"),
    ],
)
def test_CAPI_18_not_growable_from_zero_and_why(given: dict[str, str], named: str) -> None:
    made = template(capacity(**given))
    assert made.node is None
    assert named in made.problem


def test_D16_negative_amounts_are_left_out_and_reported() -> None:
    made = template(capacity(cpu="1", memory="1Gi", ephemeral_disk="-5Gi", maxPods="-3"))
    assert made.node is not None
    assert made.node.capacity == {"cpu": 1000, "memory": GIB, "pods": 110}
    assert len(made.warnings) == 2
    assert template(capacity(cpu="-1", memory="1Gi")).node is None


def test_D23_allocatable_is_capacity_less_what_the_settings_reserve() -> None:
    annotations = capacity(cpu="4", memory="8Gi", ephemeral_disk="10Gi")
    plain = template(annotations).node
    assert plain is not None
    assert plain.allocatable == plain.capacity
    settings = read_settings({"reservedCpu": "100m", "reservedMemory": "1Gi", "reservedEphemeralStorage": "20Gi"})
    held = template(annotations, settings).node
    assert held is not None
    assert held.allocatable == {"cpu": 3900, "memory": 7 * GIB, "ephemeral-storage": 0, "pods": 110}


def test_CAPI_19_labels_by_default_and_by_annotation() -> None:
    name = "template-node-for-MachineDeployment/default/md-0"
    base = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name}
    assert labels({}) == base
    assert labels({}, settings=read_settings({"scaleZeroDefaultArch": "arm64"}))["kubernetes.io/arch"] == "arm64"
    given = labels({CAPACITY + "labels": "a=1,b=x=y,plain,=z,kubernetes.io/arch=s390x"})
    assert given == {**base, "a": "1", "b": "x=y", "kubernetes.io/arch": "s390x"}


def test_CAPI_19_D21_labels_that_cluster_api_hands_down() -> None:
    handed = {"node-restriction.kubernetes.io/x": "1", "a.node.cluster.x-k8s.io/y": "2",
              "node-role.kubernetes.io/z": "3", "sub.node-restriction.kubernetes.io/x": "4"}
    kept = {"my.label/x": "1", "a.node-role.kubernetes.io/x": "2", "notnode.cluster.x-k8s.io/x": "3", "plain": "4"}
    found = labels({}, template={"labels": {**handed, **kept}})
    assert handed.items() <= found.items()
    assert not kept.keys() & found.keys()
    more = labels({}, template={"labels": kept}, settings=read_settings({"syncMachineLabels": r"^my\.label/ ^plain$"}))
    assert (more["my.label/x"], more["plain"]) == ("1", "4")
    # labels of the MachineDeployment itself never reach a Node
    assert "node-role.kubernetes.io/top" not in labels({}, labels={"node-role.kubernetes.io/top": ""})


def test_CAPI_19_D20_a_real_node_of_the_group_knows_best() -> None:
    real = Node("n1", {
        "kubernetes.io/arch": "arm64", "kubernetes.io/os": "", "node.kubernetes.io/instance-type": "m1.large",
        "topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1", "private": "x",
        "kubernetes.io/hostname": "n1",
    }, {})
    found = labels({CAPACITY + "labels": "topology.kubernetes.io/zone=z9"}, real=real)
    assert found["kubernetes.io/arch"] == "arm64"
    assert found["kubernetes.io/os"] == "linux"                # an empty one says nothing
    assert found["node.kubernetes.io/instance-type"] == "m1.large"
    assert found["topology.kubernetes.io/zone"] == "z1"
    assert "private" not in found
    assert found["kubernetes.io/hostname"].startswith("template-node-for-")


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("k=v:NoSchedule", Taint("k", "NoSchedule", "v")),
        ("k=:NoExecute", Taint("k", "NoExecute")),
        ("k:PreferNoSchedule", Taint("k", "PreferNoSchedule")),
        ("example.com/k=v:NoSchedule", Taint("example.com/k", "NoSchedule", "v")),
        ("key1", None),                   # D22: without an effect it taints nothing
        ("k=v", None),
        ("k:Bad", None),
        ("a:b:c", None),
        ("a=b=c:NoSchedule", None),
        (" k=v:NoSchedule", None),
        ("k=v/w:NoSchedule", None),
        (":NoSchedule", None),
    ],
)
def test_CAPI_20_taints_in_text(text: str, taint: Taint | None) -> None:
    assert parse_taint(text) == taint


def test_CAPI_20_the_annotation_replaces_same_key_and_effect_and_appends_others() -> None:
    spec = [{"key": "a", "value": "1", "effect": "NoSchedule", "propagation": "Always"},
            {"key": "b", "value": "1", "effect": "NoSchedule", "propagation": "Always"}]
    found, warnings = taints("a=2:NoSchedule,a=3:NoExecute,,c:NoSchedule", spec)
    assert found == ["a=2:NoSchedule", "b=1:NoSchedule", "a=3:NoExecute", "c:NoSchedule"]
    assert warnings == ()


def test_CAPI_20_D22_start_up_taints_and_unknown_effects_are_left_out() -> None:
    spec = [{"key": "boot", "effect": "NoSchedule", "propagation": "OnInitialization"},
            {"key": "odd", "effect": "Sometimes", "propagation": "Always"}]
    found, warnings = taints("key1,k:Bad", spec)
    assert found == []
    assert len(warnings) == 2
    assert "'key1'" in warnings[0]
