"""Finds the autoscaler's command in a bare command line, a shell script, or
the command of a container.

A script is split into commands, each with the line of its words, without running anything. The
splitter knows what appears around an autoscaler's command: quotes, continued lines, variables,
assignments, pipes and redirections. Command substitution stays as text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.cli.migrate.autoscaler_input import AutoscalerInput, Remark, Variable
from chalicelib.cli.migrate.command_line import Word, placeholder_problems, read_command_line
from chalicelib.cli.migrate.flag_table import release_of
from chalicelib.cli.migrate.public_values import is_secret_name
from chalicelib.cli.migrate.report import Verdict
from chalicelib.model.errors import BadInput, InputErrors

COMMAND = "--command"
ENV = "--env"
_MOST_NAMED = 10
# characters of values in one script or container: a variable may hold another many times
_MOST_REPLACED = 1_000_000


class Environment:
    """Variables of one container or command by name, with the mistakes of
    their use. values: of --env."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.variables: dict[str, Variable] = {}
        self.remarks: list[Remark] = []
        self.problems: list[BadInput] = []
        self._characters_left = _MOST_REPLACED

    def add(self, variable: Variable) -> None:
        """Add a variable, or replace one of the same name. A value of --env counts;
        a secret one is left out."""
        value = self.values.get(variable.name, variable.value)
        self.variables.pop(variable.name, None)
        self.variables[variable.name] = msgspec.structs.replace(
            variable, value=None if is_secret_name(variable.name) else value
        )

    def add_values(self) -> None:
        """Add variables of --env that are not known yet."""
        for name, value in self.values.items():
            if name not in self.variables:
                self.add(Variable(ENV, name, value))

    def known(self) -> dict[str, str]:
        """Return the values that are known."""
        return {
            name: variable.value
            for name, variable in self.variables.items()
            if variable.value is not None
        }

    def expanded(self, text: str, place: str) -> str:
        """Return a text with `$(NAME)` replaced as the kubelet does; `$$` is a literal
        `$`, unknown names stay."""

        def value_of(match: re.Match[str]) -> str:
            if not match[1]:
                return "$"
            variable = self.variables.get(match[1])
            if variable is None:
                return match[0] if is_secret_name(match[1]) else self.values.get(match[1], match[0])
            if variable.value is None:
                source = (
                    f"comes from {variable.object}"
                    if variable.object
                    else "has no value that is read"
                )
                remedy = f"give --env {match[1]}=VALUE if it is not secret"
                self.problems.append(BadInput(place, f"$({match[1]}) {source}", remedy))
                return match[0]
            self._characters_left -= len(variable.value)
            return variable.value if self._characters_left > 0 else match[0]

        return _KUBELET_REFERENCE.sub(value_of, text)


_KUBELET_REFERENCE = re.compile(r"\$(?:\$|\(([A-Za-z_.-][A-Za-z0-9_.-]{0,252})\))")


def read_script(
    file: str, text: str, values: Mapping[str, str], image_version: str
) -> AutoscalerInput | None:
    """Return the configuration of the only autoscaler that a script runs, None where it runs none.

    values: of --env. Raises InputErrors with all mistakes.
    """
    runs = invocations_of_script(text, file, 1 if "\n" in text.strip() else 0, values)
    if not runs:
        return None
    if len(runs) > 1:
        places = ", ".join(run.place for run in runs[:_MOST_NAMED])
        problem = f"runs the autoscaler {len(runs)} times ({places})"
        raise BadInput(file, problem, "give one command, for example with --command")
    environment = Environment(values)
    for name, word in runs[0].assigned:
        environment.add(Variable(word.place, name, word.text))
    environment.add_values()
    line = read_command_line(runs[0].words)
    variables = tuple(environment.variables.values())
    problems = [
        *line.problems,
        *placeholder_problems(line.arguments, variables, of_shell=runs[0].of_shell),
    ]
    if problems:
        raise InputErrors(tuple(problems))
    return AutoscalerInput(
        runs[0].place,
        "command line",
        version=release_of("", image_version),
        arguments=line.arguments,
        variables=variables,
        remarks=(*runs[0].remarks, *line.remarks),
    )


