"""Reads upstream's configuration file, which is git-config as Go's gcfg reads it.

configparser does not fit: it supports neither git's quotes and comments nor repeated sections, and
it gives `%` and `:` a meaning. An error never quotes a line: a value may be a script with a
password in it, and the lines of a script that was pasted unencoded look like keys.
"""

from __future__ import annotations

import re

import msgspec

from chalicelib.model.errors import BadInput

_HEADER = re.compile(
    r'\[[ \t]*([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:"((?:[^"\\]|\\.)*)")?[ \t]*\][ \t]*(?:[;#].*)?\Z'
)
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)[ \t]*(=|[;#]|\Z)")
_SUB_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"'}
_BLANKS = " \t"


class Entry(msgspec.Struct, frozen=True):
    """One `key = value`. key: in lower case; value None: the key has no `=`."""

    key: str
    value: str | None
    line: int


class Section(msgspec.Struct, frozen=True):
    """One header and its entries. name: in lower case; sub None: without a sub-section."""

    name: str
    sub: str | None
    line: int
    entries: list[Entry]


def parse_gcfg(text: str, place: str) -> tuple[Section, ...]:
    """Return the file's sections in order, without merging equal ones. Raises BadInput
    naming `place` and the line."""
    lines = _Lines(text.removeprefix("\ufeff"), place)
    sections: list[Section] = []
    while (line := lines.next()) is not None:
        _read_line(line, lines, sections)
    return tuple(sections)


def readable_sections(text: str) -> tuple[Section, ...]:
    """Return what `parse_gcfg` would, of a file that it may refuse: without the lines that have a
    mistake, and without the entries below a header that has one."""
    lines = _Lines(text.removeprefix("\ufeff"), "")
    sections: list[Section] = []
    in_section = False
    while True:
        try:
            line = lines.next()
            if line is None:
                return tuple(sections)
            is_header = line.lstrip(_BLANKS).startswith("[")
            if is_header:
                in_section = False
            if is_header or in_section:
                _read_line(line, lines, sections)
                in_section = True
        except BadInput:
            continue


def _read_line(line: str, lines: _Lines, sections: list[Section]) -> None:
    """Add what a line says to the sections before it. Raises BadInput."""
    written, number = line.lstrip(_BLANKS), lines.number
    if not written or written[0] in ";#":
        return
    if written[0] == "[":
        sections.append(_header(written, number, lines))
    elif not sections:
        remedy = 'begin with [Global] or [nodegroupdef "name"]'
        raise lines.bad(number, "is before the first section", remedy)
    else:
        sections[-1].entries.append(_entry(written, number, lines))


class _Lines:
    """An iterator over the lines, from which a value can take continuation lines."""

    def __init__(self, text: str, place: str) -> None:
        self._lines, self._place, self.number = text.split("\n"), place, 0

    def next(self) -> str | None:
        """Return the next line without its end; None at the end of the file."""
        if self.number == len(self._lines):
            return None
        self.number += 1
        line = self._lines[self.number - 1].replace("\r", "")
        if "\0" in line:
            raise self.bad(self.number, "contains a zero byte", "save the file as plain text")
        return line

    def bad(self, number: int, problem: str, remedy: str) -> BadInput:
        """Return the error for a line."""
        return BadInput(f"{self._place}: line {number}", problem, remedy)


def _header(line: str, number: int, lines: _Lines) -> Section:
    match = _HEADER.match(line)
    if (
        match is None
        or match[2] == ""
        or any(letter not in '\\"' for letter in _SUB_ESCAPE.findall(match[2] or ""))
    ):
        remedy = 'write [Global] or [nodegroupdef "name"] on a line of its own'
        raise lines.bad(number, "is not a section's header", remedy)
    sub = None if match[2] is None else _SUB_ESCAPE.sub(r"\1", match[2])
    return Section(match[1].lower(), sub, number, [])


def _entry(line: str, number: int, lines: _Lines) -> Entry:
    match = _KEY.match(line)
    if match is None:
        remedy = "write a value on one line, such as base64 without breaks"
        raise lines.bad(number, "is neither a section's header nor key=value", remedy)
    value = _value(line[match.end() :], number, lines) if match[2] == "=" else None
    return Entry(match[1].lower(), value, number)


def _value(rest: str, number: int, lines: _Lines) -> str:
    """Return the text after the `=`: unquoted, with escapes replaced, without a comment and
    surrounding blanks. A trailing backslash continues the value on the next line."""
    letters: list[str] = []
    # end: position after the last character that is not a surrounding blank
    end, quoted, at = 0, False, 0
    rest = rest.lstrip(_BLANKS)
    while True:
        if at == len(rest):
            if quoted:
                raise lines.bad(
                    number,
                    "has a quote that is not closed",
                    'close it with ", or write \\" for one',
                )
            return "".join(letters[:end])
        letter = rest[at]
        at += 1
        if letter == '"':
            quoted = not quoted
            end = len(letters)
        elif letter == "\\":
            if at == len(rest) and not quoted:
                rest, at = lines.next() or "", 0
                continue
            escape = rest[at : at + 1]
            if escape not in _ESCAPES:
                raise lines.bad(number, "contains an invalid escape", "write \\\\ for a backslash")
            letters.append(_ESCAPES[escape])
            at, end = at + 1, len(letters)
        elif not quoted and letter in ";#":
            at = len(rest)
        else:
            letters.append(letter)
            end = len(letters) if quoted or letter not in _BLANKS else end
