"""Errors that the emulated Exoscale returns: injected ones (vendor_common/fault_injection.py), and those of a rate
limit."""

from __future__ import annotations

import math
from collections.abc import Callable

from infra.emulators.exoscale.errors import ExoscaleRefusedError
from infra.emulators.vendor_common.fault_injection import VendorFault

RETRY_SECONDS = 7
_REFUSALS = {
    VendorFault.UNAUTHORIZED: (401, None),
    VendorFault.FORBIDDEN: (403, None),
    VendorFault.NOT_FOUND: (404, None),
    VendorFault.CONFLICT: (409, None),
    VendorFault.THROTTLED: (429, None),
    VendorFault.THROTTLED_FOR: (429, RETRY_SECONDS),
    VendorFault.SERVER_ERROR: (500, None),
}


def refusal(fault: VendorFault) -> ExoscaleRefusedError | None:
    """Return the error response of a fault, None for a fault of the connection."""
    found = _REFUSALS.get(fault)
    return (
        ExoscaleRefusedError(found[0], f"{fault.value} (by order of the test)", retry_after=found[1]) if found else None
    )


class ExoscaleThrottle:
    """Limits calls per window and operation. limits: operation -> (calls, seconds), "" for all others. tells: whether
    the response says when to retry."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self.limits, self.tells = clock, dict[str, tuple[int, float]](), True
        self._calls: dict[str, list[float]] = {}

    def count(self, operation: str) -> None:
        """Count one call. Raises Refused if the limit is exceeded."""
        limit = self.limits.get(operation, self.limits.get(""))
        if limit is None:
            return
        most, window = limit
        now = self._clock()
        recent = [at for at in self._calls.get(operation, []) if now - at < window]
        if len(recent) >= most:
            wait = max(1, math.ceil(recent[-most] + window - now))
            raise ExoscaleRefusedError(429, "Too many requests", retry_after=wait if self.tells else None)
        self._calls[operation] = [*recent, now]
