"""Reads the words of a command line as pflag, the flag library of Cluster Autoscaler, reads them.

A policy would otherwise state what the author meant and not what ran: `--f false` is true for a
boolean. Words that an example's author left for the reader to fill in, such as `[ASG_ID]` or
`${CLUSTER_NAME}`, are mistakes; all are reported at once, because an example has several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chalicelib.cli.migrate.autoscaler_input import Argument, Remark, Variable
from chalicelib.cli.migrate.flag_table import BOOLEANS, KNOWN, PATHS, SHORT, flag_name
from chalicelib.cli.migrate.public_values import is_public_name, is_secret_name
from chalicelib.cli.migrate.report import MOST_PROBLEMS, Verdict
from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import quote

MOST_WORDS = 5_000
_GO_BOOLEANS = frozenset(
    {"1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False"}
)


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
    if len(words) > MOST_WORDS:
        problem = BadInput(
            words[0].place,
            f"has more than {MOST_WORDS} words",
            "give the autoscaler's command alone",
        )
        return CommandLine(problems=(problem,))
    reader = _Reader(words)
    while reader.at < len(words):
        reader.read_word()
    return CommandLine(tuple(reader.arguments), tuple(reader.remarks), tuple(reader.problems))


class _Reader:
    """Goes through the words once. at: index of the next word."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words, self.at, self.flags_ended = words, 0, False
        self.arguments: list[Argument] = []
        self.remarks: list[Remark] = []
        self.problems: list[BadInput] = []
        self.switch: Argument | None = None  # a boolean without a value, directly before this word

    def read_word(self) -> None:
        """Read one word, and its value where that is the next word."""
        word, previous_switch = self.words[self.at], self.switch
        self.at, self.switch = self.at + 1, None
        text = word.text
        if self.flags_ended or len(text) < 2 or not text.startswith("-"):
            self._stray(word, previous_switch)
        elif text == "--":
            self.flags_ended = True
            self.remarks.append(Remark(word.place, text, Verdict.NO_EFFECT, "ends the flags"))
        elif text.startswith("--"):
            self._long(word)
        else:
            self._short(word)

    def _long(self, word: Word) -> None:
        name, equals, value = word.text[2:].partition("=")
        flag = flag_name(name)
        if not flag or flag.startswith("-"):
            self._problem(word, f"{quote(word.text)} is not a flag", "write it like --v=4")
        elif equals:
            self._add(word, flag, value)
        elif flag in BOOLEANS:
            self._add(word, flag, None)
            self.switch = self.arguments[-1]
        else:
            self._with_next_word(word, flag, needed=flag in KNOWN)

    def _short(self, word: Word) -> None:
        flag, value = word.text[1], word.text[2:]
        if flag not in SHORT or (value and not value[0].isdigit() and value[0] not in "=+-"):
            name = flag_name(word.text.lstrip("-").partition("=")[0])
            remedy = f"write -{word.text}" if name in KNOWN else "write long flags with --"
            problem = (
                f"{quote(word.text)} is a row of short flags, with which Cluster Autoscaler does "
                "not start"
            )
            self._problem(word, problem, remedy)
        elif value:
            self._add(word, flag, value.removeprefix("="))
        else:
            self._with_next_word(word, flag, needed=True)

    def _with_next_word(self, word: Word, flag: str, *, needed: bool) -> None:
        """Take the next word, whatever it is. A flag of no release takes it
        only if it is not a flag."""
        following = self.words[self.at].text if self.at < len(self.words) else None
        if following is not None and (needed or not following.startswith("-")):
            self.at += 1
            self.arguments.append(Argument(word.place, f"{word.text} {following}", flag, following))
        elif needed:
            self._problem(
                word,
                f"{quote(word.text)} needs a value and is the last word",
                f"write {word.text}=VALUE",
            )
        else:
            self._add(word, flag, None)

    def _stray(self, word: Word, switch: Argument | None) -> None:
        if switch is None or word.text not in _GO_BOOLEANS:
            text = "a word without a flag, which Cluster Autoscaler passes over"
            self.remarks.append(Remark(word.place, quote(word.text), Verdict.NO_EFFECT, text))
            return
        text = (
            f"Cluster Autoscaler read this as true; write {switch.word}={word.text} if {word.text} "
            "was meant"
        )
        self.arguments[-1] = msgspec.structs.replace(switch, read_as=text)
        text = f"a word that {switch.word} does not take"
        self.remarks.append(Remark(word.place, word.text, Verdict.TOLD, text))

    def _add(self, word: Word, flag: str, value: str | None) -> None:
        self.arguments.append(Argument(word.place, word.text, flag, value))

    def _problem(self, word: Word, problem: str, remedy: str) -> None:
        self.problems.append(BadInput(word.place, problem, remedy))


