"""Value types and keys shared by the settings of several providers.

Their values are text, because providers receive text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import parse_amount
from chalicelib.policy.diagnostics import Diagnostics, Path, quote
from chalicelib.policy.schema import Field
from chalicelib.policy.value_types import (
    BOOLEAN,
    UNSET,
    Form,
    Read,
    ValueType,
    duration,
    list_form,
    number,
    scalar,
)
from chalicelib.policy.yaml_document import Node, Scalar, Sequence

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def lines_of(item: Read) -> Read:
    """One value or a list of values, as one text with a line per value."""

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        if not isinstance(node, Sequence):
            return item(node, path, diagnostics)
        found = [item(each, (*path, index), diagnostics) for index, each in enumerate(node.items)]
        return UNSET if any(value is UNSET for value in found) else "\n".join(found)

    return read


def texts_form() -> Form:
    """Return the JSON schema of one text or several."""
    return list_form({"type": "string"})


def amount(resource: str, example: str) -> ValueType:
    """A Kubernetes quantity of a resource, 0 or more, stored as written."""

    def parse(value: str) -> str:
        try:
            parse_amount(resource, value)
        except BadInput as error:
            raise BadInput("", error.problem, f"write it like {example}") from None
        return value

    return ValueType("quantity", scalar(parse, f"a quantity, such as {example}"))


def as_text(
    value_type: ValueType, words: Callable[[Any], str] | None = None, show: Callable[[Any], Any] = str
) -> ValueType:
    """The same values as text, the form in which settings reach a provider: as written, or (words) converted."""

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        value = value_type.read(node, path, diagnostics)
        if value is UNSET or not isinstance(node, Scalar):
            return UNSET
        return words(value) if words else node.text

    return ValueType(value_type.name, read, show, value_type.form)


YES_OR_NO = as_text(BOOLEAN, lambda value: "true" if value else "false", lambda value: value == "true")
DURATION_TEXT = as_text(duration())
KUBELET_RESERVE = (
    Field(
        "reservedCpu",
        amount("cpu", "200m"),
        "reservedCpu",
        "What the kubelet of a new node keeps back of its cpu; learnt from real nodes otherwise.",
    ),
    Field("reservedMemory", amount("memory", "500Mi"), "reservedMemory", "The same for memory."),
    Field(
        "reservedEphemeralStorage",
        amount("ephemeral-storage", "1Gi"),
        "reservedEphemeralStorage",
        "The same for ephemeral storage.",
    ),
)
"""The settings for kubelet reservations of providers that learn them from real nodes."""


def calls_per_second(default: str, meaning: str) -> Field:
    """The setting for the rate of calls to a vendor."""
    kind = as_text(number(0.1, 1000, default))
    return Field("callsPerSecond", kind, "callsPerSecond", meaning, default=default)


def bounds_of(what: str, example: str, name: str = r"\S+\Z", misnamed: str = "") -> ValueType:
    """Lines of min:max:NAME, as upstream's --nodes. what: the word for the last part in messages; name: what it must
    match, otherwise it is `misnamed`."""
    form = f"write it like {example}"

    def parse(value: str) -> str:
        match = re.match(r"([+-]?[0-9]{1,9}):([+-]?[0-9]{1,9}):(\S+)\Z", value, re.ASCII)
        if match is None:
            raise BadInput("", f"{quote(value)} is not min:max:{what}", form)
        least, most = int(match[1]), int(match[2])
        if least < 0:
            raise BadInput("", f"the minimum {least} of {quote(value)} is negative", "write 0 or more")
        if most < least:
            raise BadInput("", f"the maximum {most} of {quote(value)} is below the minimum {least}", form)
        if not re.match(name, match[3]):
            raise BadInput("", f"{quote(match[3])} {misnamed}", form)
        return value

    return ValueType(f"list of min:max:{what}", lines_of(scalar(parse, f"it like {example}")), str.split, texts_form)


def https_address(example: str, *, path: bool) -> ValueType:
    """An address with TLS, or without TLS on this machine only. path: whether it may have one."""

    def parse(value: str) -> str:
        try:
            parts = urlsplit(value)
            plain = parts.scheme == "http" and parts.hostname in _LOOPBACK
            right = bool(parts.hostname) and (plain or parts.scheme == "https") and (path or parts.path in {"", "/"})
            right = right and not (parts.query or parts.fragment or "@" in parts.netloc) and parts.port != 0
            right = right and re.match(r"[\x21-\x5b\x5d-\x7e]+\Z", value) is not None
        except ValueError:
            right = False
        if not right:
            raise BadInput("", "is not an https address", f"write it like {example}")
        return value

    return ValueType("address", scalar(parse, "an https address"))
