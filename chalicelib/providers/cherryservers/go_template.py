"""The subset of Go's text templates that the two templates of a pool need: substitution of fields.

A complete template language would let a policy compute text that runs as root on a new server. Fields, trim markers,
comments and string literals (for a literal `{{`) are enough; every other action is refused when the definitions are
read. Works on bytes, because a cloud-init may be anything, including a gzip file, and must stay unchanged.

An error never quotes a template, because scripts may contain passwords; it may name fields.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec

from chalicelib.model.errors import BadInput

_BLANKS = b" \t\r\n"
_COMMENT = re.compile(rb"(?:-[ \t\r\n])?/\*")
_END = re.compile(rb"([ \t\r\n]-)?\}\}")  # immediately, or after a trim marker
_ACTION = re.compile(
    rb"(?P<trim>-[ \t\r\n])?[ \t\r\n]*"
    rb'(?:\.(?P<field>[A-Za-z_][A-Za-z0-9_]*)|"(?P<text>(?:[^"\\\n]|\\.)*)"|`(?P<raw>[^`]*)`)'
    rb"(?:[ \t\r\n]*?(?P<trimmed>[ \t\r\n]-)|[ \t\r\n]*)\}\}",
    re.DOTALL,
)
_ESCAPE = re.compile(rb'\\(?:([abfnrtv\\"])|([0-3][0-7]{2})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|)')
_LETTERS = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"\\": b"\\",
    b'"': b'"',
}
_LONGEST_NAME = 40
_REMEDY = 'only {{.Field}} is filled in; write {{"{{"}} for two braces that are meant'


class Hole(msgspec.Struct, frozen=True):
    """The place of a field's value."""

    field: str


class GoTemplate(msgspec.Struct, frozen=True):
    """A parsed template."""

    parts: tuple[bytes | Hole, ...]

    @property
    def fields(self) -> frozenset[str]:
        """The fields that the template uses."""
        return frozenset(part.field for part in self.parts if isinstance(part, Hole))

    def fill(self, values: Mapping[str, str]) -> bytes:
        """Return the text with the fields' values; values must contain all of `fields`."""
        return b"".join(values[part.field].encode() if isinstance(part, Hole) else part for part in self.parts)


def parse(source: bytes, fields: Collection[str], place: str) -> GoTemplate:
    """Parse a template. fields: the permitted ones. Raises BadInput with place, line and column (of the `{{`)."""
    parts: list[bytes | Hole] = []
    at, trimming = 0, False
    while True:
        start = source.find(b"{{", at)
        text = source[at:] if start < 0 else source[at:start]
        text = text.lstrip(_BLANKS) if trimming else text
        if start < 0:
            return GoTemplate((*parts, text) if text else tuple(parts))
        try:
            trims_before, part, at, trimming = _action(source, start + 2, fields)
        except BadInput as mistake:
            raise BadInput(f"{place}: {_position(source, start)}", mistake.problem, mistake.remedy) from None
        text = text.rstrip(_BLANKS) if trims_before else text
        parts.extend(each for each in (text, part) if each)


def _action(source: bytes, at: int, fields: Collection[str]) -> tuple[bool, bytes | Hole, int, bool]:
    """Return whether the text before is trimmed, the action's content, its end, and whether the text after is
    trimmed."""
    if comment := _COMMENT.match(source, at):
        end = _END.match(source, closed + 2) if (closed := source.find(b"*/", comment.end())) >= 0 else None
        if end is None:
            raise BadInput("", "a comment does not end with */}}", "write {{/* … */}}")
        return source[at : at + 1] == b"-", b"", end.end(), end[1] is not None
    found = _ACTION.match(source, at)
    if found is None:
        unclosed = source.find(b"}}", at) < 0
        raise BadInput("", "{{ is not closed by }}" if unclosed else "an action that is not supported here", _REMEDY)
    part: bytes | Hole
    if found["field"] is not None:
        part = _hole(found["field"].decode(), fields)
    else:
        part = found["raw"].replace(b"\r", b"") if found["text"] is None else _unquoted(found["text"])
    return found["trim"] is not None, part, found.end(), found["trimmed"] is not None


def _hole(name: str, fields: Collection[str]) -> Hole:
    if name not in fields:
        shown = name if len(name) <= _LONGEST_NAME else "of that name"
        raise BadInput("", f"there is no field {shown}", f"the fields are {', '.join(fields)}")
    return Hole(name)


def _unquoted(text: bytes) -> bytes:
    """Return the value of a Go string literal."""

    def replace(match: re.Match[bytes]) -> bytes:
        letter, octal, byte, short, long = match.groups()
        if letter:
            return _LETTERS[letter]
        if octal or byte:
            return bytes((int(octal, 8) if octal else int(byte, 16),))
        try:
            return chr(int(short or long or b"", 16)).encode()
        except (ValueError, OverflowError):  # not a Go escape, half a surrogate pair, or beyond Unicode
            raise BadInput("", "a string has an escape that Go does not know", _REMEDY) from None

    return _ESCAPE.sub(replace, text)


def _position(source: bytes, at: int) -> str:
    line, column = source.count(b"\n", 0, at) + 1, at - source.rfind(b"\n", 0, at)
    return f"line {line}, column {column}"
