"""A TCP relay with a given round-trip time and bandwidth: a benchmark on one machine measures what a line costs.

It needs no network tools and no rights. Bytes are passed on after half of the round-trip time in each direction; those
to the client share one bandwidth, over all connections. Opening a connection takes one more round trip, as TCP does.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from types import TracebackType
from typing import Self

_CHUNK = 2**16
_BITS = 8


class ShapedLink:
    """Relays connections from `port` on the loopback to a server. A context manager; stops on exit.

    server: (host, port). round_trip: seconds. bandwidth: bits per second to the client, 0: not limited.
    """

    def __init__(self, server: tuple[str, int], *, round_trip: float = 0.0, bandwidth: float = 0.0) -> None:
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.cut()

    def reset_counters(self) -> None:
        """Count bytes to the client (`sent`), bytes from it (`received`) and connections from zero."""
        with self._lock:
            self.received = self.sent = self.connections = 0

    def cut(self) -> None:
        """Break all open connections."""
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

    def _pump(self, source: socket.socket, target: socket.socket, extra: float, *, to_client: bool) -> None:
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
