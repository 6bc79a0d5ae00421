"""What Cluster API says of a node before it exists, as the planner takes it: attach limits, devices, GPUs, taints.

clusterapi.md §5 and §9; cases 20 and 21 of §11.
"""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.node import Node, Taint
from chalicelib.model.pod import Volume
from chalicelib.model.policy import Options
from chalicelib.model.storage import Claim, CSINode, Storage, StorageClass
from chalicelib.plan.state.readiness import is_ready, lacks_device
from tests.builders import NOW, ClusterBuilder, cluster, coming, growth, node, words

DRIVER = "ebs.csi.aws.com"
FAST = StorageClass("fast", provisioner=DRIVER, waits=True)
UNINITIALIZED = "node.cluster.x-k8s.io/uninitialized"
OUTDATED = "node.cluster.x-k8s.io/outdated-revision"
GPU = "nvidia.com/gpu"


# -- CSI: the attach limits of a node that does not exist


def claims_of_a_stateful_set(build: ClusterBuilder, count: int) -> None:
    """Pods data-0 … with a claim each, as a StatefulSet makes them."""
    claims = tuple(Claim("default", f"data-{at}", storage_class="fast", request=2**30) for at in range(count))
    for claim in claims:
        build.pending(
            1,
            "100m",
            owner="db",
            kind="StatefulSet",
            volumes=(Volume("data", "persistentVolumeClaim", claim=claim.name),),
        )
    build.more["storage"] = Storage(claims=claims, classes=(FAST,))


def a_volume_per_pod(build: ClusterBuilder, count: int, *csi_nodes: CSINode) -> ClusterBuilder:
    """Pods of one class that each bring a volume of their own."""
    template = Claim("", "", storage_class="fast", request=2**30)
    build.pending(count, "100m", owner="db", kind="StatefulSet", volumes=(Volume("v", "ephemeral", template=template),))
    build.more["storage"] = Storage(classes=(FAST,), csi_nodes=csi_nodes)
    return build


def empty_group(**more: Any) -> ClusterBuilder:
    return cluster().group("g", template=node("t", "16", "64Gi"), **more)


@pytest.mark.parametrize(
    ("volumes", "nodes"),
    [
        pytest.param({}, 1, id="nothing-said"),
        pytest.param({DRIVER: 25}, 2, id="25-per-node"),
        pytest.param({DRIVER: 10}, 5, id="10-per-node"),
        pytest.param({DRIVER: 0}, 1, id="present-without-a-limit"),
        pytest.param({"efs.csi.aws.com": 1}, 1, id="another-driver"),
    ],
)
def test_CAPI_20_a_new_node_attaches_as_many_volumes_as_its_annotation_says(
    volumes: dict[str, int], nodes: int
) -> None:
    build = empty_group(template_volumes=volumes)
    assert growth(a_volume_per_pod(build, 50).plan()) == {"g": (nodes, 50)}


def test_CAPI_20_the_claims_of_a_stateful_set_count_like_any_other() -> None:
    build = empty_group(template_volumes={DRIVER: 4})
    claims_of_a_stateful_set(build, 9)
    assert growth(build.plan()) == {"g": (3, 9)}


def test_CAPI_20_the_volumes_of_nodes_on_their_way_are_limited_too() -> None:
    build = empty_group(template_volumes={DRIVER: 5}, target=2)
    assert len(a_volume_per_pod(build, 11).plan(coming({"g": 2})).fits_existing) == 10


def test_CAPI_20_what_a_live_node_says_of_itself_wins() -> None:
    build = cluster().node("n", "16", "64Gi", group="g", unschedulable=True)
    build.group("g", template=node("t", "16", "64Gi"), template_volumes={DRIVER: 100})
    plan = a_volume_per_pod(build, 50, CSINode("n", {DRIVER: 10})).plan()
    assert growth(plan) == {"g": (5, 50)}


def test_CAPI_20_a_live_node_whose_drivers_have_not_reported_says_nothing() -> None:
    build = cluster().node("n", "16", "64Gi", group="g", unschedulable=True)
    build.group("g", template=node("t", "16", "64Gi"), template_volumes={DRIVER: 10})
    assert growth(a_volume_per_pod(build, 50, CSINode("n")).plan()) == {"g": (5, 50)}


