"""Sockets that keep the bound of the exchange under way (bound.py), plain and with TLS.

Every wait is cut at what is left of the exchange: connecting, the TLS handshake, sending, and each read. No thread
watches, so there is none to leak; a socket that ran out of time is closed by urllib3 like any other that failed.
Name resolution is the one wait that is not cut. The resolver of the operating system has timeouts of its own.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from chalicelib.net.bound import Bound, current

AddressAllowed = Callable[[str], bool]
"""Whether a peer with this IP address may be connected to."""


class AddressRefused(OSError):
    """The name resolves to addresses that may not be connected to."""


class _Waits:
    """What both kinds of sockets share. _wanted: the timeout that the owner of the socket asked for."""

    _wanted: float | None = None

    def settimeout(self, value: float | None, /) -> None:
        """As socket.settimeout; what is left of an exchange shortens it."""
        self._wanted = value
        super().settimeout(value)  # type: ignore[misc]

    def _begin(self) -> Bound | None:
        """Shorten the next wait to what is left. Raises TimeoutError where nothing is."""
        bound = current()
        if bound is None:
            return None
        left, wanted = bound.left(), self._wanted
        seconds = left if wanted is None else min(left, wanted)
        if seconds != super().gettimeout():  # type: ignore[misc]
            super().settimeout(seconds)  # type: ignore[misc]
        return bound

    def _waited(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The call, which waits for the peer."""
        bound = self._begin()
        try:
            return call(*arguments)
        except TimeoutError:
            if bound is not None:
                bound.timed_out()
            raise

    def _received(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The call, which returns bytes from the peer or how many it wrote into a buffer."""
        found = self._waited(call, *arguments)
        bound = current()
        if bound is not None:
            bound.received(found if isinstance(found, int) else len(found))
        return found


class BoundedSocket(_Waits, socket.socket):
    """A plain TCP socket."""

    def connect(self, address: Any, /) -> None:
        """See socket.socket."""
        self._waited(super().connect, address)

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """See socket.socket."""
        found: bytes = self._received(super().recv, bufsize, flags)
        return found

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """See socket.socket."""
        count: int = self._received(super().recv_into, buffer, nbytes, flags)
        return count

    def send(self, data: Any, flags: int = 0, /) -> int:
        """See socket.socket."""
        count: int = self._waited(super().send, data, flags)
        return count

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """See socket.socket."""
        self._waited(super().sendall, data, flags)


class BoundedSSLSocket(_Waits, ssl.SSLSocket):
    """A socket with TLS, as a context makes it once `use` was called with the context. OpenSSL keeps a timeout over the
    whole of a handshake or of a record, however many pieces it comes in."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - the base's
        """See ssl.SSLSocket."""
        self._waited(super().do_handshake, block)

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002 - the base's
        """See ssl.SSLSocket; recv and recv_into call it."""
        return self._received(super().read, len, buffer)

    def send(self, data: Any, flags: int = 0) -> int:
        """See ssl.SSLSocket; sendall calls it."""
        count: int = self._waited(super().send, data, flags)
        return count


def use(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same context, whose sockets keep the bound from now on."""
    context.sslsocket_class = BoundedSSLSocket
    return context


def connected(
    host: str, port: int, timeout: float | None, options: Sequence[tuple[int, int, int | bytes]],
    allowed: AddressAllowed,
) -> BoundedSocket:
    """A connection to the first address of the host that accepts one. timeout: seconds for each address.

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
