"""No server can block a pass: one exchange, one call with its retries, one list and all
lists are limited in time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from chalicelib.cluster import errors
from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.credentials import KubeCredential
from chalicelib.cluster.transport import HOSTED, ReadBounds
from infra.emulators.scripted_http_server import HttpScript, Reply, Seen
from infra.emulators.tcp_servers import ByteScript, Part, drip
from tests.cases import each_row
from tests.unit.cluster.support import Known, Waits, client

SHORT = ReadBounds(exchange=0.15, call=0.3, lists=0.4, body=50_000, pages=20, volume=200_000)
SMALL = msgspec.structs.replace(SHORT, exchange=30.0, call=30.0, lists=30.0)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n"


def impatient(
    server: HttpScript | ByteScript, patience: ReadBounds = SHORT, **more: Any
) -> KubeClient:
    return KubeClient(
        Known(KubeCredential(server=server.url)),
        sleep=Waits(),
        jitter=lambda: 0.5,
        bounds=patience,
        **more,
    )


def page(more: str, size: int = 0) -> Reply:
    return Reply(
        body={"metadata": {"continue": more}, "items": [{"metadata": {"name": "x" * size}}]}
    )


def test_kube_slow_trickling_answer_is_abandoned_after_the_call_timeout() -> None:
    with (
        ByteScript(lambda: [HEAD, *drip(b"x" * 400, 0.01)]) as server,
        pytest.raises(errors.Unavailable, match=r"took longer than 0\.[0-9]+ s in all") as caught,
    ):
        impatient(server).get("/n")
    assert server.connections <= 3  # further attempts share the time of the call
    assert caught.value.reason == "Network"


def test_kube_write_to_a_trickling_server_is_sent_once_and_abandoned() -> None:
    with (
        ByteScript(lambda: [HEAD, *drip(b"x" * 400, 0.01)]) as server,
        pytest.raises(errors.Unavailable),
    ):
        impatient(server).request("POST", "/n", body={})
    assert server.connections == 1


def test_kube_call_with_its_own_timeout_takes_no_longer_in_total() -> None:
    with (
        ByteScript(lambda: [HEAD, *drip(b"x" * 400, 0.01)]) as server,
        pytest.raises(errors.Unavailable, match=r"took longer than 0\.2 s in all"),
    ):
        impatient(server, HOSTED).request("POST", "/n", body={}, timeout=(0.1, 0.1))
    assert server.connections == 1


def test_kube_oversized_answer_is_not_requested_again() -> None:
    with (
        HttpScript([Reply(body=b"x" * 50_001)] * 4) as server,
        pytest.raises(errors.Unavailable, match="larger than 50000 bytes"),
    ):
        impatient(server, SMALL).get("/n")
    assert len(server.requests) == 1


@each_row("size", [0, 20_000], ids=["pages", "bytes"])
def test_kube_endless_list_is_abandoned(size: int) -> None:
    numbers = iter(range(10_000))
    with (
        HttpScript(lambda _: page(f"t{next(numbers)}", size)) as server,
        pytest.raises(errors.Unavailable, match="does not end"),
    ):
        list(impatient(server, SMALL).list_pages("/api/v1/pods"))
    assert len(server.requests) <= 21


def test_kube_lists_with_slow_pages_share_one_time_limit() -> None:
    moments = {"now": 0.0}

    def slow(seen: Seen) -> Reply:
        moments["now"] += 25.0
        return page("" if "continue" in seen.query else "t1")

    with HttpScript(slow) as server:
        cluster = impatient(server, HOSTED, monotonic=lambda: moments["now"])
        list(cluster.list_pages("/api/v1/nodes"))
        with pytest.raises(errors.Unavailable, match="took longer than"):
            list(cluster.list_pages("/api/v1/pods"))
        with pytest.raises(errors.Unavailable, match="lists took longer than 75 s"):
            list(cluster.list_pages("/api/v1/jobs"))
    assert len(server.requests) == 3


def test_kube_list_of_150000_pods_is_within_the_limits() -> None:
    pages, of_pod = 300, 12_000
    assert pages <= HOSTED.pages
    assert pages * 500 * of_pod <= HOSTED.volume
    assert 500 * of_pod <= HOSTED.body
    items = [{"metadata": {"name": f"p{number}"}} for number in range(500)]

    def answer(seen: Seen) -> Reply:
        number = int(seen.query.get("continue", "0")) + 1
        return Reply(
            body={"metadata": {"continue": str(number) if number < pages else ""}, "items": items}
        )

    with HttpScript(answer) as server:
        read = client(server, hosted=False).list_pages("/api/v1/pods")
        count = sum(len(json.loads(each.body)["items"]) for each in read)
        peers = {seen.peer for seen in server.requests}
    assert count == 150_000
    assert len(peers) == 1  # the connection is reused


def test_kube_percent_encoded_token_is_removed_from_errors() -> None:
    odd = "a/b+c=d:e-token"
    echo = {
        "kind": "Status",
        "message": "no: a%2Fb%2bc%3Dd%3Ae-token, YS9iK2M9ZDplLXRva2Vu, a\\/b+c=d\\u003ae-token",
    }
    with HttpScript([Reply(403, echo)]) as server, pytest.raises(errors.Forbidden) as caught:
        client(server, user={"token": odd}).get("/n")
    assert "e-token" not in caught.value.message
    assert "YS9iK2M9" not in caught.value.message


def test_kube_error_never_contains_the_body_of_a_foreign_server() -> None:
    def foreign() -> Iterator[Part]:
        yield (
            b"HTTP/1.1 403 No\r\nContent-Type: text/plain\r\nContent-Length: 11\r\n\r\nhidden-word"
        )

    with ByteScript(foreign) as server, pytest.raises(errors.Forbidden) as caught:
        impatient(server, SMALL).get("/n")
    assert (
        str(caught.value)
        == "HTTP 403 (11 bytes of text/plain), which is not a Status of the Kubernetes API"
    )
