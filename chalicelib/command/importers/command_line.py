"""Reads the words of a command line as pflag, the flag library of Cluster Autoscaler, reads them.

A policy would otherwise state what the author meant and not what ran: `--f false` is true for a boolean.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chalicelib.command.importers.autoscaler_input import Argument, Remark
from chalicelib.command.importers.flag_kinds import BOOLEANS, SHORT, flag_name
from chalicelib.command.importers.flag_table import KNOWN
from chalicelib.command.importers.report import Verdict
from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import quote

MOST_WORDS = 5_000
_GO_BOOLEANS = frozenset({"1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False"})


class Word(msgspec.Struct, frozen=True):
    """One word after quotes are taken off. place: `deploy.yaml:31`."""

    place: str
    text: str


class CommandLine(msgspec.Struct, frozen=True):
    """The flags, remarks on words that are not flags, and mistakes."""

    arguments: tuple[Argument, ...] = ()
    remarks: tuple[Remark, ...] = ()
    problems: tuple[BadInput, ...] = ()


def read_command_line(words: Sequence[Word]) -> CommandLine:
    """Read the words after the program's name."""
    reader = _Reader(words)
    if len(words) > MOST_WORDS:
        problem = BadInput(words[0].place, f"has more than {MOST_WORDS} words", "give the autoscaler's command alone")
        return CommandLine(problems=(problem,))
    while reader.at < len(words):
        reader.read(reader.next())
    return CommandLine(tuple(reader.arguments), tuple(reader.remarks), tuple(reader.problems))


class _Reader:
    """Goes through the words once."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words, self.at, self.ended = words, 0, False
        self.arguments: list[Argument] = []
        self.remarks: list[Remark] = []
        self.problems: list[BadInput] = []
        self.switch: Argument | None = None  # a boolean without a value, directly before this word

    def next(self) -> Word:
        """Return the next word."""
        self.at += 1
        return self.words[self.at - 1]

    def read(self, word: Word) -> None:
        """Read one word, and its value where that is the next word."""
        before, self.switch = self.switch, None
        text = word.text
        if self.ended or len(text) < 2 or not text.startswith("-"):
            self._stray(word, before)
        elif text == "--":
            self.ended = True
            self.remarks.append(Remark(word.place, text, Verdict.NO_EFFECT, "ends the flags"))
        elif text.startswith("--"):
            self._long(word)
        else:
            self._short(word)

    def _long(self, word: Word) -> None:
        written, equals, value = word.text[2:].partition("=")
        flag = flag_name(written)
        if not flag or flag.startswith("-"):
            self._problem(word, f"{quote(word.text)} is not a flag", "write it like --v=4")
        elif equals:
            self._add(word, flag, value)
        elif flag in BOOLEANS:
            self._add(word, flag, None)
            self.switch = self.arguments[-1]
        else:
            self._with_next(word, flag, needed=flag in KNOWN)

    def _short(self, word: Word) -> None:
        flag, rest = word.text[1], word.text[2:]
        if flag not in SHORT or (rest and not rest[0].isdigit() and rest[0] not in "=+-"):
            name = word.text.lstrip("-")
            hint = f"write -{word.text}" if flag_name(name.partition("=")[0]) in KNOWN else "write long flags with --"
            self._problem(
                word, f"{quote(word.text)} is a row of short flags, with which Cluster Autoscaler does not start", hint
            )
        elif rest:
            self._add(word, flag, rest.removeprefix("="))
        else:
            self._with_next(word, flag, needed=True)

    def _with_next(self, word: Word, flag: str, *, needed: bool) -> None:
        """Take the next word, whatever it is. A flag of no release takes it only if it is not a flag."""
        left = self.at < len(self.words)
        if left and (needed or not self.words[self.at].text.startswith("-")):
            value = self.next().text
            self.arguments.append(Argument(word.place, f"{word.text} {value}", flag, value))
        elif needed:
            self._problem(word, f"{quote(word.text)} needs a value and is the last word", f"write {word.text}=VALUE")
        else:
            self._add(word, flag, None)

    def _stray(self, word: Word, previous_argument: Argument | None) -> None:
        if previous_argument is None or word.text not in _GO_BOOLEANS:
            text = "a word without a flag, which Cluster Autoscaler passes over"
            self.remarks.append(Remark(word.place, quote(word.text), Verdict.NO_EFFECT, text))
            return
        text = (
            f"Cluster Autoscaler read this as true; write {previous_argument.word}={word.text} if {word.text} was meant"
        )
        self.arguments[-1] = msgspec.structs.replace(previous_argument, read_as=text)
        self.remarks.append(
            Remark(word.place, word.text, Verdict.TOLD, f"a word that {previous_argument.word} does not take")
        )

    def _add(self, word: Word, flag: str, value: str | None) -> None:
        self.arguments.append(Argument(word.place, word.text, flag, value))

    def _problem(self, word: Word, problem: str, remedy: str) -> None:
        self.problems.append(BadInput(word.place, problem, remedy))
