"""ACS3-HMAC-SHA256, the vendor's current signature, from values alone: no clock, no chance, no network (§4.2).

A signature holds for one attempt. Whoever sends again signs again, with a new time and a new nonce and the same
ClientToken; the vendor takes that for the same wish.
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
    """Sorted by name, both sides percent-encoded as RFC 3986 has it (`*` is %2A, a blank %20). What is signed is also
    what is sent, so that no library in between can spell it another way."""
    return "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in sorted(params.items()))


def timestamp(now: float) -> str:
    """Epoch seconds as `2026-01-15T08:30:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))


def unsigned_headers(
    *, host: str, action: str, version: str, now: float, nonce: str, body: bytes = b""
) -> dict[str, str]:
    """The headers that every call carries, signed or not."""
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
    token: Secret | None = None,
    method: str = "POST",
) -> dict[str, str]:
    """These headers (names in lower case, `host` among them) with a session's token and the Authorization for them.

    query: canonical_query of what is sent. Every header given is signed, since the vendor asks that of each `x-acs-*`,
    of host and of content-type.
    """
    signed = dict(headers)
    if token:
        signed |= {"x-acs-accesskey-id": key_id, "x-acs-security-token": token.reveal()}
    names = ";".join(sorted(signed))
    digest = hashlib.sha256(canonical_request(signed, query, method).encode()).hexdigest()
    wanted = hmac.new(key_secret.reveal().encode(), f"{ALGORITHM}\n{digest}".encode(), hashlib.sha256).hexdigest()
    return signed | {"authorization": f"{ALGORITHM} Credential={key_id},SignedHeaders={names},Signature={wanted}"}


def canonical_request(headers: Mapping[str, str], query: str, method: str = "POST") -> str:
    """What is hashed: method, path, query, headers, their names, and the hash of the body."""
    lines = [f"{name}:{value.strip()}\n" for name, value in sorted(headers.items())]
    return "\n".join((method, "/", query, "".join(lines), ";".join(sorted(headers)), headers["x-acs-content-sha256"]))


def _encoded(text: str) -> str:
    return quote(text, safe=_UNRESERVED)
