"""Splits a shell script into commands, each with the line of its words, without running anything.

It knows what appears around an autoscaler's command: quotes, continued lines, variables, assignments, pipes and
redirections. Command substitution stays as text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from chalicelib.command.importers.command_line import Word
from chalicelib.command.importers.public_values import is_secret_name

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_BLANKS_THEN_NEWLINE = re.compile(r"[^\S\n]*\n")
_BLANKS_OF_A_SHELL = frozenset(" \t\r")  # \r: of a file with Windows line ends
_OPERATORS = frozenset("|&;()<>")
_LONGEST_VALUE = 10_000
_MOST_REPLACED = 1_000_000  # characters of values in one script: a variable may hold another one many times
BLANKS = "a backslash with blanks after it ends the command in a shell; it is read as a continued line"
FOREIGN_BLANK = "separates no words in a shell; it is read as a blank"


class Command(msgspec.Struct, frozen=True):
    """One command. assigned: names and values before its first word. remarks: (place, characters, text) on how it was
    read."""

    words: tuple[Word, ...]
    assigned: tuple[tuple[str, Word], ...] = ()
    remarks: tuple[tuple[str, str, str], ...] = ()


def split_script(text: str, file: str, first_line: int, environment: Mapping[str, str]) -> list[Command]:
    """Return the commands of a script. first_line: the line of its first character, 0 where places have no line.

    environment: variables that are known; assignments of the script add to them. Unknown ones stay as text.
    """
    return _Splitter(text, file, first_line, environment).commands()


class _Splitter:
    def __init__(self, text: str, file: str, first_line: int, environment: Mapping[str, str]) -> None:
        self.text, self.file, self.line = text, file, first_line
        self.numbered = first_line > 0
        self.known = {name: value for name, value in environment.items() if not is_secret_name(name)}
        self.at = 0
        self.found: list[Command] = []
        self.words: list[Word] = []
        self.assigned: list[tuple[str, Word]] = []
        self.remarks: list[tuple[str, str, str]] = []
        self.left = _MOST_REPLACED
        self.foreign = False  # a remark says that the command has a blank that is none in a shell
        self.skip = False  # the next word is the file of a redirection

    def commands(self) -> list[Command]:
        """Read the whole text."""
        while self.at < len(self.text):
            start = self.at
            self._step(self.text[start])
            if self.at <= start:
                raise RuntimeError(f"the splitter of scripts stays at character {start}")
        self._end()
        return self.found

    def _step(self, char: str) -> None:
        """Pass over the part of the text that begins with this character."""
        if char == "\n":
            self._advance(1)
            self._end()
        elif _is_blank(char):
            self._blank(char)
        elif char == "\\" and self._continued():
            return
        elif char == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif char in _OPERATORS:
            self._operator()
        else:
            self._word()

    def _place(self) -> str:
        return f"{self.file}:{self.line}" if self.numbered else self.file

    def _advance(self, count: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count

    def _blank(self, char: str) -> None:
        """Pass over a blank, also one that a shell takes for a part of a word, such as a no-break space."""
        if char not in _BLANKS_OF_A_SHELL and not self.foreign:
            self.foreign = True
            self.remarks.append((self._place(), f"U+{ord(char):04X}", FOREIGN_BLANK))
        self._advance(1)

    def _continued(self) -> bool:
        """Pass over a continued line, also one whose backslash has blanks after it."""
        found = _BLANKS_THEN_NEWLINE.match(self.text, self.at + 1)
        if found is None:
            return False
        if found[0].strip("\r\n"):
            self.remarks.append((self._place(), "\\", BLANKS))
        self._advance(found.end() - self.at)
        return True

    def _operator(self) -> None:
        char = self.text[self.at]
        redirects = char in "<>" or self.text[self.at : self.at + 2] == "&>"
        while self.at < len(self.text) and self.text[self.at] in _OPERATORS:
            self._advance(1)
        if redirects:
            self.skip = True
        else:
            self._end()

    def _word(self) -> None:
        place, start = self._place(), self.at
        fields = self._fields()
        if self.at < len(self.text) and self.text[self.at] in "<>" and self.text[start : self.at].isdigit():
            return  # 2>&1: the number of a redirection
        if self.skip:
            self.skip = False
            return
        assigned = _ASSIGNMENT.match(self.text, start)
        if assigned and (not self.words or self.words[0].text in ("export", "env")):
            name, value = assigned[1], " ".join(fields)[assigned.end() - start :]
            if not is_secret_name(name):  # no flag of the report may repeat it
                self.known[name] = value[:_LONGEST_VALUE]
            self.assigned.append((name, Word(place, value)))
        else:
            self.words += [Word(place, field) for field in fields]

    def _fields(self) -> list[str]:
        """Return one word with quotes taken off and variables replaced; a value with blanks, without quotes, makes
        several words."""
        fields: list[str] = []
        pieces: list[str] = []
        quoted = False  # inside double quotes
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                quoted = not quoted
                self._advance(1)
            elif not quoted and (char == "\n" or _is_blank(char) or char in _OPERATORS):
                break
            elif char == "'" and not quoted:
                end = self.text.find("'", self.at + 1)
                end = len(self.text) if end < 0 else end
                pieces.append(self.text[self.at + 1 : end])
                self._advance(end + 1 - self.at)
            elif char == "\\":
                if not quoted and self._continued():
                    continue
                pieces.append(self._escaped(quoted=quoted))
            elif char == "$":
                begun = self.at
                value = self._variable()
                whole = quoted or value == self.text[begun : self.at]  # an unknown value is not split
                first, *rest = [value] if whole else re.split(r"\s+", value)
                pieces.append(first)
                for field in rest:
                    fields.append("".join(pieces))
                    pieces = [field]
            else:
                pieces.append(char)
                self._advance(1)
        return [*fields, "".join(pieces)]

    def _escaped(self, *, quoted: bool) -> str:
        following = self.text[self.at + 1 : self.at + 2]
        self._advance(2)
        if following == "\n":
            return ""
        return f"\\{following}" if quoted and following not in '"\\$`' else following

    def _variable(self) -> str:
        """Return the value of a variable, or its text where it is not known."""
        start = self.at
        braces = self.text.startswith("{", start + 1)
        if self.text.startswith("(", start + 1):  # a command substitution: its output is unknown
            end = self.text.find(")", start)
            self._advance((end + 1 if end > 0 else len(self.text)) - start)
            return self.text[start : self.at]
        name = _NAME.match(self.text, start + (2 if braces else 1))
        if name is None:
            self._advance(1)
            return "$"
        if not braces:
            self._advance(name.end() - start)
            return self._value(name[0], f"${name[0]}")
        end = self.text.find("}", name.end())
        end = len(self.text) - 1 if end < 0 else end
        rest = self.text[name.end() : end]
        self._advance(end + 1 - start)
        default = rest[2:] if rest[:2] in (":-", ":=") else None
        return self._value(name[0], self.text[start : self.at] if default is None else default)

    def _value(self, name: str, otherwise: str) -> str:
        value = self.known.get(name, otherwise)
        self.left -= len(value)
        return value if self.left > 0 else otherwise

    def _end(self) -> None:
        if self.words:
            self.found.append(Command(tuple(self.words), tuple(self.assigned), tuple(self.remarks)))
            self.assigned, self.remarks, self.foreign = [], [], False
        self.words, self.skip = [], False


def _is_blank(char: str) -> bool:
    """Return whether a character separates words. Every part of the splitter asks here, so that a character that ends a
    word is also passed over between words."""
    return char != "\n" and char.isspace()
