"""A loopback HTTP proxy that tunnels CONNECT and records its use, to test whether a client uses the proxy or bypasses
it."""

from __future__ import annotations

import contextlib
import selectors
import socket
import socketserver
import threading
from types import TracebackType


class ConnectProxy:
    """A context manager. `url`: for HTTPS_PROXY. `targets`: host:port of every requested tunnel."""

    def __init__(self) -> None:
        self.targets: list[str] = []
        targets = self.targets

        class Handler(socketserver.StreamRequestHandler):
            timeout = 600

            def handle(self) -> None:
                target = self.rfile.readline().decode("latin-1").split(" ")[1]
                while self.rfile.readline().strip():
                    pass
                targets.append(target)
                host, _, port = target.rpartition(":")
                with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 600) as far:
                    self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    _relay(self.connection, far)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads, self._server.block_on_close = True, False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> ConnectProxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _relay(near: socket.socket, far: socket.socket) -> None:
    """Copy bytes in both directions until one side closes."""
    with selectors.DefaultSelector() as selector:
        selector.register(near, selectors.EVENT_READ, far)
        selector.register(far, selectors.EVENT_READ, near)
        while True:
            for key, _ in selector.select():
                source, sink = key.fileobj, key.data
                assert isinstance(source, socket.socket)
                data = source.recv(65536)
                if not data:
                    return
                sink.sendall(data)
