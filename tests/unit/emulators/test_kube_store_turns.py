"""What lets the controllers of a quiet cluster cost little: knowing that nothing was written, and few copies."""

from __future__ import annotations

import pytest

from infra.emulators.controllers.change_detector import Changes
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.controllers.object_writes import write
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.status import ApiError
from infra.emulators.kube.store import ObjectStore


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore(ManualClock(1_000_000.0))


def _configmap(store: ObjectStore, name: str) -> KubeObject:
    return store.create("configmaps", {"metadata": {"name": name, "namespace": "default"}, "data": {"key": "old"}})


def test_only_writes_to_that_resource_count(store: ObjectStore) -> None:
    before = store.version
    _configmap(store, "one")

    assert store.written("configmaps", before)
    assert not store.written("configmaps", store.version)
    assert not store.written("secrets", before)


def test_writes_that_are_no_longer_kept_may_have_been(store: ObjectStore) -> None:
    before = store.version
    _configmap(store, "one")
    after = store.version
    store.forget()

    assert store.written("configmaps", before)
    assert not store.written("configmaps", after)


def test_a_look_finds_each_change_once(store: ObjectStore) -> None:
    changes = Changes(store, (("configmaps", ""), ("secrets", "")))
    assert [changes.any(), changes.any()] == [True, False]

    _configmap(store, "one")
    assert [changes.any(), changes.any()] == [True, False]

    store.create("namespaces", {"metadata": {"name": "another"}})
    assert not changes.any()


def test_what_is_handed_over_leaves_what_was_read_as_it_was(store: ObjectStore) -> None:
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


def test_a_stale_object_is_not_written(store: ObjectStore) -> None:
    stale = _configmap(store, "one")
    store.update("configmaps", {**stale, "data": {"key": "new"}})

    assert not write(store, "configmaps", {**stale, "data": {"key": "late"}})
    with pytest.raises(ApiError, match="modified"):
        store.replace("configmaps", {**stale, "data": {"key": "late"}})
    assert (store.get("configmaps", "one", "default") or {})["data"] == {"key": "new"}


def test_an_update_gives_a_copy_of_ones_own(store: ObjectStore) -> None:
    made = _configmap(store, "one")
    answer = store.update("configmaps", {**made, "data": {"key": "new"}})
    answer["data"]["key"] = "mine"

    assert (store.get("configmaps", "one", "default") or {})["data"] == {"key": "new"}
