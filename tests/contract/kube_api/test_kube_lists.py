"""Lists of the simulated API server: consistent pages, versions, selectors, and size."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore
from tests.contract.kube_api.cluster import NOW, Caller, caller, node, pod


@pytest.fixture
def call() -> Caller:
    return caller()


def _names(document: Any) -> list[str]:
    return [each["metadata"]["name"] for each in document["items"]]


def test_kube_list_later_pages_show_the_state_of_the_first(call: Caller) -> None:
    first = call("GET", "/api/v1/nodes?limit=1").json()
    store = call.server.store
    store.delete("nodes", "n1")
    store.create("nodes", node("n0a"))
    store.update("nodes", {**node("n2"), "metadata": {"name": "n2", "labels": {"late": "yes"}}})
    rest = call("GET", f"/api/v1/nodes?limit=9&continue={first['metadata']['continue']}").json()
    assert _names(rest) == ["n1", "n2"]
    assert "late" not in rest["items"][1]["metadata"]["labels"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_kube_list_expired_token_is_410_with_a_token_for_the_rest(call: Caller) -> None:
    first = call("GET", "/api/v1/nodes?limit=1").json()
    call.server.store.delete("nodes", "n1")
    call.server.store.forget()
    refused = call("GET", f"/api/v1/nodes?limit=9&continue={first['metadata']['continue']}")
    assert (refused.status, refused.json()["reason"]) == (410, "Expired")
    rest = call(
        "GET", f"/api/v1/nodes?limit=9&continue={refused.json()['metadata']['continue']}"
    ).json()
    assert _names(rest) == ["n2"]


def test_kube_list_pages_of_one_namespace_and_of_a_selection(call: Caller) -> None:
    page = call("GET", "/api/v1/namespaces/app/pods?limit=2&labelSelector=app%3Dweb").json()
    assert _names(page) == ["web-0", "web-1"]
    assert "remainingItemCount" not in page["metadata"]
    rest = call(
        "GET", f"/api/v1/namespaces/app/pods?limit=2&continue={page['metadata']['continue']}"
    ).json()
    assert (_names(rest), "continue" in rest["metadata"]) == (["web-2"], False)


def test_kube_list_exact_version_shows_the_past_and_future_version_is_refused(call: Caller) -> None:
    store = call.server.store
    past = store.version
    store.create("nodes", node("later"))
    query = f"/api/v1/nodes?resourceVersion={past}&resourceVersionMatch=Exact"
    assert _names(call("GET", query).json()) == ["n0", "n1", "n2"]
    refused = call("GET", f"/api/v1/nodes?resourceVersion={store.version + 10}")
    assert (refused.status, refused.json()["details"]["causes"][0]["reason"]) == (
        504,
        "ResourceVersionTooLarge",
    )


def test_kube_list_exact_version_has_pages_of_that_version(call: Caller) -> None:
    store = call.server.store
    past = store.version
    store.delete("nodes", "n1")
    page = call(
        "GET", f"/api/v1/nodes?limit=2&resourceVersion={past}&resourceVersionMatch=Exact"
    ).json()
    store.delete("nodes", "n2")
    rest = call("GET", f"/api/v1/nodes?limit=2&continue={page['metadata']['continue']}").json()
    assert (_names(page), _names(rest)) == (["n0", "n1"], ["n2"])
    assert {each["metadata"]["resourceVersion"] for each in (page, rest)} == {str(past)}


def test_kube_list_exact_version_is_410_after_compaction(call: Caller) -> None:
    store = call.server.store
    past = store.version
    store.delete("nodes", "n1")
    store.forget("nodes")
    refused = call("GET", f"/api/v1/nodes?resourceVersion={past}&resourceVersionMatch=Exact")
    assert (refused.status, refused.json()["reason"]) == (410, "Expired")
    assert "continue" not in refused.json()["metadata"]


@pytest.mark.parametrize(
    "query",
    [
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Exact&resourceVersion=0",
        "resourceVersionMatch=exact&resourceVersion=5",
    ],
)
def test_kube_list_match_without_a_version_or_of_an_unknown_kind_is_refused(
    call: Caller, query: str
) -> None:
    refused = call("GET", f"/api/v1/nodes?{query}")
    assert (refused.status, refused.json()["reason"]) == (422, "Invalid")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("zone in (a,c)", ["n1"]),
        ("zone notin (a)", ["n0", "n2"]),
        ("zone!=a", ["n0", "n2"]),
        ("!zone", []),
        ("zone,kubernetes.io/hostname=n1", ["n1"]),
        ("", ["n0", "n1", "n2"]),
    ],
)
def test_kube_list_label_selectors(call: Caller, selector: str, expected: list[str]) -> None:
    assert _names(call("GET", f"/api/v1/nodes?labelSelector={quote(selector)}").json()) == expected


@pytest.mark.parametrize("selector", ["a in b", "a,", "=a", "a in (b", "a b", "a=b c", "-a=b"])
def test_kube_list_invalid_label_selectors_are_400(call: Caller, selector: str) -> None:
    refused = call("GET", f"/api/v1/nodes?labelSelector={quote(selector)}")
    assert (refused.status, refused.json()["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("path", "selector", "expected"),
    [
        ("pods", "spec.nodeName=n0,metadata.name!=web-1", ["web-0", "web-2"]),
        ("pods", "spec.nodeName=", ["waiting"]),
        ("pods", "status.phase!=Running", ["waiting"]),
        ("nodes", "spec.unschedulable=false", ["n0", "n1", "n2"]),
        ("nodes", "metadata.name=n2", ["n2"]),
    ],
)
def test_kube_list_field_selectors(
    call: Caller, path: str, selector: str, expected: list[str]
) -> None:
    call.server.store.create("pods", pod("waiting", phase="Pending"))
    assert _names(call("GET", f"/api/v1/{path}?fieldSelector={quote(selector)}").json()) == expected


def test_kube_deletecollection_deletes_only_the_selection(call: Caller) -> None:
    call.server.store.create("pods", pod("other", app="other"))
    assert call("DELETE", "/api/v1/namespaces/app/pods?labelSelector=app%3Dother").status == 200
    assert _names(call("GET", "/api/v1/namespaces/app/pods").json()) == ["web-0", "web-1", "web-2"]


def _many_pods(count: int, nodes: int) -> list[KubeObject]:
    template = pod("template")
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": "app",
                "name": f"p-{index:06d}",
                "labels": template["metadata"]["labels"],
            },
            "spec": {**template["spec"], "nodeName": f"n-{index % nodes}"},
            "status": template["status"],
        }
        for index in range(count)
    ]


def test_kube_list_handles_a_large_cluster() -> None:
    store = ObjectStore(lambda: NOW)
    store.load(
        "nodes",
        [{**node(f"n-{index}"), "apiVersion": "v1", "kind": "Node"} for index in range(5_000)],
    )
    store.load("pods", _many_pods(150_000, 5_000))
    call = caller(store)
    page = call("GET", "/api/v1/pods?limit=500").json()
    assert (len(page["items"]), page["metadata"]["remainingItemCount"]) == (500, 149_500)
    pages = 1
    while page["metadata"].get("continue") and pages < 20:
        page = call("GET", f"/api/v1/pods?limit=500&continue={page['metadata']['continue']}").json()
        pages += 1
    assert page["items"][-1]["metadata"]["name"] == "p-009999"
    assert len(_names(call("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn-7").json())) == 30
