"""Authenticates requests: key, signature, time and role."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from infra.emulators.exoscale.signing import claim, signature
from infra.emulators.vendor_common.errors import VendorRefusedError
from infra.emulators.vendor_common.http_messages import Incoming
from infra.emulators.vendor_common.keys import VendorKey, VendorKeyRing

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
        """Return the key that signed the request. Raises Refused with 401, or with 403 if the key's role does not allow
        the operation."""
        claimed = claim(incoming)
        if claimed is None:
            raise VendorRefusedError(401, "Authorization header is missing or malformed")
        key = self._ring.keys.get(claimed.key)
        if key is None or not key.active:
            raise VendorRefusedError(401, "Invalid credentials: the API key is unknown")
        unsigned = {name for name, _ in incoming.query()} - set(claimed.signed)
        if unsigned:
            raise VendorRefusedError(401, f"Query parameters are not signed: {', '.join(sorted(unsigned))}")
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
                401, "The request signature has expired" if left <= 0.0 else "expires: too far in the future"
            )
