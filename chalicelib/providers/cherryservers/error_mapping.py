"""The vendor's errors as errors of our tree: one ordered table (cherryservers.md §3, §4, D8).

The vendor has no error codes, only statuses and sentences. What a sentence says counts for orders alone: a 404 of a
server says that the server is gone, whatever words it takes.
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
    """statuses: empty for all. words: a pattern that the sentence has to hold; empty for any. orders: only where
    something was to be bought."""

    cls: type[ProviderError]
    statuses: range | frozenset[int] = frozenset()
    words: str = ""
    orders: bool = False

    def fits(self, status: int, text: str, *, order: bool) -> bool:
        """Whether this row speaks of that answer."""
        if (self.statuses and status not in self.statuses) or (self.orders and not order):
            return False
        return not self.words or re.search(self.words, text, re.IGNORECASE) is not None


_MONEY = r"\b(credits?|balance|funds|quotas?|limits?)\b"
_GOODS = r"\b(plans?|regions?|stock)\b"

# The first row that fits decides; after the last one, the status alone does.
TABLE: tuple[CherryErrorRow, ...] = (
    CherryErrorRow(Unauthorized, frozenset({401, 403})),
    CherryErrorRow(Throttled, frozenset({429})),
    CherryErrorRow(Transient, range(500, 600)),
    CherryErrorRow(QuotaExceeded, frozenset({402})),
    CherryErrorRow(QuotaExceeded, range(400, 500), _MONEY, orders=True),
    CherryErrorRow(OutOfStock, frozenset({400, 404}), _GOODS, orders=True),
)

# What is sent with an order and must not come back in an error: cloud-init in base64, and a bootstrap token.
_SENT = re.compile(r"[A-Za-z0-9+/=\\]{60,}|\b[a-z0-9]{6}\.[a-z0-9]{16}\b")


def error_for(answer: VendorResponse) -> ProviderError:
    """The error of an answer of 300 and above: `METHOD host/path: status message`."""
    text, order = _said(answer), answer.call.startswith("POST ")
    row = next((row for row in TABLE if row.fits(answer.status, text, order=order)), None)
    cls = row.cls if row else class_for(answer.status)
    if not text and 300 <= answer.status < 400:
        text = "it points elsewhere, where the token is not sent"
    return cls(f"{answer.call}: {answer.status} {text}".rstrip(), code=str(answer.status))


def denied(answer: VendorResponse) -> ProviderError | None:
    """The error of a success whose body is an error and no server, by the code in it; None for a real one. The vendor's
    words are not in it: what it echoes of the token is taken out of real errors only."""
    try:
        refusal = read_one(answer, CherryRefusal)
    except ProviderError:
        return None
    if refusal.code < 400 and not (refusal.error or refusal.errors):
        return None
    with suppress(ProviderError):
        read_one(answer, CherryServer)
        return None
    code = refusal.code if 400 <= refusal.code < 600 else 0
    cls = type(error_for(msgspec.structs.replace(answer, status=code))) if code else Unknown
    return cls(f"{answer.call}: {answer.status}, but its body is an error {code or ''}".rstrip(), code=str(code or ""))


def _said(answer: VendorResponse) -> str:
    """The vendor's own words: `message`, then `errors`, then `error`. Any other body is of unknown origin, and is
    described only."""
    try:
        refusal = read_one(answer, CherryRefusal)
    except ProviderError:
        refusal = CherryRefusal()
    text = refusal.message or "; ".join(refusal.errors) or refusal.error
    if not text and answer.body.strip():
        return f"({answer.described})"
    return " ".join(_SENT.sub("…", text).split())
