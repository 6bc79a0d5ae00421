"""Watches as a v1.36 API server answered them (../shared) lead to the
snapshot that its lists give.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.errors import NotFound, Unavailable
from chalicelib.cluster.list_page import TypedList, TypedPage, typed_page
from chalicelib.cluster.live_cluster import KeptLists, ReadResult, read_live_cluster
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.snapshot import ObservedGroups, Snapshot
from tests.property.cluster_history import UNTIL_ENDED
from tests.reference_data import SHARED, needs_shared

pytestmark = needs_shared

NOW = 1_790_000_000.0
PODS = "/api/v1/pods"
Json = dict[str, Any]


def recorded(name: str) -> Json:
    exchanges: list[Json] = json.loads(
        (SHARED / "data" / "captures" / "watch-exchanges.json").read_text("utf-8")
    )
    return next(each for each in exchanges if each["name"] == name)


def lines(name: str) -> list[Json]:
    """Return the events of a recorded watch."""
    return [{"type": each["type"], "object": each["object"]} for each in recorded(name)["lines"]]


def pod_list(items: list[Json], version: str) -> Json:
    return {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": version},
        "items": items,
    }


class RecordedServer:
    """Answers for pods what was recorded, and has nothing else. pods: the list. events:
    of the next watch of pods."""

    def __init__(self, pods: Json) -> None:
        self.pods, self.events = pods, list[Json]()
        self.watched_from: list[str] = []
        self.full_lists = 0

    def access(self) -> str:
        return "the same"

    def is_local(self) -> bool:
        return False

    def begin_lists(self) -> None:
        """Nothing is timed."""

    def get(self, path: str) -> bytes:
        raise NotFound(f"{path}: not found", status=404)

    def list_page(
        self, path: str, query: Mapping[str, str], decode: Callable[[bytes], TypedList], **_: object
    ) -> TypedPage:
        listed = self.pods if path == PODS else {"metadata": self.pods["metadata"], "items": []}
        if path == PODS and query.get("limit") == "1":
            # As a list with a field selector: there are more, and their number is not said.
            listed = {
                "metadata": {**listed["metadata"], "continue": "more"},
                "items": listed["items"][:1],
            }
        elif path == PODS:
            self.full_lists += 1
        return typed_page(json.dumps(listed).encode(), decode)

    def watch(
        self,
        path: str,
        query: Mapping[str, str],
        seen: Callable[[bytes], None],
        *,
        accept: str,
        longest: int,
    ) -> None:
        del accept, longest
        seen(b"")
        if path == PODS:
            self.watched_from.append(query["resourceVersion"])
            for event in self.events:
                seen(json.dumps(event).encode() + b"\n")


class RecordedCluster:
    """A process that reads such a server."""

    def __init__(self, pods: Json) -> None:
        self.server, self.results = RecordedServer(pods), list[ReadResult]()
        self.kept = KeptLists(10**9, lambda: 0.0, quiet=UNTIL_ENDED)

    def read(self) -> Snapshot:
        kube = cast(KubeClient, self.server)
        return read_live_cluster(
            "prod",
            kube,
            lambda _: ObservedGroups(),
            NOW,
            kept=self.kept,
            report=self.results.append,
        )

    def follow(self, events: list[Json], version: str) -> Snapshot:
        self.server.events = events
        self.server.pods = {**self.server.pods, "metadata": {"resourceVersion": version}}
        return self.read()


def fresh(items: list[Json], version: str) -> Snapshot:
    return RecordedCluster(pod_list(items, version)).read()


def test_recorded_changes_lead_to_the_recorded_list() -> None:
    cluster = RecordedCluster(recorded("list")["body"])
    cluster.read()
    followed = cluster.follow(lines("watch-while-changing"), "120167")
    after = {
        each["object"]["metadata"]["name"]: each["object"] for each in lines("watch-while-changing")
    }
    del after["two"]
    assert cluster.results[-1] == ReadResult(ReadScope.CHANGES, folded=5)
    assert followed == fresh([after[name] for name in sorted(after)], "120167")
    assert cluster.server.watched_from == ["120151"]


def test_pod_that_has_ended_leaves_the_list_as_the_server_says() -> None:
    initial = [each for each in lines("watch-initial-events") if each["type"] == "ADDED"]
    cluster = RecordedCluster(pod_list([each["object"] for each in initial], "120237"))
    cluster.read()
    followed = cluster.follow(lines("watch-field-selector-leaves"), "120238")
    assert [each.name for each in followed.pods] == ["four", "one"]
    assert cluster.results[-1].scope is ReadScope.CHANGES


@pytest.mark.parametrize("name", ["watch-nothing-new", "watch-rv-future"])
def test_quiet_watch_changes_nothing(name: str) -> None:
    cluster = RecordedCluster(recorded("list")["body"])
    before = cluster.read()
    assert cluster.follow(lines(name), "120151") == before
    assert cluster.results[-1] == ReadResult(ReadScope.CHANGES)


def test_compacted_version_leads_to_a_full_list() -> None:
    cluster = RecordedCluster(recorded("list")["body"])
    cluster.read()
    cluster.follow(lines("watch-rv-1"), "120167")
    assert cluster.results[-1].reread == {"Pod": "the server no longer knows the version"}
    assert cluster.server.full_lists == 2


def test_bookmarks_move_the_version_forward() -> None:
    cluster = RecordedCluster(recorded("list")["body"])
    cluster.read()
    cluster.follow(
        [each for each in lines("watch-bookmark-minute") if each["type"] == "BOOKMARK"], "120300"
    )
    cluster.follow([], "120300")
    assert cluster.server.watched_from == ["120151", "120300"]
    assert cluster.server.full_lists == 1


def test_server_of_an_older_version_than_the_list_is_read_again() -> None:
    cluster = RecordedCluster(recorded("list")["body"])
    cluster.read()
    cluster.follow(lines("watch-rv-future"), "120000")
    assert cluster.results[-1].scope is ReadScope.FULL
    assert "has not reached the version" in cluster.results[-1].reason


def test_unreadable_list_after_a_compacted_version_fails_the_pass() -> None:
    cluster = RecordedCluster(recorded("list")["body"])
    cluster.read()

    def refused(*_: object, **__: object) -> TypedPage:
        raise Unavailable("no answer")

    cluster.server.list_page = refused  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        cluster.follow(lines("watch-rv-1"), "120167")
