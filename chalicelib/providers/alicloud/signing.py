"""The signature of Alibaba Cloud's API, ACS3-HMAC-SHA256, as pure functions: no clock, no network.

See https://www.alibabacloud.com/help/en/sdk/product-overview/v3-request-structure-and-signature
"""

from __future__ import annotations

import hashlib
import hmac
import time
import uuid
from collections.abc import Mapping
from urllib.parse import quote

from chalicelib.model.secret import Secret

ALGORITHM = "ACS3-HMAC-SHA256"


def canonical_query(params: Mapping[str, str]) -> str:
    """Return the query sorted by name and percent-encoded according to RFC 3986 (`*`
    is %2A, a space %20). The signed text is also the one that is sent, so no library
    can encode it differently."""
    return "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in sorted(params.items())
    )


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
    """Return these headers (lower-case names, including `host`) with a session's token and the
    Authorization header. query: canonical_query of what is sent; secret: the session's token. Every
    given header is signed, because the vendor requires it of each `x-acs-*`, of host and of
    content-type."""
    signed = dict(headers)
    if secret:
        signed |= {"x-acs-accesskey-id": key_id, "x-acs-security-token": secret.reveal()}
    names = ";".join(sorted(signed))
    digest = hashlib.sha256(canonical_request(signed, query, method).encode()).hexdigest()
    signature = hmac.new(
        key_secret.reveal().encode(), f"{ALGORITHM}\n{digest}".encode(), hashlib.sha256
    ).hexdigest()
    return signed | {
        "authorization": (
            f"{ALGORITHM} Credential={key_id},SignedHeaders={names},Signature={signature}"
        )
    }


def canonical_request(headers: Mapping[str, str], query: str, method: str = "POST") -> str:
    """Return the text that is hashed: method, path, query, headers, header names,
    and the hash of the body."""
    lines = [f"{name}:{value.strip()}\n" for name, value in sorted(headers.items())]
    return "\n".join(
        (
            method,
            "/",
            query,
            "".join(lines),
            ";".join(sorted(headers)),
            headers["x-acs-content-sha256"],
        )
    )


def new_nonce() -> str:
    """Return 32 random hex digits."""
    return uuid.uuid4().hex
