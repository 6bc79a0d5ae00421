"""Nodes that lack a device which a label, their vendor, their own capacity or a sibling
announces.
"""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.memory import LearntTemplate, Memory
from chalicelib.model.node import Node
from chalicelib.model.resources import ANNOUNCING_LABELS
from chalicelib.plan.state.readiness import is_ready
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.providers.alicloud import node_template as alicloud
from chalicelib.providers.huaweicloud import node_template as huaweicloud
from chalicelib.reasons.text import sentence
from tests.builders import NOW, ClusterBuilder, cluster, growth, node, verdict

GPU = "nvidia.com/gpu"
TYPE = "node.kubernetes.io/instance-type"
#: vendor -> the label of a node with a GPU; Exoscale's nodes have their instance type alone
LABELS = {
    "alicloud": {alicloud.GPU_LABEL: "Tesla-T4"},
    "cherryservers": {"cherryservers.com/gpu": "t4"},
    "clusterapi": {"cluster-api/accelerator": "t4"},
    "exoscale": {TYPE: "gpu3.small"},
    "huaweicloud": {huaweicloud.GPU_LABEL: "nvidia-t4"},
}
#: what a vendor's template of such a node has; Cherry Servers knows no plan with a GPU
ANNOUNCED: dict[str, dict[str, int]] = {
    "alicloud": {GPU: 1},
    "cherryservers": {GPU: 0},
    "clusterapi": {GPU: 1},
    "exoscale": {GPU: 1},
    "huaweicloud": {GPU: 1},
}
READ = sorted(set(LABELS) - {"cherryservers"})


def pool(vendor: str, *broken: dict[str, Any], waiting: int = 1) -> ClusterBuilder:
    """A group whose nodes have no GPU, a plain node, and pods that wait for a GPU."""
    build = cluster().node("plain", "8")
    for number, fields in enumerate(broken):
        build.node(f"n-{number}", "8", group="g", labels=LABELS[vendor], **fields)
    build.group("g", template=node("t", "8", labels=LABELS[vendor], extra=ANNOUNCED[vendor]))
    return build.pending(waiting, "1", extra={GPU: 1}) if waiting else build


@pytest.mark.parametrize("vendor", READ)
def test_pool_grows_past_a_node_whose_driver_failed(vendor: str) -> None:
    plan = pool(vendor, {}).plan()
    assert growth(plan) == {"g": (1, 1)}
    assert (plan.health.ready, plan.health.unready, plan.health.resource_unready) == (1, 1, 1)


@pytest.mark.parametrize("vendor", sorted(LABELS))
def test_node_whose_driver_failed_is_not_ready(vendor: str) -> None:
    assert pool(vendor, {}, waiting=0).plan().health.resource_unready == 1


@pytest.mark.parametrize("vendor", READ)
def test_node_that_waits_for_its_driver_takes_the_pod(vendor: str) -> None:
    plan = pool(vendor, {"created": NOW - 60}).plan()
    assert growth(plan) == {}
    assert plan.fits_existing


@pytest.mark.parametrize("vendor", READ)
def test_pool_whose_drivers_all_fail_stops_to_grow(vendor: str) -> None:
    assert growth(pool(vendor, {}, {}, {}).plan()) == {"g": (1, 1)}
    plan = pool(vendor, {}, {}, {}, {}).plan()
    assert growth(plan) == {}
    assert not plan.health.healthy


@pytest.mark.parametrize("vendor", READ)
def test_template_learnt_from_a_node_without_its_device_is_not_used(vendor: str) -> None:
    learnt = LearntTemplate(node("", "8", labels=LABELS[vendor]), NOW - 60)
    assert growth(pool(vendor).plan(Memory(templates={"g": learnt}))) == {"g": (1, 1)}


def test_labels_of_providers_and_clouds_announce_a_device() -> None:
    vendors = {label for labels in LABELS.values() for label in labels} - {TYPE}
    assert len(vendors) == 4
    assert vendors < set(ANNOUNCING_LABELS)


@pytest.mark.parametrize("label", ANNOUNCING_LABELS)
@pytest.mark.parametrize(
    ("offered", "ready"),
    [
        pytest.param({}, False, id="no-driver"),
        pytest.param({GPU: 0}, False, id="none"),
        pytest.param({"attachable.example/disks": 4}, False, id="no-device"),
        pytest.param({GPU: 1}, True, id="a-gpu"),
        pytest.param({GPU: 0, "nvidia.com/mig-1g.5gb": 7}, True, id="slices"),
        pytest.param({"aliyun.com/gpu-mem": 15}, True, id="shares"),
        pytest.param({"huawei.com/ascend-310": 4}, True, id="ascend"),
    ],
)
def test_node_with_an_announcing_label_needs_a_device_of_any_kind(
    label: str, offered: dict[str, int], ready: bool
) -> None:
    assert is_ready(node("n", labels={label: "t4"}, extra=offered), Options()) is ready


