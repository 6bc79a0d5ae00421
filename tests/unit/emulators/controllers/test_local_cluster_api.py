"""Simulated Cluster API controllers: replicas become Machines and Nodes, annotated Machines go
first, faults can be injected."""

from __future__ import annotations

from typing import Any

import pytest

from infra.emulators.controllers import objects
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.capi.controller import CapiControllerSettings
from infra.emulators.controllers.capi.machine_deployments import first_to_go
from infra.emulators.controllers.capi.machines import MachineClass, MachineTimes
from infra.emulators.controllers.kubelet import KubeletTimes
from infra.emulators.controllers.manager import Pace
from infra.emulators.controllers.object_writes import controller_of, is_true
from infra.emulators.kube.objects import KubeObject
from tests.unit.emulators.controllers.cluster import EmulatedCluster

TIMES = MachineTimes(provision=20, join=30, delete=10)
PACE = Pace(kubelets=KubeletTimes(boot=10), machines=CapiControllerSettings(times=TIMES))
VERSIONS = pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])


def group(replicas: int = 2, **more: Any) -> KubeObject:
    return objects.machine_deployment("general", replicas, 0, 10, **more)


def phases(cluster: EmulatedCluster) -> list[str]:
    return [machine["status"]["phase"] for machine in cluster.machines()]


def deployment_status(cluster: EmulatedCluster) -> KubeObject:
    status: KubeObject = cluster.the("machinedeployments", "general", group=fields.GROUP)["status"]
    return status


def test_local_capi_replicas_become_nodes_after_their_delays() -> None:
    cluster = EmulatedCluster(
        group(2, zone="eu-1a", labels={"pool": "general"}, taints=["dedicated=x:NoSchedule"]),
        pace=PACE,
    )
    assert phases(cluster) == ["Provisioning"] * 2
    cluster.wait(20)
    assert phases(cluster) == ["Provisioned"] * 2
    assert cluster.nodes() == []
    cluster.wait(30)
    assert phases(cluster) == ["Running"] * 2
    assert deployment_status(cluster)["readyReplicas"] == 0
    assert not is_true(
        cluster.the("machinedeployments", "general", group=fields.GROUP), "Available"
    )
    cluster.wait(10)
    assert deployment_status(cluster)["readyReplicas"] == 2
    assert is_true(cluster.the("machinedeployments", "general", group=fields.GROUP), "Available")
    [first, _] = cluster.machines()
    node = cluster.the("nodes", first["status"]["nodeRef"]["name"], "")
    assert node["spec"]["providerID"] == first["spec"]["providerID"]
    assert node["spec"]["taints"] == [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]
    assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "eu-1a"
    assert node["metadata"]["labels"]["pool"] == "general"
    assert node["status"]["allocatable"] == {"cpu": "3900m", "memory": "16252928Ki", "pods": "110"}


@VERSIONS
def test_local_capi_owners_labels_and_annotations_lead_from_node_to_group(version: str) -> None:
    cluster = EmulatedCluster(group(1, version=version), pace=PACE)
    cluster.wait(60)
    [machine] = cluster.machines()
    [machine_set] = cluster.store.list("machinesets", group=fields.GROUP)
    assert (controller_of(machine) or {})["name"] == machine_set["metadata"]["name"]
    assert (controller_of(machine_set) or {})["name"] == "general"
    labels = machine["metadata"]["labels"]
    assert (labels[fields.CLUSTER_NAME], labels[fields.DEPLOYMENT_NAME]) == ("local", "general")
    assert labels[fields.SET_NAME] == machine_set["metadata"]["name"]
    assert machine_set["metadata"]["annotations"][fields.REVISION] == "1"
    assert machine_set["metadata"]["annotations"][fields.MAX_SIZE] == "10"
    marks = cluster.store.list("nodes")[0]["metadata"]["annotations"]
    assert marks == {
        fields.CLUSTER_NAME: "local",
        fields.CLUSTER_NAMESPACE: "default",
        fields.MACHINE: machine["metadata"]["name"],
        fields.OWNER_KIND: "MachineSet",
        fields.OWNER_NAME: machine_set["metadata"]["name"],
    }
    newest = "updatedReplicas" if version == "v1beta1" else "upToDateReplicas"
    assert deployment_status(cluster)[newest] == 1
    assert ("uid" in machine["status"]["nodeRef"]) is (version == "v1beta1")


