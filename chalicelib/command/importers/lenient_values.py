"""Leniently reads values of other programs' settings: JSON and YAML as people and consoles write them, including quoted
numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import parse_duration
from chalicelib.policy.diagnostics import quote

Read = Callable[[Any], Any]
_LARGEST = 2**31 - 1
_LONGEST = 20 * 365 * 86400.0


def refused(value: Any, expected: str) -> BadInput:
    """Return the error for an invalid value; its text is truncated, and omitted where it is not a plain value."""
    shown = quote(str(value)) if isinstance(value, str | int | float | bool) and len(str(value)[:99]) < 99 else "it"
    return BadInput("", f"{shown} is not {expected}")


def number(value: Any, expected: str) -> float:
    """Parse a finite number, also from text; raises BadInput."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise refused(value, expected)
    try:
        found = float(value)
    except (ValueError, OverflowError):
        raise refused(value, expected) from None
    if not math.isfinite(found) or (isinstance(value, str) and "_" in value):
        raise refused(value, expected)
    return found


def whole(least: int, most: int = _LARGEST) -> Read:
    """Parse a whole number from least to most."""
    expected = f"a whole number from {least} to {most}"

    def read(value: Any) -> int:
        found = number(value, expected)
        if found != int(found) or not least <= found <= most:
            raise refused(value, expected)
        return int(found)

    return read


def boolean(value: Any) -> bool:
    """Parse true or false, also from text."""
    words = {"true": True, "false": False}
    found = value if isinstance(value, bool) else words.get(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise refused(value, "true or false")
    return found


def share(value: Any) -> float:
    """Parse a number from 0 to 1."""
    found = number(value, "a number from 0 to 1")
    if not 0 <= found <= 1:
        raise refused(value, "a number from 0 to 1")
    return round(found, 12)


def percent(value: Any) -> int:
    """Convert a fraction above 0 and up to 1 to whole percent, rounded up, so that a rule never acts earlier than
    before."""
    found = math.ceil(round(share(value) * 100, 6))
    if not found:
        raise refused(value, "a number above 0, up to 1")
    return found


def span(unit: float) -> Read:
    """Convert a number of units (60.0: minutes) to seconds; a Go duration is accepted, too."""
    expected = "a time, such as 10"

    def read(value: Any) -> float:
        seconds = _go_duration(value)
        if seconds is None:
            seconds = number(value, expected) * unit
        if not 0 <= seconds <= _LONGEST:
            raise refused(value, expected)
        return seconds

    return read


def go_duration(value: Any) -> float:
    """Parse a Go duration as seconds; a number without a unit is refused."""
    seconds = _go_duration(value)
    if seconds is None:
        raise BadInput("", "is a number whose unit is not documented")
    if not 0 <= seconds <= _LONGEST:
        raise refused(value, "a time, such as 10m")
    return seconds


def _go_duration(value: Any) -> float | None:
    try:
        return parse_duration(value) if isinstance(value, str) else None
    except BadInput:
        return None
