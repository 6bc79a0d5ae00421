"""What the emulators' HTTP servers share: a handler that prints nothing,
and a server on a thread.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar


class QuietHandler(BaseHTTPRequestHandler):
    """A subclass defines `serve`, which answers a request of any method."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "emulated", ""
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024  # headers and body are sent together
    timeout: ClassVar[float | None] = 600  # seconds

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it so
        """Print nothing."""

    def serve(self) -> None:
        raise NotImplementedError

    def _serve(self) -> None:
        self.serve()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815  # names given by the base class

    def read_body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        return self.rfile.read(int(length) if length.isdigit() else 0)

    def send(
        self, status: int, headers: Iterable[tuple[str, str]], body: bytes, cut: int = 0
    ) -> None:
        """Send a response with its Content-Length. cut: bytes at the end that are announced and not
        sent; the connection ends after them."""
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) - cut])
        self.wfile.flush()
        self.close_connection = self.close_connection or bool(cut)


def _worker(work: Callable[[], None]) -> threading.Thread:
    return threading.Thread(target=work, name="emulator", daemon=True)


class LoopbackServer(ThreadingHTTPServer):
    """Serves from a thread between `start` and `stop`. context: for TLS. url: of the
    server, once it is made."""

    daemon_threads = True
    block_on_close = False  # a client may keep its connection open longer than the test runs
    request_queue_size = 128

    def __init__(
        self,
        handler: type[QuietHandler],
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__((address, port), handler)
        self.context = context
        self.url = f"{'http' if context is None else 'https'}://{address}:{self.server_address[1]}"
        self._thread: threading.Thread | None = None

    def start(self, worker: Callable[[Callable[[], None]], threading.Thread] = _worker) -> None:
        """Serve from now on. worker: makes the thread that calls a function."""
        self._thread = worker(lambda: self.serve_forever(0.02))
        self._thread.start()

    def stop(self) -> None:
        """Stop serving, if it has begun, and close the port."""
        if self._thread is not None:
            self.shutdown()
        self.server_close()
        if self._thread is not None:
            self._thread.join()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Do the TLS handshake in the connection's own thread."""
        if self.context is None:
            super().finish_request(request, client_address)
            return
        with self.context.wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection, and ignore that the client may have closed it already."""
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_WR)
        request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections, because clients may disconnect at any time."""
