"""All controllers together: deterministic, idle when nothing happens, and a complete scenario."""

from __future__ import annotations

import threading

from infra.emulators.controllers import objects
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.manager import ClusterSimulation
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore
from tests.unit.emulators.controllers.cluster import START, EmulatedCluster


def simulated_day(seed_number: int) -> EmulatedCluster:
    cluster = EmulatedCluster(
        objects.machine_deployment("general", 2, 1, 5, zone="eu-1a"),
        objects.daemonset("logs"),
        objects.deployment("web", replicas=6, cpu="1"),
        objects.pdb("web", min_available=4),
        seed_number=seed_number,
    )
    cluster.wait(80, by=5)
    cluster.resize("machinedeployments", "general", fields.GROUP, 1)
    cluster.wait(60, by=5)
    return cluster


def everything(store: ObjectStore) -> list[list[KubeObject]]:
    kinds = (
        ("nodes", ""),
        ("pods", ""),
        ("events", ""),
        ("deployments", "apps"),
        ("replicasets", "apps"),
        ("machines", fields.GROUP),
        ("machinesets", fields.GROUP),
        ("poddisruptionbudgets", "policy"),
    )
    return [store.list(plural, group=group) for plural, group in kinds]


def test_local_simulation_two_runs_of_one_scenario_are_equal() -> None:
    first, second, other = simulated_day(1), simulated_day(1), simulated_day(2)
    assert everything(first.store) == everything(second.store)
    assert first.store.version == second.store.version
    assert everything(first.store) != everything(other.store)


def test_local_simulation_pods_of_a_deleted_node_wait_for_room_elsewhere() -> None:
    cluster = simulated_day(1)
    assert len(cluster.nodes()) == 1
    web = cluster.pods("default")
    assert len(web) == 6
    assert sum(p["status"]["phase"] == "Running" for p in web) == 3
    budget = cluster.the("poddisruptionbudgets", "web", group="policy")["status"]
    assert budget["disruptionsAllowed"] == 0


def test_local_simulation_idle_cluster_writes_nothing() -> None:
    cluster = simulated_day(1)
    before = cluster.store.version
    cluster.wait(20)
    assert cluster.store.version == before


def test_local_simulation_runs_in_a_thread_until_stopped() -> None:
    cluster = EmulatedCluster()
    live = ClusterSimulation(cluster.store, lambda: START)
    stop = threading.Event()
    thread = threading.Thread(target=live.run, args=(stop, 0.001))
    thread.start()
    try:
        objects.apply(cluster.store, objects.node("n1"), objects.deployment("web", replicas=2))
        for _ in range(200):
            version = cluster.store.version
            bound = [p for p in cluster.pods() if p["spec"].get("nodeName")]
            if len(bound) == 2:
                break
            cluster.store.wait(version, 60.0)
    finally:
        stop.set()
        thread.join(600)
    assert len(bound) == 2
    assert not thread.is_alive()