@pytest.mark.parametrize("value", ["", "none", "None", "false"])
def test_label_that_says_none_announces_no_device(value: str) -> None:
    assert is_ready(node("n", labels={"accelerator": value}), Options())


def test_label_of_a_working_driver_announces_no_device() -> None:
    """It is there without a resource as well: where pods claim their devices."""
    assert is_ready(node("n", labels={"nvidia.com/gpu.product": "Tesla-T4"}), Options())


def test_node_of_a_group_with_claimed_devices_needs_none_in_its_amounts() -> None:
    build = cluster().node("n", "8", group="g", labels={"cluster-api/accelerator": "t4"})
    build.group("g", template=node("t", "8"), template_devices={"gpu.nvidia.com": 2})
    assert build.plan().health.ready == 1


def broken(name: str, had: int, has: int, **more: Any) -> dict[str, Any]:
    """Fields of a node without any label, with devices in its capacity."""
    sizes = {"cpu": 8000, "memory": 2**35, "pods": 110}
    return {"name": name, "cpu": "8", "capacity": {**sizes, GPU: had}, "extra": {GPU: has}, **more}


def gpu_group(*nodes: dict[str, Any], **more: Any) -> ClusterBuilder:
    build = cluster()
    for fields in nodes:
        build.node(group="g", **fields)
    return build.group("g", **more)


def test_node_with_none_of_its_capacity_is_not_ready_and_no_template() -> None:
    build = gpu_group(broken("a", 2, 0), broken("b", 2, 2)).running("b", 1, extra={GPU: 2})
    plan = build.pending(1, "1", extra={GPU: 2}).plan()
    assert growth(plan) == {"g": (1, 1)}
    assert plan.health.resource_unready == 1


def test_template_has_the_devices_of_a_node_on_which_some_are_broken() -> None:
    build = gpu_group(broken("a", 8, 7)).pending(1, "1", extra={GPU: 8})
    assert growth(build.plan()) == {"g": (1, 1)}


def test_node_with_fewer_devices_than_a_sibling_is_no_template() -> None:
    build = gpu_group(broken("a", 0, 0), broken("b", 4, 4), broken("c", 8, 8)).running(
        "c", 1, extra={GPU: 8}
    )
    assert growth(build.pending(1, "1", extra={GPU: 8}).plan()) == {"g": (1, 1)}


def test_nodes_of_another_type_are_no_siblings() -> None:
    """A scaling group may have several instance types; which of them comes next is unknown."""
    plain, large = (
        broken("a", 0, 0, labels={TYPE: "small"}),
        broken("b", 8, 8, labels={TYPE: "large"}),
    )
    build = gpu_group(plain, large).running("b", 1, extra={GPU: 8}).pending(1, "1", extra={GPU: 8})
    assert growth(build.plan()) == {}


def test_devices_of_another_kind_do_not_compare() -> None:
    build = cluster().node("a", "8", group="g", extra={"nvidia.com/mig-1g.5gb": 7})
    build.node("b", "8", group="g", extra={GPU: 1}).running(
        "a", 1, extra={"nvidia.com/mig-1g.5gb": 7}
    ).group("g")
    assert growth(build.pending(1, "1", extra={"nvidia.com/mig-1g.5gb": 7}).plan()) == {"g": (1, 1)}


def test_kubelet_that_lost_its_devices_reserves_none_of_them() -> None:
    """What a real node keeps back of its capacity counts for the vendor's template,
    but not its broken devices."""
    sizes = {"cpu": 8000, "memory": 2**35, "pods": 110, GPU: 1}
    lost = node("a", "7", group="g", capacity=sizes, extra={GPU: 0}, labels={"accelerator": "t4"})
    build = cluster()
    build.nodes.append(lost)
    build.group("g", template=Node("t", {"accelerator": "t4"}, {}, sizes))
    assert growth(build.pending(1, "1", extra={GPU: 1}).plan()) == {"g": (1, 1)}


def test_group_with_broken_nodes_alone_has_no_template_and_says_why() -> None:
    build = gpu_group({"name": "a", "cpu": "8", "labels": {"accelerator": "t4"}})
    plan = build.pending(1, "1", extra={GPU: 1}).plan()
    assert growth(plan) == {}
    (reason,) = verdict(plan).reasons["g"]
    assert "no node template: a lacks the device that is announced; check its driver" in sentence(
        reason
    )
