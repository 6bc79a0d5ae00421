"""Errors that the emulated Cherry Servers returns: injected ones (vendor_common/fault_injection.py), and those of the
rate limit (vendor_common/throttle.py).

The vendor documents a limit of four requests per second from one address, and status 429 above it.
"""

from __future__ import annotations

from infra.emulators.vendor_common.errors import VendorRefusal
from infra.emulators.vendor_common.fault_injection import VendorFault

WRITES = frozenset({"create_server", "update_server", "delete_server"})
RETRY_AFTER = 7
LIMIT = (4, 1.0)
OVER_LIMIT = VendorRefusal(429, "Too many requests.")
REFUSALS = {
    VendorFault.UNAUTHORIZED: VendorRefusal(401, "Invalid credentials"),
    VendorFault.EXPIRED_TOKEN: VendorRefusal(401, "Invalid credentials"),
    VendorFault.FORBIDDEN: VendorRefusal(403, "You are not allowed to perform this action."),
    VendorFault.NOT_FOUND: VendorRefusal(404, "Project not found."),
    VendorFault.CONFLICT: VendorRefusal(409, "Another change is running."),
    VendorFault.THROTTLED: OVER_LIMIT,
    VendorFault.THROTTLED_FOR: OVER_LIMIT,
    VendorFault.SERVER_ERROR: VendorRefusal(500, "Internal server error."),
    VendorFault.OLD_TIME: VendorRefusal(400, "Bad request."),
}
