"""How the emulated Huawei Cloud says that something went wrong: on request (vendor/faults.py), or by a rate limit."""

from __future__ import annotations

import math
from collections.abc import Callable

from infra.emulators.huaweicloud.errors import Refused
from infra.emulators.vendor_common.fault_injection import Fault

RETRY_SECONDS = 7
_REFUSALS = {
    Fault.UNAUTHORIZED: (401, "CCE.01401001", None),
    Fault.FORBIDDEN: (403, "CCE.01403001", None),
    Fault.NOT_FOUND: (404, "CCE.01404001", None),
    Fault.CONFLICT: (409, "CCE.01409002", None),
    Fault.THROTTLED: (429, "CCE.02429001", None),
    Fault.THROTTLED_FOR: (429, "CCE.02429001", RETRY_SECONDS),
    Fault.SERVER_ERROR: (500, "CCE.01500001", None),
    Fault.EXPIRED_TOKEN: (401, "APIGW.0301", None),
    Fault.OLD_TIME: (401, "APIGW.0303", None),
}


def refusal(fault: Fault) -> Refused | None:
    """The error reply that a fault is, None for one of the wire."""
    found = _REFUSALS.get(fault)
    if found is None:
        return None
    return Refused(found[0], found[1], f"{fault.value} (by order of the test)", retry_after=found[2])


class Throttle:
    """Calls per window and operation. limits: operation -> (calls, seconds), "" for all others; tells: whether the
    answer says when to come back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self.limits, self.tells = clock, dict[str, tuple[int, float]](), False
        self._calls: dict[str, list[float]] = {}

    def count(self, operation: str) -> None:
        """One call more. Refused if that is too many."""
        limit = self.limits.get(operation, self.limits.get(""))
        if limit is None:
            return
        most, window = limit
        now = self._clock()
        recent = [at for at in self._calls.get(operation, []) if now - at < window]
        if len(recent) >= most:
            wait = max(1, math.ceil(recent[-most] + window - now))
            raise Refused(
                429, "APIGW.0308", "The throttling threshold has been reached", retry_after=wait if self.tells else None
            )
        self._calls[operation] = [*recent, now]