# -- placeholders ----------------------------------------------------------------------------------

_RENDER = "render it first: helm template"
_SHELL_NAME = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]{0,100})")
_PLACEHOLDER = re.compile(
    r"\[[A-Za-z][A-Za-z0-9_ -]{0,100}\]"  # [ASG_ID]
    r"|\{[A-Za-z][A-Za-z0-9_ -]{0,100}\}"  # {Project ID}
    r"|<[A-Za-z][^<>]{0,100}>"  # <BASE64_REGION_ID>
    r"|(?<![A-Za-z0-9])YOUR[_-][A-Za-z0-9_-]{1,100}"  # YOUR_PROJECT_ID
    r"|\$\{"  # ${NAME:=…}
)
_EXAMPLES = {"nodes": "write it like 1:10:asg-bp18p2yfxow2dloq0001"}


def remedy_for(text: str, flag: str = "") -> str:
    """Return what to do about the placeholder in a text, or an empty text if it has none."""
    if "{{" in text:
        return _RENDER
    if match := _SHELL_NAME.search(text):
        return f"give --env {match[1]}=VALUE"
    return _EXAMPLES.get(flag, "write the real value") if _PLACEHOLDER.search(text) else ""


def placeholder_problems(
    arguments: Sequence[Argument], variables: Iterable[Variable], *, of_shell: bool = False
) -> list[BadInput]:
    """Return one mistake for each value that has a placeholder, of all flags and of
    the variables that count.

    of_shell: `$(…)` is the output of a command, which is unknown.
    """
    named = [
        (argument.place, f"--{argument.flag}", argument.value or "", argument.flag)
        for argument in arguments
        if argument.flag not in PATHS or "{{" in (argument.value or "")
    ]
    named += [
        (variable.place, variable.name, variable.value or "", "")
        for variable in variables
        if is_public_name(variable.name)
    ]
    problems = [
        BadInput(f"{place}: {name[:100]}", f"{quote(value)} is a placeholder", remedy)
        for place, name, value, flag in named
        if (remedy := remedy_for(value, flag))
    ]
    problems += [
        BadInput(
            f"{argument.place}: --{argument.flag[:100]}",
            f"{quote(value)} runs a command",
            "write its output",
        )
        for argument in arguments
        if of_shell and ("$(" in (value := argument.value or "") or "`" in value)
    ]
    return problems


def template_problems(file: str, text: str) -> list[BadInput]:
    """Return one mistake for each line of a Helm template, whose text is not YAML before it is
    rendered. The line is not quoted: it may have a secret."""
    lines = (
        line
        for line, written in enumerate(text.splitlines(), 1)
        if "{{" in written and not written.lstrip().startswith("#")
    )
    return [BadInput(f"{file}:{line}", "has a template of Helm", _RENDER) for line in lines][
        :MOST_PROBLEMS
    ]


def filled_in(text: str, environment: Mapping[str, str]) -> str:
    """Return a template of envsubst with variables of the command line in the place of
    `${NAME}`."""
    for name, value in environment.items():
        if not is_secret_name(name):
            text = text.replace(f"${{{name}}}", value)
    return text
