"""A server with scripted replies, for tests of client behaviour.

    with HttpScript([Reply(503), Reply(200, {"kind": "Node"})]) as server:
        client = connect_to(server.url)
        ...
    assert [seen.path for seen in server.requests] == ["/api/v1/nodes/a", "/api/v1/nodes/a"]

Replies are used in order, whatever is requested. A request after the last reply gets status
599, which no client accepts. Credentials are never stored: a request contains only a
fingerprint of its credential.
"""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from chalicelib.model.errors import MemoryExceeded
from chalicelib.runtime.memory_usage import READING, MemoryGauge
from chalicelib.store.pass_footprint import Reading
from infra.emulators.certificates import Pair, server_context
from infra.emulators.http_server import LoopbackServer, QuietHandler

_RELATED = ("authorization", "proxy-authorization", "cookie")


@dataclass(frozen=True)
class Seen:
    """One received request. credential: fingerprint() of its Authorization header, "" without one.
    peer: the client's end of the connection."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    credential: str = ""
    client_certificate: str = ""
    peer: str = ""

    def json(self) -> object:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """A reply. body: bytes and text are sent unchanged, anything else as JSON.

    cut: number of bytes of the body that are omitted although Content-Length counts them.
    hang_up: no reply at all. held: an event to wait for before replying, so that a test controls
    the order without sleeping.
    """

    status: int = 200
    body: object = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int = 0
    hang_up: bool = False
    held: threading.Event | None = None

    def payload(self) -> bytes:
        """Return the body's bytes."""
        if isinstance(self.body, bytes):
            return self.body
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


def fingerprint(authorization: str) -> str:
    """Return what replaces a credential in records: twelve digits of the hash of `Bearer abc`."""
    return hashlib.sha256(authorization.encode()).hexdigest()[:12]


Script = Callable[[Seen], Reply]


class HttpScript:
    """The server; a context manager. script: replies in order, or a function of the request.

    tls: certificate and key, which make `url` an https one. client_ca: PEM of the authority whose
    client certificates are requested.
    """

    def __init__(
        self,
        script: Sequence[Reply] | Script = (),
        *,
        tls: Pair | None = None,
        client_ca: bytes = b"",
    ) -> None:
        self.requests: list[Seen] = []
        self._lock = threading.Lock()
        self._script = script if callable(script) else _in_order(list(script))
        handler = type("Handler", (_ScriptedHttpServerHandler,), {"owner": self})
        context = server_context(tls, client_ca) if tls is not None else None
        self._server = LoopbackServer(handler, context=context)
        self.url = self._server.url

    def answer(self, seen: Seen) -> Reply:
        with self._lock:
            self.requests.append(seen)
            return self._script(seen)

    def __enter__(self) -> HttpScript:
        self._server.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.stop()


class _ScriptedHttpServerHandler(QuietHandler):
    owner: ClassVar[HttpScript]
    timeout = 10

    def serve(self) -> None:
        reply = self.owner.answer(self._read())
        if reply.held is not None:
            reply.held.wait(600)  # seconds; only a hang takes so long
        if reply.hang_up:
            self.close_connection = True
            return
        headers = {"Content-Type": "application/json", **reply.headers}
        self.send(reply.status, headers.items(), reply.payload(), reply.cut)

    do_HEAD = serve  # noqa: N815 - the base class's name

    def _read(self) -> Seen:
        parts = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        credential = headers.get("authorization", "")
        return Seen(
            method=self.command,
            path=parts.path,
            query=dict(parse_qsl(parts.query, keep_blank_values=True)),
            headers={name: value for name, value in headers.items() if name not in _RELATED},
            body=self.rfile.read(int(headers.get("content-length", "0"))),
            credential=fingerprint(credential) if credential else "",
            client_certificate=_common_name(self.connection),
            peer=f"{self.client_address[0]}:{self.client_address[1]}",
        )


def _common_name(connection: object) -> str:
    """Return the common name of the client's certificate, "" without one."""
    peer: Any = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    names = [
        value
        for part in (peer or {}).get("subject", ())
        for key, value in part
        if key == "commonName"
    ]
    return str(names[0]) if names else ""


def _in_order(replies: list[Reply]) -> Script:
    return lambda _seen: (
        replies.pop(0)
        if replies
        else Reply(599, "the script is over", {"Content-Type": "text/plain"})
    )


class ScriptedGauge(MemoryGauge):
    """A gauge that reports the measurements set by the test. reads: MB that the
    process has while it reads."""

    def __init__(self, takes: Callable[[], Reading | None], reads: Callable[[], int]) -> None:
        super().__init__(None)
        self._takes, self._reads = takes, reads

    def begin(self) -> None:
        """See MemoryGauge."""

    def check(self, size: int) -> None:
        if self._reads() > size * READING:
            raise MemoryExceeded(
                f"the cluster's lists need more than {size * READING:.0f} MB of {size} MB"
            )

    def end(self) -> Reading | None:
        return self._takes()
