"""Converts between seconds since 1970 (float) and text; text is used only in input and output.
`now` is always a parameter: no code here reads a clock."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import lru_cache

from chalicelib.model.errors import BadInput

_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)\Z", re.ASCII
)
# the years 1 to 9999 in UTC, the range that can be written
_EARLIEST, _LATEST = -62_135_596_800, 253_402_300_799
_SHOWN = 40


@lru_cache(maxsize=16384)
def parse_time(text: str) -> float:
    """Parse `2026-11-21T07:20:54Z` -> 1795245654.0; raises BadInput for anything
    but RFC 3339 with a zone."""
    if _RFC3339.match(text):
        try:
            instant = datetime.fromisoformat(text.upper()).timestamp()
        except (ValueError, OverflowError):
            instant = math.nan
        if _EARLIEST <= instant <= _LATEST:
            return instant
    raise BadInput(
        "time",
        f"{text[:_SHOWN]!r} is not a time",
        "write RFC 3339 with a zone: 2026-11-21T07:20:54Z",
    )


def instant(text: str) -> float:
    """Parse a time leniently: 0.0 for an invalid one or one before 1970."""
    try:
        return max(0.0, parse_time(text.strip()))
    except BadInput:
        return 0.0


def format_time(instant: float) -> str:
    """Format as RFC 3339 in UTC, whole seconds (rounded down, so that a printed time is never in
    the future). Times outside the years 1 to 9999 are written as the nearest valid instant."""
    return _written(int(max(_EARLIEST, min(instant, _LATEST)) // 1))


@lru_cache(maxsize=16384)
def _written(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat() + "Z"
