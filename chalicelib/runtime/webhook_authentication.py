"""Authenticates a caller of the webhook by an HMAC-SHA256 signature over the
request, or by a bearer token.

    v2=      the method, the path (which contains the cluster's name), the timestamp
             and the body, a line each
    sha256=  timestamp.body, the older form; it is valid for any cluster with the same secret, so
             it is refused unless the secret permits it (`"bodySignatures": true`) while its
             exporters are being updated

Every call does the same work regardless of its validity: two digests over the body, two
constant-time comparisons of each kind, and the verdict last. A caller learns one bit, and
timing reveals nothing more.

The secret is either JSON, `{"hmac": "…", "bearer": "…"}`, or plain text. JSON says which kind of
authentication is accepted: a kind that is left out is disabled. Plain text is one value for both
kinds, as the shortest configuration. Each value may be a list of two, the new one and the old one,
so that a secret can be rotated without losing an event: store [new, old], update the exporters,
store [new]. Values under 16 characters are refused, because a secret that can be guessed is worse
than none. No error contains a part of the secret.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from chalicelib.model.errors import BadInput

SKEW = 300.0
TIMESTAMP = "x-outscaler-timestamp"
SIGNATURE = "x-outscaler-signature"
AUTHORIZATION = "authorization"
V2, BODY_ONLY = "v2=", "sha256="
MIN_LENGTH = 16
MAX_VALUES = 2

_SECONDS = re.compile(r"[0-9]{1,12}\Z")
_EXAMPLE = (
    'store {"hmac": "…"}, {"bearer": "…"} or both, or plain text; a value is a text or a list of '
    "two"
)


@dataclass(frozen=True, repr=False)
class WebhookKeys:
    """The values accepted now, as bytes; if both are empty, every request is refused."""

    hmac: tuple[bytes, ...] = ()
    bearer: tuple[bytes, ...] = ()
    body_signatures: bool = False

    def __repr__(self) -> str:
        return "Keys(***)"


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    hmac: str | list[str] = ""
    bearer: str | list[str] = ""
    body_signatures: bool = False


def read_keys(text: str, place: str) -> WebhookKeys:
    """Parse the keys in a secret's text. place: the secret's name. Raises BadInput, which
    contains no part of the text."""
    if not text.lstrip().startswith("{"):
        value = _checked(text.strip(), place)
        return WebhookKeys(hmac=(value,), bearer=(value,))
    try:
        document = msgspec.json.decode(text, type=_Document)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadInput(place, "the webhook secret is JSON that cannot be read", _EXAMPLE) from None
    keys = WebhookKeys(
        hmac=_values(document.hmac, f"{place}: hmac"),
        bearer=_values(document.bearer, f"{place}: bearer"),
        body_signatures=document.body_signatures,
    )
    if not keys.hmac and not keys.bearer:
        raise BadInput(place, "the webhook secret holds neither hmac nor bearer", _EXAMPLE)
    return keys


def _values(value: str | list[str], place: str) -> tuple[bytes, ...]:
    values = [value] if isinstance(value, str) else value
    if len(values) > MAX_VALUES:
        raise BadInput(
            place,
            f"{len(values)} values",
            f"keep at most {MAX_VALUES}: the new one and the old one",
        )
    if values == [""]:
        return ()
    return tuple(_checked(text, place) for text in values)


def _checked(value: str, place: str) -> bytes:
    if len(value) < MIN_LENGTH:
        raise BadInput(
            place,
            f"a value of {len(value)} characters",
            f"use {MIN_LENGTH} or more, from a random source",
        )
    return value.encode()


class AuthResult(StrEnum):
    """The result for the log only; the caller learns only accepted or refused."""

    ACCEPTED = "accepted"
    NO_PROOF = "the headers contain no signature or token"
    WRONG = "wrong signature or token"
    OLDER = "a signature of the body only, which the webhook secret does not allow"
    STALE = "timestamp is missing or over 5 minutes off"


class WebhookAuth(msgspec.Struct, frozen=True):
    """A verdict, and for a valid signature its canonical form, which identifies a repeated
    request (empty for a token).

    older: it is a signature of the body only.
    """

    verdict: AuthResult
    signature: str = ""
    older: bool = False


def sign(key: bytes, cluster: str, timestamp: str, body: bytes) -> str:
    """Return the value of X-Outscaler-Signature: `v2=` and 64 hexadecimal digits.
    timestamp: epoch seconds, as sent."""
    signed = b"v2\nPOST\n" + _bytes(f"/clusters/{cluster}/events\n{timestamp}\n") + body
    return V2 + hmac.new(key, signed, hashlib.sha256).hexdigest()


def sign_body(key: bytes, timestamp: str, body: bytes) -> str:
    """Return the older form: `sha256=` and 64 hexadecimal digits."""
    return BODY_ONLY + hmac.new(key, _bytes(timestamp) + b"." + body, hashlib.sha256).hexdigest()


def verify(
    cluster: str,
    headers: Mapping[str, str],
    body: bytes,
    keys: WebhookKeys,
    decoy: bytes,
    now: float,
) -> WebhookAuth:
    """Authenticate a request. cluster: named in the path. headers: lower-case names. decoy: a
    random key that replaces missing ones, so that all calls cost the same.

    If there is a signature, it alone decides; an additional token cannot make up
    for an invalid signature.
    """
    timestamp = headers.get(TIMESTAMP, "").strip()
    signature = headers.get(SIGNATURE, "").strip().lower()
    scheme, _, value = headers.get(AUTHORIZATION, "").strip().partition(" ")
    token = value.strip() if scheme.lower() == "bearer" else ""
    older = signature.startswith(BODY_ONLY)

    def expected(key: bytes) -> bytes:
        # In the form that the caller has chosen; both compute one digest over the body.
        return (
            sign_body(key, timestamp, body) if older else sign(key, cluster, timestamp, body)
        ).encode()

    signed = _matches(keys.hmac, expected, _bytes(signature), decoy)
    # Digests, because compare_digest would reveal the length of a token.
    borne = _matches(keys.bearer, _sha256, _sha256(_bytes(token)), decoy)
    if not signature:
        if not token:
            return WebhookAuth(AuthResult.NO_PROOF)
        return WebhookAuth(AuthResult.ACCEPTED if borne else AuthResult.WRONG)
    if not signed:
        return WebhookAuth(AuthResult.WRONG)
    if older and not keys.body_signatures:
        return WebhookAuth(AuthResult.OLDER)
    if _SECONDS.match(timestamp) is None or abs(now - int(timestamp)) > SKEW:
        return WebhookAuth(AuthResult.STALE)
    return WebhookAuth(AuthResult.ACCEPTED, signature, older)


def _matches(
    keys: tuple[bytes, ...], expected: Callable[[bytes], bytes], proof: bytes, decoy: bytes
) -> bool:
    """Return whether one of the keys gives this proof. As many comparisons are
    made, whatever the keys."""
    matches = False
    for index in range(MAX_VALUES):
        real = index < len(keys)
        matches |= hmac.compare_digest(expected(keys[index] if real else decoy), proof) and real
    return matches


def _sha256(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


def _bytes(text: str) -> bytes:
    """Return a header's bytes. An unpaired surrogate, which is not valid text, becomes bytes that
    no key and no digest contains."""
    return text.encode("utf-8", "surrogatepass")
