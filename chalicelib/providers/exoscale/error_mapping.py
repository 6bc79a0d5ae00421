"""The vendor's refusals and failed operations as errors of our tree, and nothing of them lost (exoscale.md §3; §6, 12).

The OpenAPI document lists only HTTP 200, so statuses mean what they mean in HTTP and what a message says of a quota is
listened to; the reasons of failed operations are documented. Upstream keeps none of it ("job failed"), so that nobody
learns whether to wait, to pay or to choose another type.
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
)
from chalicelib.providers.exoscale.models import Work
from chalicelib.providers.http import VendorResponse
from chalicelib.providers.http_statuses import class_for

FORBIDDEN = "403"

# What a message says of the account's limits. The name of the operation that reads the quota, in a refusal of it, says
# nothing of them, and neither does a limit of calls.
_QUOTA = re.compile(
    r"quotas?\b.{0,60}\b(exceed|reach|exhaust|insufficient|full|limit)|(exceed|reach|insufficient|not enough)\w*"
    r"\b.{0,60}\b(quota|credits?|balance|funds)|(?<!rate )\blimits?\b.{0,20}\b(exceeded|reached)"
    r"|\b(exceed|reach)\w*\b.{0,40}(?<!rate )\blimit",
    re.IGNORECASE | re.DOTALL,
)

# Of a change; a refused read says nothing about what we may have.
_QUOTA_STATUSES = frozenset({402, 412})
_NO_QUOTA_STATUSES = frozenset({401, 404, 408, 429})

# Why an operation failed -> what to make of it. partial: some of the machines came; the rest is missing as after
# unavailable, and the next group shall have its turn. What is Unknown has ended, so it is no Transient, which would be
# asked for again in the same place; the group is backed off and the next plan sees what there is.
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
_FIELDS = ("message", "error", "title", "detail", "errors")  # what speaks to people in an error's body
_DEPTH, _SENTENCES = 4, 5


def error_for(answer: VendorResponse) -> ProviderError:
    """The error of an answer of 300 and above, with what the vendor says; its code is the status."""
    said = message_in(answer)
    if answer.status == 404 and answer.body.lstrip().startswith(b"<"):
        # Of a gateway on the way; were it the API's word, whatever was asked about would count as gone.
        return Transient(f"{answer.call}: HTTP 404 and a web page instead of the API's answer", code="404")
    cls = class_for(answer.status)
    if (
        not answer.call.startswith("GET ")
        and 400 <= answer.status < 500
        and (
            answer.status in _QUOTA_STATUSES
            or (answer.status not in _NO_QUOTA_STATUSES and _QUOTA.search(said) is not None)
        )
    ):
        cls = QuotaExceeded
    text = f"{answer.call}: HTTP {answer.status}" + (f": {said}" if said else "")
    return cls(text, code=str(answer.status), request_id=answer.headers.get("x-request-id", "")[:80])


def message_in(answer: VendorResponse) -> str:
    """What an error's body says, in any of the vendor's forms: `message`, `error`, a problem document, plain text. ""
    for a web page, for bytes that are no text and for JSON that says nothing."""
    try:
        text = answer.body.decode()
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
    """The sentences of a body, the more general ones first."""
    if isinstance(body, str):
        return [body.strip()] if body.strip() else []
    if not depth or not isinstance(body, list | dict):
        return []
    parts = body[:_SENTENCES] if isinstance(body, list) else [body.get(field) for field in _FIELDS]
    return [sentence for part in parts for sentence in _said(part, depth - 1)][:_SENTENCES]


def is_forbidden(error: ProviderError) -> bool:
    """The key may not do this; another call may still be allowed to it (§1: a key with upstream's list of operations
    cannot read whole lists)."""
    return isinstance(error, Unauthorized) and error.code == FORBIDDEN


def why(work: Work) -> ProviderError:
    """Why an operation that has ended without success did so; its code is the reason, or `timeout`."""
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
