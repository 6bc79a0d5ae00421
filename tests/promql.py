"""A small reader of PromQL expressions: their selectors, functions and parentheses; no values.

promtool parses expressions fully, but is not installed everywhere. This reader finds what most
often breaks: a metric or label that does not exist, an unclosed parenthesis, a misspelt function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FUNCTIONS = {
    *(
        "time",
        "absent",
        "rate",
        "increase",
        "min_over_time",
        "max_over_time",
        "clamp_min",
        "clamp_max",
        "timestamp",
    ),
    *(
        "histogram_quantile",
        "label_values",
        "changes",
        "vector",
        "scalar",
        "sum",
        "max",
        "min",
        "avg",
        "count",
        "topk",
    ),
}
_WORDS = {
    "by",
    "without",
    "on",
    "ignoring",
    "and",
    "or",
    "unless",
    "bool",
    "group_left",
    "group_right",
    "offset",
}
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_TOKEN = re.compile(
    r"""\s*(?:(?P<range>\[[^\]]*\])|(?P<text>"[^"]*")|(?P<number>\d+(?:\.\d+)?(?:e\d+)?)
    |(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)|(?P<mark>=~|!~|==|!=|>=|<=|[-+*/%^(){},=<>]))""",
    re.VERBOSE,
)
_PAIRS = {")": "(", "}": "{"}


class NotPromQL(Exception):
    """The expression cannot be read; the message says why."""


class Selector(NamedTuple):
    """A metric with the labels that it is selected by: label -> (operator, value).
    labels_used: by groupings."""

    metric: str
    labels: dict[str, tuple[str, str]]


class PromQuery(NamedTuple):
    """selectors: in order. grouped: labels that the expression groups or joins by."""

    selectors: tuple[Selector, ...]
    grouped: frozenset[str]


def read(text: str) -> PromQuery:
    """Reads an expression. Raises NotPromQL."""
    tokens = list(_tokens(text))
    _check_pairs(tokens, text)
    selectors, grouped, at = [], set[str](), 0
    while at < len(tokens):
        kind, word = tokens[at]
        after = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        at += 1
        if kind != "name":
            continue
        if word in _GROUPING:
            if after != "(" and not word.startswith("group_"):
                raise NotPromQL(f"{text}: {word} without labels")
            while after == "(" and tokens[at][1] != ")":
                at += 1
                if tokens[at][0] == "name":
                    grouped.add(tokens[at][1])
        elif word in _WORDS:
            continue
        elif after == "(" or after in _GROUPING:
            if word not in _FUNCTIONS:
                raise NotPromQL(f"{text}: unknown function {word}")
        else:
            labels: dict[str, tuple[str, str]] = {}
            if after == "{":
                at = _labels(tokens, at + 1, labels, text)
            selectors.append(Selector(word, labels))
    if not selectors:
        raise NotPromQL(f"{text}: no metric")
    return PromQuery(tuple(selectors), frozenset(grouped))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise NotPromQL(f"{text}: cannot be read from {text[at:]}")
        yield str(found.lastgroup), found[0].strip()
        at = found.end()


def _check_pairs(tokens: list[tuple[str, str]], text: str) -> None:
    open_marks: list[str] = []
    for kind, word in tokens:
        if kind == "mark" and word in "({":
            open_marks.append(word)
        elif (
            kind == "mark"
            and word in _PAIRS
            and (not open_marks or open_marks.pop() != _PAIRS[word])
        ):
            raise NotPromQL(f"{text}: {word} closes nothing")
    if open_marks:
        raise NotPromQL(f"{text}: {open_marks[-1]} is not closed")


def _labels(
    tokens: list[tuple[str, str]], at: int, labels: dict[str, tuple[str, str]], text: str
) -> int:
    while tokens[at][1] != "}":
        try:
            (kind, label), (_, operation), (of, value) = tokens[at : at + 3]
        except ValueError:
            raise NotPromQL(f"{text}: a label without a value") from None
        if kind != "name" or of != "text" or operation not in ("=", "!=", "=~", "!~"):
            raise NotPromQL(f"{text}: {label}{operation}{value} is no label")
        labels[label] = (operation, value.strip('"'))
        at += 3
        if tokens[at][1] == ",":
            at += 1
    return at + 1