# -- DRA: carried, and not simulated


def test_CAPI_21_a_pod_with_a_device_claim_is_told_that_claims_are_not_simulated() -> None:
    build = empty_group(template_devices={"gpu.nvidia.com": 2}).pending(1, "1", resource_claims=("gpu",))
    plan = build.plan()
    assert growth(plan) == {}
    assert words(plan) == {"g": ["NotSimulated(resource claims)"]}
    plain = empty_group(template_devices={"gpu.nvidia.com": 2}).pending(1, "1")
    assert growth(plain.plan()) == {"g": (1, 1)}, "devices that nobody asks for are in nobody's way"


# -- GPUs


@pytest.mark.parametrize("label", ["cluster-api/accelerator", "aliyun.accelerator/nvidia_name"])
@pytest.mark.parametrize(
    ("offered", "ready"),
    [
        pytest.param({}, False, id="no-driver-yet"),
        pytest.param({GPU: 0}, False, id="none-counted"),
        pytest.param({GPU: 1}, True, id="there"),
        pytest.param({"amd.com/gpu": 1}, True, id="of-another-make"),
    ],
)
def test_a_labelled_node_is_ready_once_its_gpu_is_there(label: str, offered: dict[str, int], ready: bool) -> None:
    made = node("n", labels={label: "t4"}, extra=offered)
    assert is_ready(made, Options()) is ready
    assert lacks_device(made) is not ready
    assert is_ready(node("n", extra=offered), Options()), "without a label nothing is promised"


def test_a_gpu_that_pods_share_is_there_too() -> None:
    assert is_ready(
        node("n", labels={"aliyun.accelerator/nvidia_name": "t4"}, extra={"aliyun.com/gpu-mem": 15}), Options()
    )


@pytest.mark.parametrize("label", ["cluster-api/accelerator", "aliyun.accelerator/nvidia_name"])
def test_gpu_total_bounds_what_a_template_with_the_label_promises(label: str) -> None:
    """The `labels` annotation carries the type, which need not be the resource's name."""

    def build() -> ClusterBuilder:
        template = node("t", "8", labels={label: "nvidia-tesla-t4"}, extra={GPU: 4})
        return cluster().group("g", template=template).pending(10, "1", extra={GPU: 2})

    assert growth(build().plan()) == {"g": (5, 10)}
    assert growth(build().plan(gpu_total=(("nvidia-tesla-t4", 0, 12),))) == {"g": (3, 6)}
    assert growth(build().plan(gpu_total=(("nvidia-tesla-p4", 0, 0),))) == {"g": (5, 10)}


def test_a_gpu_node_that_still_installs_its_driver_counts_to_gpu_total() -> None:
    label = {"cluster-api/accelerator": "t4"}
    build = cluster().node("young", "8", group="g", labels=label, created=NOW - 60)
    build.group("g", template=node("t", "8", labels=label, extra={GPU: 1})).pending(3, "1", extra={GPU: 1})
    assert growth(build.plan(gpu_total=(("t4", 0, 2),))) == {"g": (1, 1)}


# -- taints that Cluster API sets for a while


def tainted(name: str, *keys: str) -> Node:
    effects = {UNINITIALIZED: "NoSchedule", OUTDATED: "PreferNoSchedule"}
    return node(name, "2", taints=[Taint(key, effects[key]) for key in keys])


def test_D22_an_uninitialised_node_is_starting_and_not_broken() -> None:
    assert not is_ready(tainted("n", UNINITIALIZED), Options())
    assert is_ready(tainted("n", OUTDATED), Options())


@pytest.mark.parametrize("key", [UNINITIALIZED, OUTDATED])
def test_D22_what_cluster_api_sets_for_a_while_is_not_on_the_next_node(key: str) -> None:
    """Neither from the provider's template, nor from a real node that becomes one."""
    effect = "PreferNoSchedule" if key == OUTDATED else "NoSchedule"
    template = cluster().group("g", template=tainted("t", key)).pending(2, "1")
    assert growth(template.plan()) == {"g": (1, 2)}
    real = cluster().node("n", "2", group="g", taints=[Taint(key, effect)]).running("n", 1, "2").group("g")
    assert growth(real.pending(2, "1").plan()) == {"g": (1, 2)}
