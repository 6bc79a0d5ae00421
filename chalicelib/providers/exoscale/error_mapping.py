"""Maps the vendor's errors and failed operations to provider errors, with their texts.

The OpenAPI document lists only HTTP 200, so statuses have their HTTP meaning and messages are
searched for a quota. The reasons of failed operations are documented. Upstream discards all of them
("job failed"), so the caller cannot decide whether to wait, to raise a quota or to choose another
type.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from chalicelib.providers.exoscale.decoding import Work
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    OutOfStock,
    ProviderError,
    QuotaExceeded,
    Transient,
    Unauthorized,
    Unknown,
    class_for,
)
from chalicelib.providers.kit.http import VendorResponse

# Wordings of the account's limits. The name of the operation that reads the quota, in a refusal of
# that operation, does not count, and neither does a limit of calls.
_QUOTA = re.compile(
    r"quotas?\b.{0,60}\b(exceed|reach|exhaust|insufficient|full|limit)|(exceed|reach|insufficient|"
    r"not enough)\w*"
    r"\b.{0,60}\b(quota|credits?|balance|funds)|(?<!rate )\blimits?\b.{0,20}\b(exceeded|reached)"
    r"|\b(exceed|reach)\w*\b.{0,40}(?<!rate )\blimit",
    re.IGNORECASE | re.DOTALL,
)

# Statuses of a refused change; a refused read says nothing about the account's limits.
_QUOTA_STATUSES = frozenset({402, 412})
_NO_QUOTA_STATUSES = frozenset({401, 404, 408, 429})

# Reason of a failed operation -> error class. partial: some of the machines were created; the rest
# counts as unavailable, so the next group is tried. Unknown is not Transient, because the operation
# has ended and must not be repeated in the same place; the group is backed off, and the next plan
# reads the result.
REASONS: dict[str, type[ProviderError]] = {
    "busy": Conflict,
    "conflict": Conflict,
    "fault": Unknown,
    "forbidden": Unauthorized,
    "incorrect": InvalidRequest,
    "interrupted": Unknown,
    "not-found": NotFound,
    "partial": OutOfStock,
    "unavailable": OutOfStock,
    "unknown": Unknown,
    "unsupported": InvalidRequest,
}
# Reasons with which a message about the quota decides.
_QUOTA_REASONS = frozenset(
    {"fault", "forbidden", "incorrect", "partial", "unavailable", "unknown", ""}
)
_LONGEST = 300
# keys of an error body that contain text for users
_FIELDS = ("message", "error", "title", "detail", "errors")
_DEPTH, _SENTENCES = 4, 5


def error_for(response: VendorResponse) -> ProviderError:
    """Return the error of a response with status 300 or above, with the vendor's
    text; its code is the status."""
    status, text = response.status, message_in(response)
    if status == 404 and response.body.lstrip().startswith(b"<"):
        # From a gateway in between. Treated as the API's response, it would make the
        # requested resource count as gone.
        return Transient(
            f"{response.call}: HTTP 404 and a web page instead of the API's answer", code="404"
        )
    refused_change = not response.call.startswith("GET ") and 400 <= status < 500
    of_quota = status in _QUOTA_STATUSES or (
        status not in _NO_QUOTA_STATUSES and _QUOTA.search(text) is not None
    )
    cls = QuotaExceeded if refused_change and of_quota else class_for(status)
    return cls(
        f"{response.call}: HTTP {status}" + (f": {text}" if text else ""),
        code=str(status),
        request_id=response.headers.get("x-request-id", "")[:80],
    )


def message_in(response: VendorResponse) -> str:
    """Return the text of an error's body in any of the vendor's forms: `message`,
    `error`, a problem document, plain text. "" for a web page, for bytes that are not
    text and for JSON without a text."""
    try:
        text = response.body.decode()
    except UnicodeDecodeError:
        return ""
    try:
        body = msgspec.json.decode(text)
    except RecursionError:
        return ""
    except msgspec.DecodeError:
        return "" if text.lstrip().startswith("<") else text.strip()
    return "; ".join(dict.fromkeys(_texts(body, _DEPTH)))


def _texts(body: Any, depth: int) -> list[str]:
    """Return the texts of a body, the more general ones first."""
    if isinstance(body, str):
        return [body.strip()] if body.strip() else []
    if not depth or not isinstance(body, list | dict):
        return []
    parts = body[:_SENTENCES] if isinstance(body, list) else [body.get(field) for field in _FIELDS]
    return [text for part in parts for text in _texts(part, depth - 1)][:_SENTENCES]


def is_forbidden(error: ProviderError) -> bool:
    """Whether the key lacks the permission for this call; other calls may still be allowed. For
    example, a key with upstream's list of operations cannot read complete lists."""
    return isinstance(error, Unauthorized) and error.code == "403"


def work_error(work: Work) -> ProviderError:
    """Return the error of an operation that ended without success; its code is
    the reason, or `timeout`."""
    of_quota = work.reason in _QUOTA_REASONS and _QUOTA.search(work.message)
    cls = QuotaExceeded if of_quota else REASONS.get(work.reason, Unknown)
    name = f"operation {work.id}" if work.id else "the operation"
    reason = f" ({work.reason})" if work.reason else ""
    message = " ".join(work.message.split())
    text = f"{name} ended as {work.state or 'nothing known'}{reason}" + (
        f": {message}" if message else ""
    )
    return cls(text[:_LONGEST], code=work.reason or work.state or "unknown")
