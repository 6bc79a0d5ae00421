"""Error responses of the emulated Alibaba Cloud: a code, and an HTTP status that clients should not rely on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
        "InternalError": 500,
        "ServiceUnavailable": 503,
    }
)


class AlicloudRefusedError(Exception):
    """An error response. status: from the table unless given. retry_after: milliseconds, None for no such header."""

    def __init__(self, code: str, message: str, status: int = 0, *, retry_after: int | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.retry_after = code, message, retry_after
        self.status = status or _STATUSES.get(code, 400)
