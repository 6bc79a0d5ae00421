"""Injected faults, the request log, and authorization in the simulated API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from infra.emulators.kube.auth import User
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from tests.contract.kube_api.cluster import READER, caller, running


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with running() as started:
        yield started


def _get(server: ApiServer, path: str) -> requests.Response:
    return requests.get(server.url + path, headers=server.headers(), timeout=20)


def test_kube_api_fault_meets_the_configured_number_of_requests(server: ApiServer) -> None:
    server.faults.add(KubeFault(method="GET", path="/nodes$", status=503, body=b'{"kind":"Status"}', times=2, skip=1))
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
            requests.delete(server.url + "/api/v1/nodes/n0", headers=server.headers(), timeout=20)
        assert (server.store.peek("nodes", "n0") is None) == late


def test_kube_api_requests_are_logged_without_headers(server: ApiServer) -> None:
    _get(server, "/api/v1/nodes?limit=1")
    requests.get(server.url + "/api/v1/nodes", headers={"Authorization": "Bearer wrong"}, timeout=20)
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
    assert [call("GET", path).status for path in ("/version", "/healthz", "/apis", "/api/v1/nodes")] == [
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
    rules = call("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "app"}}).json()
    assert {"verbs": ["create"], "apiGroups": [""], "resources": ["pods/eviction"]} in rules["status"]["resourceRules"]
