"""Reads the fields of a secret in JSON, without showing a value in an error."""

from __future__ import annotations

import msgspec

from chalicelib.model.errors import BadInput


def json_fields(text: str, place: str, form: str) -> list[tuple[str, str]]:
    """Return name and text of each field, without those that are null. form: the remedy of an error.

    Raises BadInput.
    """
    try:
        fields = msgspec.json.decode(text, type=dict[str, str | None])
    except msgspec.ValidationError:
        raise BadInput(place, "has a field that is not text", form) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadInput(place, "is not complete JSON", form) from None
    return [(name, value) for name, value in fields.items() if value is not None]
