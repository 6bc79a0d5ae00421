"""Deployments, ReplicaSets, DaemonSets and Jobs: creation, recreation, rollout,
scaling and garbage collection.
"""

from __future__ import annotations

from infra.emulators.controllers import objects
from infra.emulators.controllers.kubelet import RUN_SECONDS
from infra.emulators.controllers.object_writes import controller_of
from infra.emulators.controllers.workloads import is_active, least_useful_first
from infra.emulators.kube.objects import KubeObject
from tests.unit.emulators.controllers.cluster import EmulatedCluster
from tests.unit.emulators.controllers.objects import pod


def names(pods: list[KubeObject]) -> set[str]:
    return {each["metadata"]["name"] for each in pods}


def web(replicas: int = 4) -> KubeObject:
    return objects.deployment("web", replicas=replicas, cpu="100m")


def test_local_deployment_creates_a_replica_set_that_creates_pods() -> None:
    cluster = EmulatedCluster(objects.node("n1"), web())
    cluster.wait(5)
    [rs] = cluster.store.list("replicasets", group="apps")
    assert (controller_of(rs) or {})["name"] == "web"
    assert {(controller_of(p) or {})["uid"] for p in cluster.pods()} == {rs["metadata"]["uid"]}
    assert {p["metadata"]["labels"]["pod-template-hash"] for p in cluster.pods()} == {
        rs["metadata"]["labels"]["pod-template-hash"]
    }
    status = cluster.the("deployments", "web", group="apps")["status"]
    assert (status["replicas"], status["readyReplicas"], status["unavailableReplicas"]) == (4, 4, 0)
    sample = cluster.pods()[0]["spec"]
    assert (
        sample["schedulerName"],
        sample["restartPolicy"],
        sample["terminationGracePeriodSeconds"],
    ) == (
        "default-scheduler",
        "Always",
        30,
    )
    assert {t["tolerationSeconds"] for t in sample["tolerations"]} == {300}


def test_local_evicted_pod_is_recreated_at_once() -> None:
    cluster = EmulatedCluster(objects.node("n1"), web())
    cluster.wait(5)
    victim = cluster.pods()[0]["metadata"]["name"]
    cluster.store.delete("pods", victim, "default")
    cluster.sim.step()
    assert len(cluster.pods()) == 5
    cluster.wait(5)
    assert len(cluster.running()) == 4
    assert victim not in names(cluster.pods())


def test_local_replica_set_scale_down_deletes_pending_pods_first() -> None:
    cluster = EmulatedCluster(
        objects.node("n1", cpu="1"), objects.deployment("web", replicas=8, cpu="250m")
    )
    cluster.wait(5)
    kept = names(cluster.running())
    assert len(kept) == 4
    cluster.resize("deployments", "web", "apps", 4)
    assert names(cluster.pods()) == kept


def test_local_replica_set_deletion_order() -> None:
    def running(name: str, node: str, at: str, cost: str = "0", ready: bool = True) -> KubeObject:
        made = pod(name, on=node)
        made["metadata"] |= {
            "creationTimestamp": f"2026-11-21T07:{at}Z",
            "annotations": {"controller.kubernetes.io/pod-deletion-cost": cost},
        }
        made["status"] = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(ready)}],
        }
        return made

    pods = [
        running("dear", "n3", "09:00", "10"),
        running("old", "n1", "01:00"),
        running("new", "n1", "05:00"),
        running("alone", "n2", "06:00"),
        running("unready", "n3", "00:00", ready=False),
    ]
    assert [p["metadata"]["name"] for p in least_useful_first(pods)] == [
        "unready",
        "new",
        "old",
        "alone",
        "dear",
    ]


def test_local_deployment_rollout_keeps_the_allowed_availability() -> None:
    cluster = EmulatedCluster(objects.node("n1"), web(4))
    cluster.wait(5)
    changed = cluster.the("deployments", "web", group="apps")
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/web:2.0"
    cluster.store.update("deployments", changed, "apps")
    fewest, most = 4, 4
    for _ in range(30):
        cluster.wait(1)
        active = [p for p in cluster.pods() if is_active(p)]
        fewest = min(fewest, sum(p["status"]["phase"] == "Running" for p in active))
        most = max(most, len(active))
    assert {p["spec"]["containers"][0]["image"] for p in cluster.pods()} == {
        "registry.example/web:2.0"
    }
    assert len(cluster.running()) == 4
    assert (fewest, most) == (3, 5)
    assert cluster.the("deployments", "web", group="apps")["status"]["updatedReplicas"] == 4


def test_local_deleted_deployment_deletes_its_sets_and_pods() -> None:
    cluster = EmulatedCluster(objects.node("n1"), web())
    cluster.wait(5)
    cluster.store.delete("deployments", "web", "default", "apps")
    cluster.wait(3)
    assert cluster.pods() == []
    assert cluster.store.list("replicasets", group="apps") == []


def test_local_pods_loaded_without_their_owners_stay() -> None:
    cluster = EmulatedCluster(objects.node("n1"))
    orphan = pod("orphan", on="n1")
    orphan["metadata"]["ownerReferences"] = [
        {"kind": "ReplicaSet", "name": "gone", "uid": "u", "controller": True}
    ]
    objects.apply(cluster.store, orphan)
    cluster.wait(3)
    assert names(cluster.pods()) == {"orphan"}


def test_local_daemonset_runs_on_every_eligible_node() -> None:
    taint = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
    cluster = EmulatedCluster(
        objects.node("n1"),
        objects.node("tainted", taints=[taint]),
        objects.node("arm", labels={"pool": "arm"}),
        objects.daemonset("logs", nodeSelector={"kubernetes.io/os": "linux"}),
        objects.daemonset("all", tolerations=[{"operator": "Exists"}]),
    )
    cluster.wait(5)
    on = {(p["metadata"]["labels"]["app"], p["spec"]["nodeName"]) for p in cluster.running()}
    assert on == {
        ("logs", "n1"),
        ("logs", "arm"),
        ("all", "n1"),
        ("all", "arm"),
        ("all", "tainted"),
    }
    status = cluster.the("daemonsets", "all", "kube-system", "apps")["status"]
    assert (status["desiredNumberScheduled"], status["numberReady"]) == (3, 3)
    objects.apply(cluster.store, objects.node("n2"))
    cluster.wait(5)
    assert len(cluster.running()) == 7


def test_local_daemonset_pod_is_bound_to_its_node_and_survives_a_cordon() -> None:
    cluster = EmulatedCluster(objects.node("n1"), objects.daemonset("logs"))
    [daemon] = cluster.pods()
    terms = daemon["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert terms == {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
        ]
    }
    cordoned = cluster.the("nodes", "n1", "")
    cordoned["spec"]["unschedulable"] = True
    cluster.store.update("nodes", cordoned)
    cluster.wait(3)
    assert names(cluster.pods()) == {daemon["metadata"]["name"]}


def test_local_job_runs_its_pods_to_completion() -> None:
    template = {
        "metadata": {"annotations": {RUN_SECONDS: "5"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]},
    }
    job = {
        "kind": "Job",
        "metadata": {"name": "sum", "namespace": "default"},
        "spec": {"completions": 3, "parallelism": 2, "template": template},
    }
    cluster = EmulatedCluster(objects.node("n1"), job)
    assert len(cluster.pods()) == 2
    cluster.wait(30)
    assert cluster.the("jobs", "sum", group="batch")["status"]["succeeded"] == 3
    assert len(cluster.pods()) == 3
