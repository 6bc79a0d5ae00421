"""Reading one list ahead: the next page is requested early, and pages have a size
that suits their objects.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.cluster.errors import Expired, Unavailable
from chalicelib.cluster.list_reader import FIRST, ListReader
from chalicelib.cluster.listed_resources import RESOURCES
from chalicelib.cluster.transport import HOSTED, ReadBounds
from chalicelib.model.errors import MemoryExceeded
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.emulators.scripted_http_server import HttpScript, Reply, Seen
from tests.unit.cluster.support import client, status

NAMESPACES = next(each for each in RESOURCES if each.kind == "Namespace")
EXPIRED = Reply(410, status(410, "Expired", "The provided continue parameter is too old"))
MANY = 40


def namespaces(start: int, count: int, *, more: str = "", size: int = 10) -> Reply:
    meta: dict[str, Any] = {"resourceVersion": "9", **({"continue": more} if more else {})}
    items = [
        {"metadata": {"name": f"n{at}", "labels": {"x": "y" * size}}}
        for at in range(start, start + count)
    ]
    return Reply(
        body={"kind": "NamespaceList", "apiVersion": "v1", "metadata": meta, "items": items}
    )


def paged(count: int, size: int = 10) -> Callable[[Seen], Reply]:
    def answer(seen: Seen) -> Reply:
        start, limit = int(seen.query.get("continue", "0")), int(seen.query["limit"])
        end = min(start + limit, count)
        return namespaces(start, end - start, more=str(end) if end < count else "", size=size)

    return answer


def read(kube: KubeClient, bounds: ReadBounds = HOSTED) -> list[tuple[bool, list[str]]]:
    with ThreadPoolExecutor(4) as pool:
        parts = list(ListReader(kube, NAMESPACES, pool, bounds))
    return [
        (part.first, [each.metadata.name for each in part.page.listing.items]) for part in parts
    ]


def test_pages_follow_each_other_to_the_end() -> None:
    with HttpScript(
        [namespaces(0, 2, more="t1"), namespaces(2, 1, more="t2"), namespaces(3, 0)]
    ) as server:
        found = read(client(server))
    assert found == [(True, ["n0", "n1"]), (False, ["n2"]), (False, [])]
    assert [seen.query.get("continue") for seen in server.requests] == [None, "t1", "t2"]


def test_next_page_is_requested_before_anyone_takes_the_first() -> None:
    asked = threading.Event()

    def answer(seen: Seen) -> Reply:
        if "continue" in seen.query:
            asked.set()
            return namespaces(1, 1)
        return namespaces(0, 1, more="t1")

    with HttpScript(answer) as server, ThreadPoolExecutor(4) as pool:
        reader = ListReader(client(server), NAMESPACES, pool, HOSTED)
        assert asked.wait(600)  # nobody has taken the first page yet
        assert [part.first for part in reader] == [True, False]


@pytest.mark.parametrize(("size", "least", "most"), [(20_000, 350, 450), (10, 5_000, 5_000)])
def test_pages_are_sized_by_the_bytes_of_their_objects(size: int, least: int, most: int) -> None:
    count = 3 * FIRST + 1
    with HttpScript(paged(count, size)) as server:
        found = read(client(server))
    assert sum(len(names) for _, names in found) == count
    assert server.requests[0].query["limit"] == str(FIRST)
    assert least <= int(server.requests[-1].query["limit"]) <= most


@pytest.mark.parametrize("bound", ["body", "page"])
def test_page_that_is_too_large_is_read_in_smaller_ones(bound: str) -> None:
    bounds = msgspec.structs.replace(HOSTED, **{bound: 60_000})
    access = KubernetesAccess(kubeconfig_secret="config")
    with HttpScript(paged(MANY * 10, 400)) as server:
        config = msgspec.json.encode(_kubeconfig(server.url)).decode()
        kube = connect(
            access, lambda _: config, clock=lambda: 0.0, sleep=lambda _: None, jitter=lambda: 0.5
        )
        kube._bounds = bounds
        found = read(kube, bounds)
    assert sum(len(names) for _, names in found) == MANY * 10
    assert max(len(names) for _, names in found) < 150


def test_object_that_is_longer_than_a_page_is_read() -> None:
    with HttpScript(paged(3, 400)) as server:
        found = read(client(server), msgspec.structs.replace(HOSTED, page=100))
    assert [names for _, names in found] == [["n0"], ["n1"], ["n2"]]


def test_page_for_which_there_is_no_memory_ends_the_list() -> None:
    def check() -> None:
        raise MemoryExceeded("too much")

    with (
        HttpScript(paged(3)) as server,
        ThreadPoolExecutor(4) as pool,
        pytest.raises(MemoryExceeded),
    ):
        list(ListReader(client(server), NAMESPACES, pool, HOSTED, check=check))


def _kubeconfig(url: str) -> dict[str, Any]:
    from tests.unit.cluster.support import kubeconfig

    return kubeconfig(url)


def test_expired_token_restarts_the_list() -> None:
    replies = [namespaces(0, 1, more="t1"), EXPIRED, namespaces(0, 2, more="t2"), namespaces(2, 1)]
    with HttpScript(replies) as server:
        found = read(client(server))
    assert found == [(True, ["n0"]), (True, ["n0", "n1"]), (False, ["n2"])]


def test_token_that_always_expires_is_an_error() -> None:
    def answer(seen: Seen) -> Reply:
        return EXPIRED if "continue" in seen.query else namespaces(0, 1, more="t")

    with HttpScript(answer) as server, pytest.raises(Expired):
        read(client(server))


def test_list_without_an_end_is_an_error() -> None:
    numbers = iter(range(10_000))
    bounds = msgspec.structs.replace(HOSTED, pages=20)
    with (
        HttpScript(lambda _: namespaces(0, 1, more=f"t{next(numbers)}")) as server,
        pytest.raises(Unavailable, match="does not end"),
    ):
        read(client(server), bounds)
    assert len(server.requests) <= 25


def test_same_page_again_is_an_error() -> None:
    with (
        HttpScript(lambda _: namespaces(0, 1, more="t")) as server,
        pytest.raises(Unavailable, match="same page"),
    ):
        read(client(server))


def test_token_in_the_text_of_an_object_is_no_token() -> None:
    items = (
        '[{"metadata": {"name": "a", "labels": {"continue": "b", "x": "\\"continue\\":\\"c\\""}}}]'
    )
    body = '{"kind": "NamespaceList", "metadata": {"resourceVersion": "9"}, "items": ' + items + "}"
    with HttpScript(lambda _: Reply(body=body)) as server:
        assert read(client(server)) == [(True, ["a"])]
    assert len(server.requests) == 1
