"""From the vendor's JSON to our types, whichever of its shapes it comes in (alicloud.md §3.1).

Older API versions put lists into a wrapper (`InstanceTypes.InstanceType[]`), newer ones do not, and ECS still does.
Numbers and booleans may be text, and what is empty may be null, an empty text or missing. All of it is made alike
here, once, so that no type has to know.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from chalicelib.net.json_repair import read_json
from chalicelib.providers.alicloud.error_mapping import error_for
from chalicelib.providers.errors import Transient, Unknown
from chalicelib.providers.http import VendorResponse

T = TypeVar("T")


def decode(answer: VendorResponse, kind: type[T]) -> T:
    """The answer as that type. Raises Transient for a body cut short, Unknown for another shape, and what the vendor's
    code means for an error that came with a status of success."""
    try:
        body = read_json(answer.body, _even)
        if isinstance(body, dict) and body.get("Code"):
            raise error_for(answer) or Unknown(f"{answer.call}: the answer carries an error code")
        return msgspec.convert(body, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Unknown(f"{answer.call}: the answer has another shape than expected: {error}") from None
    except msgspec.DecodeError:
        raise Transient(f"{answer.call}: the answer is not complete JSON") from None


def _even(value: Any, name: str = "") -> Any:
    """Without what is empty, and lists without their wrapper."""
    if isinstance(value, list):
        return [even for each in value if (even := _even(each)) not in (None, "")]
    if not isinstance(value, dict):
        return value
    if name.endswith("s") and len(value) == 1:
        (inner,) = value.values()
        if isinstance(inner, list):
            return _even(inner)
    return {key: even for key, each in value.items() if (even := _even(each, key)) not in (None, "", {})}
