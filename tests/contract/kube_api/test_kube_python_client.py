"""The official Kubernetes client for Python drives the simulated API server
as it drives a real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from kubernetes.client.exceptions import ApiException

from infra.emulators.kube.disruption import reconcile_budgets
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.contract.kube_api.cluster import budget, filled_store, machine_deployment, node, running


@pytest.fixture(scope="module", params=["http", "tls-token", "tls-certificate"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[ApiServer, str]]:
    with running(filled_store(nodes=7), tls=request.param != "http") as started:
        yield started, started.kubeconfig(certificate=request.param == "tls-certificate")


@pytest.fixture
def client(server: tuple[ApiServer, str], tmp_path: Path) -> Iterator[Any]:
    path = tmp_path / "config"
    path.write_text(server[1])
    made = kubernetes.config.new_client_from_config(config_file=str(path))
    yield made
    made.rest_client.pool_manager.clear()
    made.close()


@pytest.fixture
def core(client: Any) -> Any:
    return kubernetes.client.CoreV1Api(client)


@pytest.fixture
def store(server: tuple[ApiServer, str]) -> ObjectStore:
    return server[0].store


def test_python_client_lists_nodes_at_once_and_in_pages(core: Any) -> None:
    assert [each.metadata.name for each in core.list_node().items] == [
        f"n{index}" for index in range(7)
    ]
    names, token = [], None
    while token != "":
        page = core.list_node(limit=3, _continue=token)
        names += [each.metadata.name for each in page.items]
        token = page.metadata._continue or ""
    assert names == [f"n{index}" for index in range(7)]


def test_python_client_selects_by_label_and_field(core: Any) -> None:
    assert len(core.list_node(label_selector="zone=a").items) == 3
    on_node = core.list_pod_for_all_namespaces(
        field_selector="spec.nodeName=n0,status.phase!=Succeeded"
    )
    assert {each.metadata.name for each in on_node.items} == {"web-0", "web-1", "web-2"}


def test_python_client_watches_from_a_version_until_stopped(core: Any, store: ObjectStore) -> None:
    version = core.list_node(limit=1).metadata.resource_version
    store.create("nodes", node("passing"))
    store.remove("nodes", "passing")
    watch, seen = kubernetes.watch.Watch(), []
    for event in watch.stream(core.list_node, resource_version=version, timeout_seconds=5):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            watch.stop()
    assert seen == [("ADDED", "passing"), ("DELETED", "passing")]


def test_python_client_patches_taints(core: Any) -> None:
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
    patched = core.patch_node("n3", {"spec": {"taints": [taint], "unschedulable": True}})
    assert patched.spec.unschedulable is True
    assert [each.key for each in patched.spec.taints] == ["ToBeDeletedByClusterAutoscaler"]
    assert (
        core.patch_node("n3", {"spec": {"taints": None, "unschedulable": None}}).spec.taints is None
    )


def test_python_client_stale_replace_is_a_conflict(core: Any) -> None:
    found = core.read_node("n4")
    core.patch_node("n4", {"metadata": {"labels": {"touched": "yes"}}})
    with pytest.raises(ApiException) as caught:
        core.replace_node("n4", found)
    assert (caught.value.status, '"reason":"Conflict"' in caught.value.body) == (409, True)


def test_python_client_absent_object_is_404(core: Any) -> None:
    with pytest.raises(ApiException) as caught:
        core.read_node("absent")
    assert caught.value.status == 404


def test_python_client_evicts_unless_a_budget_forbids(core: Any, store: ObjectStore) -> None:
    eviction = kubernetes.client.V1Eviction(
        metadata=kubernetes.client.V1ObjectMeta(name="web-0", namespace="app")
    )
    store.create("poddisruptionbudgets", budget("all", minAvailable=3), "policy")
    reconcile_budgets(store)
    with pytest.raises(ApiException) as caught:
        core.create_namespaced_pod_eviction("web-0", "app", eviction)
    assert caught.value.status == 429
    store.remove("poddisruptionbudgets", "all", "app", "policy")
    core.create_namespaced_pod_eviction("web-0", "app", eviction)
    assert core.read_namespaced_pod("web-0", "app").metadata.deletion_timestamp is not None


def test_python_client_scales_a_custom_object(client: Any) -> None:
    custom = kubernetes.client.CustomObjectsApi(client)
    place = ("cluster.x-k8s.io", "v1beta2", "app", "machinedeployments")
    made = custom.create_namespaced_custom_object(*place, machine_deployment("md-a", 1))
    scale = custom.patch_namespaced_custom_object_scale(*place, "md-a", {"spec": {"replicas": 4}})
    assert scale["spec"]["replicas"] == 4
    seen = made["metadata"]["resourceVersion"]
    stale = {"metadata": {"name": "md-a", "resourceVersion": seen}, "spec": {"replicas": 9}}
    with pytest.raises(ApiException) as caught:
        custom.patch_namespaced_custom_object_scale(*place, "md-a", stale)
    assert caught.value.status == 409
    found = custom.list_namespaced_custom_object(*place)["items"]
    assert [(each["metadata"]["name"], each["spec"]["replicas"]) for each in found] == [("md-a", 4)]
    custom.delete_namespaced_custom_object(*place, "md-a")


def test_python_client_writes_events_and_leases(client: Any, core: Any) -> None:
    event = kubernetes.client.CoreV1Event(
        metadata=kubernetes.client.V1ObjectMeta(generate_name="scale-up."),
        reason="TriggeredScaleUp",
        message="g 1->2",
        type="Normal",
        event_time=datetime(2026, 1, 1, tzinfo=UTC),
        involved_object=kubernetes.client.V1ObjectReference(
            kind="Pod", name="web-1", namespace="app"
        ),
    )
    assert core.create_namespaced_event("app", event).metadata.name.startswith("scale-up.")
    shown = kubernetes.client.EventsV1Api(client).list_namespaced_event("app").items
    assert [(each.reason, each.note) for each in shown] == [("TriggeredScaleUp", "g 1->2")]
    leases = kubernetes.client.CoordinationV1Api(client)
    spec = kubernetes.client.V1LeaseSpec(holder_identity="me")
    leases.create_namespaced_lease(
        "kube-system",
        kubernetes.client.V1Lease(
            metadata=kubernetes.client.V1ObjectMeta(name="outscaler"), spec=spec
        ),
    )
    assert leases.read_namespaced_lease("outscaler", "kube-system").spec.holder_identity == "me"
    leases.delete_namespaced_lease("outscaler", "kube-system")
