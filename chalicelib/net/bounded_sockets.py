"""Sockets that enforce the limit of the current exchange (net/exchange_limits.py), plain and with TLS.

Every wait is shortened to what is left of the exchange: connecting, the TLS handshake, sending, and each read. This
uses no thread, so none can leak; urllib3 closes a socket that ran out of time like any other that failed. Name
resolution is the only wait that is not limited here; the resolver of the operating system has its own timeouts.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from chalicelib.net.exchange_limits import current

AddressAllowed = Callable[[str], bool]
"""Whether a peer with this IP address may be connected to."""


class AddressRefused(OSError):
    """The name resolves to addresses that may not be connected to."""


class BoundedSocket(socket.socket):
    """A plain TCP socket."""

    def connect(self, address: Any, /) -> None:
        """See socket.socket."""
        _waited(self, super().connect, address)

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """See socket.socket."""
        found: bytes = _waited(self, super().recv, bufsize, flags)
        _count(len(found))
        return found

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
    """A TLS socket, as created by a context that was passed to `use`. OpenSSL applies a timeout to the whole of a
    handshake or of a record, in any number of pieces."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - the base's
        """See ssl.SSLSocket."""
        _waited(self, super().do_handshake, block)

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002 - the base's
        """See ssl.SSLSocket; recv and recv_into call it."""
        found = _waited(self, super().read, len, buffer)
        _count(found if buffer is not None else found.__len__())
        return found

    def send(self, data: Any, flags: int = 0) -> int:
        """See ssl.SSLSocket; sendall calls it."""
        count: int = _waited(self, super().send, data, flags)
        return count


def _waited(made: socket.socket, call: Callable[..., Any], *arguments: Any) -> Any:
    """Make the call, which waits for the peer. Its timeout is shortened to what is left, if that is less; urllib3 sets
    the timeout anew before each request and each response. Raises TimeoutError where nothing is left."""
    bound = current()
    if bound is None:
        return call(*arguments)
    left, wanted = bound.left(), made.gettimeout()
    if wanted is None or left < wanted:
        made.settimeout(left)
    try:
        return call(*arguments)
    except TimeoutError:
        bound.timed_out()
        raise


def _count(received: int) -> None:
    bound = current()
    if bound is not None:
        bound.received(received)


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
    """Connect to the first address of the host that accepts a connection. timeout: seconds for each address.

    Raises OSError: AddressRefused if no address is allowed, socket.gaierror, TimeoutError, or the last address's error.
    """
    found = socket.getaddrinfo(host.strip("[]"), port, socket.AF_UNSPEC, socket.SOCK_STREAM)
    usable = [entry for entry in found if allowed(str(entry[4][0]))]
    if not usable:
        bound = current()
        if bound is not None:
            bound.refuse()
        raise AddressRefused("the address of the host is not allowed")
    problem: OSError | None = None
    for family, kind, protocol, _, address in usable:
        made = BoundedSocket(family, kind, protocol)
        try:
            for option in options:
                made.setsockopt(*option)
            made.settimeout(timeout)
            made.connect(address)
        except OSError as error:
            problem = error
            with contextlib.suppress(OSError):
                made.close()
        else:
            return made
    assert problem is not None
    raise problem