# -- the program -----------------------------------------------------------------------------------

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_RUNNERS = frozenset({"docker", "podman", "nerdctl"})
_BEFORE_PROGRAMS = """
    exec tini dumb-init nohup sudo env export $ then do else ! { if while until time command builtin
    setsid catatonit eval
"""
_STARTERS = frozenset(_BEFORE_PROGRAMS.split())
# programs that take a word of their own before the program that they start
_TAKING_A_WORD = "nice ionice timeout su-exec gosu chroot stdbuf setpriv flock"
_WITH_WORD = frozenset(_TAKING_A_WORD.split())
# images of one processor, too
_PROGRAM = re.compile(r"autoscaler(-(amd64|arm64|arm|s390x|ppc64le|dev))?\Z")
_POD_AUTOSCALERS = ("proportional-autoscaler", "pod-autoscaler", "vpa-autoscaler")
_DEEPEST = 3  # shells inside shells
_MOST_RUNS = 100  # of one script; a second one is a mistake already


class Invocation(msgspec.Struct, frozen=True):
    """One run of the autoscaler. words: after the program's name. assigned: variables of its
    command line, in order. remarks: on how a script was read. of_shell: whether a shell reads the
    words, so that `$(…)` is the output of a command."""

    place: str
    words: tuple[Word, ...]
    assigned: tuple[tuple[str, Word], ...] = ()
    remarks: tuple[Remark, ...] = ()
    of_shell: bool = False


def is_shell(word: str) -> bool:
    """Return whether a program is a shell."""
    return word.rsplit("/", 1)[-1] in _SHELLS


def is_autoscaler(word: str) -> bool:
    """Return whether a program, or an image with or without its tag, is named
    like Cluster Autoscaler."""
    base = word.partition("@")[0].rsplit("/", 1)[-1].partition(":")[0]
    match = _PROGRAM.search(base)
    return match is not None and not base[: match.start() + len("autoscaler")].endswith(
        _POD_AUTOSCALERS
    )


def invocations_of_script(
    text: str,
    file: str,
    first_line: int,
    environment: Mapping[str, str],
    depth: int = 0,
    positional: Sequence[Word] = (),
) -> list[Invocation]:
    """Return the runs of the autoscaler in a shell script or a bare command
    line, at most a hundred. positional: words that `$@` stands for."""
    runs: list[Invocation] = []
    assigned: list[tuple[str, Word]] = []
    for command in split_script(text, file, first_line, environment):
        assigned += command.assigned
        if [word.text for word in command.words[:2]] == ["set", "--"]:
            positional = command.words[2:]
            continue
        command = _with_positional(command, positional)  # noqa: PLW2901
        runs += [
            msgspec.structs.replace(
                run,
                assigned=(*assigned, *run.assigned),
                remarks=command.remarks + run.remarks,
                of_shell=True,
            )
            for run in invocations_of_words(command.words, file, environment, depth, script=True)
        ]
        if len(runs) >= _MOST_RUNS:
            break
    return runs[:_MOST_RUNS]


def invocations_of_words(
    words: Sequence[Word],
    file: str,
    environment: Mapping[str, str],
    depth: int = 0,
    *,
    script: bool = False,
) -> list[Invocation]:
    """Return the runs of the autoscaler in a command that is already split,
    such as that of a container.

    script: only words that start programs may come before the autoscaler's. Raises
    BadInput for a container runner.
    """
    if script and words and words[0].text.startswith("--") and len(words[0].text) > 2:
        return [Invocation(words[0].place, tuple(words))]
    runner, own_words = "", 0
    for at, word in enumerate(words):
        base = word.text.rsplit("/", 1)[-1]
        if is_autoscaler(word.text):
            if runner:
                problem = f"is run by {runner}, whose options are not read"
                raise BadInput(
                    word.place, problem, "give the autoscaler's own words with --command"
                )
            return [Invocation(word.place, tuple(words[at + 1 :]))]
        if base in _SHELLS and depth < _DEEPEST:
            return _shell_invocations(words[at + 1 :], file, environment, depth)
        if at + 1 < len(words) and words[at + 1].text == "run":
            runner = base if base in _RUNNERS else runner
            if base == "go":
                return [Invocation(word.place, _words_after_package(words[at + 2 :]))]
        if base in _WITH_WORD:
            own_words += 1
        elif script and not runner and not _goes_before(word.text):
            own_words -= 1
            if own_words < 0:
                break
    return []


def _goes_before(word: str) -> bool:
    """Return whether a word may come before the program that a command starts."""
    base = word.rsplit("/", 1)[-1]
    return base in _STARTERS or word.startswith("-") or _ASSIGNMENT.match(word) is not None


