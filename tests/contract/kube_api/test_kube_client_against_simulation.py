"""Our client against the simulated API server, as a service account with exactly
the shipped RBAC rights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from chalicelib.cluster import errors
from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.cluster.live_cluster import read_live_cluster
from chalicelib.cluster.objects import (
    Accepted,
    Blocked,
    PodGone,
    add_taint,
    evict,
    get_node,
    get_pod,
    pods_on_node,
    post_event,
    remove_taint,
)
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.snapshot import ObservedGroups
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.emulators.kube.auth import RbacRule, User, granted
from infra.emulators.kube.disruption import reconcile_budgets
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.contract.kube_api.cluster import NOW, budget, filled_store, pod

ACCOUNT = "system:serviceaccount:kube-system:outscaler"
RBAC_FILE = Path(__file__).resolve().parents[3] / "infra" / "kubernetes" / "rbac-workload.yaml"
HARD = Taint(TO_BE_DELETED, "NoSchedule", "1800000000")


def shipped_rules() -> list[RbacRule]:
    return granted(yaml.safe_load_all(RBAC_FILE.read_text()), ACCOUNT)


@pytest.fixture(params=["http", "token", "certificate"])
def server(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    users = [User(ACCOUNT, "token-of-outscaler")]
    rbac = {ACCOUNT: shipped_rules()}
    with ApiServer(
        filled_store(nodes=7), users=users, rbac=rbac, tls=request.param != "http"
    ) as started:
        yield started


@pytest.fixture
def kube(server: ApiServer, request: pytest.FixtureRequest) -> Iterator[KubeClient]:
    certificate = "certificate" in request.node.callspec.id
    config = server.kubeconfig(ACCOUNT, certificate=certificate)
    cluster = connect(
        KubernetesAccess(kubeconfig_secret="config"),
        lambda _: config,
        clock=lambda: NOW,
        sleep=lambda _: None,
        jitter=lambda: 0.5,
    )
    yield cluster
    cluster.close()


@pytest.fixture
def store(server: ApiServer) -> ObjectStore:
    return server.store


def uid(kube: KubeClient, name: str) -> str:
    return str(json.loads(get_pod(kube, "app", name))["metadata"]["uid"])


def test_shipped_rbac_suffices_for_a_snapshot_without_gaps(
    kube: KubeClient, store: ObjectStore
) -> None:
    store.create("pods", pod("done", on="n0", phase="Succeeded"))
    store.create("poddisruptionbudgets", budget("web", minAvailable=1), "policy")
    taken = read_live_cluster("prod", kube, lambda _nodes: ObservedGroups(), NOW)
    assert [node.name for node in taken.nodes] == [f"n{number}" for number in range(7)]
    assert [p.name for p in taken.pods] == ["web-0", "web-1", "web-2"]
    assert [b.name for b in taken.budgets] == ["web"]
    assert "app" in taken.namespaces
    assert taken.gaps == ()


def test_kube_client_lists_pages_despite_an_expired_continue_token(
    kube: KubeClient, store: ObjectStore
) -> None:
    pages = kube.list_pages("/api/v1/nodes", limit=3)
    seen = [next(pages)]
    store.remove("nodes", "n6")
    store.forget("nodes")
    seen += list(pages)
    assert [page.first for page in seen] == [True, True, False]
    names = [
        item["metadata"]["name"] for page in seen[1:] for item in json.loads(page.body)["items"]
    ]
    assert names == [f"n{number}" for number in range(6)]


def test_kube_client_reads_a_truncated_page_again(kube: KubeClient, server: ApiServer) -> None:
    server.faults.add(KubeFault(method="GET", path="nodes", truncate=200))
    assert len(list(kube.list_pages("/api/v1/nodes"))) == 1
    assert len(server.requests) == 2


def test_kube_client_taints_and_cordons_and_reverts(kube: KubeClient) -> None:
    before = json.loads(get_node(kube, "n1"))["spec"]
    add_taint(kube, "n1", HARD, cordon=True)
    add_taint(kube, "n1", msgspec.structs.replace(HARD, value="1900000000"), cordon=True)
    spec = json.loads(get_node(kube, "n1"))["spec"]
    assert spec["unschedulable"] is True
    assert [t["value"] for t in spec["taints"] if t["key"] == TO_BE_DELETED] == ["1800000000"]
    assert remove_taint(kube, "n1", TO_BE_DELETED, uncordon=True)
    assert not remove_taint(kube, "n1", TO_BE_DELETED, uncordon=True)
    after = json.loads(get_node(kube, "n1"))["spec"]
    others = [
        taint
        for taint in after.get("taints", ())
        if taint["key"] != "node.kubernetes.io/unschedulable"
    ]
    assert others == before.get("taints", [])
    assert not after.get("unschedulable")


def test_kube_client_accepted_eviction_starts_the_pods_deletion(kube: KubeClient) -> None:
    assert evict(kube, "app", "web-0", uid(kube, "web-0"), 5) == Accepted()
    leaving = json.loads(get_pod(kube, "app", "web-0"))["metadata"]
    assert leaving["deletionGracePeriodSeconds"] == 5
    assert evict(kube, "app", "web-0", leaving["uid"], 5) == Accepted()


def test_kube_client_replaced_or_absent_pod_counts_as_gone(kube: KubeClient) -> None:
    assert evict(kube, "app", "web-0", "00000000-0000-0000-0000-000000000000", 5) == PodGone()
    assert evict(kube, "app", "absent", "", 5) == PodGone()
    assert "deletionTimestamp" not in json.loads(get_pod(kube, "app", "web-0"))["metadata"]


def test_kube_client_eviction_is_blocked_by_one_and_by_two_budgets(
    kube: KubeClient, store: ObjectStore
) -> None:
    store.create("poddisruptionbudgets", budget("web", minAvailable=3), "policy")
    reconcile_budgets(store)
    answer = evict(kube, "app", "web-0", uid(kube, "web-0"), 5)
    assert isinstance(answer, Blocked)
    assert answer.message == "The disruption budget web needs 3 healthy pods and has 3 currently"
    store.create("poddisruptionbudgets", budget("second", minAvailable=1), "policy")
    answer = evict(kube, "app", "web-0", uid(kube, "web-0"), 5)
    assert isinstance(answer, Blocked)
    assert "more than one PodDisruptionBudget" in answer.message


def test_kube_client_lists_unfinished_pods_of_one_node(
    kube: KubeClient, store: ObjectStore
) -> None:
    store.create("pods", pod("done", on="n0", phase="Failed"))
    store.create("pods", pod("elsewhere", on="n1"))
    names = [item["metadata"]["name"] for item in json.loads(pods_on_node(kube, "n0"))["items"]]
    assert names == ["web-0", "web-1", "web-2"]


def test_kube_client_event_is_created_once(kube: KubeClient, store: ObjectStore) -> None:
    for _ in range(2):
        post_event(
            kube,
            namespace="",
            involved={"kind": "Node", "name": "n1"},
            reason="ScaleDown",
            message="marked the node as toBeDeleted/unschedulable",
            type_="Normal",
            now=NOW,
        )
    post_event(
        kube,
        namespace="app",
        involved={"kind": "Pod", "name": "web-0"},
        reason="ScaleDown",
        message="deleting pod for node scale down",
        type_="Normal",
        now=NOW,
    )
    assert len(store.list("events", "default")) == 1
    assert len(store.list("events", "app")) == 1


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/api/v1/nodes/n1"),
        ("DELETE", "/api/v1/namespaces/app/pods/web-0"),
        ("GET", "/api/v1/secrets"),
        ("POST", "/api/v1/namespaces/app/configmaps"),
        ("POST", "/api/v1/namespaces/kube-system/configmaps"),
        ("PATCH", "/api/v1/namespaces/kube-system/configmaps/other"),
    ],
)
def test_shipped_rbac_grants_nothing_more(kube: KubeClient, method: str, path: str) -> None:
    with pytest.raises(errors.Forbidden, match=f'User "{ACCOUNT}" cannot'):
        kube.request(
            method,
            path,
            body={} if method != "GET" else None,
            content_type=(
                "application/merge-patch+json" if method == "PATCH" else "application/json"
            ),
        )
