"""Errors that the emulated Cherry Servers returns: injected ones (vendor_common/fault_injection.py), and those of the
rate limit.

The vendor documents a limit of four requests per second from one address, and status 429 above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from infra.emulators.cherryservers.errors import CherryRefusedError
from infra.emulators.vendor_common.fault_injection import VendorFault

WRITES = frozenset({"create_server", "update_server", "delete_server"})
RETRY_AFTER = 7
_REFUSALS = {
    VendorFault.UNAUTHORIZED: (401, "Invalid credentials"),
    VendorFault.EXPIRED_TOKEN: (401, "Invalid credentials"),
    VendorFault.FORBIDDEN: (403, "You are not allowed to perform this action."),
    VendorFault.NOT_FOUND: (404, "Project not found."),
    VendorFault.CONFLICT: (409, "Another change is running."),
    VendorFault.THROTTLED: (429, "Too many requests."),
    VendorFault.THROTTLED_FOR: (429, "Too many requests."),
    VendorFault.SERVER_ERROR: (500, "Internal server error."),
    VendorFault.OLD_TIME: (400, "Bad request."),
}


def refusal(fault: VendorFault, retry_after: int) -> CherryRefusedError | None:
    """Return the error response of a fault, None for a fault of the connection. retry_after: seconds, if the fault has
    a header for it."""
    found = _REFUSALS.get(fault)
    told = retry_after if fault is VendorFault.THROTTLED_FOR else None
    return CherryRefusedError(*found, retry_after=told) if found else None


class CherryThrottle:
    """Limits requests per window from one source. limit: (requests, seconds), None for no limit. tells: whether the
    response says when to retry."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self.tells = clock, True
        self.limit: tuple[int, float] | None = (4, 1.0)
        self._calls: dict[str, list[float]] = {}

    def count(self, source: str) -> None:
        """Count one request. Raises Refused if the limit is exceeded; a refused request is not counted."""
        if self.limit is None:
            return
        most, window = self.limit
        now = self._clock()
        recent = [at for at in self._calls.get(source, []) if now - at < window]
        if len(recent) >= most:
            wait = max(1, math.ceil(recent[-most] + window - now))
            raise CherryRefusedError(429, "Too many requests.", retry_after=wait if self.tells else None)
        self._calls[source] = [*recent, now]
