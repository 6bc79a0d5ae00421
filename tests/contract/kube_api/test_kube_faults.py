"""Injected faults, the request log, and authorization in the simulated API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from infra.emulators.kube.auth import User, granted
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from tests.cases import each_row
from tests.contract.kube_api.cluster import READER, caller, running


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with running() as started:
        yield started


def _get(server: ApiServer, path: str) -> requests.Response:
    return requests.get(server.url + path, headers=server.headers(), timeout=600)


def test_kube_api_fault_meets_the_configured_number_of_requests(server: ApiServer) -> None:
    server.faults.add(
        KubeFault(
            method="GET", path="/nodes$", status=503, body=b'{"kind":"Status"}', times=2, skip=1
        )
    )
    codes = [_get(server, "/api/v1/nodes").status_code for _ in range(4)]
    assert codes == [200, 503, 503, 200]
    assert _get(server, "/api/v1/nodes/n0").status_code == 200


def test_kube_api_truncated_answer_is_detected_by_the_client(server: ApiServer) -> None:
    server.faults.add(KubeFault(path="/nodes", truncate=40))
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        _get(server, "/api/v1/nodes")
    assert _get(server, "/api/v1/nodes").status_code == 200


def test_kube_api_connection_closed_late_has_executed_the_request(server: ApiServer) -> None:
    for late in (False, True):
        server.faults.add(KubeFault(method="DELETE", close=True, late=late))
        with pytest.raises(requests.exceptions.ConnectionError):
            requests.delete(server.url + "/api/v1/nodes/n0", headers=server.headers(), timeout=600)
        assert (server.store.peek("nodes", "n0") is None) == late


def test_kube_api_requests_are_logged_without_headers(server: ApiServer) -> None:
    _get(server, "/api/v1/nodes?limit=1")
    requests.get(
        server.url + "/api/v1/nodes", headers={"Authorization": "Bearer wrong"}, timeout=600
    )
    assert [(each.method, each.path, each.user, each.status) for each in server.requests] == [
        ("GET", "/api/v1/nodes?limit=1", "admin", 200),
        ("GET", "/api/v1/nodes", "system:anonymous", 401),
    ]
    assert "token-of-admin" not in repr(server.requests) + repr(User("admin", "token-of-admin"))


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/nodes", 200),
        ("GET", "/api/v1/nodes/n0", 200),
        ("DELETE", "/api/v1/nodes/n0", 403),
        ("GET", "/api/v1/secrets", 403),
        ("GET", "/apis/apps/v1/deployments", 403),
        ("POST", "/api/v1/namespaces/app/pods/web-0/eviction", 201),
        ("POST", "/api/v1/namespaces/kube-system/pods/x/eviction", 403),
        ("GET", "/apis", 200),
    ],
)
def test_kube_api_rbac_rules_allow_verbs_on_resources(method: str, path: str, code: int) -> None:
    body = {"metadata": {"name": "web-0", "namespace": "app"}} if method == "POST" else None
    assert caller(user=READER)(method, path, body).status == code


def test_kube_api_unknown_user_reads_only_the_version() -> None:
    call = caller(user="")
    assert [
        call("GET", path).status for path in ("/version", "/healthz", "/apis", "/api/v1/nodes")
    ] == [
        200,
        200,
        403,
        403,
    ]


def test_kube_api_self_subject_rules_review_lists_a_users_rules() -> None:
    call = caller(user=READER)
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    allowed = []
    for verb, resource in (("list", "nodes"), ("delete", "nodes")):
        review = {"spec": {"resourceAttributes": {"verb": verb, "resource": resource}}}
        allowed.append(call("POST", path, review).json()["status"]["allowed"])
    assert allowed == [True, False]
    rules = call(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        {"spec": {"namespace": "app"}},
    ).json()
    assert {"verbs": ["create"], "apiGroups": [""], "resources": ["pods/eviction"]} in rules[
        "status"
    ]["resourceRules"]


def _role(kind: str, name: str, resource: str, space: str = "") -> dict[str, Any]:
    meta = {"name": name, "namespace": space} if space else {"name": name}
    return {
        "kind": kind,
        "metadata": meta,
        "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["list"]}],
    }


def _binding(kind: str, role: str, to: str, account: str, space: str = "") -> dict[str, Any]:
    meta = {"name": role, "namespace": space} if space else {"name": role}
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": "app"}]
    return {
        "kind": kind,
        "metadata": meta,
        "roleRef": {"kind": to, "name": role},
        "subjects": subjects,
    }


MANIFESTS = [
    _role("ClusterRole", "everywhere", "nodes"),
    _binding("ClusterRoleBinding", "everywhere", "ClusterRole", "reader"),
    _role("Role", "here", "pods", "app"),
    _binding("RoleBinding", "here", "Role", "reader", "app"),
    _role("Role", "elsewhere", "configmaps", "other"),
    _binding("RoleBinding", "elsewhere", "Role", "reader", "app"),  # no such Role in that namespace
    _role("ClusterRole", "shared", "services"),
    _binding("RoleBinding", "shared", "ClusterRole", "reader", "app"),
    _role("ClusterRole", "of-another", "secrets"),
    _binding("ClusterRoleBinding", "of-another", "ClusterRole", "another"),
]


@each_row(
    "resource, space, allowed",
    [
        ("nodes", "", True),
        ("pods", "app", True),
        ("pods", "", False),
        ("pods", "other", False),
        ("services", "app", True),
        ("services", "", False),
        ("configmaps", "app", False),
        ("configmaps", "other", False),
        ("secrets", "", False),
    ],
)
def test_kube_api_roles_grant_where_they_are_bound(
    resource: str, space: str, allowed: bool
) -> None:
    rules = granted(MANIFESTS, READER)
    with running() as server:
        server.api.authority.admit(User(READER, "token-of-reader"), rules)
        headers = {"Authorization": "Bearer token-of-reader"}
        scope = f"/namespaces/{space}" if space else ""
        listed = requests.get(
            f"{server.url}/api/v1{scope}/{resource}", headers=headers, timeout=600
        )
        review = {
            "spec": {
                "resourceAttributes": {"verb": "list", "resource": resource, "namespace": space}
            }
        }
        path = f"{server.url}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        asked = requests.post(path, headers=headers, json=review, timeout=600)
    assert (listed.status_code == 403) is not allowed
    assert asked.json()["status"]["allowed"] is allowed
