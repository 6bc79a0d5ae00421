"""The scheduler's writes to the store: bindings, refusals, gates, and events with counts."""

from __future__ import annotations

from infra.emulators.controllers import objects
from infra.emulators.kube.objects import KubeObject, condition
from infra.emulators.kube.store import ObjectStore
from tests.unit.emulators.controllers.cluster import EmulatedCluster
from tests.unit.emulators.controllers.objects import pod


def scheduled(obj: KubeObject) -> KubeObject:
    return condition(obj, "PodScheduled") or {}


def events(store: ObjectStore, reason: str) -> list[tuple[str, int]]:
    return [(e["message"], e["count"]) for e in store.list("events") if e["reason"] == reason]


def test_scheduler_binds_a_fitting_pod_with_the_zone_of_its_node() -> None:
    cluster = EmulatedCluster(
        objects.node("n1", labels={"topology.kubernetes.io/zone": "a"}), pod(cpu="1")
    )
    bound = cluster.the("pods", "new")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["labels"]["topology.kubernetes.io/zone"] == "a"
    assert scheduled(bound)["status"] == "True"
    assert events(cluster.store, "Scheduled") == [("Successfully assigned default/new to n1", 1)]


def test_scheduler_refusal_states_the_reason_and_its_event_counts_attempts() -> None:
    cluster = EmulatedCluster(
        objects.node("n1", cpu="1"),
        objects.node("n2", cpu="8", memory="1Gi"),
        objects.deployment("big", replicas=1, cpu="2", memory="2Gi"),
    )
    [refused] = cluster.pods()
    why = "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."
    assert (scheduled(refused)["reason"], scheduled(refused)["message"]) == ("Unschedulable", why)
    assert events(cluster.store, "FailedScheduling") == [(why, 1)]
    cluster.wait(601, by=60)
    assert events(cluster.store, "FailedScheduling") == [(why, 3)]
    objects.apply(cluster.store, objects.node("n3"))
    cluster.sim.step()
    assert cluster.pods()[0]["spec"]["nodeName"] == "n3"


def test_scheduler_skips_a_gated_pod_until_the_gate_is_removed() -> None:
    cluster = EmulatedCluster(
        objects.node("n1"), pod(schedulingGates=[{"name": "example.com/wait"}])
    )
    gated = cluster.the("pods", "new")
    assert scheduled(gated)["reason"] == "SchedulingGated"
    assert "nodeName" not in gated["spec"]
    del gated["spec"]["schedulingGates"]
    cluster.store.update("pods", gated)
    cluster.sim.step()
    assert cluster.the("pods", "new")["spec"]["nodeName"] == "n1"


def test_scheduler_does_not_touch_pods_of_another_scheduler() -> None:
    cluster = EmulatedCluster(objects.node("n1"), pod(schedulerName="other"))
    assert "conditions" not in cluster.the("pods", "new")["status"]


def test_scheduler_places_the_pod_of_highest_priority_first() -> None:
    cluster = EmulatedCluster(
        objects.node("n1", cpu="1"), pod("low", cpu="1"), pod("high", cpu="1", priority=1000)
    )
    assert cluster.the("pods", "high")["spec"]["nodeName"] == "n1"
    assert (
        scheduled(cluster.the("pods", "low"))["message"]
        == "0/1 nodes are available: 1 Insufficient cpu."
    )


def test_scheduler_without_nodes_reports_it() -> None:
    assert (
        scheduled(EmulatedCluster(pod()).the("pods", "new"))["message"]
        == "no nodes available to schedule pods"
    )
