"""Parses a webhook secret without ever revealing its content.

The secret is either JSON, `{"hmac": "…", "bearer": "…"}`, or plain text. JSON says which kind of authentication is
accepted: a kind that is left out is disabled. Plain text is one value for both kinds, as the shortest configuration.
Each value may be a list of two, the new one and the old one, so that a secret can be rotated without losing an event:
store [new, old], update the exporters, store [new].

`"bodySignatures": true` in the JSON also accepts signatures of the older form, which do not name the cluster they are
for (runtime/webhook_signature.py). It is meant for the period in which exporters are updated.

Values under 16 characters are refused, because a secret that can be guessed is worse than none.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from chalicelib.model.errors import BadInput

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
