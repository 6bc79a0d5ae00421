"""Writes through the simulated API server: patches, conflicts, subresources,
deletion, validation, apply.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.kube_api.cluster import Caller, caller, machine_deployment, node, pod

STRATEGIC, MERGE = "application/strategic-merge-patch+json", "application/merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
MD = "/apis/cluster.x-k8s.io/v1beta2/namespaces/app/machinedeployments"


@pytest.fixture
def call() -> Caller:
    return caller()


def _conditions(call: Caller, *conditions: dict[str, Any]) -> list[Any]:
    body = {"status": {"conditions": list(conditions)}}
    patched = call("PATCH", "/api/v1/nodes/n0/status", body, STRATEGIC)
    assert patched.status == 200
    found: list[Any] = patched.json()["status"]["conditions"]
    return found


def test_kube_strategic_merge_joins_and_deletes_conditions_by_type(call: Caller) -> None:
    both = _conditions(call, {"type": "DiskPressure", "status": "False"})
    assert [each["type"] for each in both] == ["Ready", "DiskPressure"]
    assert both[0]["reason"] == "KubeletReady"
    assert [each["type"] for each in _conditions(call, {"type": "Ready", "$patch": "delete"})] == [
        "DiskPressure"
    ]


def test_kube_strategic_merge_joins_containers_by_name(call: Caller) -> None:
    patch = {"spec": {"containers": [{"name": "c", "image": "newer"}]}}
    found = call("PATCH", "/api/v1/namespaces/app/pods/web-0", patch, STRATEGIC).json()
    assert found["spec"]["containers"][0]["image"] == "newer"
    assert found["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "100m"}}


def test_kube_strategic_merge_can_replace_a_map(call: Caller) -> None:
    patch = {"metadata": {"labels": {"$patch": "replace", "only": "this"}}}
    found = call("PATCH", "/api/v1/nodes/n0", patch, STRATEGIC).json()
    assert found["metadata"]["labels"] == {"only": "this"}


def test_kube_json_patch_moves_copies_and_appends(call: Caller) -> None:
    operations = [
        {"op": "add", "path": "/spec/taints", "value": []},
        {"op": "add", "path": "/spec/taints/-", "value": {"key": "a", "effect": "NoSchedule"}},
        {"op": "copy", "from": "/metadata/labels/zone", "path": "/metadata/labels/was"},
        {
            "op": "move",
            "from": "/metadata/labels/zone",
            "path": "/metadata/labels/example.com~1zone",
        },
    ]
    found = call("PATCH", "/api/v1/nodes/n0", operations, JSON_PATCH).json()
    assert [each["key"] for each in found["spec"]["taints"]] == ["a"]
    assert (
        found["metadata"]["labels"]["was"] == found["metadata"]["labels"]["example.com/zone"] == "b"
    )


def test_kube_write_without_changes_makes_no_new_version(call: Caller) -> None:
    before = call.server.store.version
    assert (
        call("PATCH", "/api/v1/nodes/n0", {"metadata": {"labels": {"zone": "b"}}}, MERGE).status
        == 200
    )
    assert call.server.store.version == before


def test_kube_status_writes_change_only_status_and_others_never_do(call: Caller) -> None:
    made = call("POST", MD, {**machine_deployment("md"), "status": {"replicas": 9}}).json()
    assert "status" not in made
    both = {"spec": {"replicas": 5}, "status": {"replicas": 2}}
    found = call("PATCH", f"{MD}/md/status", both, MERGE).json()
    assert (found["spec"]["replicas"], found["status"], found["metadata"]["generation"]) == (
        1,
        {"replicas": 2},
        1,
    )
    found = call(
        "PATCH", f"{MD}/md", {"spec": {"replicas": 6}, "status": {"replicas": 3}}, MERGE
    ).json()
    assert (found["spec"]["replicas"], found["status"], found["metadata"]["generation"]) == (
        6,
        {"replicas": 2},
        2,
    )


def test_kube_custom_object_is_replaced_only_with_its_version(call: Caller) -> None:
    call("POST", MD, machine_deployment("md"))
    refused = call("PUT", f"{MD}/md", machine_deployment("md", 3))
    assert (refused.status, refused.json()["details"]["causes"][0]["field"]) == (
        422,
        "metadata.resourceVersion",
    )


def test_kube_native_scale_shows_the_selector(call: Caller) -> None:
    deployments = "/apis/apps/v1/namespaces/app/deployments"
    spec = {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "none"}]},
        },
    }
    assert call("POST", deployments, {"metadata": {"name": "web"}, "spec": spec}).status == 201
    scale = call("PATCH", f"{deployments}/web/scale", {"spec": {"replicas": 3}}, MERGE).json()
    assert (scale["spec"], scale["status"]["selector"]) == ({"replicas": 3}, "app=web")
    assert (
        call("PATCH", f"{deployments}/web/scale", {"spec": {"replicas": -1}}, MERGE).status == 422
    )


def test_kube_deleted_bound_pod_waits_for_its_kubelet_and_unbound_pod_vanishes(
    call: Caller,
) -> None:
    call.server.store.create("pods", pod("waiting", phase="Pending"))
    assert call("DELETE", "/api/v1/namespaces/app/pods/waiting").status == 200
    assert call("GET", "/api/v1/namespaces/app/pods/waiting").status == 404
    first = call("DELETE", "/api/v1/namespaces/app/pods/web-0").json()["metadata"]
    sooner = call("DELETE", "/api/v1/namespaces/app/pods/web-0?gracePeriodSeconds=3").json()[
        "metadata"
    ]
    assert (first["deletionGracePeriodSeconds"], sooner["deletionGracePeriodSeconds"]) == (30, 3)
    assert sooner["deletionTimestamp"] < first["deletionTimestamp"]


def test_kube_finalizers_keep_an_object_until_they_are_removed(call: Caller) -> None:
    held = machine_deployment("md")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    call("POST", MD, held)
    assert "deletionTimestamp" in call("DELETE", f"{MD}/md").json()["metadata"]
    assert call("PATCH", f"{MD}/md", {"metadata": {"finalizers": None}}, MERGE).status == 200
    assert call("GET", f"{MD}/md").status == 404


def test_kube_delete_with_another_uid_is_a_conflict(call: Caller) -> None:
    refused = call("DELETE", "/api/v1/nodes/n0", {"preconditions": {"uid": "another"}})
    assert (refused.status, "Precondition failed: UID" in refused.json()["message"]) == (409, True)


def test_kube_namespace_deletion_deletes_its_content(call: Caller) -> None:
    assert call("DELETE", "/api/v1/namespaces/app").status == 200
    assert call("GET", "/api/v1/pods").json()["items"] == []
    refused = call("POST", "/api/v1/namespaces/app/pods", pod("late"))
    assert (refused.status, refused.json()["message"]) == (404, 'namespaces "app" not found')


def test_kube_pod_is_bound_once(call: Caller) -> None:
    call.server.store.create("pods", pod("waiting", phase="Pending"))
    binding = {"metadata": {"name": "waiting"}, "target": {"kind": "Node", "name": "n1"}}
    assert call("POST", "/api/v1/namespaces/app/pods/waiting/binding", binding).status == 201
    found = call("GET", "/api/v1/namespaces/app/pods/waiting").json()
    assert (found["spec"]["nodeName"], found["status"]["conditions"][-1]["type"]) == (
        "n1",
        "PodScheduled",
    )
    assert call("POST", "/api/v1/namespaces/app/pods/waiting/binding", binding).status == 409


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "/api/v1/nodes", {"metadata": {"name": "Upper"}}, "metadata.name"),
        ("POST", "/api/v1/nodes", {"metadata": {}}, "metadata.name"),
        (
            "POST",
            "/api/v1/namespaces/app/pods",
            {"metadata": {"name": "p"}, "spec": {}},
            "spec.containers",
        ),
        (
            "PUT",
            "/api/v1/nodes/n0",
            {**node("n0"), "spec": {"providerID": "example://other"}},
            "spec.providerID",
        ),
        ("POST", MD, {**machine_deployment("md"), "spec": {"clusterName": ""}}, "spec.clusterName"),
    ],
)
def test_kube_invalid_objects_are_422_with_the_field(
    call: Caller, method: str, path: str, body: Any, field: str
) -> None:
    refused = call(method, path, body)
    assert (refused.status, refused.json()["details"]["causes"][0]["field"]) == (422, field)


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/api/v1/nodes", b"{", 400),
        ("POST", "/api/v1/nodes", {"kind": "Pod", "metadata": {"name": "x"}}, 400),
        (
            "POST",
            "/api/v1/namespaces/app/pods",
            {**pod("x"), "metadata": {"name": "x", "namespace": "no"}},
            400,
        ),
        ("PUT", "/api/v1/nodes/n0", node("n1"), 400),
        ("PUT", "/api/v1/nodes/absent", node("absent"), 404),
        ("PUT", "/api/v1/nodes", node("n1"), 405),
        ("GET", "/api/v1/nodes/n0/nothing", None, 404),
    ],
)
def test_kube_invalid_requests_have_their_statuses(
    call: Caller, method: str, path: str, body: Any, code: int
) -> None:
    assert call(method, path, body).status == code


def test_kube_dry_run_stores_nothing(call: Caller) -> None:
    before = call.server.store.version
    assert call("POST", "/api/v1/nodes?dryRun=All", node("dry")).status == 201
    assert (
        call(
            "PATCH", "/api/v1/nodes/n0?dryRun=All", {"metadata": {"labels": {"dry": "y"}}}, MERGE
        ).status
        == 200
    )
    assert call("DELETE", "/api/v1/nodes/n0", {"dryRun": ["All"]}).status == 200
    assert call.server.store.version == before


def test_kube_apply_creates_owns_its_fields_and_removes_omitted_ones(call: Caller) -> None:
    path = "/api/v1/namespaces/app/configmaps/c?fieldManager=me"

    def applied(data: dict[str, str], suffix: str = "") -> Any:
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}
        return call("PATCH", path + suffix, json.dumps(config).encode(), APPLY)

    assert applied({"a": "1", "b": "1"}).status == 201
    call("PATCH", "/api/v1/namespaces/app/configmaps/c", {"data": {"a": "2", "other": "3"}}, MERGE)
    assert applied({"a": "1", "b": "1"}).status == 409
    assert applied({"a": "2"}).json()["data"] == {"a": "2", "other": "3"}
    assert applied({"a": "1"}, "&force=true").json()["data"] == {"a": "1", "other": "3"}
