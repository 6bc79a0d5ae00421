"""PodDisruptionBudgets in the simulated cluster: the controller's counts and
the evictions they allow.
"""

from __future__ import annotations

from typing import Any

import pytest

from infra.emulators.kube.disruption import reconcile_budgets
from infra.emulators.kube.store import ObjectStore
from tests.contract.kube_api.cluster import Caller, budget, caller, filled_store, pod


def _evict(call: Caller, name: str) -> Any:
    return call(
        "POST",
        f"/api/v1/namespaces/app/pods/{name}/eviction",
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": "app"},
        },
    )


def _status(store: ObjectStore, **spec: Any) -> tuple[int, int, int, int]:
    """Returns (expected, desired, healthy, allowed) of one budget over app=web."""
    store.create("poddisruptionbudgets", budget("web", **spec), "policy")
    reconcile_budgets(store)
    state = (store.get("poddisruptionbudgets", "web", "app", "policy") or {})["status"]
    return (
        state["expectedPods"],
        state["desiredHealthy"],
        state["currentHealthy"],
        state["disruptionsAllowed"],
    )


def _owned_store(replicas: int) -> ObjectStore:
    """A store with a ReplicaSet of `replicas`, three of whose pods exist."""
    store = filled_store()
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}}
    owner = store.create(
        "replicasets", {"metadata": {"name": "web", "namespace": "app"}, "spec": spec}, "apps"
    )
    for each in store.list("pods", "app"):
        reference = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "web",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        meta = {**each["metadata"], "ownerReferences": [reference]}
        store.update("pods", {**each, "metadata": meta})
    return store


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": 2}, (3, 2, 3, 1)),
        ({"minAvailable": "50%"}, (4, 2, 3, 1)),
        ({"maxUnavailable": 1}, (4, 3, 3, 0)),
        ({"maxUnavailable": "50%"}, (4, 2, 3, 1)),
        ({"maxUnavailable": 0}, (4, 4, 3, 0)),
    ],
)
def test_pdb_controller_counts_pods_and_disruptions(
    spec: dict[str, Any], expected: tuple[int, int, int, int]
) -> None:
    assert _status(_owned_store(4), **spec) == expected


def test_pdb_each_eviction_consumes_one_disruption_at_once() -> None:
    call = caller()
    _status(call.server.store, minAvailable=1)
    assert [_evict(call, f"web-{index}").status for index in range(3)] == [201, 201, 429]
    assert reconcile_budgets(call.server.store) == 1
    assert _evict(call, "web-2").status == 429


def test_pdb_not_yet_counted_asks_to_retry() -> None:
    call = caller()
    call.server.store.create("poddisruptionbudgets", budget("web", minAvailable=1), "policy")
    refused = _evict(call, "web-0")
    assert (refused.status, refused.headers["Retry-After"]) == (429, "10")


def test_pdb_healthy_budget_allows_eviction_of_an_unready_pod() -> None:
    call = caller()
    store = call.server.store
    store.create("pods", pod("web-sick", on="n1", ready=False))
    assert _status(store, minAvailable=3) == (4, 3, 3, 0)
    assert (_evict(call, "web-0").status, _evict(call, "web-sick").status) == (429, 201)


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_pdb_is_not_needed_for_pods_that_are_not_running(phase: str) -> None:
    call = caller()
    call.server.store.create("pods", pod("web-other", on="n1", phase=phase, ready=False))
    _status(call.server.store, minAvailable=4)
    assert _evict(call, "web-other").status == 201


def test_pdb_second_reconcile_changes_nothing() -> None:
    store = filled_store()
    _status(store, minAvailable=1)
    before = store.version
    assert (reconcile_budgets(store), store.version) == (0, before)
