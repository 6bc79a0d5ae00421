"""Tests how the zone's instances become Nodes of a simulated cluster, and
which Nodes stay untouched.
"""

from __future__ import annotations

import pytest

from infra.emulators.controllers.clock import ManualClock
from infra.emulators.controllers.manager import ClusterSimulation
from infra.emulators.exoscale.account import ExoscaleMutations, Zone
from infra.emulators.exoscale.attached_account import (
    NODEPOOL_LABEL,
    ExoscaleNodeRegistration,
    ExoscaleRegistrationOptions,
)
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore


class ExoJoiningFixture:
    """A cluster and a zone that advance together."""

    def __init__(self, ways: ExoscaleRegistrationOptions | None = None) -> None:
        self.clock = ManualClock(1_800_000_000.0)
        self.store, self.zone = ObjectStore(self.clock), Zone(self.clock)
        self.cluster = ClusterSimulation(
            self.store, self.clock, more=[ExoscaleNodeRegistration(self.zone, self.store, ways)]
        )

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.cluster.step()

    def nodes(self) -> dict[str, KubeObject]:
        return {node["spec"]["providerID"]: node for node in self.store.list("nodes")}


def test_exoscale_running_instance_becomes_a_ready_node_after_a_delay() -> None:
    bed = ExoJoiningFixture(ExoscaleRegistrationOptions(boot=30.0))
    pool = bed.zone.add_pool("own", size=0)
    ExoscaleMutations(bed.zone).scale(pool, 1)
    bed.after(45.0)
    (vm,) = pool.members.values()
    assert vm.state == "running"
    assert not bed.nodes()
    bed.after(30.0)
    assert "taints" in bed.nodes()[f"exoscale://{vm.id}"]["spec"]
    bed.after(20.0)
    node = bed.nodes()[f"exoscale://{vm.id}"]
    assert {"type": "Ready", "status": "True"}.items() <= node["status"]["conditions"][-1].items()
    assert node["status"]["nodeInfo"]["systemUUID"] == vm.id


def test_exoscale_node_labels_capacity_and_taints_match_instance_and_nodepool() -> None:
    bed = ExoJoiningFixture(ExoscaleRegistrationOptions(reserve={"cpu": "100m", "memory": "1Gi"}))
    cluster = bed.zone.add_cluster("prod")
    web = bed.zone.add_nodepool(
        cluster.id,
        "gpu",
        size=1,
        type="gpu3.small",
        disk=100,
        labels={"team": "vision"},
        taints={"dedicated": ("gpu", "NoSchedule")},
        max_pods=30,
    )
    bed.after(0.0)
    (node,) = bed.nodes().values()
    labels, status = node["metadata"]["labels"], node["status"]
    assert (labels[NODEPOOL_LABEL], labels["team"], labels["node.kubernetes.io/instance-type"]) == (
        web.id,
        "vision",
        "gpu3.small",
    )
    assert (
        labels["topology.kubernetes.io/region"]
        == labels["topology.kubernetes.io/zone"]
        == "ch-gva-2"
    )
    assert {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert (status["capacity"]["nvidia.com/gpu"], status["capacity"]["pods"]) == ("1", "30")
    assert (status["capacity"]["cpu"], status["allocatable"]["cpu"]) == ("12", "11900m")
    assert status["allocatable"]["memory"] == f"{55 * 2**20}Ki"
    assert status["capacity"]["ephemeral-storage"] == "100Gi"


def test_exoscale_node_of_a_standalone_pool_has_no_pool_label() -> None:
    bed = ExoJoiningFixture()
    bed.zone.add_pool("own", size=1, labels={"cloud": "label"})
    bed.after(0.0)
    (node,) = bed.nodes().values()
    assert NODEPOOL_LABEL not in node["metadata"]["labels"]
    assert "cloud" not in node["metadata"]["labels"]


@pytest.mark.parametrize("how", ["vanish", "delete"])
def test_exoscale_only_the_node_of_a_deleted_instance_is_deleted(how: str) -> None:
    bed = ExoJoiningFixture()
    bed.store.create(
        "nodes", {"metadata": {"name": "of-another-provider"}, "spec": {"providerID": "kind://x"}}
    )
    pool = bed.zone.add_pool("own", size=2)
    bed.after(0.0)
    first, second = (f"exoscale://{id_}" for id_ in pool.members)
    if how == "vanish":
        bed.zone.vanish(next(iter(pool.members)))
        gone = {first}
    else:
        bed.zone.delete_pool(pool.id)
        gone = {first, second}
    bed.after(60.0)
    assert set(bed.nodes()) == {first, second, "kind://x"} - gone


def test_exoscale_instances_of_other_clusters_or_none_do_not_join() -> None:
    bed = ExoJoiningFixture(
        ExoscaleRegistrationOptions(never=frozenset({"b2000000-0000-4000-8000-000000000001"}))
    )
    bed.zone.add_pool("theirs", size=3)
    bed.zone.add_lonely()
    bed.after(600.0)
    assert not bed.nodes()
