"""The limits of one exchange, seconds and bytes received, and the sockets that enforce
them, plain and with TLS.

Every wait is shortened to what is left of the exchange: connecting, the TLS handshake, sending, and
each read. This uses no thread, so none can leak; urllib3 closes a socket that ran out of time like
any other that failed. Name resolution is the only wait that is not limited here; the resolver of
the operating system has its own timeouts.

The limit of the current exchange is a context variable of its thread, because urllib3 creates and
keeps the sockets and passes nothing on to them. A socket that is used outside an exchange has no
limit. A second context variable limits all exchanges of one piece of work. It is asked immediately
before each of them, so that a process that was frozen sends nothing that it may no longer send.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any

from chalicelib.net.time_limit import time_left

AddressAllowed = Callable[[str], bool]
"""Whether a peer with this IP address may be connected to."""


class Breach(Enum):
    """Why this side aborted an exchange."""

    TIME = "time"
    TASK = "task"
    SIZE = "size"
    ADDRESS = "address"


class ExchangeLimit:
    """seconds: for the whole exchange, from the construction on; less where `time_limit` leaves
    less. head: bytes received until the body begins, including interim responses and a proxy's
    response. monotonic: seconds of a clock that never goes back.

    breach: why the exchange was aborted, None if it was not.
    """

    def __init__(self, seconds: float, head: int, monotonic: Callable[[], float]) -> None:
        self.seconds, self._monotonic = seconds, monotonic
        self._until, self._rest = monotonic() + seconds, time_left
        self._room = head
        self.breach: Breach | None = None

    def left(self) -> float:
        """Return the remaining seconds, more than 0. Raises TimeoutError."""
        seconds = self.check()
        if seconds <= 0:
            raise TimeoutError("the time for the exchange is over")
        return seconds

    def check(self) -> float:
        """Return the remaining seconds, and record which limit has ended where there are none."""
        own, rest = self._until - self._monotonic(), self._rest()
        if min(own, rest) <= 0:
            self.breach = Breach.TIME if own <= rest else Breach.TASK
        return min(own, rest)

    def received(self, count: int) -> None:
        """Count bytes. Raises OSError when there are too many."""
        self._room -= count
        if self._room < 0:
            self.breach = Breach.SIZE
            raise OSError("the answer is too large")

    def allow(self, body: int) -> None:
        """Allow this many bytes of a body after the head has been read."""
        self._room = body


_CURRENT: ContextVar[ExchangeLimit | None] = ContextVar("bound", default=None)

current = _CURRENT.get
"""() -> the limit of this thread's exchange; None outside an exchange."""


Allowance = Callable[[], float]
"""Returns the seconds that an exchange may take which begins now; none may begin where that is not
more than 0. What it raises ends the work."""

_ALLOWED: ContextVar[Allowance | None] = ContextVar("allowed", default=None)

allowance = _ALLOWED.get
"""() -> the Allowance of this context; None without one."""


@contextmanager
def allowed_by(allowance: Allowance) -> Iterator[None]:
    """Ask before every exchange inside the context."""
    token = _ALLOWED.set(allowance)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


@contextmanager
def within(limit: ExchangeLimit) -> Iterator[None]:
    """Apply the limit to all sockets of this package that this thread uses inside the context."""
    token = _CURRENT.set(limit)
    try:
        yield
    finally:
        _CURRENT.reset(token)


class AddressRefused(OSError):
    """The name resolves to addresses that may not be connected to."""


class BoundedSocket(socket.socket):
    """A plain TCP socket."""

    def connect(self, address: Any, /) -> None:
        """See socket.socket."""
        _waited(self, super().connect, address)

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """See socket.socket."""
        data: bytes = _waited(self, super().recv, bufsize, flags)
        _count(len(data))
        return data

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """See socket.socket."""
        count: int = _waited(self, super().recv_into, buffer, nbytes, flags)
        _count(count)
        return count

    def send(self, data: Any, flags: int = 0, /) -> int:
        """See socket.socket."""
        count: int = _waited(self, super().send, data, flags)
        return count

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """See socket.socket."""
        _waited(self, super().sendall, data, flags)


class BoundedSSLSocket(ssl.SSLSocket):
    """A TLS socket, as created by a context that was passed to `use`. OpenSSL applies a timeout to
    the whole of a handshake or of a record, in any number of pieces."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - the base's
        """See ssl.SSLSocket."""
        _waited(self, super().do_handshake, block)

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002 - the base's
        """See ssl.SSLSocket; recv and recv_into call it."""
        data = _waited(self, super().read, len, buffer)
        _count(data if buffer is not None else data.__len__())
        return data

    def send(self, data: Any, flags: int = 0) -> int:
        """See ssl.SSLSocket; sendall calls it."""
        count: int = _waited(self, super().send, data, flags)
        return count


def _waited(bounded: socket.socket, call: Callable[..., Any], *arguments: Any) -> Any:
    """Make the call, which waits for the peer. Its timeout is shortened to what is left, if that
    is less; urllib3 sets the timeout anew before each request and each response. Raises
    TimeoutError where nothing is left."""
    limit = current()
    if limit is None:
        return call(*arguments)
    seconds, timeout = limit.left(), bounded.gettimeout()
    if timeout is None or seconds < timeout:
        bounded.settimeout(seconds)
    try:
        return call(*arguments)
    except TimeoutError:
        limit.check()  # records whether this limit shortened the wait
        raise


def _count(received: int) -> None:
    limit = current()
    if limit is not None:
        limit.received(received)


def use(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return the same context, whose sockets enforce the limit from now on."""
    context.sslsocket_class = BoundedSSLSocket
    return context


def connected(
    host: str,
    port: int,
    timeout: float | None,
    options: Sequence[tuple[int, int, int | bytes]],
    allowed: AddressAllowed,
) -> BoundedSocket:
    """Connect to the first address of the host that accepts a connection. timeout:
    seconds for each address.

    Raises OSError: AddressRefused if no address is allowed, socket.gaierror, TimeoutError, or
    the last address's error.
    """
    entries = socket.getaddrinfo(host.strip("[]"), port, socket.AF_UNSPEC, socket.SOCK_STREAM)
    usable = [entry for entry in entries if allowed(str(entry[4][0]))]
    if not usable:
        limit = current()
        if limit is not None:
            limit.breach = Breach.ADDRESS
        raise AddressRefused("the address of the host is not allowed")
    problem: OSError | None = None
    for family, kind, protocol, _, address in usable:
        connection = BoundedSocket(family, kind, protocol)
        try:
            for option in options:
                connection.setsockopt(*option)
            connection.settimeout(timeout)
            connection.connect(address)
        except OSError as error:
            problem = error
            with contextlib.suppress(OSError):
                connection.close()
        else:
            return connection
    assert problem is not None
    raise problem
