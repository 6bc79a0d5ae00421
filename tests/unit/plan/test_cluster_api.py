"""Cluster API data about nodes that do not exist yet, as used by the planner: attach
limits, devices, GPUs, taints.
"""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.node import Node, Taint
from chalicelib.model.pod import Volume
from chalicelib.model.storage import Claim, CSINode, Storage, StorageClass
from chalicelib.plan.state.readiness import is_ready, lacks_device
from chalicelib.policy.settings.cluster_options import Options
from tests.builders import NOW, ClusterBuilder, cluster, coming, growth, node, words

DRIVER = "ebs.csi.aws.com"
FAST = StorageClass("fast", provisioner=DRIVER, waits=True)
UNINITIALIZED = "node.cluster.x-k8s.io/uninitialized"
OUTDATED = "node.cluster.x-k8s.io/outdated-revision"
GPU = "nvidia.com/gpu"


# -- CSI: attach limits of a new node


def claims_of_a_stateful_set(build: ClusterBuilder, count: int) -> None:
    """Pods data-0 … with one claim each, as created by a StatefulSet."""
    claims = tuple(
        Claim("default", f"data-{at}", storage_class="fast", request=2**30) for at in range(count)
    )
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
    """Pods of one class, each with its own volume."""
    template = Claim("", "", storage_class="fast", request=2**30)
    build.pending(
        count,
        "100m",
        owner="db",
        kind="StatefulSet",
        volumes=(Volume("v", "ephemeral", template=template),),
    )
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
def test_new_node_attaches_as_many_volumes_as_its_annotation_allows(
    volumes: dict[str, int], nodes: int
) -> None:
    build = empty_group(template_volumes=volumes)
    assert growth(a_volume_per_pod(build, 50).plan()) == {"g": (nodes, 50)}


def test_claims_of_a_statefulset_count_towards_the_attach_limit() -> None:
    build = empty_group(template_volumes={DRIVER: 4})
    claims_of_a_stateful_set(build, 9)
    assert growth(build.plan()) == {"g": (3, 9)}


def test_attach_limit_applies_to_upcoming_nodes() -> None:
    build = empty_group(template_volumes={DRIVER: 5}, target=2)
    assert len(a_volume_per_pod(build, 11).plan(coming({"g": 2})).fits_existing) == 10


def test_csinode_of_a_live_node_overrides_the_annotated_attach_limit() -> None:
    build = cluster().node("n", "16", "64Gi", group="g", unschedulable=True)
    build.group("g", template=node("t", "16", "64Gi"), template_volumes={DRIVER: 100})
    plan = a_volume_per_pod(build, 50, CSINode("n", {DRIVER: 10})).plan()
    assert growth(plan) == {"g": (5, 50)}


def test_live_node_without_driver_report_gives_no_attach_limit() -> None:
    build = cluster().node("n", "16", "64Gi", group="g", unschedulable=True)
    build.group("g", template=node("t", "16", "64Gi"), template_volumes={DRIVER: 10})
    assert growth(a_volume_per_pod(build, 50, CSINode("n")).plan()) == {"g": (5, 50)}


# -- DRA: read, but not simulated


def test_pod_with_a_device_claim_is_reported_as_not_simulated() -> None:
    build = empty_group(template_devices={"gpu.nvidia.com": 2}).pending(
        1, "1", resource_claims=("gpu",)
    )
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
def test_node_with_a_gpu_label_is_ready_once_its_gpu_is_allocatable(
    label: str, offered: dict[str, int], ready: bool
) -> None:
    made = node("n", labels={label: "t4"}, extra=offered)
    assert is_ready(made, Options()) is ready
    assert lacks_device(made) is not ready
    assert is_ready(node("n", extra=offered), Options()), "without a label nothing is promised"


def test_shared_gpu_resource_makes_a_gpu_node_ready() -> None:
    assert is_ready(
        node(
            "n", labels={"aliyun.accelerator/nvidia_name": "t4"}, extra={"aliyun.com/gpu-mem": 15}
        ),
        Options(),
    )


@pytest.mark.parametrize("label", ["cluster-api/accelerator", "aliyun.accelerator/nvidia_name"])
def test_gpu_total_limits_gpus_of_a_template_with_the_gpu_label(label: str) -> None:
    """The `labels` annotation carries the GPU type, which may differ from the resource name."""

    def build() -> ClusterBuilder:
        template = node("t", "8", labels={label: "nvidia-tesla-t4"}, extra={GPU: 4})
        return cluster().group("g", template=template).pending(10, "1", extra={GPU: 2})

    assert growth(build().plan()) == {"g": (5, 10)}
    assert growth(build().plan(gpu_total=(("nvidia-tesla-t4", 0, 12),))) == {"g": (3, 6)}
    assert growth(build().plan(gpu_total=(("nvidia-tesla-p4", 0, 0),))) == {"g": (5, 10)}


def test_gpu_node_still_installing_its_driver_counts_towards_gpu_total() -> None:
    label = {"cluster-api/accelerator": "t4"}
    build = cluster().node("young", "8", group="g", labels=label, created=NOW - 60)
    build.group("g", template=node("t", "8", labels=label, extra={GPU: 1})).pending(
        3, "1", extra={GPU: 1}
    )
    assert growth(build.plan(gpu_total=(("t4", 0, 2),))) == {"g": (1, 1)}


# -- temporary taints of Cluster API


def tainted(name: str, *keys: str) -> Node:
    effects = {UNINITIALIZED: "NoSchedule", OUTDATED: "PreferNoSchedule"}
    return node(name, "2", taints=[Taint(key, effects[key]) for key in keys])


def test_node_with_the_uninitialized_taint_is_starting_and_not_unready() -> None:
    assert not is_ready(tainted("n", UNINITIALIZED), Options())
    assert is_ready(tainted("n", OUTDATED), Options())


@pytest.mark.parametrize("key", [UNINITIALIZED, OUTDATED])
def test_template_drops_temporary_cluster_api_taints(key: str) -> None:
    """Applies to the provider's template and to a template copied from a real node."""
    effect = "PreferNoSchedule" if key == OUTDATED else "NoSchedule"
    template = cluster().group("g", template=tainted("t", key)).pending(2, "1")
    assert growth(template.plan()) == {"g": (1, 2)}
    real = (
        cluster()
        .node("n", "2", group="g", taints=[Taint(key, effect)])
        .running("n", 1, "2")
        .group("g")
    )
    assert growth(real.pending(2, "1").plan()) == {"g": (1, 2)}
