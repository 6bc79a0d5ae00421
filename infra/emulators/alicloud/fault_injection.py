"""Errors that the emulated Alibaba Cloud returns: injected ones (vendor_common/fault_injection.py),
and those of a rate limit (vendor_common/throttle.py).

The vendor throttles with HTTP 400 and a code and, for newer products, a header in milliseconds.
"""

from __future__ import annotations

from infra.emulators.vendor_common.fault_injection import VendorFault, VendorRefusal

WRITES = frozenset(
    {"ScaleWithAdjustment", "ModifyScalingGroup", "RemoveInstances", "RebootInstance"}
)
RETRY_MILLISECONDS = 7000
REFUSALS = {
    VendorFault.UNAUTHORIZED: VendorRefusal(404, code="InvalidAccessKeyId.NotFound"),
    VendorFault.FORBIDDEN: VendorRefusal(403, code="Forbidden.RAM"),
    VendorFault.NOT_FOUND: VendorRefusal(404, code="InvalidScalingGroupId.NotFound"),
    VendorFault.CONFLICT: VendorRefusal(400, code="ScalingActivityInProgress"),
    VendorFault.THROTTLED: VendorRefusal(400, code="Throttling.User"),
    VendorFault.THROTTLED_FOR: VendorRefusal(400, code="Throttling.User"),
    VendorFault.SERVER_ERROR: VendorRefusal(500, code="InternalError"),
    VendorFault.EXPIRED_TOKEN: VendorRefusal(400, code="InvalidSecurityToken.Expired"),
    VendorFault.OLD_TIME: VendorRefusal(400, code="InvalidTimeStamp.Expired"),
}
OVER_LIMIT = VendorRefusal(400, "Request was denied due to user flow control.", "Throttling.User")


def milliseconds(seconds: float) -> int:
    """Return a wait as the vendor's header gives it."""
    return int(seconds * 1000)
