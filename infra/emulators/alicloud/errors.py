"""Error responses of the emulated Alibaba Cloud: a code, and an HTTP status that
clients should not rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from infra.emulators.vendor_common.fault_injection import VendorRefusedError

_STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "Forbidden": 403,
        "Forbidden.RAM": 403,
        "NoPermission": 403,
        "AuthenticationFail.NoPermission": 403,
        "InvalidAccessKeyId.NotFound": 404,
        "InvalidScalingGroupId.NotFound": 404,
        "EntityNotExist.Role": 404,
        "InvalidLaunchTemplateId.NotFound": 404,
        "InvalidAction.NotFound": 404,
        "InvalidInstanceId.NotFound": 404,
        "IncorrectInstanceStatus": 403,
        "InstanceLockedForSecurity": 403,
        "InternalError": 500,
        "ServiceUnavailable": 503,
    }
)


class AlicloudRefusedError(VendorRefusedError):
    """An error response with the status of its code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(_STATUSES.get(code, 400), message, code=code)
