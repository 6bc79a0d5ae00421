"""Types of values: how each is read from text, written back, and described in a sentence.

A ValueType reads one node into a checked value, or reports a correction and returns UNSET; it never raises and never
guesses. The text of a scalar is taken literally (`off` is the word off, `012` is refused and not read as ten). The
rules of the values are upstream's (docs/reference/options.md "Value syntax"): Go durations, `<min>:<max>` totals,
numbers without signs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import format_duration, parse_duration
from chalicelib.policy.diagnostics import Diagnostics, Path, closest, quote
from chalicelib.policy.yaml_document import Mapping, Node, Scalar, Sequence

UNSET = msgspec.UNSET
LONGEST_DURATION = 20 * 365 * 86400.0
_LARGEST = 2**31 - 1
_LARGEST_GIB = 2**33 - 1  # still under 2^63 in bytes

Read = Callable[[Node, Path, Diagnostics], Any]


Form = dict[str, Any]
SCALAR: Form = {"type": ["string", "number", "boolean"]}


def plain_form() -> Form:
    """Return the JSON schema of a scalar of any type."""
    return SCALAR


class ValueType(msgspec.Struct, frozen=True):
    """One type of value. name: for the reference; read: node -> value or UNSET; show: value -> its YAML form; form: its
    JSON schema, which may accept more than `read`. A function, because commands alone need it."""

    name: str
    read: Read
    show: Callable[[Any], Any] = str
    form: Callable[[], Form] = plain_form


def scalar(parse: Callable[[str], Any], expected: str) -> Read:
    """Return a reader of one scalar. parse raises BadInput, whose place is ignored; expected: `a duration, such as
    10m`."""

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        if not isinstance(node, Scalar):
            what = "a list" if isinstance(node, Sequence) else "a mapping"
            diagnostics.problem(path, f"is {what}", f"write {expected}")
            return UNSET
        if node.is_null:
            diagnostics.problem(path, "has no value", f"write {expected}, or take the line out")
            return UNSET
        try:
            return parse(node.text)
        except BadInput as error:
            diagnostics.problem(path, error.problem, error.remedy)
            return UNSET

    return read


def wrong(text: str, expected: str) -> BadInput:
    """Report the usual refusal: the present value and what is expected."""
    return BadInput("", f"{quote(text)} is not {expected}", "")


# -- numbers, truth, time ------------------------------------------------------------------------------------------

_WHOLE = re.compile(r"(-?)(0|[1-9][0-9]{0,18})\Z")
_NUMBER = re.compile(r"(0|[1-9][0-9]{0,9})(\.[0-9]{1,12})?\Z")


def whole(least: int = 0, most: int = _LARGEST) -> ValueType:
    """A whole number in decimal digits, from least to most."""
    span = f"a whole number of {least} or more" if most == _LARGEST else f"a whole number from {least} to {most}"

    def parse(text: str) -> int:
        match = _WHOLE.match(text)
        if match is None:
            zeros = " without the leading zero" if re.match(r"0[0-9]+\Z", text) else ", in digits"
            raise BadInput("", f"{quote(text)} is not a whole number", f"write {span}{zeros}")
        if not least <= (value := int(text)) <= most:
            raise BadInput("", f"{text} is out of range", f"write {span}")
        return value

    bounds = {"minimum": least, "maximum": most}
    form = {"type": ["integer", "string"], **bounds, "pattern": "^-?(0|[1-9][0-9]{0,18})$"}
    return ValueType("number", scalar(parse, span), int, lambda: form)


def number(least: float, most: float, example: str) -> ValueType:
    """A decimal number, from least to most."""
    span = f"a number from {least:.12g} to {most:.12g}, such as {example}"

    def parse(text: str) -> float:
        if not _NUMBER.match(text):
            raise BadInput("", f"{quote(text)} is not a number", f"write {span}")
        if not least <= (value := float(text)) <= most:
            raise BadInput("", f"{text} is out of range", f"write {span}")
        return value

    form = {"type": ["number", "string"], "minimum": least, "maximum": most, "pattern": "^[0-9]+([.][0-9]+)?$"}
    return ValueType(
        "decimal", scalar(parse, span), lambda value: int(value) if value == int(value) else value, lambda: form
    )


def _boolean(text: str) -> bool:
    if text in {"true", "True", "TRUE"}:
        return True
    if text in {"false", "False", "FALSE"}:
        return False
    raise BadInput("", f"{quote(text)} is not true or false", "write true or false")


BOOLEAN = ValueType(
    "true or false",
    scalar(_boolean, "true or false"),
    bool,
    lambda: {"enum": [True, False, "true", "True", "TRUE", "false", "False", "FALSE"]},
)


def duration(least: float = 0.0, most: float = LONGEST_DURATION) -> ValueType:
    """A Go duration in seconds, from least to most."""
    limits = f" from {format_duration(least)} to {format_duration(most)}" if most < LONGEST_DURATION else ""

    def parse(text: str) -> float:
        value = parse_duration(text)
        if value < 0:
            raise BadInput("", f"{quote(text)} is negative", f"write a duration{limits or ' of 0 or more'}")
        if not least <= value <= most:
            allowed = limits or f" of at most {format_duration(most)}"
            raise BadInput("", f"{quote(text)} is out of range", f"write a duration{allowed}")
        return value

    return ValueType(
        "duration", scalar(parse, f"a duration{limits}, such as 10m or 1h30m"), _show_duration, lambda: _DURATION
    )


_DURATION: Form = {"anyOf": [{"const": 0}, {"type": "string", "pattern": "^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$"}]}


def _show_duration(seconds: float) -> str:
    """Return text that reads back to the same seconds: fractions below a millisecond stay decimal."""
    text = format_duration(seconds)
    return text if parse_duration(text) == seconds else f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


# -- words ---------------------------------------------------------------------------------------------------------


def text(expected: str, pattern: str = r"[^\x00-\x1f\x7f]{1,1024}", example: str = "") -> ValueType:
    """Text that matches a pattern. expected: `a label key, such as app`; example goes to the remedy."""
    form = re.compile(pattern + r"\Z")

    def parse(value: str) -> str:
        if not form.match(value):
            raise BadInput("", f"{quote(value)} is not {expected}", f"write {example}" if example else "")
        return value

    return ValueType(
        "text", scalar(parse, expected), str, lambda: {"type": ["string", "number"], "pattern": f"^(?:{pattern})$"}
    )


def choice(words: tuple[str, ...], make: Callable[[str], Any] = str, kind: str = "word") -> ValueType:
    """One word of a fixed list."""
    listed = _either(words)

    def parse(value: str) -> Any:
        if value not in words:
            near = closest(value, words)
            raise BadInput("", f"{quote(value)} is unknown", f"did you mean {near}?" if near else f"write {listed}")
        return make(value)

    return ValueType(kind, scalar(parse, listed), str, lambda: {"enum": list(words)})


def _either(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


_SECRET_NAME = re.compile(
    r"(ssm:/|arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:)?[A-Za-z0-9/_+=.@-]{1,512}\Z"
)


def _secret_name(value: str) -> str:
    if not _SECRET_NAME.match(value):
        # The text is not repeated, because authors may paste the secret itself here.
        raise BadInput(
            "",
            "is not the name of a secret",
            "write the name of a secret in Secrets Manager, not the secret itself, or ssm:/ and the name "
            "of a parameter of SSM",
        )
    return value


_TEXT: Form = {"type": "string"}
SECRET = ValueType("secret's name", scalar(_secret_name, "the name of a secret in Secrets Manager"), str, lambda: _TEXT)
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


# -- lists ---------------------------------------------------------------------------------------------------------


def listed(item_type: ValueType, *, commas: bool = True, name: str = "") -> ValueType:
    """A list of items; a single scalar is a list, too, split at commas as upstream's flags are (unless
    commas=False)."""

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        if isinstance(node, Scalar):
            if node.is_null:
                return ()
            parts = node.text.split(",") if commas else [node.text]
            items = [Scalar(part.strip(), node.plain and len(parts) == 1, node.line, node.column) for part in parts]
            values = [item_type.read(each, path, diagnostics) for each in items]
        elif isinstance(node, Sequence):
            values = [item_type.read(each, (*path, index), diagnostics) for index, each in enumerate(node.items)]
        else:
            diagnostics.problem(path, "is a mapping", "write a list: one line per entry, each after a dash")
            return UNSET
        return UNSET if any(value is UNSET for value in values) else tuple(values)

    return ValueType(
        name or f"list of {item_type.name}s",
        read,
        lambda values: [item_type.show(value) for value in values],
        lambda: list_form(item_type.form()),
    )


def list_form(item: Form) -> Form:
    """Return the JSON schema of a list that may also be one scalar."""
    return {"anyOf": [{"type": "array", "items": item}, {"type": ["string", "number", "null"]}]}


# -- totals --------------------------------------------------------------------------------------------------------

_TOTAL = re.compile(r"([0-9]{1,12}):([0-9]{1,12})\Z")


def total(unit: str, scale: int, default: tuple[int, int]) -> ValueType:
    """`<min>:<max>` as upstream writes it, or {min: …, max: …}; given in `unit`, stored multiplied by `scale`."""
    form = f"{default[0]}:{default[1]} (<min>:<max> in {unit}) or {{min: {default[0]}, max: {default[1]}}}"
    bound = whole(0, _LARGEST_GIB if scale > 1 else _LARGEST)

    def parse(value: str) -> tuple[int, int]:
        match = _TOTAL.match(value)
        if match is None:
            raise BadInput("", f"{quote(value)} is not <min>:<max>", f"write it like {form}")
        return int(match[1]), int(match[2])

    as_text = scalar(parse, f"it like {form}")

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        pair = (
            as_text(node, path, diagnostics)
            if not isinstance(node, Mapping)
            else _min_max(node, path, diagnostics, bound, default)
        )
        if pair is UNSET:
            return UNSET
        least, most = pair
        if least > most:
            diagnostics.problem(path, f"the minimum {least} is above the maximum {most}", f"write it like {form}")
            return UNSET
        if most > _LARGEST_GIB:
            diagnostics.problem(path, f"{most} {unit} is out of range", f"write it like {form}")
            return UNSET
        return least * scale, most * scale

    ends = {"min": bound.form(), "max": bound.form()}
    schema: Form = {
        "anyOf": [
            {"type": "string", "pattern": f"^(?:{_TOTAL.pattern[:-2]})$"},
            {"type": "object", "properties": ends, "additionalProperties": False},
        ]
    }
    return ValueType(f"min:max, {unit}", read, lambda pair: f"{pair[0] // scale}:{pair[1] // scale}", lambda: schema)


def _min_max(
    mapping: Mapping, path: Path, diagnostics: Diagnostics, bound_type: ValueType, default: tuple[int, int]
) -> Any:
    """Read {min, max}; missing values have their defaults."""
    found: dict[str, Any] = {"min": default[0], "max": default[1]}
    for key, value in mapping.entries:
        if key.text in found:
            found[key.text] = bound_type.read(value, (*path, key.text), diagnostics)
        else:
            diagnostics.problem((*path, key.text), "is unknown", "write min and max")
            return UNSET
    return UNSET if UNSET in found.values() else (found["min"], found["max"])
