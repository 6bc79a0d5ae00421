"""Computes SDK-HMAC-SHA256 as the vendor does, to verify the signatures that clients send.

It is written from the documentation and not shared with the client under test, because a shared
error would not be found. Keys and times are not checked here but in authentication.py.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

from infra.emulators.vendor_common.http_messages import Incoming

SCHEME = "SDK-HMAC-SHA256"
_PARTS = frozenset({"Access", "SignedHeaders", "Signature"})


class CceSignedClaim(msgspec.Struct, frozen=True):
    """The credentials a request claims. signed: names of the signed headers, as sent."""

    key: str
    signed: tuple[str, ...]
    signature: str


def claim(incoming: Incoming) -> CceSignedClaim | None:
    """Return the claimed credentials of a request, None for an unsigned request."""
    scheme, _, rest = incoming.headers.get("authorization", "").partition(" ")
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    if scheme != SCHEME or parts.keys() != _PARTS:
        return None
    return CceSignedClaim(
        parts["Access"], tuple(parts["SignedHeaders"].split(";")), parts["Signature"]
    )


def canonical(incoming: Incoming, signed: Sequence[str]) -> str:
    """Return the canonical request. Its path ends with a slash that is not part
    of the transmitted path."""
    split = urlsplit(incoming.target)
    path = "/".join(_encoded(unquote(part)) for part in split.path.split("/"))
    pairs = sorted(
        (_encoded(name), _encoded(value))
        for name, value in parse_qsl(split.query, keep_blank_values=True)
    )
    headers = "".join(f"{name}:{incoming.headers.get(name, '').strip()}\n" for name in signed)
    return "\n".join(
        (
            incoming.method,
            path if path.endswith("/") else f"{path}/",
            "&".join(f"{name}={value}" for name, value in pairs),
            headers,
            ";".join(signed),
            hashlib.sha256(incoming.body).hexdigest(),
        )
    )


def signature(incoming: Incoming, signed: Sequence[str], secret: str) -> str:
    """Return its HMAC in hexadecimal."""
    told = hashlib.sha256(canonical(incoming, signed).encode()).hexdigest()
    text = f"{SCHEME}\n{incoming.headers.get('x-sdk-date', '')}\n{told}"
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def _encoded(text: str) -> str:
    return quote(text, safe="-_.~")