def test_local_capi_missing_replicas_become_the_minimum() -> None:
    unset = objects.machine_deployment("general", 0, 3, 10)
    del unset["spec"]["replicas"]
    assert len(EmulatedCluster(unset, pace=PACE).machines()) == 3


def test_local_capi_annotated_machine_goes_first_with_its_node() -> None:
    cluster = EmulatedCluster(group(3), pace=PACE)
    cluster.wait(60)
    marked = cluster.machines()[1]
    name = marked["metadata"]["name"]
    mine = cluster.the("machines", name, group=fields.GROUP)
    mine["metadata"]["annotations"][fields.DELETE_MACHINE] = "now"
    cluster.store.update("machines", mine, fields.GROUP)
    cluster.resize("machinedeployments", "general", fields.GROUP, 2)
    assert cluster.the("machines", name, group=fields.GROUP)["status"]["phase"] == "Deleting"
    assert cluster.the("nodes", name, "")["spec"]["unschedulable"]
    cluster.wait(9)
    assert name in cluster.nodes()
    cluster.wait(1)
    assert name not in cluster.nodes()
    assert len(cluster.machines()) == len(cluster.nodes()) == 2


def test_local_capi_machines_in_deletion_count_until_they_are_gone() -> None:
    cluster = EmulatedCluster(group(3), pace=PACE)
    cluster.wait(60)
    cluster.resize("machinedeployments", "general", fields.GROUP, 2)
    cluster.resize("machinedeployments", "general", fields.GROUP, 1)
    assert sorted(phases(cluster)) == ["Deleting", "Deleting", "Running"]
    cluster.wait(11)
    assert phases(cluster) == ["Running"]


def test_local_capi_deletion_order() -> None:
    def machine(name: str, at: str, **marks: object) -> KubeObject:
        return {
            "metadata": {"name": name, "creationTimestamp": f"2026-11-21T07:{at}Z", **marks},
            "status": {"nodeRef": {"name": name}},
        }

    joining = {**machine("joining", "04:00"), "status": {}}
    machines = [
        machine("b-old", "01:00"),
        machine("a-new", "05:00"),
        joining,
        machine("marked", "02:00", annotations={fields.DELETE_MACHINE: ""}),
        machine("going", "03:00", deletionTimestamp="2026-11-21T07:09:00Z"),
    ]
    orders = {
        order: [m["metadata"]["name"] for m in first_to_go(machines, order)]
        for order in ("Random", "Newest", "Oldest")
    }
    assert orders == {
        "Random": ["going", "marked", "joining", "a-new", "b-old"],
        "Newest": ["going", "marked", "joining", "a-new", "b-old"],
        "Oldest": ["going", "marked", "joining", "b-old", "a-new"],
    }


def test_local_capi_machine_that_never_joins_stays_without_a_node() -> None:
    cluster = EmulatedCluster(group(1), pace=PACE)
    cluster.sim.capi.fail_next("MachineDeployment/default/general", "never-joins")
    cluster.resize("machinedeployments", "general", fields.GROUP, 2)
    cluster.wait(1800, by=60)
    assert sorted(phases(cluster)) == ["Provisioned", "Running"]
    assert len(cluster.nodes()) == 1
    assert deployment_status(cluster)["readyReplicas"] == 1


