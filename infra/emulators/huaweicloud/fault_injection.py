"""Errors that the emulated Huawei Cloud returns: injected ones (vendor_common/fault_injection.py),
and those of a rate limit (vendor_common/throttle.py)."""

from __future__ import annotations

from infra.emulators.vendor_common.fault_injection import VendorFault, VendorRefusal

RETRY_SECONDS = 7
OVER_LIMIT = VendorRefusal(429, "The throttling threshold has been reached", "APIGW.0308")
REFUSALS = {
    VendorFault.UNAUTHORIZED: VendorRefusal(401, code="CCE.01401001"),
    VendorFault.FORBIDDEN: VendorRefusal(403, code="CCE.01403001"),
    VendorFault.NOT_FOUND: VendorRefusal(404, code="CCE.01404001"),
    VendorFault.CONFLICT: VendorRefusal(409, code="CCE.01409002"),
    VendorFault.THROTTLED: VendorRefusal(429, code="CCE.02429001"),
    VendorFault.THROTTLED_FOR: VendorRefusal(429, code="CCE.02429001"),
    VendorFault.SERVER_ERROR: VendorRefusal(500, code="CCE.01500001"),
    VendorFault.EXPIRED_TOKEN: VendorRefusal(401, code="APIGW.0301"),
    VendorFault.OLD_TIME: VendorRefusal(401, code="APIGW.0303"),
}
