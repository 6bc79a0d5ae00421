"""Makes text safe for terminals: one line, no control characters, width measured in columns.

Names come from clusters and files; an escape sequence in a pod's name must not reach a terminal.
"""

from __future__ import annotations

import os
import unicodedata
from typing import TextIO

_RED, _YELLOW, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[0m"


def has_colour(stream: TextIO) -> bool:
    """Return whether text on this stream may be coloured: a terminal, without NO_COLOR (https://no-color.org)."""
    return stream.isatty() and os.environ.get("TERM", "") not in {"dumb", ""} and not os.environ.get("NO_COLOR")


def as_error(text: str, stream: TextIO) -> str:
    """Return a line in red where the stream has colours."""
    return f"{_RED}{text}{_PLAIN}" if has_colour(stream) else text


def as_warning(text: str, stream: TextIO) -> str:
    """Return a line in yellow where the stream has colours."""
    return f"{_YELLOW}{text}{_PLAIN}" if has_colour(stream) else text


def printable(text: str) -> str:
    """Replace control and format characters (escapes, newlines, direction marks) by a visible character."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(each) in {"Cc", "Cf", "Cs"} else each for each in text
    )


def one_line(text: str) -> str:
    """Join several lines into one that is safe to print."""
    return printable(" ".join(text.split()))


def columns(text: str) -> int:
    """Return the width in columns: wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_width(each) for each in text)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