_ALL_WORDS = frozenset({"$@", "$*", "${@}", "${*}"})
_MOST_WORDS = 10_000  # of one command, with positional ones


def _with_positional(command: Command, positional: Sequence[Word]) -> Command:
    """Return a command with the words that `$@` stands for."""
    if not any(word.text in _ALL_WORDS for word in command.words):
        return command
    words: list[Word] = []
    for word in command.words:
        words += positional if word.text in _ALL_WORDS else (word,)
        if len(words) > _MOST_WORDS:
            break
    return msgspec.structs.replace(command, words=tuple(words))


def _words_after_package(words: Sequence[Word]) -> tuple[Word, ...]:
    """Return the words after the package of `go run [FLAGS] PACKAGE`."""
    at = next((at for at, word in enumerate(words) if not word.text.startswith("-")), len(words))
    return tuple(words[at + 1 :])


def _shell_invocations(
    words: Sequence[Word], file: str, environment: Mapping[str, str], depth: int
) -> list[Invocation]:
    """Read the script of `sh -c SCRIPT`, also with further options such as -ec or -o pipefail."""
    for at, word in enumerate(words[:-1]):
        if word.text.startswith("-") and not word.text.startswith("--") and word.text.endswith("c"):
            script = words[at + 1]
            _, colon, line = script.place.rpartition(":")
            first_line = int(line) if colon and line.isdecimal() else 0
            # the first word after the script is $0
            return invocations_of_script(
                script.text, file, first_line, environment, depth + 1, words[at + 3 :]
            )
    return []


# -- the shell -------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<continued>\\[^\S\n]*\n)
    |(?P<newline>\n)
    |(?P<blank>[^\S\n]+)
    |(?P<operator>[|&;()<>]+)
    |(?P<single>'[^']*'?)
    |(?P<double>"(?:[^"\\]+|\\.|\\\Z)*"?)
    |(?P<escaped>\\.?)
    |(?P<variable>\$\([^)]*\)?|\$\{[A-Za-z_][^}]*\}?|\$[A-Za-z_][A-Za-z0-9_]*)
    |(?P<text>[$#]|[^\s\\'"$|&;()<>#]+)""",
    re.VERBOSE | re.DOTALL,
)
_IN_QUOTES = re.compile(
    r"\\(?P<escaped>[\"\\$`\n])|\$\([^)]*\)?|\$\{[A-Za-z_][^}]*\}?|\$[A-Za-z_][A-Za-z0-9_]*"
)
# with a default after - or =; other forms, such as ${NAME%/}, change the value and stay as text
_REFERENCE = re.compile(
    r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?::?(?:[-=](.*)|\?.*))?\})\Z",
    re.DOTALL,
)
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_LONGEST_VALUE = 10_000
BLANKS = (
    "a backslash with blanks after it ends the command in a shell; it is read as a continued line"
)
FOREIGN_BLANK = "separates no words in a shell; it is read as a blank"


class Command(msgspec.Struct, frozen=True):
    """One command. assigned: names and values before its first word.
    remarks: on how it was read."""

    words: tuple[Word, ...]
    assigned: tuple[tuple[str, Word], ...] = ()
    remarks: tuple[Remark, ...] = ()


def split_script(
    text: str, file: str, first_line: int, environment: Mapping[str, str]
) -> list[Command]:
    """Return the commands of a script. first_line: the line of its first character, 0
    where places have no line.

    environment: variables that are known; assignments of the script add to them.
    Unknown ones stay as text.
    """
    splitter = _Splitter(text, file, first_line, environment)
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None  # every character begins a token
        if token[0] == "#" and splitter.word_start is None:
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
            continue
        splitter.add(token)
        at = token.end()
    splitter.end_word(len(text))
    splitter.end_command()
    return splitter.commands


