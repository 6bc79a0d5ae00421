"""Maps the vendor's error codes to provider errors with one ordered table, by code
rather than by HTTP status.

Different products send the same code with 400, 403 or 404, so the status decides only if the
code is unknown. The predicates below report what a code means beyond its class: busy,
disabled, nothing to change.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    OutOfStock,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Transient,
    Unauthorized,
    Unknown,
    class_for,
)
from chalicelib.providers.kit.http import VendorResponse

LONGEST_ASKED = 3600.0  # seconds; the same cap as for Retry-After in providers/kit/http.py


class Sense(StrEnum):
    """The meaning of a code, as far as the provider acts on it."""

    BUSY = "busy"  # another change is running: retry later, not counted as a failure
    OFF = "off"  # the group is not active, or one of its processes is suspended
    NO_CHANGE = "no change"  # the target already has the requested value
    BOUNDS = "bounds"  # the group's own minimum or maximum
    STOCK = "stock"
    QUOTA = "quota"
    BILLING = "billing"
    GONE = "gone"  # the resource does not exist
    KEY = "key"  # the access key is refused: it may have been rotated
    SESSION = "session"  # the temporary credential is refused: it may have expired
    DENIED = "denied"  # the key is valid but lacks the permission
    CLOCK = "clock"  # time or nonce rejected: sign again
    THROTTLED = "throttled"
    TRANSIENT = "transient"
    REFUSED = "refused"  # the vendor rejects the request as invalid
    UNKNOWN = "unknown"


class AlicloudErrorRow(msgspec.Struct, frozen=True):
    """pattern: a code, or a prefix followed by a star."""

    pattern: str
    cls: type[ProviderError]
    sense: Sense

    def fits(self, code: str) -> bool:
        """Whether this row matches the code."""
        if self.pattern.endswith("*"):
            return code.startswith(self.pattern[:-1])
        return code == self.pattern


# The first matching row decides.
TABLE: tuple[AlicloudErrorRow, ...] = tuple(
    AlicloudErrorRow(pattern, cls, sense)
    for sense, cls, patterns in (
        (
            Sense.BUSY,
            Conflict,
            "ScalingActivityInProgress IncorrectLoadBalancerStatus IncorrectDBInstanceStatus",
        ),
        (Sense.OFF, InvalidRequest, "IncorrectScalingGroupStatus SystemSuspended"),
        (Sense.NO_CHANGE, Conflict, "IncorrectCapacity.NoChange"),
        (Sense.BOUNDS, InvalidRequest, "IncorrectCapacity.MinSize IncorrectCapacity.MaxSize"),
        (
            Sense.STOCK,
            OutOfStock,
            (
                "OperationDenied.NoStock Zone.NotOnSale ResourceNotAvailable.ECS "
                "InvalidResourceType.NotSupported"
                " InstanceType.Offline OperationDenied.ZoneNotAllowed "
                "OperationDenied.ZoneSystemCategoryNotMatch"
                " OperationDenied.CloudSSDNotSupported"
            ),
        ),
        (Sense.QUOTA, QuotaExceeded, "QuotaExceeded* QuotaExceed.* InvalidVSwitchId.IpNotEnough"),
        # The account is in arrears. The operator must act, as for a refused key
        # (providers/kit/errors.py, 402).
        (Sense.BILLING, Unauthorized, "InvalidAccountStatus.NotEnoughBalance InsufficientBalance"),
        (
            Sense.GONE,
            NotFound,
            (
                "InvalidScalingGroupId.NotFound InvalidInstanceId.NotFound "
                "InvalidScalingConfigurationId.NotFound"
                " InvalidLaunchTemplate.NotFound InvalidLaunchTemplateVersion.NotFound"
            ),
        ),
        (
            Sense.KEY,
            Unauthorized,
            "InvalidAccessKeyId.* InvalidAccessKeyId SignatureDoesNotMatch IncompleteSignature",
        ),
        (
            Sense.SESSION,
            Unauthorized,
            "InvalidSecurityToken.* InvalidSecurityToken MissingSecurityToken",
        ),
        # Refused before any effect, so it is not Transient; api.py signs again once.
        (Sense.CLOCK, Unauthorized, "InvalidTimeStamp.* SignatureNonceUsed"),
        (Sense.DENIED, Unauthorized, "Forbidden* NoPermission* NotAuthorized* AuthenticationFail*"),
        (Sense.THROTTLED, Throttled, "Throttling*"),
        (Sense.TRANSIENT, Transient, "InternalError* ServiceUnavailable* UnknownError"),
        # An unknown method or version does not mean that a group is gone.
        (
            Sense.REFUSED,
            InvalidRequest,
            (
                "InvalidAction* InvalidVersion* InvalidParameter* MissingParameter* "
                "IncorrectInstanceStatus"
                " InstanceLockedForSecurity"
            ),
        ),
    )
    for pattern in patterns.split()
)
_ACTIVITY = {Sense.STOCK: OutOfStock, Sense.QUOTA: QuotaExceeded}


class AlicloudRefusal(msgspec.Struct, frozen=True, rename="pascal"):
    """The vendor's error body."""

    code: str = ""
    message: str = ""
    request_id: str = ""


def sense_of(code: str) -> Sense:
    """Return the meaning of a code; UNKNOWN for a code that is not in the table."""
    row = _row(code)
    return row.sense if row else Sense.UNKNOWN


def error_for(response: VendorResponse) -> ProviderError | None:
    """Return the error of a response with status 300 or above, or with a Code; None if the body is
    not the vendor's. The vendor's message is omitted if it repeats the signed text, because a
    canonical query holds the session token. The caller removes known secrets from the rest."""
    try:
        refusal = msgspec.json.decode(response.body, type=AlicloudRefusal, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not refusal.code:
        return None
    row, wait = _row(refusal.code), retry_after(response)
    by_status = Throttled if wait and response.status < 500 else class_for(response.status)
    cls = row.cls if row else by_status
    with_message = refusal.message and not (row and row.sense is Sense.KEY)
    text = f"{refusal.code}: {refusal.message}" if with_message else refusal.code
    return cls(text, code=refusal.code, request_id=refusal.request_id, retry_after=wait)


def retry_after(response: VendorResponse) -> float:
    """Return `x-acs-retry-after`, which is in milliseconds, as seconds; 0.0 if missing or not a
    number, at most an hour."""
    text = response.headers.get("x-acs-retry-after", "").strip()
    return min(LONGEST_ASKED, int(text[:12]) / 1000.0) if text.isascii() and text.isdigit() else 0.0


def is_busy(error: ProviderError) -> bool:
    """Whether another activity of the group is running. Retry later; this is
    not a failure of the group."""
    return sense_of(error.code) is Sense.BUSY


def is_no_change(error: ProviderError) -> bool:
    """Whether the vendor sees nothing to change. The caller reads the group again."""
    return sense_of(error.code) is Sense.NO_CHANGE


def is_denied(error: ProviderError) -> bool:
    """Whether a valid key lacks the permission. Permissions are granted by
    action and by scaling group."""
    return sense_of(error.code) is Sense.DENIED


def is_gone(error: ProviderError) -> bool:
    """Whether the group, instance or configuration does not exist. Decided by code only, because a
    404 alone may be a wrong address."""
    return sense_of(error.code) is Sense.GONE


def activity_class(code: str) -> str:
    """Return the error class of a code of an activity or an ignored instance: OutOfStock,
    QuotaExceeded or Unknown."""
    return _ACTIVITY.get(sense_of(code), Unknown).__name__


def _row(code: str) -> AlicloudErrorRow | None:
    return next((row for row in TABLE if row.fits(code)), None)
