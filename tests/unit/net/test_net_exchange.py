"""An HTTP exchange is limited in time and size, whatever the peer does, and leaves nothing
behind.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import gzip
import logging
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes.client import Configuration

from chalicelib.net.connection_problem import connection_problem, wrapped_errors
from chalicelib.net.http_exchange import ExchangeBounds, NoReply, Reply, Request, exchange
from chalicelib.net.http_session import BoundedAdapter, BoundedSession, public_context
from infra.emulators.certificates import CertificateAuthority
from infra.emulators.scripted_http_server import HttpScript
from infra.emulators.scripted_http_server import Reply as Said
from infra.emulators.tcp_servers import ByteScript, Part, Play, drip, endless
from tests.cases import each_row

OURS = CertificateAuthority("ours")
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BOUNDS = ExchangeBounds(connect=5.0, read=5.0, total=5.0, bytes=100_000)
SHORT = ExchangeBounds(connect=0.25, read=0.25, total=0.2, bytes=100_000)
SLOW = 0.01  # seconds between two bytes: well within each read's timeout


def trusting() -> ssl.SSLContext:
    made = public_context()
    made.load_verify_locations(cadata=OURS.pem.decode())
    return made


# built before the exchange's time limit begins, because loading the CA certificates takes a while
TRUSTING = trusting()


def session(**adapter: Any) -> BoundedSession:
    made = BoundedSession()
    for scheme in ("http://", "https://"):
        made.mount(scheme, BoundedAdapter(lambda: TRUSTING, **adapter))
    return made


def left(server: ByteScript) -> bool:
    """Tells whether the client has closed its connection, or was too slow to open one."""
    return not server.connections or server.closed.wait(600)


def get(url: str, bounds: ExchangeBounds = BOUNDS, **more: Any) -> Reply:
    made = session(**more)
    try:
        return exchange(made, Request("GET", url + "/x", {}), bounds)
    finally:
        made.close()


def dripping_trailers() -> Iterator[Part]:
    yield CHUNKED + b"2\r\n{}\r\n0\r\n"
    yield from drip(b"X-Trailer: yes\r\n" * 50, SLOW)


DRIPS: dict[str, Play] = {
    "status line": lambda: drip(OK * 50, SLOW),
    "header": lambda: [OK, *drip(b"X-Slow: " + b"y" * 500, SLOW)],
    "many headers": lambda: [OK, *drip(b"A: b\r\n" * 90, SLOW)],
    "interim answers": lambda: endless(b"HTTP/1.1 100 Continue\r\n\r\n", SLOW),
    "body": lambda: [OK + b"Content-Length: 500\r\n\r\n", *drip(b"x" * 500, SLOW)],
    "body without length": lambda: [OK + b"\r\n", *drip(b"x" * 500, SLOW)],
    "end of the body": lambda: [
        OK + b"Content-Length: 500\r\n\r\n" + b"x" * 480,
        *drip(b"x" * 20, 0.04),
    ],
    "chunk size": lambda: [CHUNKED, *drip(b"0" * 500, SLOW)],
    "chunk extension": lambda: [CHUNKED, *drip(b"1;" + b"e" * 500, SLOW)],
    "chunks": lambda: [CHUNKED, *endless_limited(b"1\r\nx\r\n")],
    "trailers": dripping_trailers,
    "body of an error": lambda: [
        b"HTTP/1.1 500 No\r\nContent-Length: 500\r\n\r\n",
        *drip(b"x" * 500, SLOW),
    ],
}


def endless_limited(data: bytes) -> Iterator[Part]:
    for _ in range(500):
        yield data
        yield SLOW


@each_row("tls", [False, True], ids=["plain", "tls"])
@each_row("place", DRIPS)
def test_exchange_trickling_answer_ends_at_the_time_limit(place: str, tls: bool) -> None:
    with ByteScript(DRIPS[place], tls=OURS.server() if tls else None) as server:
        with pytest.raises(NoReply, match="Time"):
            get(server.url, SHORT)
        assert left(server)
    assert server.connections <= 1


def test_exchange_trickling_handshake_ends_at_the_time_limit() -> None:
    record = b"\x16\x03\x03\x40\x00" + b"\x02\x00\x3f\xfc" + b"\x00" * 500
    with ByteScript(lambda: drip(record, SLOW), greets=True) as server:
        with pytest.raises(NoReply, match="Time"):
            get(
                f"https://{server.host}",
                ExchangeBounds(connect=30.0, read=30.0, total=0.3, bytes=1000),
            )
        assert left(server)


def test_exchange_trickling_proxy_ends_at_the_time_limit() -> None:
    answer = b"HTTP/1.1 200 Connection established\r\n" + b"A: b\r\n" * 90
    with ByteScript(lambda: drip(answer, SLOW)) as server:
        made = session()
        made.proxies.update({"https": server.url})
        with pytest.raises(NoReply, match="Time"):
            exchange(made, Request("GET", "https://cluster.test/x", {}), SHORT)
        made.close()
        assert left(server)


def test_exchange_peer_that_reads_nothing_ends_the_sending_in_time() -> None:
    with ByteScript(lambda: [30.0], greets=True) as server:
        made = session()
        with pytest.raises(NoReply):
            exchange(made, Request("POST", server.url, {}, body=b"x" * 50_000_000), SHORT)
        made.close()


FLOODS: dict[str, Play] = {
    "length that is announced": lambda: [
        OK + b"Content-Length: 99999999999999999999999\r\n\r\n",
        b"x" * 10,
    ],
    "length that is a lie": lambda: [OK + b"Content-Length: 100001\r\n\r\n", *many(b"x" * 4096)],
    "no length": lambda: [OK + b"\r\n", *many(b"x" * 4096)],
    "chunks": lambda: [CHUNKED, *many(b"1000\r\n" + b"x" * 4096 + b"\r\n")],
    "chunk extensions": lambda: [CHUNKED, *many(b"1;" + b"e" * 60_000 + b"\r\nx\r\n")],
    "trailers": lambda: [CHUNKED, b"0\r\n", *many(b"A: " + b"b" * 60_000 + b"\r\n")],
    "headers": lambda: [OK, *many(b"A: " + b"b" * 60_000 + b"\r\n")],
    "interim answers": lambda: many(b"HTTP/1.1 100 Continue\r\nA: " + b"b" * 60_000 + b"\r\n\r\n"),
    "one header": lambda: [OK, b"A: ", *many(b"b" * 60_000)],
    "chunk size": lambda: [CHUNKED, *many(b"0" * 60_000)],
}


def many(data: bytes) -> Iterator[Part]:
    yield from [data] * 2000


@each_row("place", FLOODS)
def test_exchange_endless_answer_is_cut_off_in_every_part(place: str) -> None:
    with ByteScript(FLOODS[place]) as server, pytest.raises(NoReply) as caught:
        get(server.url)
    assert caught.value.kind in {"Size", "ConnectionError", "ChunkedEncodingError", "Malformed"}
    assert server.sent < 20_000_000


@each_row(("status", "place"), [(200, "Content-Encoding"), (302, "Location"), (500, "")])
def test_exchange_unrequested_compression_is_not_decoded(status: int, place: str) -> None:
    bomb = gzip.compress(b"\0" * 5_000_000)
    headers = {"Content-Encoding": "gzip"} | (
        {"Location": "/elsewhere"} if place == "Location" else {}
    )
    with HttpScript([Said(status, bomb, headers)]) as server:
        if status == 200:
            with pytest.raises(NoReply, match="Encoding"):
                get(server.url)
            return
        reply = get(server.url)
    assert (reply.status, reply.body) == (status, b"")
    assert reply.described() == f"HTTP {status} (compressed of application/json)"


def test_exchange_oversized_error_body_is_not_read_and_the_status_counts() -> None:
    with HttpScript([Said(503, b"x" * 2_000_000)]) as server:
        reply = get(server.url, ExchangeBounds(connect=5.0, read=5.0, total=5.0, bytes=100_000_000))
    assert (reply.status, reply.body) == (503, b"")
    assert "more than" in reply.described()


MALFORMED: dict[str, Play] = {
    "two lengths": lambda: [OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"],
    "more than a hundred headers": lambda: [OK + b"A: b\r\n" * 200 + b"\r\n"],
    "no HTTP": lambda: [b"SSH-2.0-OpenSSH\r\n"],
    "early hints": lambda: [
        b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\n{}"
    ],
    "switching protocols": lambda: [b"HTTP/1.1 101 Switching Protocols\r\n\r\n"],
    "chunk size": lambda: [CHUNKED + b"xyz\r\n"],
    "negative chunk size": lambda: [CHUNKED + b"-5\r\nhello\r\n"],
    "short body": lambda: [OK + b"Content-Length: 50\r\n\r\nhello"],
    "nothing": list,
}


@each_row("what", MALFORMED)
def test_exchange_invalid_http_is_not_an_answer_and_counts_as_sent(what: str) -> None:
    with ByteScript(MALFORMED[what]) as server, pytest.raises(NoReply) as caught:
        get(server.url)
    assert caught.value.sent


@each_row("others", [lambda: None, Configuration], ids=["alone", "beside the package kubernetes"])
def test_exchange_unparsable_headers_are_not_logged(
    others: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    others()
    odd = OK + b"Content-Length: 2\r\n hidden-word\r\nbad header hidden-word\r\n: x\r\n\r\n{}"
    with caplog.at_level(logging.WARNING), ByteScript(lambda: [odd]) as server:
        made = session()
        with contextlib.suppress(NoReply):
            exchange(made, Request("GET", server.url, {}, {"Signature": "hidden-word"}), BOUNDS)
        made.close()
    assert "hidden-word" not in caplog.text


def test_exchange_timeout_leaves_no_thread_and_no_socket() -> None:
    with ByteScript(DRIPS["body"]) as server, warnings.catch_warnings():
        warnings.simplefilter("error")
        there = set(threading.enumerate())
        for _ in range(3):
            with pytest.raises(NoReply, match="Time"):
                get(server.url, ExchangeBounds(connect=1.0, read=1.0, total=0.1, bytes=1000))
        gc.collect()  # a leaked socket warns here
        assert left(server)
        assert len(set(threading.enumerate()) - there) <= server.connections


def test_exchange_reuses_a_connection_without_its_previous_timeout() -> None:
    with HttpScript(lambda _: Said(200, b"{}")) as server:
        made = session()
        for total in (2.0, 5.0, 5.0):
            assert (
                exchange(
                    made, Request("GET", server.url, {}), ExchangeBounds(5.0, 5.0, total, 1000)
                ).body
                == b"{}"
            )
        made.close()
    assert len({seen.peer for seen in server.requests}) == 1


@each_row("host", ["127.0.0.1", "localhost"])
def test_exchange_forbidden_address_gets_no_connection(host: str) -> None:
    with HttpScript([Said(200)]) as server, pytest.raises(NoReply, match="Address"):
        get(
            server.url.replace("127.0.0.1", host),
            allowed=lambda address: not address.startswith(("127.", "::1")),
        )
    assert server.requests == []


def test_exchange_keeps_no_cookie() -> None:
    with HttpScript(lambda _: Said(200, b"{}", {"Set-Cookie": "a=b; Path=/"})) as server:
        made = session()
        for _ in range(2):
            exchange(made, Request("GET", server.url, {}), BOUNDS)
        made.close()
    assert all("cookie" not in seen.headers for seen in server.requests)


def test_exchange_exception_contains_nothing_of_the_request() -> None:
    with ByteScript(DRIPS["header"]) as server, pytest.raises(NoReply) as caught:
        exchange(session(), Request("GET", server.url, {"Authorization": "hidden-word"}), SHORT)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


PROBLEMS = (
    (socket.gaierror(socket.EAI_NONAME, "quoted"), "DNS does not know its name"),
    (socket.gaierror(socket.EAI_AGAIN, "quoted"), "DNS does not answer"),
    (ConnectionRefusedError(111, "quoted"), "it refuses connections on this port"),
    (ConnectionResetError(104, "quoted"), "it closed the connection"),
    (OSError(errno.ENETUNREACH, "quoted"), "it cannot be reached (network is unreachable)"),
    (OSError(errno.EPERM, "quoted"), ""),
    (ValueError("quoted"), ""),
)


@pytest.mark.parametrize(("error", "words"), PROBLEMS, ids=[words for _, words in PROBLEMS])
def test_connection_problem_is_said_however_deep_it_is(error: Exception, words: str) -> None:
    outer = RuntimeError("outside", [], LookupError(error))
    assert connection_problem(wrapped_errors(error)) == words
    assert connection_problem(wrapped_errors(RuntimeError(outer.args[2]))) == words
    reply = NoReply("ConnectionError", why=words)
    why = f": {words}" if words else ""
    assert reply.words == f"no answer (ConnectionError{why})"
    assert "quoted" not in reply.words


def test_server_without_tls_is_said_to_speak_none() -> None:
    with HttpScript([Said(body={})] * 2) as server, pytest.raises(NoReply) as caught:
        get(server.url.replace("http:", "https:"))
    assert caught.value.why == "it does not speak TLS on this port"
