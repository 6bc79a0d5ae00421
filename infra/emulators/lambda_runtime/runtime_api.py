"""Lambda's Runtime API for one process: it asks for the next event, and says what came of it.

Answers of a runtime go to `answers` in the order in which they come. The API is on a loopback port of its own.
"""

from __future__ import annotations

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

_ROOT = "/2018-06-01/runtime"
_MOST = 6 * 2**20  # bytes of an answer that Lambda takes


class RuntimeEvent(msgspec.Struct, frozen=True):
    """One invocation: its id, the event's JSON, the function's ARN, and the deadline in epoch milliseconds."""

    request: str
    body: bytes
    arn: str
    deadline: int


class RuntimeResponse(msgspec.Struct, frozen=True):
    """What the runtime said. kind: `ready` (it asks for an event), `response`, `error` or `init`; body: JSON."""

    kind: str
    body: Any = None


class _RuntimeApiHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _RuntimeApiServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Nothing."""

    def do_GET(self) -> None:
        """The next event; the runtime waits for it as long as there is none."""
        self.server.said.put(RuntimeResponse("ready"))
        event = self.server.events.get()
        if event is None:
            self.close_connection = True
            return
        self._send(
            200,
            event.body,
            {
                "Lambda-Runtime-Aws-Request-Id": event.request,
                "Lambda-Runtime-Deadline-Ms": str(event.deadline),
                "Lambda-Runtime-Invoked-Function-Arn": event.arn,
                "Lambda-Runtime-Trace-Id": f"Root=1-00000000-{event.request.replace('-', '')[:24]};Sampled=0",
            },
        )

    def do_POST(self) -> None:
        """A response or an error. The client of the runtime sends both in chunks or with a length."""
        body = self._body()
        kind = "init" if self.path == f"{_ROOT}/init/error" else self.path.rpartition("/")[2]
        self.server.said.put(RuntimeResponse(kind, json.loads(body or b"null")))
        self._send(202, b'{"status": "OK"}', {})

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _MOST))
        parts = []
        while length := int(self.rfile.readline().strip() or b"0", 16):
            parts.append(self.rfile.read(length))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class _RuntimeApiServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _RuntimeApiHandler)
        self.events: queue.SimpleQueue[RuntimeEvent | None] = queue.SimpleQueue()
        self.said: queue.SimpleQueue[RuntimeResponse] = queue.SimpleQueue()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A runtime that is killed breaks its connections."""


class RuntimeApi:
    """address: `host:port`, as AWS_LAMBDA_RUNTIME_API has it."""

    def __init__(self) -> None:
        self._server = _RuntimeApiServer()
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def hand_out(self, event: RuntimeEvent) -> None:
        """The runtime gets this when it asks next."""
        self._server.events.put(event)

    def next(self, timeout: float) -> RuntimeResponse | None:
        """What the runtime says next; None if it says nothing for so many seconds."""
        try:
            return self._server.said.get(timeout=timeout)
        except queue.Empty:
            return None

    def stop(self) -> None:
        """Serve no more."""
        self._server.events.put(None)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
