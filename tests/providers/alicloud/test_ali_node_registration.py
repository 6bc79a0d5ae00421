"""Tests how the account's instances become Nodes of a simulated cluster, and
which Nodes stay untouched.
"""

from __future__ import annotations

import pytest

from infra.emulators.alicloud.account import AlicloudCloud
from infra.emulators.alicloud.mutations import AlicloudMutations, Removal
from infra.emulators.alicloud.node_registration import (
    TAG,
    AlicloudNodeRegistration,
    AlicloudRegistrationOptions,
)
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.controllers.manager import ClusterSimulation
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore


class AliJoiningFixture:
    """A cluster and an account that advance together."""

    def __init__(self, ways: AlicloudRegistrationOptions | None = None) -> None:
        self.clock = ManualClock(1_800_000_000.0)
        self.store = ObjectStore(self.clock)
        self.cloud = AlicloudCloud(self.clock)
        self.cluster = ClusterSimulation(
            self.store, self.clock, more=[AlicloudNodeRegistration(self.cloud, self.store, ways)]
        )

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.cluster.step()

    def nodes(self) -> dict[str, KubeObject]:
        return {node["metadata"]["name"]: node for node in self.store.list("nodes")}


def test_alicloud_running_instance_becomes_a_ready_node_after_a_delay() -> None:
    bed = AliJoiningFixture(AlicloudRegistrationOptions(boot=30.0))
    group = bed.cloud.add_group("g")
    group.desired, group.check_at = 1, bed.clock()
    bed.after(0.0)
    bed.after(40.0)
    (machine,) = group.machines.values()
    assert machine.state == "InService"
    assert not bed.nodes()
    bed.after(30.0)
    assert "taints" in bed.nodes()[machine.id]["spec"]
    bed.after(20.0)
    node = bed.nodes()[machine.id]
    assert {"type": "Ready", "status": "True"}.items() <= node["status"]["conditions"][-1].items()
    assert node["spec"] == {"providerID": f"cn-hangzhou.{machine.id}"}


def test_alicloud_node_labels_capacity_and_taints_match_machine_and_pool() -> None:
    bed = AliJoiningFixture(
        AlicloudRegistrationOptions(prefix="alicloud://", reserve={"cpu": "100m", "memory": "1Gi"})
    )
    group = bed.cloud.add_group(
        "gpu",
        size=1,
        types=("ecs.gn6i-c4g1.xlarge",),
        zones=("cn-hangzhou-k",),
        tags={
            f"{TAG}label/team": "vision",
            f"{TAG}taint/dedicated": "gpu:NoSchedule",
            "owner": "nobody",
        },
    )
    bed.after(0.0)
    ((name, node),) = bed.nodes().items()
    labels = node["metadata"]["labels"]
    assert node["spec"]["providerID"] == f"alicloud://cn-hangzhou.{name}"
    assert (
        labels["topology.kubernetes.io/zone"],
        labels["kubernetes.io/arch"],
        labels["team"],
    ) == (
        "cn-hangzhou-k",
        "amd64",
        "vision",
    )
    assert labels["aliyun.accelerator/nvidia_name"] == "NVIDIA-T4"
    assert "owner" not in labels
    assert {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["status"]["capacity"]["nvidia.com/gpu"] == "1"
    assert (node["status"]["capacity"]["cpu"], node["status"]["allocatable"]["cpu"]) == (
        "4",
        "3900m",
    )
    assert node["status"]["allocatable"]["memory"] == f"{14 * 2**20}Ki"
    assert group.machines[name].type == "ecs.gn6i-c4g1.xlarge"


def test_alicloud_arm_machine_becomes_an_arm_node() -> None:
    bed = AliJoiningFixture()
    bed.cloud.add_group("arm", size=1, types=("ecs.g8y.xlarge",))
    bed.after(0.0)
    (node,) = bed.nodes().values()
    assert node["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"


@pytest.mark.parametrize("how", ["vanish", "delete"])
def test_alicloud_only_the_node_of_a_released_instance_is_deleted(how: str) -> None:
    bed = AliJoiningFixture()
    bed.store.create(
        "nodes", {"metadata": {"name": "of-another-provider"}, "spec": {"providerID": "kind://x"}}
    )
    group = bed.cloud.add_group("g", size=2)
    bed.after(0.0)
    first, second = group.machines
    if how == "vanish":
        bed.cloud.vanish(first)
        gone = {first}
    else:
        bed.cloud.delete_group(group.id)
        gone = {first, second}
    bed.after(60.0)
    assert set(bed.nodes()) == {first, second, "of-another-provider"} - gone


def test_alicloud_node_of_a_detached_instance_stays() -> None:
    bed = AliJoiningFixture()
    group = bed.cloud.add_group("g", desired=False)
    (attached,) = bed.cloud.add_machines(group.id, 1, creation="Attached")
    bed.after(0.0)
    AlicloudMutations(bed.cloud).remove(Removal(group.id, (attached,)))
    bed.after(20.0)
    assert not group.machines
    assert set(bed.nodes()) == {attached}


def test_alicloud_machines_of_another_cluster_do_not_join() -> None:
    bed = AliJoiningFixture(AlicloudRegistrationOptions(never=frozenset({"asg-bp1local00000001"})))
    bed.cloud.add_group("theirs", size=3)
    bed.after(600.0)
    assert not bed.nodes()
