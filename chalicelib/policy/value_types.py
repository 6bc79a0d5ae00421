"""Types of values: how each is read from text, written back, and described in a sentence.

A ValueType reads one node into a checked value, or reports a correction and returns UNSET; it never
raises and never guesses. The text of a scalar is taken literally (`off` is a word, `012` is
refused and not read as ten). The rules of the values are upstream's (docs/policy.md "How values are
read"): Go durations, `<min>:<max>` totals, numbers without signs. Patterns are compiled at their
first use, because functions load this module with the settings of their provider.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import msgspec

from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.quantity import format_duration, parse_amount, parse_duration
from chalicelib.policy.diagnostics import (
    Diagnostics,
    Mapping,
    Node,
    Path,
    Scalar,
    Sequence,
    closest,
    quote,
)

UNSET = msgspec.UNSET
LONGEST_DURATION = 20 * 365 * 86400.0
_LARGEST = 2**31 - 1
_LARGEST_GIB = 2**33 - 1  # still under 2^63 in bytes

Form = dict[str, Any]
Parser = Callable[[str], Any]
"""text -> value; raises BadInput without a place."""
Reader = Callable[[Node, Path, Diagnostics], Any]


def plain_form() -> Form:
    """Return the JSON schema of a scalar of any type."""
    return {"type": ["string", "number", "boolean"]}


def as_read(value: Any) -> Any:
    """Return a value that a policy has as it was read."""
    return value


class ValueType(msgspec.Struct, frozen=True):
    """One type of value.

    name: for the reference. read: node -> value, or UNSET. show: value -> its YAML form. form: its
    JSON schema, which may accept more than `read`; a function, because commands alone need it.
    parse: for scalars and settings. example: of a valid scalar, for the remedy where the key is
    missing. keeps_text: `read` gives, and `show` takes, the text of a setting as a policy keeps it.
    build: what `read` gave -> the value in a policy, once the whole document is valid.
    """

    name: str
    read: Reader
    show: Callable[[Any], Any] = str
    form: Callable[[], Form] = plain_form
    parse: Parser | None = None
    example: str = ""
    keeps_text: bool = False
    build: Callable[[Any], Any] = as_read


def scalar(
    name: str,
    parse: Parser,
    expected: str,
    show: Callable[[Any], Any] = str,
    form: Callable[[], Form] = plain_form,
    example: str = "",
) -> ValueType:
    """The type of a single text. expected: `a duration, such as 10m`."""

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        if not isinstance(node, Scalar):
            kind = "a list" if isinstance(node, Sequence) else "a mapping"
            diagnostics.problem(path, f"is {kind}", f"write {expected}")
            return UNSET
        if node.is_null:
            diagnostics.problem(path, "has no value", f"write {expected}, or take the line out")
            return UNSET
        try:
            return parse(node.text)
        except BadInput as error:
            diagnostics.problem(path, error.problem, error.remedy)
            return UNSET

    return ValueType(name, read, show, form, parse, example)


# -- numbers, truth, time --------------------------------------------------------------------------


def whole(least: int = 0, most: int = _LARGEST) -> ValueType:
    """A whole number in decimal digits, from least to most."""
    span = (
        f"a whole number of {least} or more"
        if most == _LARGEST
        else f"a whole number from {least} to {most}"
    )

    def parse(value: str) -> int:
        if re.fullmatch(r"-?(0|[1-9][0-9]{0,18})", value) is None:
            zeros = (
                " without the leading zero" if re.fullmatch(r"0[0-9]+", value) else ", in digits"
            )
            raise BadInput("", f"{quote(value)} is not a whole number", f"write {span}{zeros}")
        if not least <= int(value) <= most:
            raise BadInput("", f"{value} is out of range", f"write {span}")
        return int(value)

    bounds = {"minimum": least, "maximum": most}
    form = {"type": ["integer", "string"], **bounds, "pattern": "^-?(0|[1-9][0-9]{0,18})$"}
    return scalar("number", parse, span, int, lambda: form)


def number(least: float, most: float, example: str) -> ValueType:
    """A decimal number, from least to most."""
    span = f"a number from {least:.12g} to {most:.12g}, such as {example}"

    def parse(value: str) -> float:
        if re.fullmatch(r"(0|[1-9][0-9]{0,9})(\.[0-9]{1,12})?", value) is None:
            raise BadInput("", f"{quote(value)} is not a number", f"write {span}")
        if not least <= float(value) <= most:
            raise BadInput("", f"{value} is out of range", f"write {span}")
        return float(value)

    form = {
        "type": ["number", "string"],
        "minimum": least,
        "maximum": most,
        "pattern": "^[0-9]+([.][0-9]+)?$",
    }
    return scalar(
        "decimal",
        parse,
        span,
        lambda value: int(value) if value == int(value) else value,
        lambda: form,
    )


def show_number(value: float) -> float | int | str:
    """Return a number that reads back; a number that Python would write with an
    exponent becomes text in full."""
    if value == int(value):
        return int(value)
    return value if "e" not in repr(value) else f"{value:.12f}".rstrip("0")


def percent(least: int, most: int) -> ValueType:
    """A whole number of percent, with or without the sign."""
    span = f"a whole percentage from {least}% to {most}%"

    def parse(value: str) -> int:
        match = re.fullmatch(r"(0|[1-9][0-9]{0,8}) ?%?", value)
        if match is None:
            raise BadInput("", f"{quote(value)} is not a whole percentage", f"write {span}")
        if not least <= int(match[1]) <= most:
            raise BadInput("", f"{quote(value)} is out of range", f"write {span}")
        return int(match[1])

    return scalar("percentage", parse, span, lambda value: f"{value}%")


def share_of(kind: ValueType) -> ValueType:
    """The same percentages, kept as a share from 0 to 1."""

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        percentage = kind.read(node, path, diagnostics)
        return percentage if percentage is UNSET else percentage / 100

    return ValueType("percentage", read, lambda share: f"{round(share * 100)}%", kind.form)


_TRUE, _FALSE = ("true", "True", "TRUE", "on"), ("false", "False", "FALSE", "off")
_WORDS = dict.fromkeys(_TRUE, True) | dict.fromkeys(_FALSE, False)


def _parse_boolean(value: str) -> bool:
    if value not in _WORDS:
        raise BadInput("", f"{quote(value)} is not true or false", "write true or false")
    return _WORDS[value]


BOOLEAN = scalar(
    "true or false", _parse_boolean, "true or false", bool, lambda: {"enum": [True, False, *_WORDS]}
)


def duration(
    least: float = 0.0, most: float = LONGEST_DURATION, example: str = "10m or 1h30m"
) -> ValueType:
    """A Go duration in seconds, from least to most. example: for the remedy
    where there is no value."""
    limits = (
        f" from {format_duration(least)} to {format_duration(most)}"
        if most < LONGEST_DURATION
        else ""
    )

    def parse(value: str) -> float:
        try:
            seconds = parse_duration(value)
        except BadInput as error:
            if not re.fullmatch(r"[1-9][0-9]{0,4}d", value):
                raise
            hours = 24 * int(value[:-1])
            remedy = f"{error.remedy}; days are written in hours: {hours}h"
            raise BadInput(error.place, error.problem, remedy) from None
        if seconds < 0:
            raise BadInput(
                "", f"{quote(value)} is negative", f"write a duration{limits or ' of 0 or more'}"
            )
        if not least <= seconds <= most:
            allowed = limits or f" of at most {format_duration(most)}"
            raise BadInput("", f"{quote(value)} is out of range", f"write a duration{allowed}")
        return seconds

    form: Form = {
        "anyOf": [
            {"const": 0},
            {"type": "string", "pattern": "^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$"},
        ]
    }
    return scalar(
        "duration", parse, f"a duration{limits}, such as {example}", _show_duration, lambda: form
    )


def _show_duration(seconds: float) -> str:
    """Return text that reads back to the same seconds: fractions below a
    millisecond stay decimal."""
    value = format_duration(seconds)
    return (
        value
        if parse_duration(value) == seconds
        else f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"
    )


def amount(resource: str, example: str) -> ValueType:
    """A Kubernetes quantity of a resource, 0 or more."""

    def parse(value: str) -> int:
        try:
            return parse_amount(resource, value)
        except BadInput as error:
            raise BadInput("", error.problem, f"write it like {example}") from None

    return scalar("quantity", parse, f"a quantity, such as {example}")


# -- words -----------------------------------------------------------------------------------------


def text(
    expected: str, pattern: str = r"[^\x00-\x1f\x7f]{1,1024}", example: str = "", make: Parser = str
) -> ValueType:
    """Text that matches a pattern. expected: `a label key, such as app`;
    example goes to the remedy."""

    def parse(value: str) -> Any:
        if re.fullmatch(pattern, value) is None:
            raise BadInput(
                "", f"{quote(value)} is not {expected}", f"write {example}" if example else ""
            )
        return make(value)

    form = {"type": ["string", "number"], "pattern": f"^(?:{pattern})$"}
    return scalar(
        "text", parse, expected, str, lambda: form, example.removeprefix("something like ")
    )


def choice(words: tuple[str, ...], make: Parser = str, kind: str = "word") -> ValueType:
    """One word of a fixed list."""
    expected = _one_of(words)

    def parse(value: str) -> Any:
        if value not in words:
            near = closest(value, words)
            raise BadInput(
                "",
                f"{quote(value)} is unknown",
                f"did you mean {near}?" if near else f"write {expected}",
            )
        return make(value)

    return scalar(kind, parse, expected, str, lambda: {"enum": list(words)})


def member(enumeration: type[StrEnum]) -> ValueType:
    """One word of an enumeration."""
    words = tuple(word.value for word in enumeration)
    return choice(words, enumeration, _one_of(words))


def _one_of(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _parse_secret_name(value: str) -> str:
    arn = r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:"
    if re.fullmatch(rf"(ssm:/|{arn})?[A-Za-z0-9/_+=.@-]{{1,512}}", value) is None:
        # The text is not repeated, because authors may paste the secret itself here.
        raise BadInput(
            "",
            "is not the name of a secret",
            "write the name of a secret in Secrets Manager, not the secret itself, or ssm:/ and "
            "the name "
            "of a parameter of SSM",
        )
    return value


SECRET = scalar(
    "secret's name",
    _parse_secret_name,
    "the name of a secret in Secrets Manager",
    form=lambda: {"type": "string"},
)
DNS_LABEL = text(
    "a name of small letters, digits and inner dashes, at most 63",
    r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
    "something like prod-geneva",
)
OBJECT_NAME = text(
    "the name of a Kubernetes object",
    r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?",
    "something like cluster-autoscaler-status",
)
PLAIN_NAME = text("a name without spaces", r"[^\s\x00-\x1f\x7f]{1,256}")
FILE = text("a file's path")


def https_address(example: str, *, path: bool) -> ValueType:
    """An address with TLS, or without TLS on this machine only (for emulators), without a slash at
    its end. path: whether it may have one."""

    def parse(value: str) -> str:
        try:
            parts = urlsplit(value)
            loopback = parts.scheme == "http" and parts.hostname in {
                "localhost",
                "127.0.0.1",
                "::1",
            }
            valid = (
                bool(parts.hostname)
                and (loopback or parts.scheme == "https")
                and (path or parts.path in {"", "/"})
            )
            valid = (
                valid
                and not (parts.query or parts.fragment or "@" in parts.netloc)
                and parts.port != 0
            )
            # Characters that need no escape: an address is signed as it is written.
            valid = valid and re.fullmatch(r"[\x21-\x5b\x5d-\x7e]+", value) is not None
        except ValueError:
            valid = False
        if not valid:
            raise BadInput("", "is not an https address", f"write it like {example}")
        return value.rstrip("/")

    return scalar("address", parse, "an https address")


# -- lists -----------------------------------------------------------------------------------------


def listed(item_type: ValueType, *, commas: bool = True, name: str = "") -> ValueType:
    """A list of items; a single scalar is a list, too, split at commas as upstream's flags
    are (unless commas=False)."""

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        if isinstance(node, Scalar):
            if node.is_null:
                return ()
            parts = node.text.split(",") if commas else [node.text]
            items = [
                Scalar(part.strip(), node.plain and len(parts) == 1, node.line, node.column)
                for part in parts
            ]
            values = [item_type.read(item, path, diagnostics) for item in items]
        elif isinstance(node, Sequence):
            values = [
                item_type.read(item, (*path, index), diagnostics)
                for index, item in enumerate(node.items)
            ]
        else:
            diagnostics.problem(
                path, "is a mapping", "write a list: one line per entry, each after a dash"
            )
            return UNSET
        return UNSET if any(value is UNSET for value in values) else tuple(values)

    return ValueType(
        name or f"list of {item_type.name}s",
        read,
        lambda values: [item_type.show(value) for value in values],
        lambda: list_form(item_type.form()),
    )


def distinct(kind: ValueType, noun: str, empty: tuple[str, str]) -> ValueType:
    """The same lists, with at least one item and none twice. empty: problem and remedy of a list
    without items, because an empty one from a template must not mean all."""

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        items = kind.read(node, path, diagnostics)
        if items is UNSET:
            return UNSET
        if not items:
            diagnostics.problem(path, *empty)
            return UNSET
        twice = next((item for item in items if items.count(item) > 1), None)
        if twice is not None:
            diagnostics.problem(path, f"names {twice} twice", f"name each {noun} once")
            return UNSET
        return items

    return msgspec.structs.replace(kind, read=read)


def list_form(item: Form) -> Form:
    """Return the JSON schema of a list that may also be one scalar."""
    return {"anyOf": [{"type": "array", "items": item}, {"type": ["string", "number", "null"]}]}


def lines(
    name: str, parse: Parser, expected: str, split: Callable[[str], list[str]] = str.split
) -> ValueType:
    """A setting of one value or a list of values, kept as one text with a line per value.
    split: that text into values."""
    item_type = scalar(name, parse, expected)

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        if not isinstance(node, Sequence):
            return UNSET if item_type.read(node, path, diagnostics) is UNSET else scalar_text(node)
        values = [
            item_type.read(item, (*path, index), diagnostics)
            for index, item in enumerate(node.items)
        ]
        return (
            UNSET
            if any(value is UNSET for value in values)
            else "\n".join(map(scalar_text, node.items))
        )

    def parse_all(value: str) -> Any:
        values, mistakes = [], []
        for line in filter(None, map(str.strip, split(value))):
            try:
                values.append(parse(line))
            except BadInput as mistake:
                mistakes.append(mistake)
        if mistakes:
            raise InputErrors(tuple(mistakes))
        return tuple(values)

    return ValueType(
        name, read, str.split, lambda: list_form({"type": "string"}), parse_all, keeps_text=True
    )


def warn_of_no_value(kind: ValueType, effect: str) -> ValueType:
    """The same values, with a warning where the key stands there without any, which alone turns it
    on. effect: what it does then."""

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        if isinstance(node, Scalar) and node.is_null:
            diagnostics.warn(
                path, f"has no value and counts as {{}}: {effect}; take the line out, or write {{}}"
            )
        return kind.read(node, path, diagnostics)

    return msgspec.structs.replace(kind, read=read)


def scalar_text(node: Node) -> str:
    """Return the text of a scalar; empty for any other node."""
    return node.text if isinstance(node, Scalar) else ""


def bounds_of(
    noun: str, example: str, pattern: str = r"\S+", misnamed: str = "", make: Parser = str
) -> ValueType:
    """Lines of min:max:NAME, as upstream's --nodes; parsed into (min, max, name).

    Split at the first two colons, 0 <= min <= max. noun: the word for the last part in
    messages; pattern: what it must match, otherwise it is `misnamed`. make: the last part ->
    the name; raises BadInput.
    """
    remedy = f"write it like {example}"

    def parse(value: str) -> tuple[int, int, Any]:
        match = re.fullmatch(r"([+-]?[0-9]{1,9}):([+-]?[0-9]{1,9}):(\S+)", value)
        if match is None:
            raise BadInput("", f"{quote(value)} is not min:max:{noun}", remedy)
        least, most = int(match[1]), int(match[2])
        if least < 0:
            raise BadInput(
                "", f"the minimum {least} of {quote(value)} is negative", "write 0 or more"
            )
        if most < least:
            raise BadInput(
                "", f"the maximum {most} of {quote(value)} is below the minimum {least}", remedy
            )
        if re.fullmatch(pattern, match[3]) is None:
            raise BadInput("", f"{quote(match[3])} {misnamed}", remedy)
        return least, most, make(match[3])

    return lines(f"list of min:max:{noun}", parse, f"it like {example}", str.splitlines)


# -- totals ----------------------------------------------------------------------------------------

_TOTAL = r"([0-9]{1,12}):([0-9]{1,12})"


def total(unit: str, scale: int, default: tuple[int, int]) -> ValueType:
    """`<min>:<max>` as upstream writes it, or {min: …, max: …}; given in `unit`,
    stored multiplied by `scale`."""
    example = (
        f"{default[0]}:{default[1]} (<min>:<max> in {unit}) or {{min: {default[0]}, max: "
        f"{default[1]}}}"
    )
    bound = whole(0, _LARGEST_GIB if scale > 1 else _LARGEST)

    def parse(value: str) -> tuple[int, int]:
        match = re.fullmatch(_TOTAL, value)
        if match is None:
            raise BadInput("", f"{quote(value)} is not <min>:<max>", f"write it like {example}")
        return int(match[1]), int(match[2])

    of_text = scalar("", parse, f"it like {example}")

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        pair = (of_text.read if not isinstance(node, Mapping) else read_mapping)(
            node, path, diagnostics
        )
        if pair is UNSET:
            return UNSET
        least, most = pair
        if least > most:
            diagnostics.problem(
                path, f"the minimum {least} is above the maximum {most}", f"write it like {example}"
            )
            return UNSET
        if most > _LARGEST_GIB:
            diagnostics.problem(path, f"{most} {unit} is out of range", f"write it like {example}")
            return UNSET
        return least * scale, most * scale

    def read_mapping(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        ends: dict[str, Any] = {"min": default[0], "max": default[1]}
        for key, value in node.entries if isinstance(node, Mapping) else ():
            if key.text not in ends:
                diagnostics.problem((*path, key.text), "is unknown", "write min and max")
                return UNSET
            ends[key.text] = bound.read(value, (*path, key.text), diagnostics)
        return UNSET if UNSET in ends.values() else (ends["min"], ends["max"])

    def form() -> Form:
        ends = {"min": bound.form(), "max": bound.form()}
        of_mapping = {"type": "object", "properties": ends, "additionalProperties": False}
        return {"anyOf": [{"type": "string", "pattern": f"^(?:{_TOTAL})$"}, of_mapping]}

    return ValueType(
        f"min:max, {unit}", read, lambda pair: f"{pair[0] // scale}:{pair[1] // scale}", form
    )
