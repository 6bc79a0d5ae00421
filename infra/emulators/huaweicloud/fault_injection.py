"""Errors that the emulated Huawei Cloud returns: injected ones (vendor_common/fault_injection.py), and those of a rate
limit."""

from __future__ import annotations

import math
from collections.abc import Callable

from infra.emulators.huaweicloud.errors import CceRefusedError
from infra.emulators.vendor_common.fault_injection import VendorFault

RETRY_SECONDS = 7
_REFUSALS = {
    VendorFault.UNAUTHORIZED: (401, "CCE.01401001", None),
    VendorFault.FORBIDDEN: (403, "CCE.01403001", None),
    VendorFault.NOT_FOUND: (404, "CCE.01404001", None),
    VendorFault.CONFLICT: (409, "CCE.01409002", None),
    VendorFault.THROTTLED: (429, "CCE.02429001", None),
    VendorFault.THROTTLED_FOR: (429, "CCE.02429001", RETRY_SECONDS),
    VendorFault.SERVER_ERROR: (500, "CCE.01500001", None),
    VendorFault.EXPIRED_TOKEN: (401, "APIGW.0301", None),
    VendorFault.OLD_TIME: (401, "APIGW.0303", None),
}


def refusal(fault: VendorFault) -> CceRefusedError | None:
    """Return the error response of a fault, None for a fault of the connection."""
    found = _REFUSALS.get(fault)
    if found is None:
        return None
    return CceRefusedError(found[0], found[1], f"{fault.value} (by order of the test)", retry_after=found[2])


class CceThrottle:
    """Limits calls per window and operation. limits: operation -> (calls, seconds), "" for all others. tells: whether
    the response says when to retry."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self.limits, self.tells = clock, dict[str, tuple[int, float]](), False
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
            raise CceRefusedError(
                429, "APIGW.0308", "The throttling threshold has been reached", retry_after=wait if self.tells else None
            )
        self._calls[operation] = [*recent, now]
