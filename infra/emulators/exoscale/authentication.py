"""Authenticates requests by EXO2-HMAC-SHA256: key, signature, time and role.

It is written from the documentation and not shared with the client under test, because a shared
error would not be found.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable

import msgspec

from infra.emulators.vendor_common.fault_injection import VendorRefusedError
from infra.emulators.vendor_common.http_messages import Incoming
from infra.emulators.vendor_common.keys import VendorKey, VendorKeyRing

SCHEME = "EXO2-HMAC-SHA256"


class ExoscaleSignedClaim(msgspec.Struct, frozen=True):
    """The credentials a request claims. signed: names of the signed query parameters.
    expires: epoch seconds, as text."""

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
        parts["credential"],
        parts["expires"],
        parts["signature"],
        tuple(names.split(";")) if names else (),
    )


def message(incoming: Incoming, expires: str) -> bytes:
    """Return the text to sign: the path as sent, the bytes of the body, the values of parameters
    that occur once in the order of their names, no headers, and the time."""
    pairs = incoming.query()
    once = {name for name, times in Counter(name for name, _ in pairs).items() if times == 1}
    values = "".join(value for _, value in sorted(pair for pair in pairs if pair[0] in once))
    return b"\n".join(
        (
            f"{incoming.method} {incoming.path}".encode(),
            incoming.body,
            values.encode(),
            b"",
            expires.encode(),
        )
    )


def signature(incoming: Incoming, expires: str, secret: str) -> str:
    """Return its HMAC in base64."""
    return base64.b64encode(
        hmac.new(secret.encode(), message(incoming, expires), hashlib.sha256).digest()
    ).decode()


LONGEST = 3600.0
"""Maximum validity of a signature in seconds; clients request 600."""


ExoscaleKey = VendorKey[frozenset[str]]
"""A key; its permissions are the operations that its role allows."""
ExoscaleKeyRing = VendorKeyRing[frozenset[str]]


class ExoscaleAuthenticator:
    """Checks requests against a key ring and a clock."""

    def __init__(self, ring: ExoscaleKeyRing, clock: Callable[[], float]) -> None:
        self._ring, self._clock = ring, clock

    def admit(self, incoming: Incoming, operation: str) -> ExoscaleKey:
        """Return the key that signed the request. Raises Refused with 401, or with 403 if the key's
        role does not allow the operation."""
        claimed = claim(incoming)
        if claimed is None:
            raise VendorRefusedError(401, "Authorization header is missing or malformed")
        key = self._ring.keys.get(claimed.key)
        if key is None or not key.active:
            raise VendorRefusedError(401, "Invalid credentials: the API key is unknown")
        unsigned = {name for name, _ in incoming.query()} - set(claimed.signed)
        if unsigned:
            raise VendorRefusedError(
                401, f"Query parameters are not signed: {', '.join(sorted(unsigned))}"
            )
        expected = signature(incoming, claimed.expires, key.secret)
        if not hmac.compare_digest(expected.encode(), claimed.signature.encode()):
            raise VendorRefusedError(401, "Invalid request signature")
        self._check_time(claimed.expires)
        if key.permissions is not None and operation not in key.permissions:
            raise VendorRefusedError(403, f"Forbidden by role policy for compute: {operation}")
        return key

    def _check_time(self, expires: str) -> None:
        if not (expires.isascii() and expires.isdigit()):
            raise VendorRefusedError(401, "expires: no Unix time")
        left = int(expires) - self._clock()
        if not 0.0 < left <= LONGEST:
            raise VendorRefusedError(
                401,
                "The request signature has expired"
                if left <= 0.0
                else "expires: too far in the future",
            )
