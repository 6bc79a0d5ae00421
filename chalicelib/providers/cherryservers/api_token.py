"""Parses a secret with an API token: the bare token, or JSON with one of the vendor's names."""

from __future__ import annotations

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import Secret, is_sendable

# A field's letters in lower case, without dashes and underscores. The vendor's tools differ: cherryctl and upstream
# read CHERRY_AUTH_TOKEN, cherrygo reads CHERRY_API_KEY, upstream's Kubernetes Secret has `authtoken`.
_FIELDS = frozenset({"authtoken", "cherryauthtoken", "cherryapikey", "token"})
_FORM = 'write the token alone, or {"authToken": "…"}'
_LONGEST = 4096


def parse_token(text: str, place: str) -> Secret:
    """Return the token. Raises BadInput for characters that are invalid in a header; no error contains any part of it.

    A trailing newline, which editors and `base64` add, is removed."""
    token = (_of_json(text, place) if text.lstrip().startswith(("{", "[", '"')) else text).strip()
    if not token:
        raise BadInput(place, "holds no API token", _FORM)
    if not is_sendable(token, _LONGEST):
        raise BadInput(place, "holds an API token with spaces or special characters", _FORM)
    return Secret(token)


def _of_json(text: str, place: str) -> str:
    try:
        fields = msgspec.json.decode(text, type=dict[str, str | None])
    except msgspec.ValidationError:
        raise BadInput(place, "is not a mapping of strings", _FORM) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadInput(place, "is not complete JSON", _FORM) from None
    found = {
        value.strip()
        for name, value in fields.items()
        if value and name.replace("-", "").replace("_", "").lower() in _FIELDS
    }
    if len(found) > 1:
        raise BadInput(place, "holds two different API tokens", "keep one of them")
    return found.pop() if found else ""
