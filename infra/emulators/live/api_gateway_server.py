"""A small API Gateway: an HTTP server on a loopback port that converts requests to proxy events for the app.

The app runs in a separate process like every function. Read routes require the key in x-api-key, as in a stage deployed
with OUTSCALER_READ_AUTH=api-key. The webhook authenticates its callers itself.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from infra.emulators.api_gateway import find, forbidden, proxy_event
from infra.emulators.lambda_events import Json
from infra.emulators.live.checked_threads import Ended, Worker, logged

#: API Gateway's limit; the app's own limit is much lower.
MAX_BODY = 10 * 2**20

Answer = Callable[[Json], Json]
"""A proxy event -> the app's response (`statusCode`, `headers`, `body`)."""


class _GatewayHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "local", ""
    disable_nagle_algorithm = True
    server: _GatewayServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Print nothing."""

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self.close_connection = True
            self._send({"statusCode": 413, "body": json.dumps({"message": "Request Too Long"})})
            return
        body = self.rfile.read(length)
        self._send(self.server.front.answer(self.command, self.path, dict(self.headers.items()), body))

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _serve  # noqa: N815 - names given by the base class

    def _send(self, made: Json) -> None:
        body = str(made.get("body", "")).encode()
        self.send_response(made["statusCode"])
        for name, value in ({"Content-Type": "application/json"} | made.get("headers", {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _GatewayServer(ThreadingHTTPServer):
    daemon_threads = True
    front: ApiGatewayFront

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections, because clients may disconnect at any time."""


class ApiGatewayFront:
    """answer_event: passes an event to the app's process. api_key: required by read routes."""

    def __init__(self, answer_event: Answer, api_key: str, ended: Ended = logged) -> None:
        self._ended = ended
        self._answer_event, self.api_key = answer_event, api_key
        self._numbers = itertools.count(1)
        self._server: _GatewayServer | None = None
        self._thread: Worker | None = None
        self.url = ""

    def start(self) -> str:
        """Start serving on 127.0.0.1 and return the URL."""
        self._server = _GatewayServer(("127.0.0.1", 0), _GatewayHandler)
        self._server.front = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = Worker(
            self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="front", ended=self._ended
        )
        self._thread.start()
        return self.url

    def stop(self) -> None:
        """Stop serving."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Json:
        """Find the route, check the key, call the app."""
        from app import app

        route = find(app, method, target)
        if route is None or not route.allows(headers, self.api_key):
            return forbidden()
        return self._answer_event(proxy_event(route, method, target, headers, body, f"http-{next(self._numbers)}"))
