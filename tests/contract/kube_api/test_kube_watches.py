"""Watches of the simulated API server, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from infra.emulators.kube.server import ApiServer
from tests.contract.kube_api.cluster import node, running


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with running(bookmark_interval=0.05) as started:
        yield started


def _events(server: ApiServer, query: str, count: int) -> list[dict[str, Any]]:
    """Returns the first `count` events of a watch on nodes."""
    url = f"{server.url}/api/v1/nodes?watch=1&timeoutSeconds=20&{query}"
    with requests.get(url, headers=server.headers(), stream=True, timeout=600) as answer:
        lines = (line for line in answer.iter_lines(chunk_size=1) if line)
        return [json.loads(next(lines)) for _ in range(count)]


def _short(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


def test_kube_watch_without_a_version_starts_with_the_current_objects(server: ApiServer) -> None:
    assert [_short(each) for each in _events(server, "", 3)] == [
        ("ADDED", "n0"),
        ("ADDED", "n1"),
        ("ADDED", "n2"),
    ]


def test_kube_watch_delivers_a_write_to_a_waiting_watcher(server: ApiServer) -> None:
    seen: list[tuple[str, str]] = []
    since = server.store.version
    watcher = threading.Thread(
        target=lambda: seen.extend(
            _short(each) for each in _events(server, f"resourceVersion={since}", 1)
        )
    )
    watcher.start()
    server.store.create("nodes", node("late"))
    watcher.join(20)
    assert seen == [("ADDED", "late")]


def test_kube_watch_object_leaving_the_selection_is_a_deletion(server: ApiServer) -> None:
    since = server.store.version
    for zone in ("a", "b", "a"):
        found = server.store.get("nodes", "n0")
        assert found is not None
        found["metadata"]["labels"]["zone"] = zone
        server.store.update("nodes", found)
    events = _events(server, f"resourceVersion={since}&labelSelector=zone%3Da", 3)
    assert [_short(each) for each in events] == [
        ("ADDED", "n0"),
        ("DELETED", "n0"),
        ("ADDED", "n0"),
    ]


def test_kube_watch_expired_version_is_410_inside_the_stream(server: ApiServer) -> None:
    since = server.store.version
    server.store.delete("nodes", "n0")
    server.store.forget("nodes")
    (event,) = _events(server, f"resourceVersion={since}", 1)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == (
        "ERROR",
        410,
        "Expired",
    )


def test_kube_watch_bookmarks_carry_the_version(server: ApiServer) -> None:
    since = server.store.version
    server.store.create(
        "pods", {"metadata": {"name": "p", "namespace": "app"}, "spec": {"containers": []}}
    )
    (event,) = _events(server, f"resourceVersion={since}&allowWatchBookmarks=true", 1)
    assert (event["type"], int(event["object"]["metadata"]["resourceVersion"])) == (
        "BOOKMARK",
        server.store.version,
    )


def test_kube_watch_gets_a_bookmark_two_seconds_before_its_end() -> None:
    with running() as server:
        since = server.store.version
        server.store.create(
            "pods", {"metadata": {"name": "p", "namespace": "app"}, "spec": {"containers": []}}
        )
        url = (
            f"{server.url}/api/v1/nodes?watch=1&timeoutSeconds=3&allowWatchBookmarks=true&"
            f"resourceVersion={since}"
        )
        with requests.get(url, headers=server.headers(), stream=True, timeout=20) as answer:
            event = json.loads(next(line for line in answer.iter_lines(chunk_size=1) if line))
        assert (event["type"], event["object"]["metadata"]["resourceVersion"]) == (
            "BOOKMARK",
            str(server.store.version),
        )


def test_kube_watch_ends_when_the_server_stops() -> None:
    with running() as server:
        url = f"{server.url}/api/v1/nodes?watch=1&resourceVersion={server.store.version}"
        answer = requests.get(url, headers=server.headers(), stream=True, timeout=600)
        server.stop()
        with answer:
            assert answer.raw.read() == b""