class _Splitter:
    """Collects the tokens of a script. word_start: index of the word in
    progress, None between words."""

    def __init__(
        self, text: str, file: str, first_line: int, environment: Mapping[str, str]
    ) -> None:
        self.text, self.file, self.line = text, file, first_line
        self.values = {
            name: value for name, value in environment.items() if not is_secret_name(name)
        }
        self.commands: list[Command] = []
        self.words: list[Word] = []
        self.assigned: list[tuple[str, Word]] = []
        self.remarks: list[Remark] = []
        # of the word in progress: a value with blanks, without quotes, makes several
        self.fields: list[str] = []
        self.pieces: list[str] = []  # of its last field
        self.word_start: int | None = None
        self.word_place = ""
        self.after_redirection = False  # the next word is a file
        self.characters_left = _MOST_REPLACED
        self.foreign_blank_reported = False
        self.counted = 0  # the index up to which lines are counted

    def add(self, token: re.Match[str]) -> None:
        """Add the next token of the text."""
        kind, written = token.lastgroup, token[0]
        if kind in ("newline", "blank", "operator"):
            redirects = kind == "operator" and (written[0] in "<>" or written.startswith("&>"))
            self.end_word(token.start(), redirected=written[0] in "<>")
            if kind == "blank":
                self._report_foreign_blank(token)
            elif redirects:
                self.after_redirection = True
            else:
                self.end_command()
        elif kind == "continued":
            if written.strip("\\\r\n"):
                self._remark(token.start(), "\\", BLANKS)
        else:
            self._add_to_word(token)

    def _add_to_word(self, token: re.Match[str]) -> None:
        if self.word_start is None:
            self.word_start, self.word_place = token.start(), self._place(token.start())
        written = token[0]
        match token.lastgroup:
            case "single":
                self.pieces.append(written[1:].removesuffix("'"))
            case "double":
                closed = len(written) > 1 and written.endswith('"')
                self.pieces.append(
                    _IN_QUOTES.sub(self._quoted_value, written[1:-1] if closed else written[1:])
                )
            case "escaped":
                self.pieces.append(written[1:])
            case "variable":
                value = self._value(written)
                first, *others = [value] if value == written else re.split(r"\s+", value)
                self.pieces.append(first)
                for field in others:
                    self.fields.append("".join(self.pieces))
                    self.pieces = [field]
            case _:
                self.pieces.append(written)

    def end_word(self, end: int, *, redirected: bool = False) -> None:
        """End the word in progress at an index of the text. redirected: `2>&1` follows,
        of which it is the number."""
        start, self.word_start = self.word_start, None
        fields, self.fields, self.pieces = [*self.fields, "".join(self.pieces)], [], []
        if start is None or (redirected and self.text[start:end].isdigit()):
            return
        if self.after_redirection:
            self.after_redirection = False
            return
        assignment = _ASSIGNMENT.match(self.text, start)
        if assignment and (not self.words or self.words[0].text in ("export", "env")):
            name, value = assignment[1], " ".join(fields)[len(assignment[0]) :]
            if not is_secret_name(name):  # no flag of the report may repeat it
                self.values[name] = value[:_LONGEST_VALUE]
            self.assigned.append((name, Word(self.word_place, value)))
        else:
            self.words += [Word(self.word_place, field) for field in fields]

    def end_command(self) -> None:
        """End the command in progress."""
        if self.words:
            self.commands.append(
                Command(tuple(self.words), tuple(self.assigned), tuple(self.remarks))
            )
            self.assigned, self.remarks, self.foreign_blank_reported = [], [], False
        self.words, self.after_redirection = [], False

    def _quoted_value(self, match: re.Match[str]) -> str:
        escaped = match["escaped"]
        return self._value(match[0]) if escaped is None else escaped.replace("\n", "")

    def _value(self, reference: str) -> str:
        """Return the value of `$NAME` or `${NAME}`, or its text where it is not known."""
        match = _REFERENCE.match(reference)
        if match is None:
            return reference
        otherwise = reference if match[3] is None else match[3]
        value = self.values.get(match[1] or match[2], otherwise)
        self.characters_left -= len(value)
        return value if self.characters_left > 0 else otherwise

    def _report_foreign_blank(self, token: re.Match[str]) -> None:
        """Report a blank that a shell takes for a part of a word, such as a no-break
        space, once per command."""
        foreign = token[0].strip(" \t\r")
        if foreign and not self.foreign_blank_reported:
            self.foreign_blank_reported = True
            self._remark(token.start(), f"U+{ord(foreign[0]):04X}", FOREIGN_BLANK)

    def _remark(self, at: int, word: str, text: str) -> None:
        self.remarks.append(Remark(self._place(at), word, Verdict.TOLD, text))

    def _place(self, at: int) -> str:
        if not self.line:
            return self.file
        self.line += self.text.count("\n", self.counted, at)
        self.counted = at
        return f"{self.file}:{self.line}"
