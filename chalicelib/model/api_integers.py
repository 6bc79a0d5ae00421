"""Bounded integer types of the Kubernetes API, for the fields of decoded objects, and the
same bounds for stored data.

`int` cannot be used: msgspec decodes numbers of any length into it, and a number above 64 bits can
neither be written as JSON again nor put into an array. An object with such a number is malformed
and is reported as missing data like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_LEAST, _LARGEST = -(2**53), 2**63 - 1
"""Amounts of resources are decoded as at most 2^63-1, and nothing that is stored is far below 0."""
_TEXTS = (str, bool, type(None))


def unbounded_numbers(value: Any, place: str) -> Iterator[str]:
    """Yield the place and the mistake of every number in stored data that no pass
    has stored: an integer out of range, and a number that is not finite. value: structs and
    collections. place: its name."""
    if isinstance(value, msgspec.Struct):
        parts: Iterable[tuple[str, Any]] = (
            (f".{name}", getattr(value, name)) for name in value.__struct_fields__
        )
    elif isinstance(value, dict):
        parts = ((f".{key}", part) for key, part in value.items())
    elif isinstance(value, tuple | list):
        parts = ((f"[{at}]", part) for at, part in enumerate(value))
    else:
        if type(value) is int and not _LEAST <= value <= _LARGEST:
            yield f"{place} is out of range"
        elif type(value) is float and not math.isfinite(value):
            yield f"{place} is not finite"
        return
    for name, part in parts:
        if type(part) not in _TEXTS:
            yield from unbounded_numbers(part, f"{place}{name}")
