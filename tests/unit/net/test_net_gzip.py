"""A compressed answer is decoded within size limits, whatever the peer does."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest

from chalicelib.net.http_exchange import ExchangeBounds, NoReply, Reply, Request, exchange
from chalicelib.net.http_session import BoundedAdapter, BoundedSession, public_context
from infra.emulators.scripted_http_server import HttpScript
from infra.emulators.scripted_http_server import Reply as Said
from infra.emulators.tcp_servers import ByteScript
from tests.cases import each_row

BOUNDS = ExchangeBounds(connect=5.0, read=5.0, total=5.0, bytes=1_000_000)
PACKED = {"Content-Encoding": "gzip"}
TEXT = (
    b'{"items": [' + b",".join(b'{"name": "pod-%d"}' % number for number in range(20_000)) + b"]}"
)


def get(url: str, *, may: bool = True, bounds: ExchangeBounds = BOUNDS) -> Reply:
    """Runs one exchange whose answer may be compressed."""
    made = BoundedSession()
    made.mount("http://", BoundedAdapter(public_context))
    try:
        return exchange(made, Request("GET", url + "/x", {}, gzip=may), bounds)
    finally:
        made.close()


@each_row("level", [0, 1, 9])
def test_gzip_answer_equals_what_was_sent(level: int) -> None:
    with HttpScript([Said(200, gzip.compress(TEXT, level), PACKED)]) as server:
        assert get(server.url).body == TEXT
        assert server.requests[0].headers["accept-encoding"] == "gzip"


def test_gzip_is_optional_for_the_server() -> None:
    with HttpScript([Said(200, TEXT)]) as server:
        assert get(server.url).body == TEXT


def test_gzip_body_in_very_small_chunks_is_decoded() -> None:
    packed = gzip.compress(TEXT)
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(piece), piece)
        for piece in (packed[at : at + 7] for at in range(0, len(packed), 7))
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    with ByteScript(lambda: [head + chunks + b"0\r\n\r\n"]) as server:
        assert get(server.url).body == TEXT


def test_gzip_body_at_the_size_limit_is_read_and_one_byte_more_is_not() -> None:
    fits = Said(200, gzip.compress(b"x" * BOUNDS.bytes), PACKED)
    with HttpScript([fits]) as server:
        assert len(get(server.url).body) == BOUNDS.bytes
    with (
        HttpScript([Said(200, gzip.compress(b"x" * (BOUNDS.bytes + 1)), PACKED)]) as server,
        pytest.raises(NoReply, match="Size"),
    ):
        get(server.url)


@each_row("length", [50_000_000, 400_000_000])
def test_gzip_bomb_is_not_decoded_beyond_the_limit(length: int) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = (
        b"".join(packer.compress(bytes(10_000_000)) for _ in range(length // 10_000_000))
        + packer.flush()
    )
    with HttpScript([Said(200, bomb, PACKED)]) as server:
        tracemalloc.start()
        try:
            with pytest.raises(NoReply, match="Size"):
                get(server.url)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < len(bomb) * 3 + 8_000_000, "as much as the bound, a chunk and what came"


WHOLE = gzip.compress(TEXT)


@each_row(
    "body",
    [
        WHOLE[:-1],
        WHOLE[:-9],
        WHOLE[:200],
        WHOLE[:-8] + bytes(8),
        b"",
        b"{}",
        TEXT,
        WHOLE + b"x",
        WHOLE + WHOLE,
        zlib.compress(TEXT),
        gzip.compress(b"")[:10],
    ],
    ids=[
        "last byte",
        "trailer",
        "most of it",
        "wrong sum",
        "nothing",
        "short and plain",
        "plain",
        "byte behind it",
        "a second stream",
        "deflate",
        "head only",
    ],
)
def test_gzip_damaged_stream_is_not_an_answer(body: bytes) -> None:
    with (
        HttpScript([Said(200, body, PACKED)]) as server,
        pytest.raises(NoReply, match="Damaged") as caught,
    ):
        get(server.url)
    assert caught.value.__cause__ is None


@each_row("encoding", ["br", "deflate", "gzip, gzip", "identity, gzip", "zstd"])
def test_gzip_other_encodings_are_refused(encoding: str) -> None:
    with (
        HttpScript([Said(200, WHOLE, {"Content-Encoding": encoding})]) as server,
        pytest.raises(NoReply, match="Encoding"),
    ):
        get(server.url)


@each_row("status", [302, 401, 403, 410, 503])
def test_gzip_error_status_counts_whatever_its_compressed_body(status: int) -> None:
    for body in (WHOLE, b"no gzip", WHOLE[:50]):
        with HttpScript([Said(status, body, PACKED)]) as server:
            reply = get(server.url)
        assert (reply.status, reply.body) == (status, b"")


def test_gzip_is_refused_if_not_requested() -> None:
    with HttpScript([Said(200, WHOLE, PACKED)]) as server, pytest.raises(NoReply, match="Encoding"):
        get(server.url, may=False)
