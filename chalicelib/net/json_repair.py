"""Repairs JSON in which one value would make a strict decoder refuse the whole document,
with all its other objects.

Such values are an unpaired surrogate, bytes that are not UTF-8, a number that no machine number can
represent, and endlessly nested values. Each is replaced by a text, so that only the object that
contains it cannot be decoded. A truncated document or one that is not JSON is returned as it is,
and so is one too large to be repaired in a few seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

_DEEPEST = 100  # levels; no API used here has twenty
_MOST_TOKENS = 1_000_000  # bytes of a document to repair, some seconds; 500 pods take half
_LONGEST_NUMBER = 40  # characters; 2**64 has 20 digits
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[\]{}]|-?[0-9][0-9.eE+-]*|[^"\[\]{}0-9-]+|-', re.DOTALL
)
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL
)
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)


def read_json(body: bytes, shape: Callable[[Any], Any] = lambda document: document) -> Any:
    """Return the document as `shape` converts it; `shape` may recurse into all its levels. Raises
    msgspec.DecodeError for text that is not JSON, and what `shape` raises."""
    try:
        return shape(msgspec.json.decode(body))
    except _UNREADABLE:
        return shape(decode_repaired(body, object))


def decode_repaired(body: bytes, kind: Any) -> Any:
    """Repair a document that could not be decoded, and decode it as that type. Raises
    msgspec.DecodeError and nothing else."""
    try:
        return msgspec.json.decode(repaired(body), type=kind)
    except (UnicodeError, RecursionError):
        raise msgspec.DecodeError("the document cannot be read") from None


def repaired(body: bytes) -> bytes:
    """Return the document with a text in place of each value that no decoder accepts;
    unchanged if it is too large."""
    out: list[str] = []
    depth = 0
    for number, match in enumerate(_TOKEN.finditer(body.decode("utf-8", "replace"))):
        if number > _MOST_TOKENS:
            return body
        token = match[0]
        opens, closes = token in ("[", "{"), token in ("]", "}")
        depth -= closes
        if depth < _DEEPEST or (depth == _DEEPEST and not opens and not closes):
            out.append(_token(token))
        elif opens and depth == _DEEPEST:
            out.append('"nested too deeply"')
        depth += opens
    return "".join(out).encode()


def _token(token: str) -> str:
    if token[0] == '"':
        return _ESCAPE.sub(_escape, token) if "\\u" in token else token
    if token[0] == "-" or token[0] in "0123456789":
        return token if _is_machine_number(token) else f'"{token[:_LONGEST_NUMBER]}"'
    return token


def _escape(match: re.Match[str]) -> str:
    """Replace an unpaired surrogate by U+FFFD; keep every other escape."""
    text = match[0]
    half = len(text) == 6 and text[2] in "dD" and text[3] not in "01234567"
    return "\\ufffd" if half else text


def _is_machine_number(token: str) -> bool:
    """Return whether a decoder can represent it; true for text that is not a number, which
    the decoder refuses itself."""
    if len(token) > _LONGEST_NUMBER:
        return False
    try:
        return math.isfinite(float(token))
    except ValueError:
        return True
