"""The only way of foreign text onto a page: visible, bounded, and then escaped by the template engine.

Names of pods, labels, errors of vendors and policies come from others. Control characters and those that change the
direction of writing are shown as their numbers, because they could hide or reorder what an operator reads.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

LONGEST = 500
"""Characters of one text."""

_SAFE = re.compile(r"[\x20-\x7e]*\Z")


def shown(value: object, longest: int = LONGEST) -> str:
    r"""Return the text as it may be shown: at most `longest` characters, then an ellipsis; control, format, surrogate
    and unassigned characters as \uXXXX."""
    text = str(value)
    short = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return short if _SAFE.match(short) else "".join(_visible(each) for each in short)


def finalized(value: Any) -> Any:
    """Return what a template prints for an expression: markup of the templates themselves stays, everything else is
    shown as text."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else shown(value)


def segment(name: str) -> str:
    """Return a name as one segment of a path: no character of it can end the segment."""
    return quote(name, safe="") if name not in (".", "..") else quote(name).replace(".", "%2E")


def _visible(character: str) -> str:
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return f"\\u{ord(character):04x}"
    return character
