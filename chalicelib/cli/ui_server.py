"""The loopback server of `outscaler ui`: only the person who started the command sees the page.

Other programs and web pages on the same machine can connect to the port, too. The address that is printed has a token
of 256 bits, which is valid once and is exchanged for a cookie. A page in the browser cannot use a name of its own for
the address (Host must be the loopback address with the port), and requests of other sites are refused
(Sec-Fetch-Site). There is no method but GET and HEAD, and no CORS header.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from chalicelib.page.pages import PageAnswer, PageRequest
from chalicelib.page.render import security_headers

LOOPBACK = "127.0.0.1"
COOKIE = "outscaler"
AT_ONCE = 16
"""Requests that are answered at the same time; further connections are closed."""
_OPEN = "/open/"
_PERMITTED_SITES = ("", "none", "same-origin")
_FIELDS = 10
_READ_WITHIN = 10.0  # seconds for one request

Answer = Callable[[PageRequest], PageAnswer]


class PageServer(ThreadingHTTPServer):
    """Listens on the loopback address. answer: makes a page. clock: seconds, for the time without a request."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, answer: Answer, clock: Callable[[], float]) -> None:
        super().__init__((LOOPBACK, port), _PageHandler)
        self.answer, self.clock, self.last_used = answer, clock, clock()
        self.token, self.session = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._free = threading.BoundedSemaphore(AT_ONCE)
        self._once = threading.Lock()
        self.timeout = 1.0

    @property
    def host(self) -> str:
        """Return the only accepted value of the header Host."""
        return f"{LOOPBACK}:{self.server_address[1]}"

    @property
    def address(self) -> str:
        """Return the address that opens the page, once."""
        return f"http://{self.host}{_OPEN}{self.token}"

    def exchanged(self, token: str) -> bool:
        """Return whether this is the token, and make it invalid."""
        with self._once:
            valid = bool(self.token) and hmac.compare_digest(token.encode(), self.token.encode())
            if valid:
                self.token = ""
            return valid

    def serve_until_idle(self, idle: float) -> None:
        """Answer requests until there was none for `idle` seconds."""
        while self.clock() - self.last_used < idle:
            self.handle_request()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, of which there are AT_ONCE at most."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """See process_request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is not reported."""


class _PageHandler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "outscaler", ""
    timeout = _READ_WITHIN

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def _respond(self, *, with_body: bool) -> None:
        parts = urlsplit(self.path)
        refused = self._refusal(parts.path)
        if refused:
            self._send(refused, b"", {})
            return
        if parts.path.startswith(_OPEN):
            cookie = f"{COOKIE}={self.server.session}; HttpOnly; SameSite=Strict; Path=/"
            self._send(303, b"", {"Location": "/", "Set-Cookie": cookie})
            return
        self.server.last_used = self.server.clock()
        try:
            query = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=_FIELDS))
        except ValueError:
            self._send(400, b"", {})
            return
        answer = self.server.answer(PageRequest(parts.path, query))
        self._send(answer.status, answer.body if with_body else b"", answer.headers, len(answer.body))

    def _refusal(self, path: str) -> int:
        """Return the status of the first check that fails, 0 where none does."""
        opens = path.startswith(_OPEN)
        checks = (
            (self.headers.get_all("Host") != [self.server.host], 421),
            (not opens and self.headers.get("Sec-Fetch-Site", "") not in _PERMITTED_SITES, 403),
            (opens and not self.server.exchanged(path.removeprefix(_OPEN)), 403),
            (not opens and not self._has_cookie(), 401),
        )
        return next((status for fails, status in checks if fails), 0)

    def _has_cookie(self) -> bool:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self.server.session.encode())

    def _send(self, status: int, body: bytes, headers: Mapping[str, str], length: int | None = None) -> None:
        self.send_response(status)
        for name, value in (security_headers() | dict(headers)).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class has it
        """Requests are not logged: their addresses name clusters."""