@VERSIONS
def test_local_capi_machine_that_cannot_be_provisioned_reports_it(version: str) -> None:
    cluster = EmulatedCluster(group(0, version=version), pace=PACE)
    cluster.sim.capi.fail_next("default/general", "provisioning-failure")
    cluster.resize("machinedeployments", "general", fields.GROUP, 1)
    cluster.wait(25)
    [failed] = cluster.machines()
    if version == "v1beta1":
        assert failed["status"]["phase"] == "Failed"
        assert "could not create" in failed["status"]["failureMessage"]
    else:
        assert "could not create" in failed["status"]["deprecated"]["v1beta1"]["failureMessage"]
    assert "providerID" not in failed["spec"]


def test_local_capi_slow_machine_joins_late() -> None:
    cluster = EmulatedCluster(group(0), pace=PACE)
    cluster.sim.capi.fail_next("default/general", "slow")
    cluster.resize("machinedeployments", "general", fields.GROUP, 1)
    cluster.wait(499, by=10)
    assert cluster.nodes() == []
    cluster.wait(10)
    assert len(cluster.nodes()) == 1


def test_local_capi_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="never-joins"):
        EmulatedCluster().sim.capi.fail_next("default/general", "explodes")


def test_local_capi_machine_class_overrides_the_announced_capacity() -> None:
    real = MachineClass(
        capacity={"cpu": "2", "memory": "8Gi"},
        allocatable={"cpu": "1900m", "memory": "7Gi"},
        labels={"pool": "real"},
    )
    pace = Pace(machines=CapiControllerSettings(times=TIMES, classes={"general": real}))
    cluster = EmulatedCluster(group(1, labels={"pool": "promised"}), pace=pace)
    cluster.wait(60)
    [node] = cluster.store.list("nodes")
    assert node["status"]["allocatable"] == {"cpu": "1900m", "memory": "7Gi"}
    assert node["metadata"]["labels"]["pool"] == "real"


def test_local_capi_only_managed_template_labels_reach_the_node() -> None:
    labelled = group(1)
    labelled["spec"]["template"]["metadata"] = {
        "labels": {
            "node-role.kubernetes.io/worker": "",
            "team": "blue",
            "x.node.cluster.x-k8s.io/rack": "7",
        }
    }
    cluster = EmulatedCluster(labelled, pace=PACE)
    cluster.wait(60)
    labels = cluster.store.list("nodes")[0]["metadata"]["labels"]
    assert labels["node-role.kubernetes.io/worker"] == ""
    assert labels["x.node.cluster.x-k8s.io/rack"] == "7"
    assert "team" not in labels


def test_local_capi_new_template_is_rolled_out() -> None:
    cluster = EmulatedCluster(group(2), pace=PACE)
    cluster.wait(70)
    changed = cluster.the("machinedeployments", "general", group=fields.GROUP)
    changed["spec"]["template"]["spec"]["version"] = "v1.37.0"
    cluster.store.update("machinedeployments", changed, fields.GROUP)
    cluster.wait(200, by=5)
    assert {m["spec"]["version"] for m in cluster.machines()} == {"v1.37.0"}
    assert len(cluster.machines()) == 2
    revisions = {
        s["metadata"]["annotations"][fields.REVISION]
        for s in cluster.store.list("machinesets", group=fields.GROUP)
    }
    assert revisions == {"1", "2"}


def test_local_capi_paused_group_does_not_change() -> None:
    cluster = EmulatedCluster(group(1), pace=PACE)
    paused = cluster.the("machinedeployments", "general", group=fields.GROUP)
    paused["metadata"]["annotations"][fields.PAUSED] = ""
    paused["spec"]["replicas"] = 5
    cluster.store.update("machinedeployments", paused, fields.GROUP)
    cluster.wait(5)
    assert len(cluster.machines()) == 1


def test_local_capi_deleted_group_deletes_its_machines_and_nodes() -> None:
    cluster = EmulatedCluster(group(2), pace=PACE)
    cluster.wait(60)
    cluster.store.delete("machinedeployments", "general", "default", fields.GROUP)
    cluster.wait(12)
    assert cluster.machines() == []
    assert cluster.nodes() == []
