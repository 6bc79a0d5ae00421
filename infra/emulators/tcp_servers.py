"""Servers below HTTP for tests: a proxy that tunnels CONNECT, scripted bytes with pauses, and a
link with a round-trip time and a bandwidth.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import selectors
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Self

from infra.emulators.certificates import Pair, server_context


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
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection((host, int(port)), 600) as far,
                ):
                    self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    _relay(self.connection, far)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads, self._server.block_on_close = True, False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    def __enter__(self) -> ConnectProxy:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
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
    """A context manager. tls: certificate and key. greets: sends without waiting for a
    request, and without TLS.

    connections: number of connections. closed: set when a client has closed one.
    sent: number of bytes sent.
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
        self._last_client: tuple[str, int] | None = None
        self._threads = [threading.Thread(target=self._serve, daemon=True)]

    def __enter__(self) -> ByteScript:
        self._threads[0].start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        # The kernel accepts in order: when the last client is accepted, all
        # others have been counted.
        with socket.socket() as last:
            last.bind(("127.0.0.1", 0))
            self._last_client = last.getsockname()
            last.connect(self._listener.getsockname())
            for thread in self._threads:
                thread.join(_HANG)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            connection, client = self._listener.accept()
            if client == self._last_client:
                connection.close()
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
        return (
            connection
            if self._context is None
            else self._context.wrap_socket(connection, server_side=True)
        )

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


_CHUNK = 2**16
_BITS = 8


class ShapedLink:
    """Relays connections from `port` on the loopback to a server. A context manager; stops on exit.

    server: (host, port). round_trip: seconds. bandwidth: bits per second to
    the client, 0: not limited.
    """

    def __init__(
        self, server: tuple[str, int], *, round_trip: float = 0.0, bandwidth: float = 0.0
    ) -> None:
        self._server, self._half, self._rate = server, round_trip / 2, bandwidth / _BITS
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._open: set[socket.socket] = set()
        self.received = self.sent = self.connections = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="link", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()
        self.cut()

    def reset_counters(self) -> None:
        """Count bytes to the client (`sent`), bytes from it (`received`)
        and connections from zero."""
        with self._lock:
            self.received = self.sent = self.connections = 0

    def cut(self) -> None:
        with self._lock:
            ends = list(self._open)
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            opening = 2 * self._half  # SYN and SYN-ACK come before the first byte
            self._pump(client, server, opening, to_client=False)
            self._pump(server, client, 0.0, to_client=True)

    def _pump(
        self, source: socket.socket, target: socket.socket, extra: float, *, to_client: bool
    ) -> None:
        waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        earliest = time.monotonic() + extra

        def take() -> None:
            data = b"start"
            while data:
                try:
                    data = source.recv(_CHUNK)
                except OSError:
                    data = b""
                waiting.put((max(earliest, time.monotonic()) + self._half, data))

        def give() -> None:
            while True:
                due, data = waiting.get()
                self._wait(due)
                if not data:
                    break
                if to_client:
                    self._wait(self._slot(len(data)))
                try:
                    target.sendall(data)
                except OSError:
                    break
                with self._lock:
                    if to_client:
                        self.sent += len(data)
                    else:
                        self.received += len(data)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_WR)
            with self._lock:
                self._open.discard(source)

        threading.Thread(target=take, daemon=True).start()
        threading.Thread(target=give, daemon=True).start()

    def _slot(self, size: int) -> float:
        """Return the instant at which these bytes have passed the line."""
        if not self._rate:
            return 0.0
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size / self._rate
            return self._free_at

    @staticmethod
    def _wait(until: float) -> None:
        left = until - time.monotonic()
        if left > 0:
            time.sleep(left)
