"""Maps the vendor's errors to provider errors with one ordered table.

The vendor has no error codes, only statuses and messages. The message text is used for orders only: a 404 of a server
means that the server is gone, whatever its text.
"""

from __future__ import annotations

import re
from contextlib import suppress

import msgspec

from chalicelib.providers.cherryservers.decoding import read_one
from chalicelib.providers.cherryservers.models import CherryRefusal, CherryServer
from chalicelib.providers.errors import (
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


class CherryErrorRow(msgspec.Struct, frozen=True):
    """statuses: empty for all. words: a pattern that the message must contain; empty for any. orders: only for
    purchases."""

    cls: type[ProviderError]
    statuses: range | frozenset[int] = frozenset()
    words: str = ""
    orders: bool = False

    def fits(self, status: int, text: str, *, order: bool) -> bool:
        """Whether this row matches the response."""
        if (self.statuses and status not in self.statuses) or (self.orders and not order):
            return False
        return not self.words or re.search(self.words, text, re.IGNORECASE) is not None


_MONEY = r"\b(credits?|balance|funds|quotas?|limits?)\b"
_GOODS = r"\b(plans?|regions?|stock)\b"

# The first matching row decides; without one, the status does.
TABLE: tuple[CherryErrorRow, ...] = (
    CherryErrorRow(Unauthorized, frozenset({401, 403})),
    CherryErrorRow(Throttled, frozenset({429})),
    CherryErrorRow(Transient, range(500, 600)),
    CherryErrorRow(QuotaExceeded, frozenset({402})),
    CherryErrorRow(QuotaExceeded, range(400, 500), _MONEY, orders=True),
    CherryErrorRow(OutOfStock, frozenset({400, 404}), _GOODS, orders=True),
)

# Parts of an order that must not appear in an error: cloud-init in base64, and a bootstrap token.
_SENT = re.compile(r"[A-Za-z0-9+/=\\]{60,}|\b[a-z0-9]{6}\.[a-z0-9]{16}\b")


def error_for(response: VendorResponse) -> ProviderError:
    """Return the error of a response with status 300 or above: `METHOD host/path: status message`."""
    text, order = _said(response), response.call.startswith("POST ")
    row = next((row for row in TABLE if row.fits(response.status, text, order=order)), None)
    cls = row.cls if row else class_for(response.status)
    if not text and 300 <= response.status < 400:
        text = "it points to another host, to which the token is not sent"
    return cls(f"{response.call}: {response.status} {text}".rstrip(), code=str(response.status))


def denied(response: VendorResponse) -> ProviderError | None:
    """Return the error of a success whose body is an error instead of a server, by the code in it; None for a real
    success.

    It does not contain the vendor's message, because echoes of the token are removed only from errors with an error
    status."""
    try:
        refusal = read_one(response, CherryRefusal)
    except ProviderError:
        return None
    if refusal.code < 400 and not (refusal.error or refusal.errors):
        return None
    with suppress(ProviderError):
        read_one(response, CherryServer)
        return None
    code = refusal.code if 400 <= refusal.code < 600 else 0
    cls = type(error_for(msgspec.structs.replace(response, status=code))) if code else Unknown
    return cls(
        f"{response.call}: {response.status}, but its body is an error {code or ''}".rstrip(), code=str(code or "")
    )


def _said(response: VendorResponse) -> str:
    """Return the vendor's text: `message`, then `errors`, then `error`.

    Any other body is of unknown origin and is only described."""
    try:
        refusal = read_one(response, CherryRefusal)
    except ProviderError:
        refusal = CherryRefusal()
    text = refusal.message or "; ".join(refusal.errors) or refusal.error
    if not text and response.body.strip():
        return f"({response.described})"
    return " ".join(_SENT.sub("…", text).split())
