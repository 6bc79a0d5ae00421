"""Attacks on Cluster API over many passes: Nodes annotated with another cluster, or
with another Machine's id.

The victim is another cluster of the same management cluster. Its Machines have joined Nodes that
ours never sees, so they look like machines that never joined; none of them may be deleted.
"""

from __future__ import annotations

from typing import Any

import pytest

from infra.emulators.controllers import objects as cluster_objects
from infra.emulators.controllers.capi.fields import GROUP
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore
from infra.emulators.local_world import LocalWorld
from tests.providers.clusterapi import objects
from tests.scenario.policies import document
from tests.scenario.test_scenario_management_cluster import PROVIDER, SECRET, ScenarioManagement

OPTIONS = {
    "scaleDownUnneededTime": "1m",
    "scaleDownDelayAfterAdd": "1m",
    "maxNodeProvisionTime": "5m",
}
NAME, SPACE, MACHINE = f"{GROUP}/cluster-name", f"{GROUP}/cluster-namespace", f"{GROUP}/machine"
APART = {**PROVIDER, "namespace": "prod", "clusterName": "prod"}


def in_namespace(obj: KubeObject, namespace: str) -> KubeObject:
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


def cluster_of(store: ObjectStore, name: str, namespace: str, group: str, size: int) -> None:
    cluster_objects.apply(
        store,
        in_namespace(cluster_objects.cluster(name), namespace),
        in_namespace(
            cluster_objects.machine_deployment(group, size, 0, 6, cluster=name), namespace
        ),
    )


def size(store: ObjectStore, name: str, namespace: str) -> tuple[int, int]:
    """The replicas of the MachineDeployment, and the number of its Machines
    that are not being deleted."""
    found = store.peek("machinedeployments", name, namespace, GROUP)
    assert found is not None
    machines = [
        each
        for each in store.list("machines", namespace, group=GROUP)
        if each["metadata"]["labels"].get(f"{GROUP}/deployment-name") == name
        and "deletionTimestamp" not in each["metadata"]
    ]
    return int(found["spec"]["replicas"]), len(machines)


class LyingWorld(LocalWorld):
    """A world in which `lie` is written on every Node again and again, because Cluster API
    restores its own annotations."""

    lie: dict[str, str] | None = None

    def settle(self) -> None:
        """See LocalWorld."""
        super().settle()
        for node in self.kube.list("nodes") if self.lie else ():
            meta = {
                **node["metadata"],
                "annotations": {**node["metadata"].get("annotations", {}), **(self.lie or {})},
            }
            self.kube.update("nodes", {**node, "metadata": meta})


def add_victim(store: ObjectStore, name: str) -> None:
    """Adds three Machines whose Nodes are in a separate cluster."""
    more: dict[str, Any] = {"namespace": "victim", "cluster": name}
    cluster_objects.apply(store, in_namespace(cluster_objects.cluster(name), "victim"))
    store.load("machinedeployments", [objects.deployment("victims", replicas=3, **more)], GROUP)
    store.load(
        "machinesets", [objects.machine_set("victims-set", of="victims", replicas=3, **more)], GROUP
    )
    for at in range(3):
        made = objects.machine(
            f"v-{at}",
            "victims-set",
            provider_id=f"local:///v-{at}",
            node=f"victim-{at}",
            phase="Running",
            **more,
        )
        made["metadata"]["labels"] |= {"of": "victims", f"{GROUP}/deployment-name": "victims"}
        store.load(
            "machines",
            [{**made, "metadata": {**made["metadata"], "finalizers": [f"machine.{GROUP}"]}}],
            GROUP,
        )


LIES = {
    "the victim's name": {NAME: "victim", SPACE: "victim", MACHINE: "v"},
    "the victim's namespace": {SPACE: "victim"},
    "nothing": {NAME: "", SPACE: "", MACHINE: ""},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.parametrize("namesake", [False, True], ids=["another name", "the same name"])
def test_shared_management_cluster_loses_no_machine_of_another_cluster(
    lie: dict[str, str], namesake: bool
) -> None:
    management, name = ScenarioManagement(), "prod" if namesake else "victim"
    with LyingWorld(quick=True, grain=20.0, clouds=(management,)) as world:
        cluster_of(management.store, "prod", "prod", "workers", 2)
        world.apply_policy(document(providers={"clusterapi": APART}, options=OPTIONS))
        world.seed(cluster_objects.deployment("web", replicas=2, cpu="3"))
        world.step_until(lambda: not world.pending(), limit=600)
        add_victim(management.store, name)
        world.lie = lie
        world.step(1800)
        assert size(management.store, "victims", "victim") == (3, 3)
        assert size(management.store, "workers", "prod") == (2, 2)
        world.seed(cluster_objects.deployment("more", replicas=2, cpu="3"))
        world.step_until(lambda: not world.pending(), limit=1800)
        assert size(management.store, "workers", "prod") == (4, 4), "the annotations stop nothing"
        assert size(management.store, "victims", "victim") == (3, 3)


def test_stored_policy_without_the_clusters_name_changes_nothing() -> None:
    """The version that stored it took the name from the Nodes, all of which are
    annotated with the victim's."""
    management = ScenarioManagement()
    with LyingWorld(quick=True, grain=20.0, clouds=(management,)) as world:
        cluster_of(management.store, "prod", "prod", "workers", 2)
        add_victim(management.store, "victim")
        world.lie = LIES["the victim's name"]
        world.apply_policy(
            document(providers={"clusterapi": {"kubeconfigSecret": SECRET}}, options=OPTIONS)
        )
        world.seed(cluster_objects.deployment("web", replicas=2, cpu="3"))
        world.step(2400)
        assert size(management.store, "victims", "victim") == (3, 3)
        assert size(management.store, "workers", "prod") == (2, 2)
        assert management.server.requests == []
        assert world.operations() == ()
        [gap] = [gap for gap in world.plans()[-1]["gaps"] if gap["kind"] == "provider/clusterapi"]
        assert "providers.clusterapi.clusterName: is missing" in gap["detail"]
        assert "write the name of the Cluster object" in gap["detail"]


def test_idle_node_with_a_busy_nodes_id_removes_no_machine() -> None:
    with LocalWorld(quick=True, grain=20.0) as world:
        world.apply_policy(document(options={**OPTIONS, "scaleDownUnneededTime": "10m"}))
        world.seed(cluster_objects.machine_deployment("workers", 2, 0, 4))
        world.step(180)
        world.seed(
            cluster_objects.deployment("web", replicas=1, cpu="3"),
            cluster_objects.pdb("web", max_unavailable=0),
        )
        world.step_until(lambda: not world.pending(), limit=600)
        [pod] = world.kube.list("pods", "default")
        busy = world.kube.get("nodes", pod["spec"]["nodeName"])
        [idle] = [
            node
            for node in world.kube.list("nodes")
            if node["metadata"]["name"] != pod["spec"]["nodeName"]
        ]
        assert busy is not None
        world.kube.update(
            "nodes", {**idle, "spec": {**idle["spec"], "providerID": busy["spec"]["providerID"]}}
        )
        world.step(2400)
        assert len(world.nodes()) == 2
        assert [each["metadata"]["name"] for each in world.kube.list("pods", "default")] == [
            pod["metadata"]["name"]
        ]
        assert world.size("workers") == 2
        gaps = [gap["detail"] for gap in world.plans()[-1]["gaps"]]
        assert any("have one providerID" in detail for detail in gaps), gaps
