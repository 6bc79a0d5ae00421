"""ACS3-HMAC-SHA256, the vendor's current signature, as pure functions: no clock, no randomness, no network.

A signature is valid for one attempt. Each retry signs again with a new time and nonce and the same ClientToken, which
the vendor recognises as the same request.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from urllib.parse import quote

from chalicelib.model.secret import Secret

ALGORITHM = "ACS3-HMAC-SHA256"
_UNRESERVED = "-_.~"


def canonical_query(params: Mapping[str, str]) -> str:
    """Return the query sorted by name and percent-encoded according to RFC 3986 (`*` is %2A, a space %20).

    The signed text is also the one that is sent, so no library can encode it differently."""
    return "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in sorted(params.items()))


def timestamp(now: float) -> str:
    """Return epoch seconds as `2026-01-15T08:30:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))


def unsigned_headers(
    *, host: str, action: str, version: str, now: float, nonce: str, body: bytes = b""
) -> dict[str, str]:
    """Return the headers of every call, signed or not."""
    return {
        "host": host,
        "x-acs-action": action,
        "x-acs-content-sha256": hashlib.sha256(body).hexdigest(),
        "x-acs-date": timestamp(now),
        "x-acs-signature-nonce": nonce,
        "x-acs-version": version,
    }


def signed_headers(
    headers: Mapping[str, str],
    query: str,
    *,
    key_id: str,
    key_secret: Secret,
    secret: Secret | None = None,
    method: str = "POST",
) -> dict[str, str]:
    """Return these headers (lower-case names, including `host`) with a session's token and the Authorization header.

    query: canonical_query of what is sent. Every given header is signed, because the vendor requires it of each
    `x-acs-*`, of host and of content-type.
    """
    signed = dict(headers)
    if secret:
        signed |= {"x-acs-accesskey-id": key_id, "x-acs-security-token": secret.reveal()}
    names = ";".join(sorted(signed))
    digest = hashlib.sha256(canonical_request(signed, query, method).encode()).hexdigest()
    wanted = hmac.new(key_secret.reveal().encode(), f"{ALGORITHM}\n{digest}".encode(), hashlib.sha256).hexdigest()
    return signed | {"authorization": f"{ALGORITHM} Credential={key_id},SignedHeaders={names},Signature={wanted}"}


def canonical_request(headers: Mapping[str, str], query: str, method: str = "POST") -> str:
    """Return the text that is hashed: method, path, query, headers, header names, and the hash of the body."""
    lines = [f"{name}:{value.strip()}\n" for name, value in sorted(headers.items())]
    return "\n".join((method, "/", query, "".join(lines), ";".join(sorted(headers)), headers["x-acs-content-sha256"]))


def _encoded(text: str) -> str:
    return quote(text, safe=_UNRESERVED)
