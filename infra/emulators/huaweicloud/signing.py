"""SDK-HMAC-SHA256 as the vendor computes it, to check what clients send (huaweicloud-cce.md B3).

Written from the documents and not shared with the client under test: what both sides got wrong together would not be
found. Nothing here looks at keys or times; that is the gate's part (gate.py).
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
    """What a request says of itself. signed: names of signed headers, as sent."""

    key: str
    signed: tuple[str, ...]
    signature: str


def claim(incoming: Incoming) -> CceSignedClaim | None:
    """Who it says it is from; None for a request without a signature."""
    scheme, _, rest = incoming.headers.get("authorization", "").partition(" ")
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    if scheme != SCHEME or parts.keys() != _PARTS:
        return None
    return CceSignedClaim(parts["Access"], tuple(parts["SignedHeaders"].split(";")), parts["Signature"])


def canonical(incoming: Incoming, signed: Sequence[str]) -> str:
    """The request as it is signed: the path with a slash at its end that is not on the wire."""
    split = urlsplit(incoming.target)
    path = "/".join(_encoded(unquote(part)) for part in split.path.split("/"))
    pairs = sorted((_encoded(name), _encoded(value)) for name, value in parse_qsl(split.query, keep_blank_values=True))
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
    """Its HMAC in hexadecimal."""
    told = hashlib.sha256(canonical(incoming, signed).encode()).hexdigest()
    text = f"{SCHEME}\n{incoming.headers.get('x-sdk-date', '')}\n{told}"
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def _encoded(text: str) -> str:
    return quote(text, safe="-_.~")
