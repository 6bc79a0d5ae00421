"""Serves moto's emulation of AWS as one threaded server that is safe for
concurrent DynamoDB transactions.

moto does not lock its tables. Concurrent transactions lose updates, and a cancelled transaction
restores a copy of the table, which discards the writes of other threads (measured). One lock around
DynamoDB requests prevents both. Other services stay concurrent, because the long poll of a queue
must not block everything.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from io import BytesIO
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.exceptions import ClientDisconnected
from werkzeug.serving import BaseWSGIServer, make_server
from werkzeug.wsgi import get_input_stream

from infra.emulators.moto_gaps import close

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

STOP_POLL = (
    # seconds until `stop` is noticed; werkzeug's default of half a second delays
    # every test that stops one
    0.05
)


class Dispatcher(DomainDispatcherApplication):
    """moto's dispatcher without reading a directory and trying hundreds of patterns for every
    request. Responses are the same."""

    def __init__(self) -> None:
        super().__init__(create_backend_app)
        self._backends: dict[str | None, Any] = {}

    def get_backend_for_host(self, host: str | None) -> Any:
        if host not in self._backends:
            self._backends[host] = super().get_backend_for_host(host)
        return self._backends[host]


class QuietHandler(MotoRequestHandler):
    """Logs no requests, and keeps connections open as AWS does."""

    protocol_version = "HTTP/1.1"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


def only_whole_requests(app: WSGIApplication) -> WSGIApplication:
    """Wrap the app so that it gets only complete requests. A client that disconnects during a
    request (a function that is killed) has no effect.

    The body is read before any lock is taken, so that a slow sender blocks nothing.
    """

    def whole(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            body = get_input_stream(environ).read()
        except ClientDisconnected:
            start_response("400 Bad Request", [("Content-Length", "0")])
            return []
        environ["wsgi.input"] = BytesIO(body)
        return app(environ, start_response)

    return whole


def one_at_a_time(app: WSGIApplication) -> WSGIApplication:
    """Wrap the app with one lock around all DynamoDB requests."""
    lock = threading.RLock()

    def locked(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if not environ.get("HTTP_X_AMZ_TARGET", "").startswith("DynamoDB"):
            return app(environ, start_response)
        with lock:
            return list(app(environ, start_response))

    return locked


class AwsServer:
    """The emulation on its own port. Its state is moto's, which all servers of one process
    share."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: BaseWSGIServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        close()
        app = only_whole_requests(one_at_a_time(Dispatcher()))
        self._server = make_server(
            "127.0.0.1", self._port, app, threaded=True, request_handler=QuietHandler
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(STOP_POLL,), name="local-aws", daemon=True
        )
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        """Stop serving. Does nothing if the server was not started."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server = self._thread = None
