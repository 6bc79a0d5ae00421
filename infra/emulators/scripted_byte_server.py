r"""A server that sends scripted bytes with pauses, to test clients against behaviour that no HTTP server shows.

    with ByteScript(lambda: [b"HTTP/1.1 200 OK\r\n", *drip(b"X-Slow: yes\r\n", 0.01)]) as server:
        ...
    assert server.closed.wait(600)

Each connection plays the script from its beginning after the headers of a request have arrived (with `greets`, at
once). The end of the script closes the connection. A client that closes the connection ends the script.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

from infra.emulators.certificates import Pair, server_context

_HANG = 600.0  # seconds of waiting; only a hang takes so long

Part = bytes | float
"""Bytes to send, or seconds until the next part."""

Play = Callable[[], Iterable[Part]]


def drip(data: bytes, every: float) -> Iterator[Part]:
    """Yield the bytes one by one."""
    for number in data:
        yield bytes((number,))
        yield every


def endless(data: bytes, every: float = 0.0) -> Iterator[Part]:
    """Yield the same bytes forever."""
    for _ in itertools.count():
        yield data
        if every:
            yield every


class ByteScript:
    """A context manager. tls: certificate and key. greets: sends without waiting for a request, and without TLS.

    connections: number of connections. closed: set when a client has closed one. sent: number of bytes sent.
    """

    def __init__(self, play: Play, *, tls: Pair | None = None, greets: bool = False) -> None:
        self._play, self._greets = play, greets
        self._context = server_context(tls) if tls is not None else None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = f"{'https' if tls else 'http'}://{self.host}"
        self.connections = self.sent = 0
        self.closed = threading.Event()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._serve, daemon=True)]

    def __enter__(self) -> ByteScript:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(_HANG)

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._connection, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _connection(self, connection: socket.socket) -> None:
        try:
            with self._wrapped(connection) as open_one:
                open_one.settimeout(_HANG)
                if not self._greets:
                    _head(open_one)
                self._send_all(open_one)
        except OSError:
            self.closed.set()

    def _wrapped(self, connection: socket.socket) -> socket.socket:
        return connection if self._context is None else self._context.wrap_socket(connection, server_side=True)

    def _send_all(self, connection: socket.socket) -> None:
        for part in self._play():
            if isinstance(part, bytes):
                connection.sendall(part)
                self.sent += len(part)
            elif self._over.wait(part) or _hung_up(connection):
                self.closed.set()
                return


def _head(connection: socket.socket) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionAbortedError
        head += piece


def _hung_up(connection: socket.socket) -> bool:
    """Return whether the client has closed its side. Other data from it is discarded."""
    if isinstance(connection, ssl.SSLSocket):
        return False  # the next write reports it
    connection.settimeout(0)
    try:
        return connection.recv(65536) == b""
    except BlockingIOError:
        return False
    finally:
        connection.settimeout(_HANG)
