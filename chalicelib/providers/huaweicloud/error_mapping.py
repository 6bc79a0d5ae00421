"""The vendor's refusals as errors of our tree: one table, by code first and by status second (huaweicloud-cce.md B8).

Three services and a gateway answer in four forms, and a proxy before them in HTML. What is not in the table means what
its status means in HTTP; nothing that the vendor says is lost on the way.
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
    Throttled,
    Transient,
    Unauthorized,
    Unknown,
)
from chalicelib.providers.http import VendorResponse
from chalicelib.providers.http_statuses import class_for

LOCKED = "CCE.01429002"  # another request works on the pool
SKEWED = "APIGW.0303"  # the time of a signature is too far from the vendor's
CLUSTER_FULL = "CCE.01400014"  # more nodes than the cluster's scale allows
_LONGEST = 300
# A gateway that refuses a signature may say which one it was; for a quarter of an hour it is good for the same call.
_SIGNATURE = re.compile(r"(Signature\W{1,4})[0-9a-fA-F]{6,}", re.IGNORECASE)

# The first row that fits decides. Quota, stock and the rest are told by CCE's own numbers; a number that is not here is
# for the status to explain.
_TABLE: tuple[tuple[type[ProviderError], str], ...] = (
    (QuotaExceeded, "CCE.01400008 CCE.01400009 CCE.01400010 CCE.01400011 CCE.01400012 CCE.01400013"),
    (QuotaExceeded, f"{CLUSTER_FULL} CCE.01400019 CCE.01400020"),
    (OutOfStock, "CCE.01400021 CCE.01400022"),
    (InvalidRequest, "CCE.01400001 CCE.01400016 CCE.01400018 APIGW.0101 APIGW.0102 APIGW.0103 APIGW.0104"),
    (Unauthorized, "CCE.01401001 CCE.01403001"),
    (Unauthorized, f"APIGW.0301 APIGW.0302 {SKEWED} APIGW.0304 APIGW.0305 APIGW.0306 APIGW.0307"),
    (NotFound, "CCE.01404001"),
    (Conflict, f"CCE.01409002 {LOCKED}"),
    (Throttled, "CCE.02429001 APIGW.0308"),
    (Transient, "CCE.01500001"),
    (Unknown, "Ecs.0314 Ecs.0912"),
)
_CLASSES = {code.lower(): cls for cls, codes in _TABLE for code in codes.split()}

# What to do about a code whose own message does not say it.
_ADVICE = {
    "APIGW.0101": "this address has no such API: look at region and the endpoints",
    "APIGW.0301": "the signature is refused: look at accessKey and secretKey, and at whether the key is still active",
    SKEWED: "the time of the signature is refused: the clock here and the vendor's differ by more than 15 "
    "minutes, so set this machine's clock",
    CLUSTER_FULL: "the cluster's own scale allows no more nodes: enlarge the cluster or lower the maximum",
    "CCE.01403001": "the key may not do this: give its user the actions of infra/huaweicloud/policy.json",
    "Ecs.0314": "the key pair of the node pool does not exist",
    "Ecs.0912": "the KMS key of the node pool's disks cannot be used",
}
_ADVICE_LOWER = {code.lower(): text for code, text in _ADVICE.items()}

_CODES = ("errorCode", "error_code", "code")
_MESSAGES = ("errorMessage", "error_msg", "message", "reason")
_REQUESTS = ("request_id", "requestId")


class CceRefusal(msgspec.Struct, frozen=True):
    """What an error's body says, whichever form it has; "" for what it does not."""

    code: str = ""
    message: str = ""
    request_id: str = ""


def class_of(code: str) -> type[ProviderError]:
    """The class of a code, also as a condition's or a job's reason carries it; Unknown for one that is not listed."""
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
    """An error of the tree by B8. call: "GET host/path", which begins the message; longest: its characters. A pool that
    is locked by another request is no reason for everybody to keep silent: of a write it is a Conflict, and a read is
    tried again."""
    cls = _CLASSES.get(code.strip().lower()) or class_for(status)
    if code == LOCKED and call.startswith("GET "):
        cls = Throttled
    parts = [
        call,
        f"{code or f'HTTP {status}'}{f' ({advice})' if (advice := _ADVICE_LOWER.get(code.lower())) else ''}",
        _SIGNATURE.sub(r"\1***", " ".join(message.split())),
    ]
    text = ": ".join(part for part in parts if part)
    return cls(text[:longest], code=(code or str(status))[:80], request_id=request_id[:80], retry_after=retry_after)


def error_for(answer: VendorResponse) -> ProviderError:
    """The error of an answer of 300 and above. A 404 that is a web page is a gateway's, and no sign that a thing is
    gone."""
    if answer.status == 404 and answer.body.lstrip().startswith(b"<"):
        return Transient(f"{answer.call}: HTTP 404 and a web page instead of the API's answer", code="404")
    said = refusal_in(answer.body)
    message, date = said.message, answer.headers.get("date", "")
    if said.code == SKEWED and date:
        message = f"its clock says {date[:40]}; {message}"
    return of_status(
        answer.status,
        said.code,
        message,
        call=answer.call,
        request_id=said.request_id or answer.headers.get("x-request-id", ""),
        longest=None,
    )  # a key that was cut in two could not be taken out any more; http.py cuts


def refusal_in(body: bytes) -> CceRefusal:
    """Code, message and request of an error's body in the forms of CCE, the gateway and IAM (B8). All "" for a web page
    and for anything that is no JSON object."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return CceRefusal()
    if isinstance(said, dict) and isinstance(said.get("error"), dict):
        said = said["error"]
    if not isinstance(said, dict):
        return CceRefusal()
    return CceRefusal(_first(said, _CODES), _first(said, _MESSAGES), _first(said, _REQUESTS))


def _first(said: dict[str, Any], names: tuple[str, ...]) -> str:
    found = (said.get(name) for name in names)
    return next((str(each).strip() for each in found if isinstance(each, str | int) and str(each).strip()), "")
