"""What a webhook secret holds, and never shows.

The secret is either JSON, `{"hmac": "…", "bearer": "…"}`, or plain text. JSON says which kind of proof is accepted: a
key that is left out is a way in that is closed. Plain text is one value that is good for both, for those who want to
type as little as possible. Each value may be a list of two, the new one and the old one, so that a secret can be
rotated without losing an event: put in [new, old], move the exporters, put in [new].

`"bodySignatures": true` in the JSON also accepts signatures of the older form, which do not say what cluster they are
for (verify.py). It is for the time in which exporters are changed.

Values under 16 characters are refused: a webhook that guesses can open is worse than none.
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
    """The values that are accepted now, as bytes; both empty means that nobody gets in."""

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
    """The keys in a secret's text. place: the secret's name. Raises BadInput, in which no part of the text appears."""
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
