"""Why a connection failed, in words that quote nothing of the request: DNS, a refused port, TLS, a
network that is not reachable.

Whoever tells a person names the host, too. Libraries wrap the error of the operating system several
times, so it is looked for at any depth.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Iterable


def connection_problem(errors: Iterable[BaseException]) -> str:
    """Return why a connection failed, in words that quote nothing of the request; "" where none of
    the errors says it."""
    for error in errors:
        if isinstance(error, socket.gaierror):
            is_down = error.errno == socket.EAI_AGAIN
            return "DNS does not answer" if is_down else "DNS does not know its name"
        if isinstance(error, ssl.SSLError):
            reason = (error.reason or "").replace("_", " ").lower()
            return _TLS.get(reason) or f"TLS failed{f' ({reason})' if reason else ''}"
        if isinstance(error, ConnectionRefusedError):
            return "it refuses connections on this port"
        if isinstance(error, ConnectionResetError | BrokenPipeError):
            return "it closed the connection"
        if isinstance(error, OSError) and error.errno in _UNREACHABLE:
            return f"it cannot be reached ({os.strerror(error.errno or 0).lower()})"
    return ""


_TLS = {"wrong version number": "it does not speak TLS on this port"}
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL)


def wrapped_errors(error: BaseException) -> list[BaseException]:
    """Return the exception and all exceptions it wraps, at any depth."""
    errors: list[BaseException] = [error]
    for current in errors:
        for wrapped in (
            *current.args,
            current.__cause__,
            current.__context__,
            getattr(current, "reason", None),
        ):
            if isinstance(wrapped, BaseException) and wrapped not in errors and len(errors) < 20:
                errors.append(wrapped)
    return errors
