"""Maps the vendor's errors to provider errors with one table, by code first and by status second.

Three services and a gateway respond in four formats, and a proxy in front of them in HTML. A code
that is not in the table has the HTTP meaning of its status; the vendor's text is always kept.
"""

from __future__ import annotations

import re
from typing import Any

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

LOCKED = "CCE.01429002"  # another request is changing the pool
SKEWED = "APIGW.0303"  # a signature's time differs too much from the vendor's clock
CLUSTER_FULL = "CCE.01400014"  # more nodes than the cluster's scale allows
_LONGEST = 300
# A gateway that refuses a signature may quote it, and it stays valid for the same call
# for a quarter of an hour.
_SIGNATURE = re.compile(r"(Signature\W{1,4})[0-9a-fA-F]{6,}", re.IGNORECASE)

# CCE's own codes identify quota, stock and others; for an unlisted code the status decides.
_TABLE: tuple[tuple[type[ProviderError], str], ...] = (
    (
        QuotaExceeded,
        "CCE.01400008 CCE.01400009 CCE.01400010 CCE.01400011 CCE.01400012 CCE.01400013",
    ),
    (QuotaExceeded, f"{CLUSTER_FULL} CCE.01400019 CCE.01400020"),
    (OutOfStock, "CCE.01400021 CCE.01400022"),
    (
        InvalidRequest,
        "CCE.01400001 CCE.01400016 CCE.01400018 APIGW.0101 APIGW.0102 APIGW.0103 APIGW.0104",
    ),
    (Unauthorized, "CCE.01401001 CCE.01403001"),
    (Unauthorized, f"APIGW.0301 APIGW.0302 {SKEWED} APIGW.0304 APIGW.0305 APIGW.0306 APIGW.0307"),
    (NotFound, "CCE.01404001"),
    (Conflict, f"CCE.01409002 {LOCKED}"),
    (Throttled, "CCE.02429001 APIGW.0308"),
    (Transient, "CCE.01500001"),
    (Unknown, "Ecs.0314 Ecs.0912"),
)
_CLASSES = {code.lower(): cls for cls, codes in _TABLE for code in codes.split()}

# Remedies for codes (in lower case) whose own message names none.
_REMEDIES = {
    "apigw.0101": "this address has no such API: look at region and the endpoints",
    "apigw.0301": (
        "the signature is refused: look at accessKey and secretKey, and at whether the key is "
        "still active"
    ),
    SKEWED.lower(): "the time of the signature is refused: the clock here and the vendor's differ "
    "by more than 15 "
    "minutes, so set this machine's clock",
    CLUSTER_FULL.lower(): (
        "the cluster's own scale allows no more nodes: enlarge the cluster or lower the maximum"
    ),
    "cce.01403001": (
        "the key may not do this: give its user the actions of infra/huaweicloud/policy.json"
    ),
    "ecs.0314": "the key pair of the node pool does not exist",
    "ecs.0912": "the KMS key of the node pool's disks cannot be used",
}

_CODES = ("errorCode", "error_code", "code")
_MESSAGES = ("errorMessage", "error_msg", "message", "reason")
_REQUESTS = ("request_id", "requestId")


class CceRefusal(msgspec.Struct, frozen=True):
    """The contents of an error's body in any of its formats; "" for a missing part."""

    code: str = ""
    message: str = ""
    request_id: str = ""


def class_of(code: str) -> type[ProviderError]:
    """Return the class of a code, also of one in a condition's or a job's reason;
    Unknown if it is not listed."""
    return _CLASSES.get(code.strip().lower(), Unknown)


def of_status(
    status: int,
    code: str,
    message: str,
    *,
    call: str = "",
    request_id: str = "",
    retry_after: float = 0.0,
    longest: int | None = _LONGEST,
) -> ProviderError:
    """Return the error of the tree. call: "GET host/path", which begins the message; longest:
    maximum characters. A pool that is locked by another request must not pause all functions: for a
    write it is a Conflict, and a read is tried again."""
    cls = _CLASSES.get(code.strip().lower()) or class_for(status)
    if code == LOCKED and call.startswith("GET "):
        cls = Throttled
    cause = code or f"HTTP {status}"
    remedy = _REMEDIES.get(code.lower())
    if remedy:
        cause = f"{cause} ({remedy})"
    one_line = " ".join(message.split())
    parts = [call, cause, _SIGNATURE.sub(r"\1***", one_line)]
    text = ": ".join(part for part in parts if part)
    error_code = code or str(status)
    return cls(
        text[:longest],
        code=error_code[:80],
        request_id=request_id[:80],
        retry_after=retry_after,
    )


def error_for(response: VendorResponse) -> ProviderError:
    """Return the error of a response with status 300 or above. A 404 that is a web page is from a
    gateway, and does not mean that a resource is gone."""
    if response.status == 404 and response.body.lstrip().startswith(b"<"):
        problem = "HTTP 404 and a web page instead of the API's answer"
        return Transient(f"{response.call}: {problem}", code="404")
    refusal = refusal_in(response.body)
    message = refusal.message
    date = response.headers.get("date", "")
    if refusal.code == SKEWED and date:
        message = f"its clock says {date[:40]}; {message}"
    request_id = refusal.request_id or response.headers.get("x-request-id", "")
    return of_status(
        response.status,
        refusal.code,
        message,
        call=response.call,
        request_id=request_id,
        longest=None,
    )  # http.py shortens later, because part of a truncated key could not be removed


def refusal_in(body: bytes) -> CceRefusal:
    """Return code, message and request id of an error's body in the formats of CCE, the gateway and
    IAM. All are "" for a web page and for anything that is not a JSON object."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return CceRefusal()
    if isinstance(fields, dict) and isinstance(fields.get("error"), dict):
        fields = fields["error"]
    if not isinstance(fields, dict):
        return CceRefusal()
    code = _first_text(fields, _CODES)
    message = _first_text(fields, _MESSAGES)
    request_id = _first_text(fields, _REQUESTS)
    return CceRefusal(code, message, request_id)


def _first_text(fields: dict[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        value = fields.get(name)
        text = str(value).strip() if isinstance(value, str | int) else ""
        if text:
            return text
    return ""
