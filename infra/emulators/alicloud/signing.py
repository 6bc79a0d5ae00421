"""Computes Alibaba Cloud's two signatures, to verify those that clients send.

It is written from the documentation and not shared with the client under test, because a shared
error would not be found. Keys, times and nonces are not checked here but in authentication.py.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from urllib.parse import quote

import msgspec

from infra.emulators.vendor_common.http_messages import Incoming

ALGORITHM = "ACS3-HMAC-SHA256"


def encoded(text: str) -> str:
    """Encode by RFC 3986 with the vendor's unreserved characters."""
    return quote(text, safe="-_.~")


def canonical_query(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the query sorted by name, with names and values encoded."""
    return "&".join(f"{encoded(name)}={encoded(value)}" for name, value in sorted(pairs))


def acs3_request(incoming: Incoming, signed: Sequence[str]) -> str:
    """Return the canonical request over the headers that the client says it signed."""
    names = sorted(signed)
    headers = "".join(f"{name}:{incoming.headers.get(name, '').strip()}\n" for name in names)
    return "\n".join(
        (
            incoming.method,
            incoming.path or "/",
            canonical_query(incoming.query()),
            headers,
            ";".join(names),
            hashlib.sha256(incoming.body).hexdigest(),
        )
    )


def acs3_signature(incoming: Incoming, signed: Sequence[str], secret: str) -> str:
    """Return the ACS3-HMAC-SHA256 signature in lower-case hexadecimal."""
    digest = hashlib.sha256(acs3_request(incoming, signed).encode()).hexdigest()
    return hmac.new(secret.encode(), f"{ALGORITHM}\n{digest}".encode(), hashlib.sha256).hexdigest()


def rpc_text(incoming: Incoming) -> str:
    """Return the string to sign of RPC signature version 1.0."""
    pairs = [
        (name, value)
        for name, value in (*incoming.query(), *incoming.form())
        if name != "Signature"
    ]
    return f"{incoming.method}&{encoded('/')}&{encoded(canonical_query(pairs))}"


def rpc_signature(incoming: Incoming, secret: str) -> str:
    """Return the HMAC-SHA1 signature in base64."""
    digest = hmac.new(f"{secret}&".encode(), rpc_text(incoming).encode(), hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


class AlicloudSignedClaim(msgspec.Struct, frozen=True):
    """The credentials a request claims. signed: names of the signed headers of an ACS3 request."""

    key: str
    signature: str
    nonce: str
    time: str
    token: str
    signed: tuple[str, ...] | None = None


def claim(incoming: Incoming) -> AlicloudSignedClaim | None:
    """Return the claimed credentials of a request, None for an unsigned request."""
    headers, authorization = incoming.headers, incoming.headers.get("authorization", "")
    if authorization:
        scheme, _, rest = authorization.partition(" ")
        parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
        if scheme != ALGORITHM or not {"Credential", "SignedHeaders", "Signature"} <= parts.keys():
            return None
        return AlicloudSignedClaim(
            parts["Credential"],
            parts["Signature"],
            headers.get("x-acs-signature-nonce", ""),
            headers.get("x-acs-date", ""),
            headers.get("x-acs-security-token", ""),
            tuple(parts["SignedHeaders"].split(";")),
        )
    sent = incoming.parameters()
    if not sent.get("Signature") or sent.get("SignatureMethod") != "HMAC-SHA1":
        return None
    return AlicloudSignedClaim(
        sent.get("AccessKeyId", ""),
        sent["Signature"],
        sent.get("SignatureNonce", ""),
        sent.get("Timestamp", ""),
        sent.get("SecurityToken", ""),
    )
