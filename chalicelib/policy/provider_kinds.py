"""Kinds of values that settings of several providers share. They land as text, because that is what a provider gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import parse_amount
from chalicelib.policy.parsers import BOOLEAN, UNSET, Kind, Read, duration, scalar
from chalicelib.policy.report import Path, Report
from chalicelib.policy.yaml_marks import Node, Scalar, Sequence


def lines_of(item: Read) -> Read:
    """One value or a list of them, as one text with a line per value."""

    def read(node: Node, path: Path, report: Report) -> Any:
        if not isinstance(node, Sequence):
            return item(node, path, report)
        found = [item(each, (*path, index), report) for index, each in enumerate(node.items)]
        return UNSET if any(value is UNSET for value in found) else "\n".join(found)

    return read


def amount(resource: str, example: str) -> Kind:
    """A Kubernetes quantity of a resource, 0 or more, kept as it is written."""

    def parse(value: str) -> str:
        try:
            parse_amount(resource, value)
        except BadInput as error:
            raise BadInput("", error.problem, f"write it like {example}") from None
        return value

    return Kind("quantity", scalar(parse, f"a quantity, such as {example}"))


def as_text(kind: Kind, words: Callable[[Any], str] | None = None, show: Callable[[Any], Any] = str) -> Kind:
    """The same values as text, which is how settings reach a provider: as written, or (words) put otherwise."""

    def read(node: Node, path: Path, report: Report) -> Any:
        value = kind.read(node, path, report)
        if value is UNSET or not isinstance(node, Scalar):
            return UNSET
        return words(value) if words else node.text

    return Kind(kind.name, read, show)


YES_OR_NO = as_text(BOOLEAN, lambda value: "true" if value else "false", lambda value: value == "true")
DURATION_TEXT = as_text(duration())
