"""The vendor's error codes as errors of our tree: one ordered table, by code and not by status (alicloud.md §3.9).

The same code comes with 400, 403 or 404 from different products, so a status only speaks where no code is known. What
the code means beyond its class (busy, switched off, nothing to change) is asked of the error by the predicates below.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from chalicelib.providers.errors import (
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
)
from chalicelib.providers.http import VendorResponse
from chalicelib.providers.http_statuses import class_for

LONGEST_ASKED = 3600.0  # seconds; as providers/http.py has it for Retry-After


class Sense(StrEnum):
    """What a code says, as far as the provider acts on it."""

    BUSY = "busy"  # another change is running: later, and nobody's fault
    OFF = "off"  # the group is not active, or one of its processes is suspended
    NO_CHANGE = "no change"  # the target is what it would become
    BOUNDS = "bounds"  # the group's own minimum or maximum
    STOCK = "stock"
    QUOTA = "quota"
    BILLING = "billing"
    GONE = "gone"  # the thing acted on does not exist
    KEY = "key"  # the access key is refused: it may have been rotated
    SESSION = "session"  # the temporary credential is refused: it may have expired
    DENIED = "denied"  # the key is right and may not do this
    CLOCK = "clock"  # time or nonce: sign again
    THROTTLED = "throttled"
    TRANSIENT = "transient"
    REFUSED = "refused"  # the request makes no sense to the vendor
    UNKNOWN = "unknown"


class AlicloudErrorRow(msgspec.Struct, frozen=True):
    """pattern: a code, or its beginning where a star follows."""

    pattern: str
    cls: type[ProviderError]
    sense: Sense

    def fits(self, code: str) -> bool:
        """Whether this row speaks of that code."""
        if self.pattern.endswith("*"):
            return code.startswith(self.pattern[:-1])
        return code == self.pattern


# The first row that fits decides.
TABLE: tuple[AlicloudErrorRow, ...] = tuple(
    AlicloudErrorRow(pattern, cls, sense)
    for sense, cls, patterns in (
        (Sense.BUSY, Conflict, "ScalingActivityInProgress IncorrectLoadBalancerStatus IncorrectDBInstanceStatus"),
        (Sense.OFF, InvalidRequest, "IncorrectScalingGroupStatus SystemSuspended"),
        (Sense.NO_CHANGE, Conflict, "IncorrectCapacity.NoChange"),
        (Sense.BOUNDS, InvalidRequest, "IncorrectCapacity.MinSize IncorrectCapacity.MaxSize"),
        (
            Sense.STOCK,
            OutOfStock,
            (
                "OperationDenied.NoStock Zone.NotOnSale ResourceNotAvailable.ECS InvalidResourceType.NotSupported"
                " InstanceType.Offline OperationDenied.ZoneNotAllowed OperationDenied.ZoneSystemCategoryNotMatch"
                " OperationDenied.CloudSSDNotSupported"
            ),
        ),
        (Sense.QUOTA, QuotaExceeded, "QuotaExceeded* QuotaExceed.* InvalidVSwitchId.IpNotEnough"),
        # The account has to be paid: a person must act, as for a key that is refused (providers/statuses.py, 402).
        (Sense.BILLING, Unauthorized, "InvalidAccountStatus.NotEnoughBalance InsufficientBalance"),
        (
            Sense.GONE,
            NotFound,
            (
                "InvalidScalingGroupId.NotFound InvalidInstanceId.NotFound InvalidScalingConfigurationId.NotFound"
                " InvalidLaunchTemplate.NotFound InvalidLaunchTemplateVersion.NotFound"
            ),
        ),
        (Sense.KEY, Unauthorized, "InvalidAccessKeyId.* InvalidAccessKeyId SignatureDoesNotMatch IncompleteSignature"),
        (Sense.SESSION, Unauthorized, "InvalidSecurityToken.* InvalidSecurityToken MissingSecurityToken"),
        # Refused before anything happened, so it is not Transient; line.py signs again once.
        (Sense.CLOCK, Unauthorized, "InvalidTimeStamp.* SignatureNonceUsed"),
        (Sense.DENIED, Unauthorized, "Forbidden* NoPermission* NotAuthorized* AuthenticationFail*"),
        (Sense.THROTTLED, Throttled, "Throttling*"),
        (Sense.TRANSIENT, Transient, "InternalError* ServiceUnavailable* UnknownError"),
        # A method or a version that the server does not know is no sign that a group is gone.
        (Sense.REFUSED, InvalidRequest, "InvalidAction* InvalidVersion* InvalidParameter* MissingParameter*"),
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
    """What a code says; UNKNOWN for one that is not in the table."""
    row = _row(code)
    return row.sense if row else Sense.UNKNOWN


def error_for(answer: VendorResponse) -> ProviderError | None:
    """The error of an answer of 300 and above, or of one that carries a Code; None where the body is not the vendor's.

    The vendor's sentence is left out where it repeats what was signed (§4.1: a canonical query holds the session
    token); the caller takes known secrets out of the rest.
    """
    try:
        refusal = msgspec.json.decode(answer.body, type=AlicloudRefusal, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not refusal.code:
        return None
    row, wait = _row(refusal.code), retry_after(answer)
    by_status = Throttled if wait and answer.status < 500 else class_for(answer.status)
    cls = row.cls if row else by_status
    said = "" if row and row.sense is Sense.KEY else refusal.message
    text = f"{refusal.code}: {said}" if said else refusal.code
    return cls(text, code=refusal.code, request_id=refusal.request_id, retry_after=wait)


def retry_after(answer: VendorResponse) -> float:
    """`x-acs-retry-after` is in milliseconds (§3.1); seconds, 0.0 where it is missing or no number, an hour at most."""
    text = answer.headers.get("x-acs-retry-after", "").strip()
    return min(LONGEST_ASKED, int(text[:12]) / 1000.0) if text.isascii() and text.isdigit() else 0.0


def is_busy(error: ProviderError) -> bool:
    """Another activity of the group is running: ask again later, it is no failure of the group (defect 8)."""
    return sense_of(error.code) is Sense.BUSY


def is_no_change(error: ProviderError) -> bool:
    """The vendor sees nothing to change: read again."""
    return sense_of(error.code) is Sense.NO_CHANGE


def is_denied(error: ProviderError) -> bool:
    """The key is right and may not do this, here: permissions are given by action and by scaling group."""
    return sense_of(error.code) is Sense.DENIED


def is_gone(error: ProviderError) -> bool:
    """The group, instance or configuration does not exist. By code only: a 404 alone may be a wrong address."""
    return sense_of(error.code) is Sense.GONE


def activity_class(code: str) -> str:
    """The error class's name for a code that an activity or an ignored instance carries: OutOfStock, QuotaExceeded or
    Unknown (§3.9: billing is class Other)."""
    return _ACTIVITY.get(sense_of(code), Unknown).__name__


def _row(code: str) -> AlicloudErrorRow | None:
    return next((row for row in TABLE if row.fits(code)), None)
