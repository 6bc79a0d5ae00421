"""Node templates, and the resources that CCE reserves on each node."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chalicelib.model.node import Node, Taint
from chalicelib.providers.huaweicloud.models import Flavor, NodePool, ScaleGroup
from chalicelib.providers.huaweicloud.node_template import allocatable, make_template, max_pods
from infra.emulators.huaweicloud import models
from tests.cases import each_row
from tests.providers.huaweicloud.emulated import AZ1, FLAVOR, POOL, A, EmulatedCce

MIB = 2**20


def template(
    specs: dict[str, str] | None = None,
    type: str = "vm",  # noqa: A002
    reserve: str = "",
    **more: Any,
) -> Node:
    """The template of an empty group. specs: further fields of its flavour;
    more: fields of its pool."""
    cce = EmulatedCce(0, **more)
    cce.cloud.flavors[FLAVOR] = models.Flavor(FLAVOR, 4, 8192, specs or {})
    cce.answers[POOL] = {"spec.type": type}
    settings: dict[str, Any] = {"reservedMemory": reserve} if reserve else {}
    made = cce.groups(**settings)[A].template
    assert made is not None
    return made


def test_huawei_template_worked_example() -> None:
    node = template(runtime="containerd")
    assert node.allocatable == {"cpu": 3920, "memory": 6792 * MIB, "pods": 40}
    assert node.capacity == {"cpu": 4000, "memory": 8192 * MIB, "pods": 40}


@each_row(("vcpus", "kept"), [(1, 60), (2, 70), (3, 75), (4, 80), (8, 90), (64, 230)])
def test_huawei_template_cpu_reservation_decreases_per_core(vcpus: int, kept: int) -> None:
    assert allocatable(Flavor(FLAVOR, vcpus, 8192), {}, "")["cpu"] == 1000 * vcpus - kept


@each_row(
    ("gib", "pods"),
    [
        (1, 20),
        (4, 20),
        (7, 20),
        (8, 40),
        (15, 40),
        (16, 60),
        (32, 80),
        (63, 80),
        (64, 110),
        (512, 110),
    ],
)
def test_huawei_template_maximum_pods_depend_on_memory(gib: int, pods: int) -> None:
    assert max_pods(Flavor(FLAVOR, 4, 1024 * gib), {}) == pods


@each_row(
    ("extend", "runtime", "cpu", "memory"),
    [
        ({}, "docker", 3920, 8192 - 600 - 1300 - 100),
        ({"maxPods": 100}, "containerd", 3920, 8192 - 600 - 1000 - 100),
        ({"maxPods": "100"}, "", 3920, 8192 - 600 - 1000 - 100),
        ({"kubeReservedMem": 300}, "", 3920, 8192 - 600 - 300 - 100),
        ({"kubeReservedMem": 300, "systemReservedMem": 0}, "", 3920, 8192 - 300 - 100),
        ({"kubeReservedCpu": 10, "systemReservedCpu": 20}, "", 3970, 6792),
        ({"kubeReservedCpu": 200}, "", 3800, 6792),
        (
            {
                "kubeReservedCpu": "x",
                "systemReservedMem": -5,
                "maxPods": 0,
                "kubeReservedMem": True,
            },
            "",
            3920,
            6792,
        ),
    ],
)
def test_huawei_template_uses_pool_reservations(
    extend: dict[str, object], runtime: str, cpu: int, memory: int
) -> None:
    left = allocatable(Flavor(FLAVOR, 4, 8192), extend, runtime)
    assert (left["cpu"], left["memory"]) == (cpu, memory * MIB)


@given(
    st.integers(1, 256),
    st.integers(1, 2**22),
    st.integers(-5, 2**30) | st.text(max_size=4) | st.none(),
)
def test_huawei_template_never_has_negative_resources(
    vcpus: int, mib: int, rubbish: object
) -> None:
    extend = dict.fromkeys(("maxPods", "kubeReservedMem", "systemReservedCpu"), rubbish)
    left = allocatable(Flavor(FLAVOR, vcpus, mib), extend, "")
    assert 0 <= left["cpu"] < 1000 * vcpus
    assert 0 <= left["memory"] < mib * MIB
    assert 0 < left["pods"] <= 1000


def test_huawei_template_policy_reservation_replaces_the_rule() -> None:
    assert template(reserve="1Gi").allocatable["memory"] == 7168 * MIB


def test_huawei_template_labels_and_taints() -> None:
    node = template(
        {"ecs:instance_architecture": "arm64"},
        runtime="containerd",
        labels={"team": "a", "os.name": "x"},
        taints=[
            {"key": "status", "value": "x", "effect": "NoSchedule"},
            {"key": "dedicated", "effect": "NoExecute"},
            {
                "key": "node.cloudprovider.kubernetes.io/uninitialized",
                "value": "true",
                "effect": "NoSchedule",
            },
            {"key": "odd", "effect": "Sometimes"},
            {},
        ],
    )
    assert node.taints == (Taint("status", "NoSchedule", "x"), Taint("dedicated", "NoExecute", ""))
    assert node.labels | {"kubernetes.io/hostname": ""} == {
        "team": "a",
        "node.kubernetes.io/instance-type": FLAVOR,
        "kubernetes.io/arch": "arm64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": "cn-north-4",
        "topology.kubernetes.io/zone": AZ1,
        "failure-domain.beta.kubernetes.io/region": "cn-north-4",
        "failure-domain.beta.kubernetes.io/zone": AZ1,
        "node.kubernetes.io/container-engine": "containerd",
        "node.kubernetes.io/baremetal": "false",
        "cce.cloud.com/cce-nodepool": "pool-a",
        "kubernetes.io/hostname": "",
    }


def test_huawei_template_omits_a_zone_chosen_by_the_vendor() -> None:
    assert "topology.kubernetes.io/zone" not in template(az="random").labels
    assert template(type="pm").labels["node.kubernetes.io/baremetal"] == "true"


def test_huawei_template_gpus_and_ascend_processors() -> None:
    node = template({"pci_passthrough:alias": "nvidia-p100:2"})
    assert node.labels["accelerator"] == "nvidia-p100"
    assert node.allocatable["nvidia.com/gpu"] == node.capacity["nvidia.com/gpu"] == 2
    node = template({"pci_passthrough:alias": "ascend-310:4"})
    assert node.allocatable["huawei.com/ascend-310"] == 4
    assert "accelerator" not in node.labels
    flavor = Flavor(FLAVOR, 8, 65536, accelerators=(("Ascend-310", 4), ("odd", 1)))
    made = make_template(
        NodePool(POOL), ScaleGroup("default", flavor=FLAVOR), flavor, "cn-north-4", {}
    ).node
    assert made is not None
    assert made.allocatable["huawei.com/ascend-310"] == 4
    assert "accelerator" not in made.labels
    assert not any("odd" in name for name in made.allocatable)


def test_huawei_template_of_an_unknown_flavour_costs_only_the_template() -> None:
    cce = EmulatedCce(1)
    nodes = cce.nodes()
    del cce.cloud.flavors[FLAVOR]
    group = cce.groups(nodes=nodes)[A]
    assert (group.template, group.error) == (None, "")
    assert "knows no flavour" in group.template_error
    bare = Flavor(FLAVOR, 0, 8192)
    made = make_template(
        NodePool(POOL), ScaleGroup("default", flavor=FLAVOR), bare, "cn-north-4", {}
    )
    assert (made.node, "without its cores" in made.problem) == (None, True)
