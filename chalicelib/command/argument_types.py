"""Types of command-line arguments that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import parse_duration

_DAY = 86400.0


def duration(least: float, most: float, limits: str, *, days: bool = False) -> Callable[[str], float]:
    """Return a type that reads a duration as seconds. least, most: seconds. limits: ends the message about any other
    text. days: whole days such as 7d are permitted, too."""

    def read(text: str) -> float:
        number = text.removesuffix("d")
        try:
            whole = days and number != text and number.isascii() and number.isdecimal()
            seconds = float(number) * _DAY if whole else parse_duration(text)
        except BadInput:
            seconds = -1.0
        if not least <= seconds <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a duration{limits}")
        return seconds

    return read
