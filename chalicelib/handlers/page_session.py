"""Links and cookies of the hosted status page: signed texts that name who may see what, and until when.

A browser can sign no request for IAM, so a signed request gets a link that works once, within a minute. Opening it sets
a cookie. Nothing is stored for a session: its end and its clusters are in the cookie. Both texts are bound to the
deployment, and to their own purpose, so one never stands for the other.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

import msgspec

COOKIE = "__Host-outscaler"
LINK_FOR, SESSION_FOR = 60.0, 8 * 3600.0
"""Seconds that a link and a session are valid."""
LONGEST = 3500
"""Characters of a link or a cookie; browsers keep cookies of 4,096 bytes."""
LINK, SESSION = "link", "session"
_LEAST_KEY = 32  # characters
_KEYS = 2  # the one that signs, and the one before it


class PageGrant(msgspec.Struct, frozen=True):
    """What a link or a cookie permits. id: of this one. until: epoch seconds. clusters: that may be seen, None for
    all."""

    id: str
    until: float
    clusters: tuple[str, ...] | None = None


def keys_of(secret: str) -> tuple[bytes, ...]:
    """Return the keys in a secret's text: at most two lines, the first of which signs. Short lines are no keys."""
    lines = [line.strip() for line in secret.splitlines()]
    return tuple(line.encode() for line in lines if len(line) >= _LEAST_KEY)[:_KEYS]


def new_grant(now: float, lasts: float, clusters: Sequence[str] | None) -> PageGrant:
    """Return a grant with a random id of 128 bits."""
    return PageGrant(secrets.token_urlsafe(16), now + lasts, None if clusters is None else tuple(clusters))


def written(grant: PageGrant, purpose: str, deployment: str, key: bytes) -> str:
    """Return the signed text. purpose: LINK or SESSION. deployment: the name of its table."""
    payload = base64.urlsafe_b64encode(msgspec.json.encode(grant)).rstrip(b"=")
    return f"{payload.decode()}.{_signature(payload, purpose, deployment, key)}"


def checked(text: str, purpose: str, deployment: str, keys: Sequence[bytes], now: float) -> PageGrant | None:
    """Return the grant in a text that one of the keys has signed for this purpose and deployment and that is still
    valid; None for any other text."""
    if len(text) > LONGEST or not text.isascii():
        return None
    payload, _, signature = text.partition(".")
    valid = False
    for key in keys:  # all are compared, so that the time does not say which one it was
        valid |= hmac.compare_digest(_signature(payload.encode(), purpose, deployment, key), signature)
    if not valid:
        return None
    try:
        data = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        grant = msgspec.json.decode(data, type=PageGrant)
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        return None
    lasts = LINK_FOR if purpose == LINK else SESSION_FOR
    return grant if now < grant.until <= now + lasts + 60.0 else None


def _signature(payload: bytes, purpose: str, deployment: str, key: bytes) -> str:
    signed = b"\n".join((b"outscaler-page", purpose.encode(), deployment.encode(), payload))
    return base64.urlsafe_b64encode(hmac.new(key, signed, hashlib.sha256).digest()).rstrip(b"=").decode()
