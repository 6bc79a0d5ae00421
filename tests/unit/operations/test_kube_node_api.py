"""NodeApi over the real client, against the simulated API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.cluster.connect import connect
from chalicelib.cluster.errors import NotFound, Unavailable
from chalicelib.model.node import Taint
from chalicelib.operations.kube_node_api import KubeNodes
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.unit.operations.harness import START

HARD = Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule", "1")
"""Any value: what is asked here is what arrives."""


class There:
    """A simulated cluster, and the same cluster through NodeApi."""

    def __init__(self, server: ApiServer) -> None:
        self.server, self.kube = server, server.store
        access = KubernetesAccess(kubeconfig_secret="k")
        clock = ManualClock(START)
        self.api = KubeNodes(
            lambda: connect(
                access,
                lambda name: server.kubeconfig(),
                clock=clock,
                sleep=clock.advance,
                jitter=lambda: 0.5,
            )
        )

    def node(self, **spec: Any) -> None:
        annotations = {
            "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
            "delay-deletion.cluster-autoscaler.kubernetes.io/csi": "x",
        }
        self.kube.create(
            "nodes", {"metadata": {"name": "n", "annotations": annotations}, "spec": spec}
        )

    def pod(self, name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> None:
        self.kube.create(
            "pods",
            {
                "metadata": {"name": name, "namespace": "default", **metadata},
                "spec": {
                    "nodeName": "n",
                    "containers": [{"name": "c", "image": "i"}],
                    **(spec or {}),
                },
                "status": {"phase": "Running"},
            },
        )


@pytest.fixture
def there() -> Iterator[There]:
    with ApiServer(ObjectStore(ManualClock(START))) as server:
        yield There(server)


def test_node_api_reads_all_node_fields_that_a_removal_needs(there: There) -> None:
    there.node(
        providerID="cloud://1", unschedulable=True, taints=[{"key": "a", "effect": "NoSchedule"}]
    )
    node = there.api.node("n")
    assert node is not None
    assert (node.provider_id, node.unschedulable, node.scale_down_disabled) == (
        "cloud://1",
        True,
        True,
    )
    assert node.taints == (Taint("a", "NoSchedule"),)
    assert node.delays == ("delay-deletion.cluster-autoscaler.kubernetes.io/csi",)


def test_node_api_reads_whether_the_node_is_ready_and_its_boot(there: There) -> None:
    there.node()
    unknown = there.api.node("n")
    assert unknown is not None
    assert (unknown.ready, unknown.ready_since) == (False, 0.0)
    found = there.kube.get("nodes", "n")
    assert found is not None
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T07:20:54Z"}
    other = {"type": "DiskPressure", "status": "False", "lastTransitionTime": None}
    there.kube.update(
        "nodes",
        {**found, "status": {"conditions": [other, ready], "nodeInfo": {"bootID": "b-1"}}},
    )
    node = there.api.node("n")
    assert node is not None
    assert (node.ready, node.ready_since, node.boot) == (True, 1_795_245_654.0, "b-1")
    assert [(one.type, one.status, one.changed) for one in node.conditions] == [
        ("DiskPressure", "False", 0.0),
        ("Ready", "True", 1_795_245_654.0),
    ]


def test_node_api_absent_node_is_none_and_cannot_be_tainted(there: There) -> None:
    assert there.api.node("n") is None
    with pytest.raises(NotFound):
        there.api.taint("n", HARD, operation="remove-1", cordon=True)
    there.api.untaint("n", HARD.key, operation="remove-1", uncordon=True)


def test_node_api_taint_is_added_and_removed_without_changing_others(there: There) -> None:
    there.node(providerID="cloud://1", taints=[{"key": "a", "effect": "NoSchedule"}])
    there.api.taint("n", HARD, operation="remove-1", cordon=True)
    marked = there.api.node("n")
    assert marked is not None
    assert (marked.taint(HARD.key), marked.unschedulable) == (HARD, True)
    there.api.untaint("n", HARD.key, operation="remove-1", uncordon=True)
    clean = there.api.node("n")
    assert clean is not None
    assert (clean.taints, clean.unschedulable) == ((Taint("a", "NoSchedule"),), False)


def test_node_api_taint_names_its_operation_and_is_removed_only_by_it(there: There) -> None:
    there.node(providerID="cloud://1")
    there.api.taint("n", HARD, operation="remove-1", cordon=True)
    there.api.untaint("n", HARD.key, operation="remove-2", uncordon=True)
    marked = there.api.node("n")
    assert marked is not None
    assert (marked.operation, marked.taints, marked.unschedulable) == ("remove-1", (HARD,), True)
    there.api.untaint("n", HARD.key, operation="remove-1", uncordon=False)
    clean = there.api.node("n")
    assert clean is not None
    assert (clean.operation, clean.taints, clean.unschedulable) == ("", (), False)


def _claim(there: There, name: str, phase: str = "Pending", **annotations: str) -> None:
    there.kube.create(
        "persistentvolumeclaims",
        {
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"phase": phase},
        },
    )


CHOSEN = "volume.kubernetes.io/selected-node"


def test_node_api_finds_claims_that_get_a_volume_on_the_node(there: There) -> None:
    _claim(there, "plain")
    _claim(there, "elsewhere", **{CHOSEN: "m"})
    _claim(there, "there-already", "Bound", **{CHOSEN: "n"})
    _claim(there, "lost", "Lost", **{CHOSEN: "n"})
    assert there.api.claims_awaiting("n") == ()
    _claim(there, "b", **{CHOSEN: "n"})
    _claim(there, "a", **{CHOSEN: "n"})
    assert there.api.claims_awaiting("n") == ("default/a", "default/b")


def test_node_api_forbidden_claim_list_delays_nothing(there: There) -> None:
    _claim(there, "a", **{CHOSEN: "n"})
    there.server.faults.add(KubeFault(path="persistentvolumeclaims", status=403, times=-1))
    assert there.api.claims_awaiting("n") == ()


def test_node_api_unreadable_claims_are_an_error(there: There) -> None:
    there.server.faults.add(KubeFault(path="persistentvolumeclaims", status=503, times=-1))
    with pytest.raises(Unavailable):
        there.api.claims_awaiting("n")


def test_node_api_reads_pods_with_the_fields_that_drain_rules_need(there: There) -> None:
    daemon = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": "d",
        "uid": "u",
        "controller": True,
    }
    there.pod("a-daemon", ownerReferences=[daemon])
    there.pod("b-mirror", annotations={"kubernetes.io/config.mirror": "x"})
    there.pod("c-slow", {"terminationGracePeriodSeconds": 90, "priority": -20})
    there.pod(
        "d-like-a-daemon",
        annotations={
            "cluster-autoscaler.kubernetes.io/daemonset-pod": "true",
            "cluster-autoscaler.kubernetes.io/enable-ds-eviction": "false",
        },
    )
    daemon_pod, mirror, slow, alike = there.api.pods_on("n")
    assert daemon_pod.daemonset
    assert mirror.mirror
    assert (slow.grace, slow.priority, slow.deleted) == (90.0, -20, 0.0)
    assert (alike.daemonset, alike.enable_ds_eviction) == (True, "false")


def test_node_api_pod_without_a_priority_has_priority_zero(there: There) -> None:
    there.pod("a-plain")
    there.pod("b-critical", {"priority": 2_000_000_000})
    there.pod("c-below", {"priority": -1})
    assert [pod.priority for pod in there.api.pods_on("n")] == [0, 2_000_000_000, -1]
    single = there.api.pod("default", "b-critical")
    assert single is not None
    assert single.priority == 2_000_000_000


def test_node_api_evicts_exactly_this_pod_with_the_given_grace(there: There) -> None:
    there.pod("p")
    (pod,) = there.api.pods_on("n")
    assert there.api.evict(pod, 7.0).accepted
    (leaving,) = there.api.pods_on("n")
    assert (leaving.deleted, leaving.deletion_grace) == (START + 7.0, 7.0)
    there.kube.remove("pods", "p", "default")
    there.pod("p")
    assert there.api.evict(pod, 7.0).accepted  # gone: its replacement has another uid
    (successor,) = there.api.pods_on("n")
    assert successor.deleted == 0.0


def test_node_api_refused_eviction_quotes_the_budgets_message(there: There) -> None:
    there.pod("p", labels={"app": "web"})
    pod = there.kube.get("pods", "p", "default")
    assert pod is not None
    pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    there.kube.update("pods", pod)
    there.kube.create(
        "poddisruptionbudgets",
        {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {
                "disruptionsAllowed": 0,
                "desiredHealthy": 1,
                "currentHealthy": 1,
                "expectedPods": 1,
                "observedGeneration": 1,
            },
        },
        "policy",
    )
    (found,) = there.api.pods_on("n")
    answer = there.api.evict(found, 30.0)
    assert not answer.accepted
    assert answer.why_not == "The disruption budget web needs 1 healthy pods and has 1 currently"
