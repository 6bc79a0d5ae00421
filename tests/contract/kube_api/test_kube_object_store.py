"""The object store behind the simulated API server, as controllers use it in-process."""

from __future__ import annotations

import pytest

from infra.emulators.kube import crds
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.status import ApiError
from infra.emulators.kube.store import ObjectStore
from tests.contract.kube_api.cluster import NOW, filled_store, machine_deployment, node, pod


def _got(store: ObjectStore, name: str) -> KubeObject:
    found = store.get("nodes", name)
    assert found is not None
    return found


def test_object_store_returns_independent_copies() -> None:
    store = filled_store()
    _got(store, "n0")["metadata"]["labels"]["mine"] = "yes"
    assert "mine" not in _got(store, "n0")["metadata"]["labels"]


def test_object_store_stale_update_is_refused_and_changes_nothing() -> None:
    store = filled_store()
    mine, theirs = _got(store, "n0"), _got(store, "n0")
    theirs["spec"]["unschedulable"] = True
    store.update("nodes", theirs)
    with pytest.raises(ApiError) as caught:
        store.update("nodes", mine)
    assert (caught.value.code, _got(store, "n0")["spec"]["unschedulable"]) == (409, True)


def test_object_store_server_owned_fields_cannot_be_updated() -> None:
    store = filled_store()
    before = _got(store, "n0")["metadata"]
    after = store.update(
        "nodes", {"metadata": {"name": "n0", "creationTimestamp": "1999-01-01T00:00:00Z"}}
    )["metadata"]
    assert (after["uid"], after["creationTimestamp"]) == (
        before["uid"],
        before["creationTimestamp"],
    )


def test_object_store_generation_counts_spec_changes() -> None:
    store = ObjectStore(lambda: NOW)
    crds.load(store, crds.OWN)
    group = "cluster.x-k8s.io"
    made = store.create("machinedeployments", machine_deployment("md"), group)
    made["status"] = {"replicas": 1}
    made = store.update("machinedeployments", made, group)
    made["spec"]["replicas"] = 2
    assert store.update("machinedeployments", made, group)["metadata"]["generation"] == 2


def test_object_store_same_seed_gives_the_same_names_and_uids() -> None:
    made = [
        ObjectStore(lambda: NOW, seed=3).create("nodes", {"metadata": {"generateName": "n-"}})
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert made[0]["metadata"]["name"].startswith("n-")


def test_object_store_subscription_receives_each_write_once() -> None:
    store = filled_store()
    nodes = store.subscribe("nodes")
    store.create("nodes", node("late"))
    store.create("pods", pod("other"))
    assert [(event.type, event.object["metadata"]["name"]) for event in nodes.poll()] == [
        ("ADDED", "late")
    ]
    store.delete("nodes", "late")
    assert [(event.type, event.previous is not None) for event in nodes.poll()] == [
        ("DELETED", True)
    ]
    assert nodes.poll() == []


def test_object_store_old_writes_expire() -> None:
    store = ObjectStore(lambda: NOW, history=5)
    nodes = store.subscribe("nodes")
    for index in range(11):
        store.create("nodes", node(f"n{index}"))
    with pytest.raises(ApiError) as caught:
        nodes.poll()
    assert caught.value.code == 410


def test_object_store_pods_are_indexed_by_their_current_node() -> None:
    store = filled_store()
    store.create("pods", pod("waiting"))
    assert len(store.pods_on("n0")) == 3
    waiting = store.get("pods", "waiting", "app")
    assert waiting is not None
    waiting["spec"]["nodeName"] = "n1"
    store.update("pods", waiting)
    store.remove("pods", "web-0", "app")
    assert [len(store.pods_on(name)) for name in ("n0", "n1", "n2")] == [2, 1, 0]


def test_object_store_load_keeps_captured_fields() -> None:
    store = ObjectStore(lambda: NOW)
    meta = {"name": "n", "uid": "u", "creationTimestamp": "2020-01-01T00:00:00Z"}
    store.load("nodes", [{**node("n"), "metadata": dict(meta)}])
    found = _got(store, "n")
    assert (found["kind"], {key: found["metadata"][key] for key in meta}) == ("Node", meta)


def test_object_store_new_pods_get_server_defaults() -> None:
    store = filled_store()
    store.create(
        "priorityclasses", {"metadata": {"name": "high"}, "value": 1000}, "scheduling.k8s.io"
    )
    made = pod("p")
    made["spec"]["priorityClassName"] = "high"
    spec = store.create("pods", made)["spec"]
    assert (spec["priority"], spec["schedulerName"], len(spec["tolerations"])) == (
        1000,
        "default-scheduler",
        2,
    )


def test_object_store_unknown_resource_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        ObjectStore(lambda: NOW).list("widgets")
    assert caught.value.code == 404
