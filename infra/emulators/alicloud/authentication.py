"""Authenticates requests: signature, time, nonce, key and session."""

from __future__ import annotations

import datetime as dt
import hmac
from collections.abc import Callable

from infra.emulators.alicloud.errors import AlicloudRefusedError
from infra.emulators.alicloud.iam import AlicloudKey, AlicloudKeyRing
from infra.emulators.alicloud.signing import (
    AlicloudSignedClaim,
    acs3_signature,
    claim,
    rpc_signature,
)
from infra.emulators.vendor_common.http_messages import Incoming

WINDOW = 15 * 60.0


class AlicloudAuthenticator:
    """Checks requests against a key ring and a clock."""

    def __init__(self, ring: AlicloudKeyRing, clock: Callable[[], float]) -> None:
        self._ring, self._clock = ring, clock
        self._nonces: dict[str, float] = {}

    def admit(self, incoming: Incoming) -> AlicloudKey:
        """Return the key that signed the request. Raises Refused with the vendor's code for
        the first problem found."""
        claimed = claim(incoming)
        if claimed is None or not claimed.nonce or not claimed.time:
            raise AlicloudRefusedError(
                "IncompleteSignature", "The request signature does not conform to Aliyun standards."
            )
        key = self._key(claimed)
        self._check_signature(incoming, claimed, key)
        self._check_time(claimed.time)
        self._check_nonce(f"{claimed.key}/{claimed.nonce}")
        return key

    def _key(self, claimed: AlicloudSignedClaim) -> AlicloudKey:
        key = self._ring.keys.get(claimed.key)
        if key is None:
            raise AlicloudRefusedError(
                "InvalidAccessKeyId.NotFound", "Specified access key is not found."
            )
        if not key.active:
            raise AlicloudRefusedError(
                "InvalidAccessKeyId.Inactive", "Specified access key is disabled."
            )
        if key.token and not claimed.token:
            raise AlicloudRefusedError(
                "MissingSecurityToken", "SecurityToken is mandatory for this action."
            )
        if key.token != claimed.token:
            raise AlicloudRefusedError(
                "InvalidSecurityToken.MismatchWithAccessKey",
                "Specified SecurityToken is of another key.",
            )
        if key.token and self._clock() >= key.expires:
            raise AlicloudRefusedError(
                "InvalidSecurityToken.Expired", "Specified SecurityToken is expired."
            )
        return key

    def _check_signature(
        self, incoming: Incoming, claimed: AlicloudSignedClaim, key: AlicloudKey
    ) -> None:
        if claimed.signed is None:
            expected = rpc_signature(incoming, key.secret)
        else:
            _check_headers(incoming, claimed.signed)
            expected = acs3_signature(incoming, claimed.signed, key.secret)
        if not hmac.compare_digest(expected.encode(), claimed.signature.encode()):
            raise AlicloudRefusedError(
                "SignatureDoesNotMatch", "Specified signature does not match our calculation."
            )

    def _check_time(self, text: str) -> None:
        try:
            at = dt.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=dt.UTC).timestamp()
        except ValueError:
            raise AlicloudRefusedError(
                "InvalidTimeStamp.Format",
                "Specified time stamp or date value is not well formatted.",
            ) from None
        if abs(self._clock() - at) > WINDOW:
            raise AlicloudRefusedError(
                "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired."
            )

    def _check_nonce(self, nonce: str) -> None:
        now = self._clock()
        if now - self._nonces.get(nonce, float("-inf")) < WINDOW:
            raise AlicloudRefusedError(
                "SignatureNonceUsed", "Specified signature nonce was used already."
            )
        self._nonces[nonce] = now


def _check_headers(incoming: Incoming, signed: tuple[str, ...]) -> None:
    """Check that all relevant headers are signed and that the body's hash is correct."""
    must = {
        name
        for name in incoming.headers
        if name.startswith("x-acs-") or name in {"host", "content-type"}
    }
    if missing := sorted(must - set(signed)):
        raise AlicloudRefusedError("IncompleteSignature", f"not signed: {', '.join(missing)}")
    if not {
        "host",
        "x-acs-action",
        "x-acs-version",
        "x-acs-date",
        "x-acs-signature-nonce",
        "x-acs-content-sha256",
    } <= set(signed):
        raise AlicloudRefusedError("IncompleteSignature", "a mandatory header is not signed")
