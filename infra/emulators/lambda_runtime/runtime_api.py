"""Lambda's Runtime API for one process: delivers the next event and accepts the result.

Results of a runtime are put into `answers` in the order of arrival. The API has its own loopback port.
"""

from __future__ import annotations

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

_ROOT = "/2018-06-01/runtime"
_MOST = 6 * 2**20  # maximum bytes of a response that Lambda accepts


class RuntimeEvent(msgspec.Struct, frozen=True):
    """One invocation: its id, the event's JSON, the function's ARN, and the deadline in epoch milliseconds."""

    request: str
    body: bytes
    arn: str
    deadline: int


class RuntimeResponse(msgspec.Struct, frozen=True):
    """A message of the runtime. kind: `ready` (it requests an event), `response`, `error` or `init`. body: JSON."""

    kind: str
    body: Any = None


class _RuntimeApiHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _RuntimeApiServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Print nothing."""

    def do_GET(self) -> None:
        """Return the next event; the runtime waits until there is one."""
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
        """Accept a response or an error. The runtime client sends both in chunks or with a length."""
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
        """Ignore broken connections, which occur when a runtime is killed."""


class RuntimeApi:
    """address: `host:port`, as in AWS_LAMBDA_RUNTIME_API."""

    def __init__(self) -> None:
        self._server = _RuntimeApiServer()
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def hand_out(self, event: RuntimeEvent) -> None:
        """Queue an event for the runtime's next request."""
        self._server.events.put(event)

    def next(self, timeout: float) -> RuntimeResponse | None:
        """Return the runtime's next message, None if it sends none within this number of seconds."""
        try:
            return self._server.said.get(timeout=timeout)
        except queue.Empty:
            return None

    def stop(self) -> None:
        """Stop serving."""
        self._server.events.put(None)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
