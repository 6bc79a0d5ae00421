"""Errors of the cluster's API.

Callers branch on the class and on `reason`, the API's own machine-readable word, never on the
message, which is for people. The message is that of a metav1.Status, truncated, without control
characters and without anything that looks like a bearer token. Any other body is of unknown origin
and is never shown: only its status, length and type are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from chalicelib.model.errors import OutscalerError
from chalicelib.model.secret import Secret, one_line

# A Status may quote a whole rejected object; a longer text is useless in a journal line.
_LONGEST_MESSAGE = 300
_MOST_CAUSES = 10
_LONGEST_RETRY_AFTER = 3600  # seconds; upper bound for an excessive Retry-After
_BEARER = re.compile(r"(?i)\bbearer[\s:]+[^\s\"']+")
_REASON = re.compile(r"[A-Za-z]{0,64}")
_JWT = re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")


class Cause(msgspec.Struct, frozen=True, gc=False):
    """One entry of metav1.StatusDetails.causes."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.StatusDetails: the object and the causes."""

    name: str = ""
    group: str = ""
    kind: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0


class _ErrorStatus(msgspec.Struct, frozen=True):
    """The fields of metav1.Status that are used."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    details: Details | None = None


class ClusterError(OutscalerError):
    """message is safe to show. status: the HTTP status, 0 where there was no response. reason:
    metav1.StatusReason, or empty. lasting: repeating the call at once cannot help.

    asked: the request and the place of the credential, `GET /api/v1/nodes with PLACE`;
    server: its host. They are separate attributes because the message goes into events,
    whose readers know both.
    """

    asked: str = ""
    server: str = ""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        details: Details | None = None,
        retry_after: float = 0.0,
        lasting: bool = False,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.reason, self.retry_after = (
            message,
            status,
            reason,
            retry_after,
        )
        self.details, self.lasting = details or Details(), lasting


class Unauthorized(ClusterError):
    """401: the credential is refused, also after it was read again."""


class Forbidden(ClusterError):
    """403: authenticated, but RBAC or admission refuses the request."""


class NotFound(ClusterError):
    """404: no such object, or no such resource in this cluster."""

    published_name = "Missing"


class Conflict(ClusterError):
    """409: reason AlreadyExists, or Conflict where a precondition (version, uid) did not hold."""


class Expired(ClusterError):
    """410: a continue token or resourceVersion is too old; list again."""


class Invalid(ClusterError):
    """400, 405, 415, 422 and similar: a retry will not help."""


class TooManyRequests(ClusterError):
    """429: too many requests, or a disruption budget. Retry after retry_after seconds, 0.0
    where the server named none."""

    published_name = "TooMany"


class Unavailable(ClusterError):
    """No usable response: 5xx, network, TLS, truncated. Whether a change
    has happened is unknown."""


_BY_STATUS: Mapping[int, type[ClusterError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    429: TooManyRequests,
    408: Unavailable,
}


def from_answer(
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    secrets: tuple[Secret, ...] = (),
    *,
    described: str = "",
) -> ClusterError:
    """Return the error for an HTTP response of 300 and more.

    body is a metav1.Status where the API server itself responded; a load balancer or a proxy in
    front of it sends any format. secrets: texts that must not appear in the message. described: the
    response without its body (net/http_exchange.Reply), for the message where the body is not a
    Status.
    """
    try:
        parsed = msgspec.json.decode(body, type=_ErrorStatus)
    except msgspec.MsgspecError:
        parsed = _ErrorStatus()
    if parsed.kind != "Status":
        parsed = _ErrorStatus()
    foreign = f"{described or f'HTTP {status}'}, which is not a Status of the Kubernetes API"
    message = clean(parsed.message, secrets) or foreign
    details = _bounded(parsed.details or Details(), secrets)
    header = headers.get("Retry-After", "")
    # API servers do not send the form of the header that is a date; it counts as none.
    seconds = float(header) if header.isascii() and header.isdigit() else 0.0
    retry_after = float(min(_LONGEST_RETRY_AFTER, max(seconds, details.retry_after_seconds)))
    if 300 <= status < 400:
        where = (
            "the endpoint answered with a redirect, which is not followed: give the API server's "
            "own address"
        )
        return Unavailable(where, status=status, lasting=True)
    cls = _BY_STATUS.get(status, Unavailable if status >= 500 else Invalid)
    reason = parsed.reason if _REASON.fullmatch(parsed.reason) else ""
    return cls(message, status=status, reason=reason, details=details, retry_after=retry_after)


def clean(text: str, secrets: tuple[Secret, ...] = ()) -> str:
    """Return one line of at most 300 characters without the given secrets, anything like a bearer
    token, control characters and characters that change the direction of text."""
    for secret in secrets:
        text = secret.hidden_in(text)
    text = one_line(text)
    text = _JWT.sub("***", _BEARER.sub("bearer ***", text))
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"


def _bounded(details: Details, secrets: tuple[Secret, ...]) -> Details:
    """Return the details, cleaned like the message and with a few causes only."""
    causes = tuple(
        Cause(
            clean(cause.reason, secrets), clean(cause.message, secrets), clean(cause.field, secrets)
        )
        for cause in details.causes[:_MOST_CAUSES]
    )
    named = {key: clean(getattr(details, key), secrets) for key in ("name", "group", "kind")}
    return Details(**named, causes=causes, retry_after_seconds=max(0, details.retry_after_seconds))
