"""Computes EXO2-HMAC-SHA256 as the vendor does, to verify the signatures that clients send.

It is written from the documentation and not shared with the client under test, because a shared error would not be
found. Keys and times are not checked here but in authentication.py.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import Counter

import msgspec

from infra.emulators.vendor_common.http_messages import Incoming

SCHEME = "EXO2-HMAC-SHA256"


class ExoscaleSignedClaim(msgspec.Struct, frozen=True):
    """The credentials a request claims. signed: names of the signed query parameters. expires: epoch seconds, as
    text."""

    key: str
    expires: str
    signature: str
    signed: tuple[str, ...] = ()


def claim(incoming: Incoming) -> ExoscaleSignedClaim | None:
    """Return the claimed credentials of a request, None for an unsigned request."""
    scheme, _, rest = incoming.headers.get("authorization", "").partition(" ")
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    if scheme != SCHEME or not {"credential", "expires", "signature"} <= parts.keys():
        return None
    names = parts.get("signed-query-args", "")
    return ExoscaleSignedClaim(
        parts["credential"], parts["expires"], parts["signature"], tuple(names.split(";")) if names else ()
    )


def message(incoming: Incoming, expires: str) -> bytes:
    """Return the text to sign: the path as sent, the bytes of the body, the values of parameters that occur once in the
    order of their names, no headers, and the time."""
    pairs = incoming.query()
    once = {name for name, times in Counter(name for name, _ in pairs).items() if times == 1}
    values = "".join(value for _, value in sorted(pair for pair in pairs if pair[0] in once))
    return b"\n".join(
        (f"{incoming.method} {incoming.path}".encode(), incoming.body, values.encode(), b"", expires.encode())
    )


def signature(incoming: Incoming, expires: str, secret: str) -> str:
    """Return its HMAC in base64."""
    return base64.b64encode(hmac.new(secret.encode(), message(incoming, expires), hashlib.sha256).digest()).decode()
