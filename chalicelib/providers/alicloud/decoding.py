"""Decodes the vendor's JSON in all of its forms.

Older API versions wrap lists (`InstanceTypes.InstanceType[]`), as ECS still does; newer ones do not. Numbers and
booleans may be text, and empty values may be null, an empty text or missing. All of it is normalised here once, so the
types need not handle it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from chalicelib.net.json_repair import read_json
from chalicelib.providers.alicloud.error_mapping import error_for
from chalicelib.providers.errors import Transient, Unknown
from chalicelib.providers.http import VendorResponse

T = TypeVar("T")


def decode(response: VendorResponse, kind: type[T]) -> T:
    """Decode the response as that type.

    Raises Transient for a truncated body, Unknown for an unexpected structure, and the mapped error if a success status
    carries an error code."""
    try:
        body = read_json(response.body, _even)
        if isinstance(body, dict) and body.get("Code"):
            raise error_for(response) or Unknown(f"{response.call}: the answer carries an error code")
        return msgspec.convert(body, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Unknown(f"{response.call}: the answer has another shape than expected: {error}") from None
    except msgspec.DecodeError:
        raise Transient(f"{response.call}: the answer is not complete JSON") from None


def _even(value: Any, name: str = "") -> Any:
    """Return the value without empty members and with lists unwrapped."""
    if isinstance(value, list):
        return [even for each in value if (even := _even(each)) not in (None, "")]
    if not isinstance(value, dict):
        return value
    if name.endswith("s") and len(value) == 1:
        (inner,) = value.values()
        if isinstance(inner, list):
            return _even(inner)
    return {key: even for key, each in value.items() if (even := _even(each, key)) not in (None, "", {})}
