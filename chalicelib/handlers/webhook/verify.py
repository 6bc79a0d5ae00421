"""Who knocks: HMAC-SHA256 over `timestamp + "." + body`, or a bearer token.

Every call does the same work whatever is right or wrong about it: two digests over the body, two comparisons of each
kind in constant time, and the verdict last. A caller learns one bit, and the clock does not tell more.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from chalicelib.handlers.webhook.keys import MAX_VALUES, Keys

SKEW = 300.0
TIMESTAMP = "x-outscaler-timestamp"
SIGNATURE = "x-outscaler-signature"
AUTHORIZATION = "authorization"

_SECONDS = re.compile(r"[0-9]{1,12}\Z")


class Verdict(StrEnum):
    """For our own log only; the caller is told accepted or not."""

    ACCEPTED = "accepted"
    NO_PROOF = "no proof in the headers"
    WRONG = "wrong signature or token"
    STALE = "timestamp is missing or over 5 minutes off"


class Knock(msgspec.Struct, frozen=True):
    """A verdict, and for a right signature its canonical form, by which a repetition is known (empty for a token)."""

    verdict: Verdict
    signature: str = ""


def sign(key: bytes, timestamp: str, body: bytes) -> str:
    """The value of X-Outscaler-Signature: `sha256=` and 64 hexadecimal digits. timestamp: epoch seconds, as sent."""
    digest = hmac.new(key, _bytes(timestamp) + b"." + body, hashlib.sha256).hexdigest()
    return f"sha256={digest}"


def verify(headers: Mapping[str, str], body: bytes, keys: Keys, decoy: bytes, now: float) -> Knock:
    """headers: lower-case names. decoy: a random key that stands in for missing ones, so that all calls cost the same.

    A signature, where there is one, decides alone; a token beside it cannot mend it.
    """
    timestamp = headers.get(TIMESTAMP, "").strip()
    given = headers.get(SIGNATURE, "").strip().lower()
    token = _token(headers.get(AUTHORIZATION, ""))
    signed = _signed(keys.hmac, timestamp, body, given, decoy)
    borne = _borne(keys.bearer, token, decoy)
    if given:
        if not signed:
            return Knock(Verdict.WRONG)
        return Knock(Verdict.ACCEPTED, given) if _fresh(timestamp, now) else Knock(Verdict.STALE)
    if not token:
        return Knock(Verdict.NO_PROOF)
    return Knock(Verdict.ACCEPTED if borne else Verdict.WRONG)


def _signed(keys: tuple[bytes, ...], timestamp: str, body: bytes, given: str, decoy: bytes) -> bool:
    right = False
    for index in range(MAX_VALUES):
        real = index < len(keys)
        expected = sign(keys[index] if real else decoy, timestamp, body)
        right |= hmac.compare_digest(expected.encode(), _bytes(given)) and real
    return right


def _borne(keys: tuple[bytes, ...], token: str, decoy: bytes) -> bool:
    right = False
    presented = hashlib.sha256(_bytes(token)).digest()     # equal lengths: compare_digest would tell the length
    for index in range(MAX_VALUES):
        real = index < len(keys)
        expected = hashlib.sha256(keys[index] if real else decoy).digest()
        right |= hmac.compare_digest(expected, presented) and real
    return right


def _bytes(text: str) -> bytes:
    """A header's bytes. Half a surrogate pair, which is no text, becomes bytes that no key and no digest has."""
    return text.encode("utf-8", "surrogatepass")


def _token(header: str) -> str:
    scheme, _, value = header.strip().partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""


def _fresh(timestamp: str, now: float) -> bool:
    return _SECONDS.match(timestamp) is not None and abs(now - int(timestamp)) <= SKEW
