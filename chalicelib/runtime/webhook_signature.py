"""Authenticates a caller by an HMAC-SHA256 signature over the request, or by a bearer token.

    v2=      the method, the path (which contains the cluster's name), the timestamp and the body, a line each
    sha256=  timestamp.body, the older form; it is valid for any cluster with the same secret, so it is refused unless
             the secret permits it while its exporters are being updated

Every call does the same work regardless of its validity: two digests over the body, two constant-time comparisons of
each kind, and the verdict last. A caller learns one bit, and timing reveals nothing more.
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

_SECONDS = re.compile(r"[0-9]{1,12}\Z")


class AuthResult(StrEnum):
    """The result for the log only; the caller learns only accepted or refused."""

    ACCEPTED = "accepted"
    NO_PROOF = "the headers contain no signature or token"
    WRONG = "wrong signature or token"
    OLDER = "a signature of the body only, which the webhook secret does not allow"
    STALE = "timestamp is missing or over 5 minutes off"


class WebhookAuth(msgspec.Struct, frozen=True):
    """A verdict, and for a valid signature its canonical form, which identifies a repeated request (empty for a token).

    older: it is a signature of the body only.
    """

    verdict: AuthResult
    signature: str = ""
    older: bool = False


def sign(key: bytes, cluster: str, timestamp: str, body: bytes) -> str:
    """Return the value of X-Outscaler-Signature: `v2=` and 64 hexadecimal digits. timestamp: epoch seconds, as sent."""
    signed = b"v2\nPOST\n" + _bytes(f"/clusters/{cluster}/events\n{timestamp}\n") + body
    return V2 + hmac.new(key, signed, hashlib.sha256).hexdigest()


def sign_body(key: bytes, timestamp: str, body: bytes) -> str:
    """Return the older form: `sha256=` and 64 hexadecimal digits."""
    return BODY_ONLY + hmac.new(key, _bytes(timestamp) + b"." + body, hashlib.sha256).hexdigest()


def verify(
    cluster: str, headers: Mapping[str, str], body: bytes, keys: WebhookKeys, decoy: bytes, now: float
) -> WebhookAuth:
    """Authenticate a request. cluster: named in the path. headers: lower-case names. decoy: a random key that replaces
    missing ones, so that all calls cost the same.

    If there is a signature, it alone decides; an additional token cannot make up for an invalid signature.
    """
    timestamp = headers.get(TIMESTAMP, "").strip()
    given = headers.get(SIGNATURE, "").strip().lower()
    token = _token(headers.get(AUTHORIZATION, ""))
    older = given.startswith(BODY_ONLY)
    signed = _signed(keys.hmac, _signer(cluster, timestamp, body, older=older), given, decoy)
    borne = _borne(keys.bearer, token, decoy)
    if given:
        if not signed:
            return WebhookAuth(AuthResult.WRONG)
        if older and not keys.body_signatures:
            return WebhookAuth(AuthResult.OLDER)
        return (
            WebhookAuth(AuthResult.ACCEPTED, given, older) if _fresh(timestamp, now) else WebhookAuth(AuthResult.STALE)
        )
    if not token:
        return WebhookAuth(AuthResult.NO_PROOF)
    return WebhookAuth(AuthResult.ACCEPTED if borne else AuthResult.WRONG)


def _signer(cluster: str, timestamp: str, body: bytes, *, older: bool) -> Callable[[bytes], str]:
    """Return the function that signs this request in the form that its caller has chosen; both compute one digest over
    the body."""
    if older:
        return lambda key: sign_body(key, timestamp, body)
    return lambda key: sign(key, cluster, timestamp, body)


def _signed(keys: tuple[bytes, ...], signer: Callable[[bytes], str], given: str, decoy: bytes) -> bool:
    right = False
    for index in range(MAX_VALUES):
        real = index < len(keys)
        expected = signer(keys[index] if real else decoy)
        right |= hmac.compare_digest(expected.encode(), _bytes(given)) and real
    return right


def _borne(keys: tuple[bytes, ...], token: str, decoy: bytes) -> bool:
    right = False
    presented = hashlib.sha256(_bytes(token)).digest()  # equal lengths: compare_digest would reveal the length
    for index in range(MAX_VALUES):
        real = index < len(keys)
        expected = hashlib.sha256(keys[index] if real else decoy).digest()
        right |= hmac.compare_digest(expected, presented) and real
    return right


def _bytes(text: str) -> bytes:
    """Return a header's bytes. An unpaired surrogate, which is not valid text, becomes bytes that no key and no digest
    contains."""
    return text.encode("utf-8", "surrogatepass")


def _token(header: str) -> str:
    scheme, _, value = header.strip().partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""


def _fresh(timestamp: str, now: float) -> bool:
    return _SECONDS.match(timestamp) is not None and abs(now - int(timestamp)) <= SKEW


MIN_LENGTH = 16
MAX_VALUES = 2

_EXAMPLE = 'store {"hmac": "…"}, {"bearer": "…"} or both, or plain text; a value is a text or a list of two'


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
    """Parse the keys in a secret's text. place: the secret's name. Raises BadInput, which contains no part of the
    text."""
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


def _values(given: str | list[str], place: str) -> tuple[bytes, ...]:
    values = [given] if isinstance(given, str) else given
    if len(values) > MAX_VALUES:
        raise BadInput(place, f"{len(values)} values", f"keep at most {MAX_VALUES}: the new one and the old one")
    if values == [""]:
        return ()
    return tuple(_checked(value, place) for value in values)


def _checked(value: str, place: str) -> bytes:
    if len(value) < MIN_LENGTH:
        raise BadInput(place, f"a value of {len(value)} characters", f"use {MIN_LENGTH} or more, from a random source")
    return value.encode()
