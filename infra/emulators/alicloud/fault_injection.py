"""Errors that the emulated Alibaba Cloud returns: injected ones (vendor_common/fault_injection.py), and those of a rate
limit.

The vendor throttles with HTTP 400 and a code and, for newer products, a header in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable

from infra.emulators.alicloud.errors import AlicloudRefusedError
from infra.emulators.vendor_common.fault_injection import VendorFault

WRITES = frozenset({"ScaleWithAdjustment", "RemoveInstances"})
RETRY_MILLISECONDS = 7000


_REFUSALS = {
    VendorFault.UNAUTHORIZED: ("InvalidAccessKeyId.NotFound", 404, None),
    VendorFault.FORBIDDEN: ("Forbidden.RAM", 403, None),
    VendorFault.NOT_FOUND: ("InvalidScalingGroupId.NotFound", 404, None),
    VendorFault.CONFLICT: ("ScalingActivityInProgress", 400, None),
    VendorFault.THROTTLED: ("Throttling.User", 400, None),
    VendorFault.THROTTLED_FOR: ("Throttling.User", 400, RETRY_MILLISECONDS),
    VendorFault.SERVER_ERROR: ("InternalError", 500, None),
    VendorFault.EXPIRED_TOKEN: ("InvalidSecurityToken.Expired", 400, None),
    VendorFault.OLD_TIME: ("InvalidTimeStamp.Expired", 400, None),
}


def refusal(fault: VendorFault) -> AlicloudRefusedError | None:
    """Return the error response of a fault, None for a fault of the connection."""
    found = _REFUSALS.get(fault)
    return (
        AlicloudRefusedError(found[0], f"{fault.value} (by order of the test)", found[1], retry_after=found[2])
        if found
        else None
    )


class AlicloudThrottle:
    """Limits calls per window and action for the account. limits: action -> (calls, seconds), "" for all others. tells:
    whether the response says when to retry."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self.limits, self.tells = clock, dict[str, tuple[int, float]](), True
        self._calls: dict[str, list[float]] = {}

    def count(self, action: str) -> None:
        """Count one call. Raises Refused if the limit is exceeded."""
        limit = self.limits.get(action, self.limits.get(""))
        if limit is None:
            return
        most, window = limit
        now = self._clock()
        recent = [at for at in self._calls.get(action, []) if now - at < window]
        if len(recent) >= most:
            wait = max(1, int((recent[-most] + window - now) * 1000))
            raise AlicloudRefusedError(
                "Throttling.User",
                "Request was denied due to user flow control.",
                retry_after=wait if self.tells else None,
            )
        self._calls[action] = [*recent, now]
