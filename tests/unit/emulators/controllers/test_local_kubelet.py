"""Lifecycle of nodes and pods: nodes become ready or go silent; pods start, end, and are
deleted.
"""

from __future__ import annotations

from infra.emulators.controllers import objects
from infra.emulators.controllers.kubelet import RUN_SECONDS, KubeletTimes
from infra.emulators.controllers.manager import Pace
from infra.emulators.controllers.object_writes import is_true
from infra.emulators.kube.objects import condition
from tests.unit.emulators.controllers.cluster import EmulatedCluster
from tests.unit.emulators.controllers.objects import pod

PACE = Pace(kubelets=KubeletTimes(boot=20, start=3, stop=2, heartbeat=300))


def test_local_kubelet_node_boots_and_starts_its_pods() -> None:
    cluster = EmulatedCluster(objects.node("n1", ready=False), pod(), pace=PACE)
    booting = cluster.the("nodes", "n1", "")
    assert condition(booting, "Ready") is not None
    assert not is_true(booting, "Ready")
    assert booting["spec"]["taints"] == [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    ]
    cluster.wait(19)
    assert not is_true(cluster.the("nodes", "n1", ""), "Ready")
    cluster.wait(1)
    ready = cluster.the("nodes", "n1", "")
    assert is_true(ready, "Ready")
    assert "taints" not in ready["spec"]
    assert cluster.the("pods", "new")["status"]["phase"] == "Pending"
    cluster.wait(3)
    started = cluster.the("pods", "new")
    assert started["status"]["phase"] == "Running"
    assert is_true(started, "Ready")


def test_local_kubelet_deleted_pod_ends_after_its_grace_or_its_shutdown_time() -> None:
    cluster = EmulatedCluster(
        objects.node("n1"),
        pod("slow", terminationGracePeriodSeconds=60),
        pod("quick", terminationGracePeriodSeconds=1),
        pace=PACE,
    )
    for name in ("slow", "quick"):
        cluster.store.delete("pods", name, "default")
    cluster.wait(1)
    assert [p["metadata"]["name"] for p in cluster.pods()] == ["slow"]
    cluster.wait(1)
    assert cluster.pods() == []


def test_local_kubelet_pods_of_a_vanished_node_are_deleted() -> None:
    cluster = EmulatedCluster(objects.node("n1"), pod(), pace=PACE)
    cluster.store.delete("nodes", "n1")
    cluster.sim.step()
    assert cluster.pods() == []


def test_local_kubelet_silent_node_becomes_unreachable_and_recovers() -> None:
    cluster = EmulatedCluster(objects.node("n1"), pod(), pace=PACE)
    cluster.sim.kubelets.silence("n1")
    cluster.wait(30)
    lost = cluster.the("nodes", "n1", "")
    assert (condition(lost, "Ready") or {})["status"] == "Unknown"
    assert lost["spec"]["taints"][0]["key"] == "node.kubernetes.io/unreachable"
    assert cluster.the("pods", "new")["status"]["phase"] == "Pending"
    cluster.sim.kubelets.revive("n1")
    cluster.wait(1)
    assert is_true(cluster.the("nodes", "n1", ""), "Ready")
    assert "taints" not in cluster.the("nodes", "n1", "")["spec"]


def test_local_kubelet_ready_node_reports_its_status_periodically() -> None:
    cluster = EmulatedCluster(objects.node("n1"), pace=PACE)
    first = (condition(cluster.the("nodes", "n1", ""), "Ready") or {})["lastHeartbeatTime"]
    cluster.wait(301, by=10)
    later = condition(cluster.the("nodes", "n1", ""), "Ready") or {}
    assert later["lastHeartbeatTime"] > first
    assert later["status"] == "True"


def test_local_kubelet_pod_with_a_run_time_ends_by_itself() -> None:
    short = pod(restartPolicy="Never")
    short["metadata"]["annotations"] = {RUN_SECONDS: "5"}
    cluster = EmulatedCluster(objects.node("n1"), short, pace=PACE)
    cluster.wait(9)
    assert cluster.the("pods", "new")["status"]["phase"] == "Succeeded"
