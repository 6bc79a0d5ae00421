"""Paged lists: the continue token, a 410 midway, a truncated page."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.cluster import errors
from chalicelib.cluster.list_page import Page
from infra.emulators.scripted_http_server import HttpScript, Reply, Seen
from tests.cases import each_row
from tests.unit.cluster.support import client, status

EXPIRED = Reply(410, status(410, "Expired", "The provided continue parameter is too old"))


def page(*names: str, more: str = "") -> dict[str, Any]:
    meta = {"resourceVersion": "9", **({"continue": more} if more else {})}
    return {
        "kind": "NodeList",
        "metadata": meta,
        "items": [{"metadata": {"name": name}} for name in names],
    }


def names_of(pages: list[Page]) -> list[tuple[bool, list[str]]]:
    return [
        (p.first, [item["metadata"]["name"] for item in json.loads(p.body)["items"]]) for p in pages
    ]


def test_kube_paging_follows_the_continue_token_to_the_end() -> None:
    replies = [
        Reply(body=page("a", "b", more="t1")),
        Reply(body=page("c", more="t2")),
        Reply(body=page()),
    ]
    with HttpScript(replies) as server:
        pages = list(client(server).list_pages("/api/v1/nodes", query={"labelSelector": "x=y"}))
    assert names_of(pages) == [(True, ["a", "b"]), (False, ["c"]), (False, [])]
    assert [seen.query for seen in server.requests] == [
        {"labelSelector": "x=y", "limit": "500"},
        {"labelSelector": "x=y", "limit": "500", "continue": "t1"},
        {"labelSelector": "x=y", "limit": "500", "continue": "t2"},
    ]


def test_kube_paging_sends_the_resource_version_with_the_first_page_only() -> None:
    with HttpScript([Reply(body=page("a", more="t1")), Reply(body=page("b"))]) as server:
        list(client(server).list_pages("/api/v1/nodes", query={"resourceVersion": "0"}, limit=1))
    assert [seen.query for seen in server.requests] == [
        {"resourceVersion": "0", "limit": "1"},
        {"limit": "1", "continue": "t1"},
    ]


def test_kube_paging_410_midway_restarts_the_list_and_is_reported() -> None:
    replies = [
        Reply(body=page("a", more="t1")),
        EXPIRED,
        Reply(body=page("a", "z", more="t2")),
        Reply(body=page("c")),
    ]
    with HttpScript(replies) as server:
        pages = list(client(server).list_pages("/api/v1/nodes"))
    assert names_of(pages) == [(True, ["a"]), (True, ["a", "z"]), (False, ["c"])]
    assert "continue" not in server.requests[2].query


def test_kube_paging_list_that_always_expires_is_abandoned() -> None:
    def always(seen: Seen) -> Reply:
        return EXPIRED if "continue" in seen.query else Reply(body=page("a", more="t"))

    with HttpScript(always) as server, pytest.raises(errors.Expired):
        list(client(server).list_pages("/api/v1/nodes"))
    assert len(server.requests) == 8  # four first pages, four second ones


def test_kube_paging_410_on_the_first_page_is_an_error() -> None:
    with HttpScript([EXPIRED]) as server, pytest.raises(errors.Expired):
        list(client(server).list_pages("/api/v1/nodes"))


@each_row(
    "cut",
    [
        Reply(body=page("b"), cut=3),
        Reply(body=json.dumps(page("b"))[:-3]),
        Reply(body={"kind": "NodeList"}),
        Reply(body={}),
    ],
    ids=["transfer", "json", "no items", "something else"],
)
def test_kube_paging_truncated_page_is_read_again(cut: Reply) -> None:
    with HttpScript([Reply(body=page("a", more="t1")), cut, Reply(body=page("b"))]) as server:
        pages = list(client(server).list_pages("/api/v1/nodes"))
    assert names_of(pages) == [(True, ["a"]), (False, ["b"])]
    assert server.requests[1].query == server.requests[2].query


def test_kube_paging_page_that_stays_truncated_is_unavailable() -> None:
    with (
        HttpScript([Reply(body=b'{"metadata": {}, "items": [{')] * 4) as server,
        pytest.raises(errors.Unavailable),
    ):
        list(client(server).list_pages("/api/v1/nodes"))


def test_kube_paging_detects_a_repeated_continue_token() -> None:
    with (
        HttpScript(lambda _: Reply(body=page("a", more="t"))) as server,
        pytest.raises(errors.Unavailable, match="again and again"),
    ):
        list(client(server).list_pages("/api/v1/nodes"))
    assert len(server.requests) == 2
