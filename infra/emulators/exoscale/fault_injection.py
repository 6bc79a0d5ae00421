"""Errors that the emulated Exoscale returns: injected ones (vendor_common/fault_injection.py), and those of a rate
limit (vendor_common/throttle.py)."""

from __future__ import annotations

from infra.emulators.vendor_common.errors import VendorRefusal
from infra.emulators.vendor_common.fault_injection import VendorFault

RETRY_SECONDS = 7
OVER_LIMIT = VendorRefusal(429, "Too many requests")
REFUSALS = {
    VendorFault.UNAUTHORIZED: VendorRefusal(401),
    VendorFault.FORBIDDEN: VendorRefusal(403),
    VendorFault.NOT_FOUND: VendorRefusal(404),
    VendorFault.CONFLICT: VendorRefusal(409),
    VendorFault.THROTTLED: VendorRefusal(429),
    VendorFault.THROTTLED_FOR: VendorRefusal(429),
    VendorFault.SERVER_ERROR: VendorRefusal(500),
}
