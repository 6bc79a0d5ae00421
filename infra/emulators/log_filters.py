"""Metric filters of CloudWatch Logs on JSON lines, as far as the deployment's filters use their patterns.

A pattern is one condition or several in parentheses, joined by && or by ||: `$.field = "text"`, where the text may end
with `*`, or `$.field IS TRUE`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Line = Mapping[str, Any]
Matches = Callable[[Line], bool]

_EQUALS = re.compile(r'\$\.(\w+) = "([^"]*)"\Z')
_IS_TRUE = re.compile(r"\$\.(\w+) IS TRUE\Z")


class PatternError(Exception):
    """The pattern cannot be read; the message contains it."""


def matcher(pattern: str) -> Matches:
    """Return whether a line matches, as a function. Raises PatternError."""
    if not (pattern.startswith("{ ") and pattern.endswith(" }")):
        raise PatternError(pattern)
    text = pattern[2:-2]
    for word, joined in ((" && ", all), (" || ", any)):
        if word in text:
            terms = [_term(part.removeprefix("(").removesuffix(")")) for part in text.split(word)]
            return lambda line, terms=terms, joined=joined: joined(term(line) for term in terms)  # type: ignore[misc]
    return _term(text)


def metric_value(value: str, line: Line) -> float | None:
    """Return the value of a line that matches: a number, or the line's field `$.name`; None without a number there."""
    found = line.get(value[2:]) if value.startswith("$.") else float(value)
    return float(found) if isinstance(found, int | float) else None


def _term(text: str) -> Matches:
    if equals := _EQUALS.match(text):
        field, wanted = equals.groups()
        if wanted.endswith("*"):
            return lambda line: str(line.get(field, "")).startswith(wanted[:-1])
        return lambda line: line.get(field) == wanted
    if is_true := _IS_TRUE.match(text):
        return lambda line: line.get(is_true[1]) is True
    raise PatternError(text)
