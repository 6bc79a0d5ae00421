"""Cheap idle controllers: they detect that nothing was written, and make few copies."""

from __future__ import annotations

import pytest

from infra.emulators.controllers.clock import ManualClock
from infra.emulators.controllers.object_writes import Changes, write
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.status import ApiError
from infra.emulators.kube.store import ObjectStore


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore(ManualClock(1_000_000.0))


def _configmap(store: ObjectStore, name: str) -> KubeObject:
    return store.create(
        "configmaps", {"metadata": {"name": name, "namespace": "default"}, "data": {"key": "old"}}
    )


def test_kube_store_counts_only_writes_to_that_resource(store: ObjectStore) -> None:
    before = store.version
    _configmap(store, "one")

    assert store.written("configmaps", before)
    assert not store.written("configmaps", store.version)
    assert not store.written("secrets", before)


def test_kube_store_expired_writes_count_as_possible_changes(store: ObjectStore) -> None:
    before = store.version
    _configmap(store, "one")
    after = store.version
    store.forget()

    assert store.written("configmaps", before)
    assert not store.written("configmaps", after)


def test_kube_store_each_change_is_found_once(store: ObjectStore) -> None:
    changes = Changes(store, (("configmaps", ""), ("secrets", "")))
    assert [changes.any(), changes.any()] == [True, False]

    _configmap(store, "one")
    assert [changes.any(), changes.any()] == [True, False]

    store.create("namespaces", {"metadata": {"name": "another"}})
    assert not changes.any()


def test_kube_store_handed_over_object_leaves_earlier_reads_unchanged(store: ObjectStore) -> None:
    _configmap(store, "one")
    read = store.peek("configmaps", "one", "default")
    assert read is not None
    version = read["metadata"]["resourceVersion"]

    assert write(store, "configmaps", {**read, "data": {"key": "new"}})

    now = store.peek("configmaps", "one", "default")
    assert now is not None
    assert (read["data"], read["metadata"]["resourceVersion"]) == ({"key": "old"}, version)
    assert (now["data"], now["metadata"]["uid"]) == ({"key": "new"}, read["metadata"]["uid"])
    assert now["metadata"]["resourceVersion"] != version


def test_kube_store_stale_object_is_not_written(store: ObjectStore) -> None:
    stale = _configmap(store, "one")
    store.update("configmaps", {**stale, "data": {"key": "new"}})

    assert not write(store, "configmaps", {**stale, "data": {"key": "late"}})
    with pytest.raises(ApiError, match="modified"):
        store.replace("configmaps", {**stale, "data": {"key": "late"}})
    assert (store.get("configmaps", "one", "default") or {})["data"] == {"key": "new"}


def test_kube_store_update_returns_an_independent_copy(store: ObjectStore) -> None:
    made = _configmap(store, "one")
    answer = store.update("configmaps", {**made, "data": {"key": "new"}})
    answer["data"]["key"] = "mine"

    assert (store.get("configmaps", "one", "default") or {})["data"] == {"key": "new"}
