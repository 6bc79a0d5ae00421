"""Node templates from the annotations and objects of a resource."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.node import Condition, Node, Taint
from chalicelib.providers.clusterapi.api import DEPLOYMENT, POOL
from chalicelib.providers.clusterapi.models import CapiCluster, CapiResource
from chalicelib.providers.clusterapi.node_template import (
    CapiTemplate,
    Infrastructure,
    failure_domain,
    make_template,
    no_infrastructure,
    parse_taint,
    possible_zones,
)
from chalicelib.providers.clusterapi.settings import CapiSettings, read_settings
from tests.cases import each_row
from tests.providers.clusterapi.objects import CAPACITY, Json, as_resource, capacity, deployment

GIB = 2**30


def template(
    annotations: dict[str, str],
    settings: CapiSettings | None = None,
    real: Node | None = None,
    infra: Infrastructure | None = None,
    **more: Any,
) -> CapiTemplate:
    """Builds a template. infra: the answer of the infrastructure object, if it is read."""
    resource = as_resource(deployment("md-0", annotations=annotations, **more))
    reported = infra or Infrastructure()
    return make_template(
        "MachineDeployment/default/md-0",
        "MachineDeployment",
        resource,
        settings or CapiSettings(),
        real,
        lambda _: reported,
    )


def offers(annotations: dict[str, str]) -> dict[str, int]:
    made = template(annotations)
    assert made.node is not None, made.problem
    return made.node.capacity


def labels(annotations: dict[str, str], **more: Any) -> dict[str, str]:
    made = template({**capacity(cpu="1", memory="1Gi"), **annotations}, **more).node
    assert made is not None
    return made.labels


def taints(
    annotation: str = "", spec: list[dict[str, str]] | None = None
) -> tuple[list[str], tuple[str, ...]]:
    annotations = {**capacity(cpu="1", memory="1Gi"), CAPACITY + "taints": annotation}
    made = template(annotations, template={"taints": spec or []})
    assert made.node is not None
    return [str(taint) for taint in made.node.taints], made.warnings


def test_capi_template_capacity_from_annotations() -> None:
    everything = capacity(
        cpu="16000m",
        memory="128G",
        ephemeral_disk="100Gi",
        gpu_type="nvidia.com/gpu",
        gpu_count="2",
        maxPods="200",
    )
    assert offers(everything) == {
        "cpu": 16000,
        "memory": 128 * 10**9,
        "ephemeral-storage": 100 * GIB,
        "nvidia.com/gpu": 2,
        "pods": 200,
    }
    assert offers(capacity(cpu="2", memory="2048Mi")) == {
        "cpu": 2000,
        "memory": 2 * GIB,
        "pods": 110,
    }


@each_row("pods", ["0", ""])
def test_capi_template_default_number_of_pods_is_110(pods: str) -> None:
    assert offers(capacity(cpu="1", memory="1Gi", maxPods=pods))["pods"] == 110


@each_row(
    "gpu",
    [
        {"gpu_type": "nvidia.com/gpu"},
        {"gpu_count": "2"},
        {"gpu_type": "nvidia.com/gpu", "gpu_count": "0"},
    ],
)
def test_capi_template_gpus_need_a_type_and_a_count(gpu: dict[str, str]) -> None:
    assert set(offers(capacity(cpu="1", memory="1Gi", **gpu))) == {"cpu", "memory", "pods"}


@each_row(
    ("given", "named"),
    [
        ({}, "cpu"),
        ({"cpu": "1"}, "memory"),
        ({"cpu": "0", "memory": "1Gi"}, "cpu"),
        ({"cpu": "", "memory": "1Gi"}, "cpu"),
        ({"cpu": "500mb", "memory": "1Gi"}, "500mb"),
        # one invalid value invalidates all of them
        ({"cpu": "1", "memory": "1Gi", "ephemeral_disk": "1.5Gii"}, "1.5Gii"),
        ({"cpu": "1", "memory": "1Gi", "gpu_type": "x/y", "gpu_count": "1.5"}, "gpu-count"),
        ({"cpu": "1", "memory": "1Gi", "maxPods": "many"}, "maxPods"),
        ({"cpu": "1", "memory": "1Gi", "maxPods": "9" * 5000}, "maxPods"),
        ({"cpu": "1", "memory": "1Gi", "gpu_count": "1_0"}, "gpu-count"),
        ({"cpu": "1", "memory": "1Gi", "gpu_type": "cpu", "gpu_count": "64"}, "gpu-type"),
    ],
)
def test_capi_group_that_cannot_scale_from_zero_states_the_reason(
    given: dict[str, str], named: str
) -> None:
    made = template(capacity(**given))
    assert made.node is None
    assert named in made.problem


INFRA = Infrastructure({"cpu": 8000, "memory": 32 * GIB, "pods": 58, "nvidia.com/gpu": 1})


@each_row(
    ("annotations", "found"),
    [
        pytest.param({}, INFRA.capacity, id="infra-only"),
        pytest.param({"cpu": "4"}, {**INFRA.capacity, "cpu": 4000}, id="split"),
        pytest.param(
            {"memory": "1Gi"}, {**INFRA.capacity, "memory": GIB}, id="split-the-other-way"
        ),
        pytest.param({"cpu": "0"}, INFRA.capacity, id="zero-is-not-given"),
        pytest.param({"cpu": "-4"}, INFRA.capacity, id="negative-is-not-given"),
        pytest.param({"maxPods": "30"}, {**INFRA.capacity, "pods": 30}, id="maxPods-wins"),
        pytest.param(
            {"ephemeral_disk": "9Gi"},
            {**INFRA.capacity, "ephemeral-storage": 9 * GIB},
            id="appended",
        ),
        pytest.param(
            {"gpu_type": "amd.com/gpu", "gpu_count": "4"},
            {**INFRA.capacity, "amd.com/gpu": 4},
            id="gpu",
        ),
    ],
)
def test_capi_template_annotations_override_the_infrastructure_per_resource(
    annotations: dict[str, str], found: dict[str, int]
) -> None:
    made = template(capacity(**annotations), infra=INFRA).node
    assert made is not None
    assert made.capacity == found


def test_capi_template_keeps_the_infrastructures_pods_and_defaults_to_110() -> None:
    for reported, pods in ((INFRA, 58), (Infrastructure({"cpu": 1000, "memory": GIB}), 110)):
        made = template({}, infra=reported).node
        assert made is not None
        assert made.capacity["pods"] == pods


def test_capi_template_reports_why_the_infrastructure_gave_nothing() -> None:
    made = template(capacity(cpu="1"), infra=Infrastructure(problem="GET /x: forbidden"))
    assert made.node is None
    assert CAPACITY + "memory" in made.problem
    assert CAPACITY + "cpu" not in made.problem
    assert "GET /x: forbidden" in made.problem
    assert template({}, infra=Infrastructure({"cpu": 1000})).node is None, "no memory from anywhere"
    assert template(capacity(maxPods="many"), infra=INFRA).node is None, (
        "one bad annotation spoils it all"
    )


READY, STARTING = (Condition("Ready", status, "", 1.0) for status in ("True", "False"))


@each_row(
    ("annotations", "conditions", "asked"),
    [
        pytest.param({}, None, True, id="nothing-else-tells"),
        pytest.param({"cpu": "1"}, None, True, id="half-of-it-tells"),
        pytest.param({"cpu": "1", "memory": "1Gi"}, None, False, id="the-annotations-tell"),
        pytest.param({"cpu": "what"}, None, False, id="an-annotation-is-unreadable"),
        pytest.param({}, READY, False, id="a-ready-node-tells"),
        pytest.param({}, STARTING, True, id="a-node-that-starts-does-not"),
    ],
)
def test_capi_template_reads_the_infrastructure_only_if_needed(
    annotations: dict[str, str], conditions: Condition | None, asked: bool
) -> None:
    questions: list[CapiResource] = []

    def infra(resource: CapiResource) -> Infrastructure:
        questions.append(resource)
        return INFRA

    real = Node("n", {}, {}, conditions=(conditions,)) if conditions else None
    resource = as_resource(deployment("md-0", annotations=capacity(**annotations)))
    make_template("g", DEPLOYMENT, resource, CapiSettings(), real, infra)
    assert questions == ([resource] if asked else [])
    assert no_infrastructure(resource) == Infrastructure()


def test_capi_template_negative_amounts_are_omitted_and_reported() -> None:
    made = template(capacity(cpu="1", memory="1Gi", ephemeral_disk="-5Gi", maxPods="-3"))
    assert made.node is not None
    assert made.node.capacity == {"cpu": 1000, "memory": GIB, "pods": 110}
    assert len(made.warnings) == 2
    assert template(capacity(cpu="-1", memory="1Gi")).node is None


def test_capi_template_allocatable_is_capacity_minus_the_reserved_settings() -> None:
    annotations = capacity(cpu="4", memory="8Gi", ephemeral_disk="10Gi")
    plain = template(annotations).node
    assert plain is not None
    assert plain.allocatable == plain.capacity
    settings = read_settings(
        {"reservedCpu": "100m", "reservedMemory": "1Gi", "reservedEphemeralStorage": "20Gi"}
    )
    held = template(annotations, settings).node
    assert held is not None
    assert held.allocatable == {"cpu": 3900, "memory": 7 * GIB, "ephemeral-storage": 0, "pods": 110}


def test_capi_template_default_labels_and_labels_by_annotation() -> None:
    name = "template-node-for-MachineDeployment/default/md-0"
    base = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
    }
    assert labels({}) == base
    assert (
        labels({}, settings=read_settings({"scaleZeroDefaultArch": "arm64"}))["kubernetes.io/arch"]
        == "arm64"
    )
    given = labels({CAPACITY + "labels": "a=1,b=x=y,plain,=z,kubernetes.io/arch=s390x"})
    assert given == {**base, "a": "1", "kubernetes.io/arch": "s390x"}


def test_capi_template_lists_in_annotations_may_have_blanks_after_commas() -> None:
    found = template(
        {
            CAPACITY + "labels": "key1=value1, key2=value2 ,\tkey3 = value3",
            CAPACITY + "taints": "key1=value1:NoSchedule, key2=value2 : NoExecute",
            CAPACITY + "csi-driver": "a.example=5, b.example = 6",
            CAPACITY + "cpu": " 16",
            CAPACITY + "memory": "128G ",
            CAPACITY + "gpu-type": " nvidia.com/gpu",
            CAPACITY + "gpu-count": " 2 ",
            CAPACITY + "maxPods": "200 ",
        }
    )
    assert found.node is not None
    assert {key: found.node.labels[key] for key in ("key1", "key2", "key3")} == {
        "key1": "value1",
        "key2": "value2",
        "key3": "value3",
    }
    assert found.node.taints == (
        Taint("key1", "NoSchedule", "value1"),
        Taint("key2", "NoExecute", "value2"),
    )
    assert found.volumes == {"a.example": 5, "b.example": 6}
    assert {
        key: found.node.capacity[key] for key in ("cpu", "memory", "nvidia.com/gpu", "pods")
    } == {
        "cpu": 16_000,
        "memory": 128 * 10**9,
        "nvidia.com/gpu": 2,
        "pods": 200,
    }
    assert found.warnings == ()


def test_capi_template_warns_of_entries_that_no_node_can_have_as_labels() -> None:
    found = template(
        {CAPACITY + "labels": "a=1,plain,=z,b=x=y,two words=1", **capacity(cpu="1", memory="1Gi")}
    )
    assert found.node is not None
    assert found.node.labels["a"] == "1"
    assert len(found.warnings) == 4
    for entry, warning in zip(("plain", "=z", "b=x=y", "two words=1"), found.warnings, strict=True):
        assert repr(entry) in warning
        assert f"{CAPACITY}labels" in warning


def test_capi_template_labels_that_cluster_api_propagates() -> None:
    handed = {
        "node-restriction.kubernetes.io/x": "1",
        "a.node.cluster.x-k8s.io/y": "2",
        "node-role.kubernetes.io/z": "3",
        "sub.node-restriction.kubernetes.io/x": "4",
    }
    kept = {
        "my.label/x": "1",
        "a.node-role.kubernetes.io/x": "2",
        "notnode.cluster.x-k8s.io/x": "3",
        "plain": "4",
    }
    found = labels({}, template={"labels": {**handed, **kept}})
    assert handed.items() <= found.items()
    assert not kept.keys() & found.keys()
    more = labels(
        {},
        template={"labels": kept},
        settings=read_settings({"syncMachineLabels": r"^my\.label/ ^plain$"}),
    )
    assert (more["my.label/x"], more["plain"]) == ("1", "4")
    # labels of the MachineDeployment itself never propagate to a Node
    assert "node-role.kubernetes.io/top" not in labels(
        {}, labels={"node-role.kubernetes.io/top": ""}
    )


def test_capi_template_labels_of_a_real_node_take_precedence() -> None:
    real = Node(
        "n1",
        {
            "kubernetes.io/arch": "arm64",
            "kubernetes.io/os": "",
            "node.kubernetes.io/instance-type": "m1.large",
            "topology.kubernetes.io/zone": "z1",
            "topology.kubernetes.io/region": "r1",
            "private": "x",
            "kubernetes.io/hostname": "n1",
        },
        {},
    )
    found = labels({CAPACITY + "labels": "topology.kubernetes.io/zone=z9"}, real=real)
    assert found["kubernetes.io/arch"] == "arm64"
    assert found["kubernetes.io/os"] == "linux"  # an empty one means nothing
    assert found["node.kubernetes.io/instance-type"] == "m1.large"
    assert found["topology.kubernetes.io/zone"] == "z1"
    assert "private" not in found
    assert found["kubernetes.io/hostname"].startswith("template-node-for-")


def test_capi_template_precedence_is_annotation_then_infrastructure_then_default() -> None:
    reported = Infrastructure(INFRA.capacity, architecture="arm64", system="windows")
    plain = template({}, infra=reported).node
    assert plain is not None
    assert (plain.labels["kubernetes.io/arch"], plain.labels["kubernetes.io/os"]) == (
        "arm64",
        "windows",
    )
    annotated = template({CAPACITY + "labels": "kubernetes.io/arch=s390x"}, infra=reported).node
    assert annotated is not None
    assert (annotated.labels["kubernetes.io/arch"], annotated.labels["kubernetes.io/os"]) == (
        "s390x",
        "windows",
    )


def test_capi_template_infrastructure_without_node_info_leaves_the_default() -> None:
    made = template(
        {}, infra=INFRA, settings=read_settings({"scaleZeroDefaultArch": "ppc64le"})
    ).node
    assert made is not None
    assert (made.labels["kubernetes.io/arch"], made.labels["kubernetes.io/os"]) == (
        "ppc64le",
        "linux",
    )


ZONE = "topology.kubernetes.io/zone"


def in_domain(
    kind: str = DEPLOYMENT,
    annotation: str = "",
    settings: dict[str, str] | None = None,
    real: Node | None = None,
    **spec: Any,
) -> str | None:
    """Returns the zone label of a template. spec: failureDomain of the template,
    failureDomains of a pool."""
    made: Json = deployment(
        "x", annotations={**capacity(cpu="1", memory="1Gi"), CAPACITY + "labels": annotation}
    )
    where = made["spec"] if kind == POOL else made["spec"]["template"]["spec"]
    where.update(spec)
    found = make_template("g", kind, as_resource(made), read_settings(settings or {}), real).node
    assert found is not None
    return found.labels.get(ZONE)


def test_capi_template_zone_is_that_of_the_only_failure_domain() -> None:
    assert in_domain(failureDomain="eu-1a") == "eu-1a"
    assert in_domain() is None
    assert in_domain(failureDomain="") is None
    assert in_domain(failureDomain="not a label!") is None
    assert in_domain(POOL, failureDomains=["eu-1a"]) == "eu-1a"
    assert in_domain(POOL, failureDomains=["eu-1a", "eu-1b"]) is None, (
        "nobody knows where the next one comes up"
    )
    assert in_domain(POOL, failureDomains=[]) is None
    assert failure_domain(POOL, as_resource(deployment("x"))) == ""


def test_capi_template_annotation_node_and_setting_override_the_zone() -> None:
    assert in_domain(failureDomain="eu-1a", annotation=f"{ZONE}=z9") == "z9"
    assert in_domain(failureDomain="eu-1a", real=Node("n", {ZONE: "z1"}, {})) == "z1"
    assert in_domain(failureDomain="eu-1a", settings={"zoneFromFailureDomain": "false"}) is None


@each_row(
    ("text", "taint"),
    [
        ("k=v:NoSchedule", Taint("k", "NoSchedule", "v")),
        ("k=:NoExecute", Taint("k", "NoExecute")),
        ("k:PreferNoSchedule", Taint("k", "PreferNoSchedule")),
        ("example.com/k=v:NoSchedule", Taint("example.com/k", "NoSchedule", "v")),
        ("key1", None),  # without an effect it is not a taint
        ("k=v", None),
        ("k:Bad", None),
        ("a:b:c", None),
        ("a=b=c:NoSchedule", None),
        (" k=v:NoSchedule", Taint("k", "NoSchedule", "v")),
        ("k=v w:NoSchedule", None),
        ("k=v/w:NoSchedule", None),
        (":NoSchedule", None),
    ],
)
def test_capi_template_taints_in_text(text: str, taint: Taint | None) -> None:
    assert parse_taint(text) == taint


def test_capi_template_annotated_taint_replaces_same_key_and_effect() -> None:
    spec = [
        {"key": "a", "value": "1", "effect": "NoSchedule", "propagation": "Always"},
        {"key": "b", "value": "1", "effect": "NoSchedule", "propagation": "Always"},
    ]
    found, warnings = taints("a=2:NoSchedule,a=3:NoExecute,,c:NoSchedule", spec)
    assert found == ["a=2:NoSchedule", "b=1:NoSchedule", "a=3:NoExecute", "c:NoSchedule"]
    assert warnings == ()


def test_capi_template_omits_startup_taints_and_unknown_effects() -> None:
    spec = [
        {"key": "boot", "effect": "NoSchedule", "propagation": "OnInitialization"},
        {"key": "odd", "effect": "Sometimes", "propagation": "Always"},
    ]
    found, warnings = taints("key1,k:Bad", spec)
    assert found == []
    assert len(warnings) == 2
    assert "'key1'" in warnings[0]


@each_row(
    ("kind", "spec", "cluster", "zones"),
    [
        (POOL, {"failureDomains": ["b", "a"]}, (), ("a", "b")),
        (POOL, {"failureDomains": ["a"]}, ("a", "b"), ()),
        (POOL, {}, ("a", "b"), ("a", "b")),
        (DEPLOYMENT, {}, ("a", "b"), ("a", "b")),
        (DEPLOYMENT, {}, ("a",), ()),
        (DEPLOYMENT, {}, ("a", "not a label!"), ()),
        (DEPLOYMENT, {"template": {"spec": {"failureDomain": "a"}}}, ("a", "b"), ()),
        (DEPLOYMENT, {"template": {"spec": {"failureDomain": "not a label!"}}}, ("a", "b"), ()),
    ],
)
def test_capi_resource_without_one_failure_domain_may_be_in_any(
    kind: str, spec: Json, cluster: tuple[str, ...], zones: tuple[str, ...]
) -> None:
    resource = deployment("md-0")
    resource["spec"] |= spec
    expected = zones and ("",)

    assert possible_zones(kind, as_resource(resource), cluster, CapiSettings()) == zones
    other = CapiSettings(zone_from_failure_domain=False)
    assert possible_zones(kind, as_resource(resource), cluster, other) == expected


@each_row(
    ("domains", "names"),
    [
        ({"b": {"controlPlane": True}, "a": {}}, ("a", "b")),
        ([{"name": "b"}, {"name": "a", "controlPlane": False}, {"name": 7}, None], ("a", "b")),
        (None, ()),
        ("a", ()),
        (7, ()),
    ],
)
def test_capi_cluster_names_its_failure_domains_in_both_versions(
    domains: Any, names: tuple[str, ...]
) -> None:
    text = msgspec.json.encode({"metadata": {"name": "c"}, "status": {"failureDomains": domains}})
    assert msgspec.json.decode(text, type=CapiCluster).failure_domains == names
