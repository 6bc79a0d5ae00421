"""The loopback server of `outscaler ui`: only the person who started the command sees the page.

Other programs and web pages on the same machine can connect to the port, too. The address that is
printed has a token of 256 bits, which is valid once and is exchanged for a cookie. Browsers send
the cookies of a host to all of its ports, therefore every page is below a random path, and the
cookie is of this path: another server on the loopback address does not receive it. A page in the
browser cannot use a name of its own for the address (Host must be the loopback address with the
port), and requests of other sites are refused (Sec-Fetch-Site). There is no method but GET and
HEAD, and no CORS header.

A connection that has not sent its request after READ_WITHIN is closed. If AT_ONCE connections are
open, a new one closes the oldest of those whose request is incomplete.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from chalicelib.page.render import SECURITY_HEADERS, Links
from chalicelib.page.routes import PageAnswer, PageRequest

LOOPBACK = "127.0.0.1"
COOKIE = "outscaler"
AT_ONCE = 16
"""Connections that are open at the same time."""
READ_WITHIN = 10.0
"""Seconds from the start of a connection to the end of its request."""
_OPEN = "/open/"
_FORBIDDEN, _NO_SESSION = 403, 401
_NO_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Outscaler: no session</title></head>
<body><h1>This address opens nothing any more</h1>
<p>The address that <code>outscaler ui</code> prints works once, in the browser that opens it first.
End the command with Ctrl-C and run <code>outscaler ui</code> again for a new one. For the page
that a deployment serves, add <code>--hosted</code>; on a machine without a login, run before it
<code>outscaler login STACK</code>.</p></body></html>
"""
_PERMITTED_SITES = ("", "none", "same-origin")
_FIELDS = 10
_WRITE_WITHIN = 10.0  # seconds for one answer
_BACKLOG = 128  # connections that the kernel has accepted and this server has not

Answer = Callable[[PageRequest, Links], PageAnswer]


class PageServer(ThreadingHTTPServer):
    """Listens on the loopback address. answer: makes a page. clock: seconds, for
    the time without a request."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = _BACKLOG

    def __init__(self, port: int, answer: Answer, clock: Callable[[], float]) -> None:
        super().__init__((LOOPBACK, port), _PageHandler)
        self.answer, self.clock, self.last_used = answer, clock, clock()
        self.links = Links(f"/{secrets.token_urlsafe(24)}")
        self.token, self.session = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._reading: dict[socket.socket, float] = {}  # begun, the oldest first
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        self._once, self._ended = threading.Lock(), threading.Event()
        self.timeout = 1.0

    @property
    def host(self) -> str:
        """Return the only accepted value of the header Host."""
        return f"{LOOPBACK}:{self.server_address[1]}"

    @property
    def address(self) -> str:
        """Return the address that opens the page, once."""
        return f"http://{self.host}{self.links.base}{_OPEN}{self.token}"

    def exchanged(self, token: str) -> bool:
        """Return whether this is the token, and make it invalid."""
        with self._once:
            valid = bool(self.token) and hmac.compare_digest(token.encode(), self.token.encode())
            if valid:
                self.token = ""
            return valid

    def serve_until_idle(self, idle: float) -> None:
        """Answer requests until there was none for `idle` seconds, or until `end`."""
        while not self._ended.is_set() and self.clock() - self.last_used < idle:
            self.handle_request()
            self._close_slow()

    def end(self) -> None:
        """Let serve_until_idle return, in at most a second."""
        self._ended.set()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, of which there are AT_ONCE at most; the oldest incomplete
        request makes room. Where all requests are complete, wait for the end of one."""
        with self._changed:
            while len(self._open) >= AT_ONCE:
                if self._reading:
                    self._close_oldest()
                self._changed.wait()
            self._open.add(request)
            self._reading[request] = self.clock()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, whether or not a thread could be started for it."""
        super().shutdown_request(request)
        with self._changed:
            self._reading.pop(request, None)
            self._open.discard(request)
            self._changed.notify()

    def complete(self, request: socket.socket) -> bool:
        """Note that a request was read. Returns False for a connection that was closed before."""
        with self._changed:
            return self._reading.pop(request, None) is not None

    def _close_slow(self) -> None:
        """Close connections that have not sent their request in time."""
        with self._changed:
            while (
                self._reading and self.clock() - next(iter(self._reading.values())) >= READ_WITHIN
            ):
                self._close_oldest()

    def _close_oldest(self) -> None:
        """Close the oldest connection without a complete request; its thread ends by itself."""
        request = next(iter(self._reading))
        del self._reading[request]
        with contextlib.suppress(OSError):  # the other side has closed it
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is not reported."""


class _PageHandler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "outscaler", ""
    timeout = READ_WITHIN

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def _respond(self, *, with_body: bool) -> None:
        if not self.server.complete(self.connection):
            return
        self.connection.settimeout(_WRITE_WITHIN)
        parts = urlsplit(self.path)
        page = self._page_of(parts.path)
        refused = self._refusal(page)
        base = self.server.links.base
        is_used = refused == _FORBIDDEN and page.startswith(_OPEN)
        if is_used and self._has_cookie():
            # the browser that has used the address loads it again
            self._send(303, b"", {"Location": self.server.links.start()})
            return
        if is_used or refused == _NO_SESSION:
            body = _NO_PAGE.encode()
            headers = {"Content-Type": "text/html; charset=utf-8"}
            self._send(refused, body if with_body else b"", headers, len(body))
            return
        if refused:
            self._send(refused, b"", {})
            return
        if page.startswith(_OPEN):
            cookie = f"{COOKIE}={self.server.session}; HttpOnly; SameSite=Strict; Path={base}"
            self._send(303, b"", {"Location": self.server.links.start(), "Set-Cookie": cookie})
            return
        self.server.last_used = self.server.clock()
        try:
            query = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=_FIELDS))
        except ValueError:
            self._send(400, b"", {})
            return
        answer = self.server.answer(PageRequest(page, query), self.server.links)
        self._send(
            answer.status, answer.body if with_body else b"", answer.headers, len(answer.body)
        )

    def _page_of(self, path: str) -> str:
        """Return the path of a page, without the random one before it; "" where
        the path is another one."""
        first, slash, rest = path.removeprefix("/").partition("/")
        below_base = hmac.compare_digest(f"/{first}".encode(), self.server.links.base.encode())
        return f"{slash or '/'}{rest}" if below_base and path.startswith("/") else ""

    def _refusal(self, page: str) -> int:
        """Return the status of the first check that fails, 0 where none does."""
        opens = page.startswith(_OPEN)
        checks = (
            (self.headers.get_all("Host") != [self.server.host], 421),
            (not page, 404),
            (
                not opens and self.headers.get("Sec-Fetch-Site", "") not in _PERMITTED_SITES,
                _FORBIDDEN,
            ),
            (opens and not self.server.exchanged(page.removeprefix(_OPEN)), _FORBIDDEN),
            (not opens and not self._has_cookie(), _NO_SESSION),
        )
        return next((status for fails, status in checks if fails), 0)

    def _has_cookie(self) -> bool:
        # Other servers on the loopback address may set further cookies of this
        # name, and malformed ones.
        pairs = (part.strip().partition("=") for part in self.headers.get("Cookie", "").split(";"))
        sent = [value for name, _, value in pairs if name == COOKIE]
        return any(
            hmac.compare_digest(value.encode(), self.server.session.encode()) for value in sent
        )

    def _send(
        self, status: int, body: bytes, headers: Mapping[str, str], length: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (SECURITY_HEADERS | dict(headers)).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class has it
        """Requests are not logged: their addresses name clusters."""
