"""Checks between the taint and the end of a drain: pods about to be bound, and budgets that
never allow an eviction.
"""

from __future__ import annotations

from typing import Any

from infra.emulators.controllers import objects
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.objects import KubeObject
from tests.scenario.policies import document, refusal
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

OPTIONS = {"scaleDownUnneededTime": "1m", "scaleDownDelayAfterAdd": "1m"}
SELECTED = "volume.kubernetes.io/selected-node"


def _idle_node(world: ScenarioWorld, **options: Any) -> str:
    """Two nodes, one of them empty; returns its name."""
    world.apply_policy(document(options={**OPTIONS, **options}))
    world.seed(objects.machine_deployment("workers", 2, 1, 5))
    world.minutes(1.5)
    world.seed(objects.deployment("web", replicas=1, cpu="500m"))
    world.step_until(lambda: bool(world.last_known_nodes()), limit=300)
    return next(name for name in world.last_known_nodes() if not world.pods_on(name))


def _claim(name: str, node: str) -> KubeObject:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "annotations": {SELECTED: node}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disks",
            "resources": {"requests": {"storage": "10Gi"}},
        },
        "status": {"phase": "Pending"},
    }


@scenario(quick=True, grain=20.0)
def test_claim_being_provisioned_for_a_node_keeps_it(world: ScenarioWorld) -> None:
    """The scheduler has chosen the node and waits minutes for the volume; until
    then the pod has no node."""
    idle = _idle_node(world)
    world.seed(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "disks"},
            "provisioner": "example.org/disks",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )
    world.at("taint:called", lambda: world.seed(_claim("data-db-0", idle)))

    world.step_until(lambda: bool(world.ended("remove")), limit=600)

    (failed,) = world.ended("remove")
    assert (failed["state"], failed["class"]) == ("failed", "NodeNotEmpty")
    assert "claim default/data-db-0 is being given a volume on it" in failed["message"]
    assert not world.is_marked(idle)
    assert len(world.machines("workers")) == 2
    assert not any("/machines/" in request or "/scale" in request for request in world.writes())


@scenario(quick=True, grain=20.0)
def test_pod_nominated_to_a_node_keeps_it(world: ScenarioWorld) -> None:
    idle = _idle_node(world)

    def nominate() -> None:
        waiting = world.kube.create(
            "pods",
            {
                "metadata": {"name": "soon", "namespace": "default"},
                "spec": {
                    "schedulerName": "of-somebody-else",
                    "containers": [{"name": "c", "image": "i"}],
                },
            },
        )
        waiting["status"] = {"phase": "Pending", "nominatedNodeName": idle}
        world.kube.update("pods", waiting)

    world.at("taint:called", nominate)

    world.step_until(lambda: bool(world.ended("remove")), limit=600)

    (failed,) = world.ended("remove")
    assert (failed["state"], failed["class"]) == ("failed", "NodeNotEmpty")
    assert "pod default/soon is nominated to run on it" in failed["message"]
    assert not world.is_marked(idle)


def _drainable(world: ScenarioWorld, *budgets: KubeObject) -> str:
    """Two nodes with one pod of `web` each and these budgets over it; returns the name of the
    node that would be removed."""
    world.apply_policy(document(options=OPTIONS))
    world.seed(objects.machine_deployment("workers", 2, 1, 5))
    world.minutes(1.5)
    world.seed(objects.deployment("web", replicas=2, cpu="500m"), *budgets)
    world.step(30)
    return world.nodes()[0]


def _budget(name: str, **bound: Any) -> KubeObject:
    made = objects.pdb("web", **bound)
    return {**made, "metadata": {**made["metadata"], "name": name}}


@scenario(quick=True, grain=20.0)
def test_budget_that_never_allows_an_eviction_is_named_before_any_taint(
    world: ScenarioWorld,
) -> None:
    """Five thousand failed drains in seven days were reported (Karpenter issue 2219); here
    there is none in an hour."""
    _drainable(world, _budget("never", max_unavailable=0))
    world.minutes(60)

    assert world.ended("remove") == []
    assert not [
        request for request in world.writes() if "/nodes/" in request or "eviction" in request
    ]
    held = [verdict["reason"]["params"] for verdict in world.last_plan()["unremovable"]]
    rules = {(params.get("rule") or params.get("was"), params.get("budget")) for params in held}
    assert any(budget and "never" in budget for _, budget in rules), held


@scenario(quick=True, grain=20.0)
def test_pod_under_two_budgets_is_not_evicted(world: ScenarioWorld) -> None:
    """The eviction API always rejects such pods and names no budget."""
    _drainable(world, _budget("one", max_unavailable=1), _budget("two", max_unavailable=1))
    world.minutes(60)

    assert not [request for request in world.writes() if "eviction" in request]
    assert not any(world.is_marked(name) for name in world.nodes())
    said = [
        str(verdict["reason"])
        for plan in world.plans_with("unremovable")
        for verdict in plan["unremovable"]
    ]
    said += [end["message"] for end in world.ended("remove")]
    assert any("one" in words and "two" in words for words in said), said[-3:]
    assert len(world.nodes()) == 2


@scenario(quick=True, grain=20.0)
def test_repeatedly_rejected_drain_is_rolled_back_and_not_retried_in_a_loop(
    world: ScenarioWorld,
) -> None:
    """The budget appears to allow disruptions, but every eviction is rejected."""
    _drainable(world, _budget("web", max_unavailable=1))
    full = KubeFault(
        **refusal(429, "Cannot evict pod as it would violate the pod's disruption budget.")
    )
    world.line.ask = lambda method, target: (
        full if target.partition("?")[0].endswith("/eviction") else None
    )
    marked: list[bool] = []
    for _ in range(180):
        world.step(20)
        marked.append(any(world.is_marked(name) for name in world.nodes()))

    failed = world.ended("remove")
    assert 2 <= len(failed) <= 12, "no more than one in five minutes"
    assert {(end["state"], end["class"]) for end in failed} == {("failed", "EvictionBlocked")}
    assert all(
        "default/web-" in end["message"] and "disruption budget" in end["message"] for end in failed
    )
    assert sum(marked) <= len(failed) * 8, "and tainted only for as long as a drain may be refused"
    assert len(world.nodes()) == 2
    assert world.pods_ready("web") == 2


@scenario(quick=True, grain=20.0)
def test_node_that_cannot_be_drained_blocks_no_other_node(world: ScenarioWorld) -> None:
    world.apply_policy(document(options=OPTIONS))
    world.seed(objects.machine_deployment("workers", 4, 1, 5))
    world.minutes(1.5)
    world.seed(objects.deployment("web", replicas=8, cpu="300m"))
    full = KubeFault(
        **refusal(429, "Cannot evict pod as it would violate the pod's disruption budget.")
    )
    held: list[str] = []

    def refuse(method: str, target: str) -> KubeFault | None:
        path = target.partition("?")[0]
        if not path.endswith("/eviction"):
            return None
        pod = world.kube.peek("pods", path.split("/")[-2], "default")
        node = pod["spec"]["nodeName"] if pod else ""
        held[:] = held or [node]
        return full if node == held[0] else None

    world.line.ask = refuse
    world.minutes(60)

    assert held[0] in world.nodes()
    assert len(world.nodes()) < 4
    assert world.pods_ready("web") == 8
