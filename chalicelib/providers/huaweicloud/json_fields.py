"""Typed readers of single JSON fields: a missing value or null has a default, a wrong type is refused.

The vendor writes some numbers as text and omits empty values. A struct would therefore refuse too much or, with every
field optional, too little.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.model.timestamps import parse_time

MOST = 2**31 - 1
"""The largest number that can be one of nodes, minutes or cores."""

_WHOLE = re.compile(r"-?[0-9]{1,10}\Z", re.ASCII)
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))? \+0000(?: UTC)?\Z", re.ASCII)


class DecodeError(ValueError):
    """A field with an invalid value; its text names the field."""


def part(thing: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object; empty if it is missing. Raises Odd."""
    value = thing.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DecodeError(f"{name} is not an object")
    return value


def parts(thing: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects; empty if it is missing. Raises Odd."""
    value = thing.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise DecodeError(f"{name} is not a list of objects")
    return value


def text(thing: dict[str, Any], name: str) -> str:
    """Return a text; "" if it is missing. Raises Odd."""
    value = thing.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DecodeError(f"{name} is not a string")
    return value


def number(thing: dict[str, Any], name: str, default: int = 0) -> int:
    """Return an integer from 0 up; the default if it is missing. Raises Odd."""
    found = whole(thing, name)
    if found is None:
        return default
    if found < 0:
        raise DecodeError(f"{name} is negative")
    return found


def whole(thing: dict[str, Any], name: str) -> int | None:
    """Return an integer, which may be text; None if it is missing. Raises Odd."""
    value = thing.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, str) and _WHOLE.match(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MOST:
        raise DecodeError(f"{name} is not an integer")
    return value


def truth(thing: dict[str, Any], name: str) -> bool:
    """Return a boolean; false if it is missing. Raises Odd."""
    value = thing.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise DecodeError(f"{name} is neither true nor false")
    return value


def texts(thing: dict[str, Any], name: str) -> dict[str, str]:
    """Return an object of texts; empty if it is missing. Raises Odd."""
    found = part(thing, name)
    if not all(isinstance(value, str) for value in found.values()):
        raise DecodeError(f"{name} has a value that is not a string")
    return found


def instant(value: object) -> float:
    """Return a time in the vendor's format in epoch seconds; 0.0 for anything else.

    The format is `2020-02-01 08:20:49.944664515 +0000 UTC` or RFC 3339."""
    if not isinstance(value, str):
        return 0.0
    try:
        if match := _STAMP.match(value):
            whole_seconds = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
            return whole_seconds + (float(f"0.{match[2]}") if match[2] else 0.0)
        return parse_time(value)
    except (ValueError, BadInput):
        return 0.0
