"""NodeApi over the real client, against the simulated API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.execute.cluster import KubeNodes
from chalicelib.kube.connect import connect
from chalicelib.kube.errors import Missing
from chalicelib.model.node import Taint
from chalicelib.model.policy import KubernetesAccess
from infra.local.controllers.clock import ManualClock
from infra.local.kube.server import ApiServer
from infra.local.kube.store import ObjectStore
from tests.unit.execute.story import START

HARD = Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule", "1")
"""Any value: what is asked here is what arrives."""


class There:
    """A simulated cluster, and the same cluster through NodeApi."""

    def __init__(self, server: ApiServer) -> None:
        self.kube = server.store
        access = KubernetesAccess(kubeconfig_secret="k")
        clock = ManualClock(START)
        self.api = KubeNodes(lambda: connect(access, lambda name: server.kubeconfig(), clock=clock,
                                             sleep=clock.advance, jitter=lambda: 0.5))

    def node(self, **spec: Any) -> None:
        annotations = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
                       "delay-deletion.cluster-autoscaler.kubernetes.io/csi": "x"}
        self.kube.create("nodes", {"metadata": {"name": "n", "annotations": annotations}, "spec": spec})

    def pod(self, name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> None:
        self.kube.create("pods", {
            "metadata": {"name": name, "namespace": "default", **metadata},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}], **(spec or {})},
            "status": {"phase": "Running"},
        })


@pytest.fixture
def there() -> Iterator[There]:
    with ApiServer(ObjectStore(ManualClock(START))) as server:
        yield There(server)


def test_a_node_with_all_that_a_removal_asks_about(there: There) -> None:
    there.node(providerID="cloud://1", unschedulable=True, taints=[{"key": "a", "effect": "NoSchedule"}])
    node = there.api.node("n")
    assert node is not None
    assert (node.provider_id, node.unschedulable, node.scale_down_disabled) == ("cloud://1", True, True)
    assert node.taints == (Taint("a", "NoSchedule"),)
    assert node.delays == ("delay-deletion.cluster-autoscaler.kubernetes.io/csi",)


def test_no_node_is_none_and_cannot_be_tainted(there: There) -> None:
    assert there.api.node("n") is None
    with pytest.raises(Missing):
        there.api.taint("n", HARD, cordon=True)
    there.api.untaint("n", HARD.key, uncordon=True)


def test_the_mark_goes_on_and_off_and_leaves_the_others(there: There) -> None:
    there.node(providerID="cloud://1", taints=[{"key": "a", "effect": "NoSchedule"}])
    there.api.taint("n", HARD, cordon=True)
    marked = there.api.node("n")
    assert marked is not None
    assert (marked.taint(HARD.key), marked.unschedulable) == (HARD, True)
    there.api.untaint("n", HARD.key, uncordon=True)
    clean = there.api.node("n")
    assert clean is not None
    assert (clean.taints, clean.unschedulable) == ((Taint("a", "NoSchedule"),), False)


def test_pods_with_what_decides_about_them(there: There) -> None:
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    there.pod("a-daemon", ownerReferences=[daemon])
    there.pod("b-mirror", annotations={"kubernetes.io/config.mirror": "x"})
    there.pod("c-slow", {"terminationGracePeriodSeconds": 90, "priority": -20})
    there.pod("d-like-a-daemon", annotations={"cluster-autoscaler.kubernetes.io/daemonset-pod": "true",
                                              "cluster-autoscaler.kubernetes.io/enable-ds-eviction": "false"})
    daemon_pod, mirror, slow, alike = there.api.pods_on("n")
    assert daemon_pod.daemonset
    assert mirror.mirror
    assert (slow.grace, slow.priority, slow.deleted) == (90.0, -20, 0.0)
    assert (alike.daemonset, alike.enable_ds_eviction) == (True, "false")


def test_an_eviction_takes_this_very_pod_with_the_grace_given(there: There) -> None:
    there.pod("p")
    (pod,) = there.api.pods_on("n")
    assert there.api.evict(pod, 7.0).accepted
    (leaving,) = there.api.pods_on("n")
    assert (leaving.deleted, leaving.deletion_grace) == (START + 7.0, 7.0)
    there.kube.remove("pods", "p", "default")
    there.pod("p")
    assert there.api.evict(pod, 7.0).accepted     # gone: the successor has another uid
    (successor,) = there.api.pods_on("n")
    assert successor.deleted == 0.0


def test_a_refusal_is_in_the_budgets_own_words(there: There) -> None:
    there.pod("p", labels={"app": "web"})
    pod = there.kube.get("pods", "p", "default")
    assert pod is not None
    pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    there.kube.update("pods", pod)
    there.kube.create("poddisruptionbudgets", {
        "metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1, "expectedPods": 1,
                   "observedGeneration": 1}}, "policy")
    (found,) = there.api.pods_on("n")
    answer = there.api.evict(found, 30.0)
    assert not answer.accepted
    assert answer.why_not == "The disruption budget web needs 1 healthy pods and has 1 currently"
