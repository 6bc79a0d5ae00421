"""One call: which requests are retried, and how answers are decoded."""

from __future__ import annotations

import gzip
import json
import traceback

import pytest

from chalicelib.cluster import errors
from infra.emulators.scripted_http_server import HttpScript, Reply, fingerprint
from tests.cases import each_row
from tests.unit.cluster.support import TOKEN, Waits, client, status


def test_kube_read_returns_the_body_unchanged() -> None:
    with HttpScript([Reply(body=b'{"kind":"Node" }\n')]) as server:
        assert client(server).get("/api/v1/nodes/a", query={"x": "1 2"}) == b'{"kind":"Node" }\n'
    seen = server.requests[0]
    assert (seen.method, seen.path, seen.query) == ("GET", "/api/v1/nodes/a", {"x": "1 2"})
    assert seen.credential == fingerprint(f"Bearer {TOKEN}")


def test_kube_server_url_keeps_its_path() -> None:
    with HttpScript([Reply(body={})]) as server:
        client(server.url + "/k8s/clusters/c-1/").get("/version")
    assert server.requests[0].path == "/k8s/clusters/c-1/version"


def test_kube_write_sends_its_body_once_with_its_content_type() -> None:
    with HttpScript([Reply(201, {})]) as server:
        client(server).request(
            "PATCH", "/p", body={"a": None}, content_type="application/merge-patch+json"
        )
    assert server.requests[0].json() == {"a": None}
    assert server.requests[0].headers["content-type"] == "application/merge-patch+json"


@each_row(
    "trouble",
    [
        Reply(500, status(500)),
        Reply(503, "upstream connect error", {"Content-Type": "text/plain"}),
        Reply(429, "Too many requests, please try again later.", {"Content-Type": "text/plain"}),
        Reply(hang_up=True),
        Reply(body=b'{"kind": "Node", "metadata": {}}', cut=5),
        Reply(body=b'{"kind": "Node", "meta'),
    ],
    ids=["500", "503", "429", "hang-up", "cut-transfer", "cut-json"],
)
def test_kube_failed_read_is_retried(trouble: Reply) -> None:
    waits = Waits()
    with HttpScript([trouble, trouble, Reply(body={"kind": "Node"})]) as server:
        assert json.loads(client(server, sleep=waits).get("/n")) == {"kind": "Node"}
    assert waits.seconds == [0.1875, 0.375]  # doubled, and half of each is random


@each_row(
    "trouble",
    [Reply(503), Reply(429), Reply(hang_up=True), Reply(body=b"{}", cut=1)],
    ids=["503", "429", "hang-up", "cut"],
)
@each_row("method", ["POST", "PATCH", "PUT", "DELETE"])
def test_kube_failed_write_is_never_retried(method: str, trouble: Reply) -> None:
    with (
        HttpScript([trouble, Reply(body={})]) as server,
        pytest.raises((errors.Unavailable, errors.TooManyRequests)),
    ):
        client(server).request(method, "/p", body={})
    assert len(server.requests) == 1


def test_kube_retries_are_bounded() -> None:
    waits = Waits()
    with (
        HttpScript([Reply(500, status(500, message="etcd is down"))] * 9) as server,
        pytest.raises(errors.Unavailable, match="etcd is down") as caught,
    ):
        client(server, sleep=waits).get("/n")
    assert len(server.requests) == 4
    assert len(waits.seconds) == 3
    assert caught.value.status == 500


def test_kube_retry_after_is_honoured() -> None:
    waits = Waits()
    with HttpScript([Reply(429, status(429), {"Retry-After": "2"}), Reply(body={})]) as server:
        client(server, sleep=waits).get("/n")
    assert waits.seconds == [2.0]


def test_kube_retry_after_of_minutes_is_not_awaited() -> None:
    waits = Waits()
    with (
        HttpScript([Reply(503, status(503), {"Retry-After": "120"})]) as server,
        pytest.raises(errors.Unavailable) as caught,
    ):
        client(server, sleep=waits).get("/n")
    assert waits.seconds == []
    assert caught.value.retry_after == 120.0


def test_kube_redirects_are_not_followed() -> None:
    with (
        HttpScript([Reply(302, b"", {"Location": "/elsewhere"}), Reply(body={})]) as server,
        pytest.raises(errors.Unavailable, match="redirect"),
    ):
        client(server).get("/n")
    assert [seen.path for seen in server.requests] == ["/n"]


def test_kube_refused_connection_is_unavailable() -> None:
    with HttpScript() as server:
        url = server.url
    with pytest.raises(
        errors.Unavailable,
        match=f"GET /n: the connection to {url[7:]} failed: it refuses connections on this port;",
    ) as caught:
        client(url).get("/n")
    assert caught.value.status == 0


@each_row("encoding", ["gzip", "deflate", "br", "GZIP", "identity, gzip", "x-unknown"])
def test_kube_unrequested_compression_is_refused(encoding: str) -> None:
    packed = Reply(body=gzip.compress(b'{"a": 1}'), headers={"Content-Encoding": encoding})
    with (
        HttpScript([packed, packed]) as server,
        pytest.raises(errors.Unavailable, match="compressed") as caught,
    ):
        client(server).get("/n")
    assert server.requests[0].headers["accept-encoding"] == "identity"
    assert caught.value.lasting
    assert len(server.requests) == 1


def test_kube_token_never_shows_in_an_error_even_if_the_server_echoes_it() -> None:
    echo = Reply(403, status(403, message=f"denied: Authorization: Bearer {TOKEN} for {TOKEN}"))
    with HttpScript([echo]) as server, pytest.raises(errors.Forbidden) as caught:
        client(server).get("/n")
    assert TOKEN not in str(caught.value)


def test_kube_exceptions_do_not_carry_their_request() -> None:
    with HttpScript([Reply(hang_up=True)]) as server, pytest.raises(errors.Unavailable) as caught:
        client(server).request("POST", "/n", body={})
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert TOKEN not in "".join(traceback.format_exception(caught.value))


def test_kube_malformed_answer_is_read_again_and_then_unavailable() -> None:
    with (
        HttpScript([Reply(body=b"<html>")] * 4) as server,
        pytest.raises(errors.Unavailable, match="cut short or not"),
    ):
        client(server).get("/n")
