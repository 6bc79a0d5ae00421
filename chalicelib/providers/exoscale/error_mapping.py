"""Maps the vendor's errors and failed operations to provider errors, with their texts.

The OpenAPI document lists only HTTP 200, so statuses have their HTTP meaning and messages are searched for a quota. The
reasons of failed operations are documented. Upstream discards all of them ("job failed"), so the caller cannot decide
whether to wait, to raise a quota or to choose another type.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from chalicelib.providers.errors import (
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
from chalicelib.providers.exoscale.models import Work
from chalicelib.providers.http import VendorResponse

FORBIDDEN = "403"

# Wordings of the account's limits. The name of the operation that reads the quota, in a refusal of that operation,
# does not count, and neither does a limit of calls.
_QUOTA = re.compile(
    r"quotas?\b.{0,60}\b(exceed|reach|exhaust|insufficient|full|limit)|(exceed|reach|insufficient|not enough)\w*"
    r"\b.{0,60}\b(quota|credits?|balance|funds)|(?<!rate )\blimits?\b.{0,20}\b(exceeded|reached)"
    r"|\b(exceed|reach)\w*\b.{0,40}(?<!rate )\blimit",
    re.IGNORECASE | re.DOTALL,
)

# Statuses of a refused change; a refused read says nothing about the account's limits.
_QUOTA_STATUSES = frozenset({402, 412})
_NO_QUOTA_STATUSES = frozenset({401, 404, 408, 429})

# Reason of a failed operation -> error class. partial: some of the machines were created; the rest counts as
# unavailable, so the next group is tried. Unknown is not Transient, because the operation has ended and must not be
# repeated in the same place; the group is backed off, and the next plan reads the result.
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
_QUOTA_REASONS = frozenset({"fault", "forbidden", "incorrect", "partial", "unavailable", "unknown", ""})
_LONGEST = 300
_FIELDS = ("message", "error", "title", "detail", "errors")  # keys of an error body that contain text for users
_DEPTH, _SENTENCES = 4, 5


def error_for(response: VendorResponse) -> ProviderError:
    """Return the error of a response with status 300 or above, with the vendor's text; its code is the status."""
    said = message_in(response)
    if response.status == 404 and response.body.lstrip().startswith(b"<"):
        # From a gateway in between. Treated as the API's response, it would make the requested resource count as gone.
        return Transient(f"{response.call}: HTTP 404 and a web page instead of the API's answer", code="404")
    cls = class_for(response.status)
    if (
        not response.call.startswith("GET ")
        and 400 <= response.status < 500
        and (
            response.status in _QUOTA_STATUSES
            or (response.status not in _NO_QUOTA_STATUSES and _QUOTA.search(said) is not None)
        )
    ):
        cls = QuotaExceeded
    text = f"{response.call}: HTTP {response.status}" + (f": {said}" if said else "")
    return cls(text, code=str(response.status), request_id=response.headers.get("x-request-id", "")[:80])


def message_in(response: VendorResponse) -> str:
    """Return the text of an error's body in any of the vendor's forms: `message`, `error`, a problem document, plain
    text.

    "" for a web page, for bytes that are not text and for JSON without a text."""
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
    return "; ".join(dict.fromkeys(_said(body, _DEPTH)))


def _said(body: Any, depth: int) -> list[str]:
    """Return the texts of a body, the more general ones first."""
    if isinstance(body, str):
        return [body.strip()] if body.strip() else []
    if not depth or not isinstance(body, list | dict):
        return []
    parts = body[:_SENTENCES] if isinstance(body, list) else [body.get(field) for field in _FIELDS]
    return [sentence for part in parts for sentence in _said(part, depth - 1)][:_SENTENCES]


def is_forbidden(error: ProviderError) -> bool:
    """Whether the key lacks the permission for this call; other calls may still be allowed.

    For example, a key with upstream's list of operations cannot read complete lists."""
    return isinstance(error, Unauthorized) and error.code == FORBIDDEN


def why(work: Work) -> ProviderError:
    """Return the error of an operation that ended without success; its code is the reason, or `timeout`."""
    reason = work.reason or work.state
    cls = REASONS.get(work.reason, Unknown)
    if work.reason in _QUOTA_REASONS and _QUOTA.search(work.message):
        cls = QuotaExceeded
    about = f"operation {work.id}" if work.id else "the operation"
    text = f"{about} ended as {work.state or 'nothing known'}"
    if work.reason:
        text += f" ({work.reason})"
    if said := " ".join(work.message.split()):
        text += f": {said}"
    return cls(text[:_LONGEST], code=reason or "unknown")
