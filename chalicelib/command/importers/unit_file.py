"""Reads the autoscaler's configuration from a systemd unit, whose quotes and variables differ from a shell's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from chalicelib.command.importers.autoscaler_input import AutoscalerInput, Remark
from chalicelib.command.importers.command_input import input_of
from chalicelib.command.importers.command_line import Word
from chalicelib.command.importers.programs import invocations_of_words
from chalicelib.command.importers.public_values import is_secret_name
from chalicelib.command.importers.report import Verdict
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.diagnostics import quote

_UNIT = re.compile(r"^\[Service\][ \t]*\r?$", re.MULTILINE)
_START = re.compile(r"^[ \t]*ExecStart[ \t]*=", re.MULTILINE)
_SETTING = re.compile(r"[ \t]*([A-Za-z]+)[ \t]*=")
_PREFIXES = re.compile(r"[-@+!:|]*")
_VARIABLE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_SPECIFIER = re.compile(r"%(.)?", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "s": " "}
_HEX = re.compile(r"x([0-9a-fA-F]{2})")
_MOST_REPLACED = 1_000_000  # characters of values in one unit: a variable may hold another one many times


class _Line(msgspec.Struct, frozen=True):
    """A setting with its continued lines. number: of its first line."""

    number: int
    name: str
    value: str


def is_unit(text: str) -> bool:
    """Return whether the text is a unit that starts a service."""
    return _UNIT.search(text) is not None and _START.search(text) is not None


def environment_files(text: str) -> list[str]:
    """Return the paths that the unit names in EnvironmentFile."""
    return [line.value.strip().lstrip("-") for line in _lines(text) if line.name == "EnvironmentFile"]


def read_unit(
    file: str, text: str, others: Mapping[str, str], given: Mapping[str, str], image_version: str
) -> AutoscalerInput | None:
    """Return the configuration of the unit, None where it starts another program.

    others: texts of the files that EnvironmentFile names, by name. Raises InputErrors with all mistakes.
    """
    assigned: dict[str, Word] = {}
    remarks: list[Remark] = []
    starts: list[_Line] = []
    problems: list[BadInput] = []
    for line in _lines(text):
        if line.name == "Environment":
            for word in _words(line, file, problems):
                name, equals, value = word.text.partition("=")
                if equals:
                    assigned[name] = Word(word.place, value)
        elif line.name == "EnvironmentFile":
            _read_environment_file(line, file, others, assigned, remarks)
        elif line.name == "ExecStart":
            starts = [*starts, line] if line.value.strip() else []
    values = {name: word.text for name, word in assigned.items()} | dict(given)
    known = {name: value for name, value in values.items() if not is_secret_name(name)}
    replace = _Replacement(known)
    for start in starts:
        words = [
            Word(word.place, field)
            for word in _command_words(start, file, problems)
            for field in replace.fields(word.text)
        ]
        found = invocations_of_words(words, file, known)
        if found:
            if problems:
                raise InputErrors(tuple(problems))
            return input_of(found[0], "unit file", given, image_version, assigned.items(), remarks)
    return None


def _lines(text: str) -> Iterator[_Line]:
    """Join continued lines; comments between them do not end them."""
    number, begun = 0, ""
    for at, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("#", ";")):
            if begun:
                begun += "\n"
            continue
        if not begun:
            number = at
        if line.endswith("\\"):
            begun += line[:-1] + "\n"
            continue
        whole, begun = begun + line, ""
        found = _SETTING.match(whole)
        if found is not None:
            yield _Line(number, found[1], whole[found.end() :])


def _command_words(line: _Line, file: str, problems: list[BadInput]) -> list[Word]:
    """Return the words of ExecStart without the characters that change how it is run; `@` gives a name for argv[0]."""
    words = _words(line, file, problems)
    if not words:
        return []
    prefix = _PREFIXES.match(words[0].text)
    taken = prefix[0] if prefix else ""
    first = Word(words[0].place, words[0].text[len(taken) :])
    return [first, *(words[2:] if "@" in taken else words[1:])]


def _words(line: _Line, file: str, problems: list[BadInput]) -> list[Word]:
    """Split a value as systemd does, with specifiers such as %i refused: their value is not in the file."""
    words: list[Word] = []
    pieces: list[str] | None = None
    quoted, at, number = "", 0, line.number
    text = line.value
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\n":
            number += 1
        if not quoted and char.isspace():
            if pieces is not None:
                words.append(_word(file, number - (char == "\n"), "".join(pieces), problems))
            pieces = None
            continue
        pieces = [] if pieces is None else pieces
        if char == quoted:
            quoted = ""
        elif not quoted and char in "\"'":
            quoted = char
        elif char == "\\" and at < len(text):
            piece, at = _escape(text, at)
            pieces.append(piece)
        else:
            pieces.append(char)
    if pieces is not None:
        words.append(_word(file, number, "".join(pieces), problems))
    return words


def _escape(text: str, at: int) -> tuple[str, int]:
    if found := _HEX.match(text, at):
        return chr(int(found[1], 16)), found.end()
    return _ESCAPES.get(text[at], text[at]), at + 1


def _word(file: str, number: int, text: str, problems: list[BadInput]) -> Word:
    place = f"{file}:{number}"
    for found in _SPECIFIER.finditer(text):
        if found[1] != "%":
            problems.append(
                BadInput(place, f"{quote(text)} has the specifier {quote(found[0])}", "write its value instead")
            )
            break
    return Word(place, text.replace("%%", "%"))


class _Replacement:
    """Replaces variables in the words of a unit. known: values by name."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known, self._left = known, _MOST_REPLACED

    def fields(self, text: str) -> list[str]:
        """Return the words of a word. `$NAME` as a word of its own is split at blanks; unknown ones stay as text."""
        if text.startswith("$") and text[1:] in self._known:
            return self._value(text[1:], text).split()
        return [_VARIABLE.sub(self._replaced, text)]

    def _replaced(self, found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else self._value(found[1] or found[2], found[0])

    def _value(self, name: str, otherwise: str) -> str:
        value = self._known.get(name, otherwise)
        self._left -= len(value)
        return value if self._left > 0 else otherwise


def _read_environment_file(
    line: _Line, file: str, others: Mapping[str, str], assigned: dict[str, Word], remarks: list[Remark]
) -> None:
    path = line.value.strip().lstrip("-")
    name = next((each for each in others if each.rsplit("/", 1)[-1] == path.rsplit("/", 1)[-1]), "")
    place = f"{file}:{line.number}"
    if not name:
        text = "is not among the files; its variables are unknown: name it, too, or give --env NAME=VALUE"
        remarks.append(Remark(place, f"EnvironmentFile={path}", Verdict.TOLD, text))
        return
    remarks.append(Remark(place, f"EnvironmentFile={path}", Verdict.READ, name))
    for number, written in enumerate(others[name].splitlines(), 1):
        key, equals, value = written.strip().partition("=")
        if equals and not key.startswith(("#", ";")):
            value = value.strip()
            bare = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
            assigned[key.strip()] = Word(f"{name}:{number}", bare)
