"""Every command that a text of the program tells people to type is one that the program takes."""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import itertools
import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import pytest

from chalicelib.cli.main import COMMANDS
from tests.source_trees import ROOT, nodes_of, parsed, sources

PLACES = ("chalicelib", "infra/aws", "infra/demo")
BY_NAME = {command.name: command for command in COMMANDS}
NAMES = "|".join(map(re.escape, sorted(BY_NAME, key=len, reverse=True)))
PRINTED = re.compile(
    rf"(?P<before>[^`]{{0,12}})\boutscaler (?P<command>{NAMES})\b(?P<rest>[^;,()`\n]*)"
)
TO_TYPE = re.compile(r"(Next: |\brun |\bwrite |&& |bin/)\Z")
ENDS = re.compile(r" (&&|then|and|or|#|\||\d?>) | …")
VERB = re.compile(
    r"(again|asks|ends|is|keeps|lifts|lists|makes|opens|plans|reads|refuses|removes|says|shows|"
    r"stops|to|what|writes)\Z"
)
"""The first word of the rest of a sentence whose subject is the command."""
OF_ALL = {"clusters", "claims"}


class Printed(NamedTuple):
    """A command in a text. typed: the text says to type it, so that its
    arguments must be complete."""

    place: str
    words: tuple[str, ...]
    typed: bool


class RefusingParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The string constants and f-strings of a module, without docstrings. A value in an
    f-string is the text `NAME`."""
    nodes = nodes_of(tree)
    inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "NAME"
                    for part in node.values
                ),
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and not {id(node)} & (inner | docs)
        ):
            yield node.lineno, node.value


@pytest.fixture(scope="module")
def printed() -> list[Printed]:
    found = []
    for path in sources(*PLACES):
        if "outscaler " not in path.read_text("utf-8"):
            continue
        for line, text in texts(parsed(path)):
            for hit in PRINTED.finditer(text):
                rest = ENDS.split(f"{hit['rest']} ")[0].rstrip(" .:'\"")
                with contextlib.suppress(ValueError):  # a quotation mark of the sentence
                    words = tuple(
                        itertools.takewhile(lambda word: not VERB.match(word), shlex.split(rest))
                    )
                    typed = bool(TO_TYPE.search(hit["before"]))
                    found.append(
                        Printed(f"{path.relative_to(ROOT)}:{line}", (hit["command"], *words), typed)
                    )
    return found


@pytest.fixture(scope="module")
def complete(printed: list[Printed]) -> list[Printed]:
    return [command for command in printed if command.typed or len(command.words) > 1]


def taken(words: tuple[str, ...]) -> bool:
    """Whether the program takes a command that begins like these words and has all of their
    options. What follows the last option may be the rest of a sentence."""
    parser = RefusingParser(allow_abbrev=False)
    BY_NAME[words[0]].load().add_arguments(parser)
    parser.add_argument("-o", "--output")
    last = max((at for at, word in enumerate(words) if word.startswith("--")), default=0)
    return any(_parsed(parser, words[1:end]) for end in range(last + 1, len(words) + 1))


def _parsed(parser: argparse.ArgumentParser, arguments: tuple[str, ...]) -> bool:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            given = parser.parse_args(arguments)
    except SystemExit:
        return True  # --help
    except ValueError:
        return False
    return (
        getattr(given, "what", "")
        not in {"policy", "operations", "groups", "nodes", "pods", "breaker"}
        or given.name
    )


def test_texts_of_the_program_name_commands(
    printed: list[Printed], complete: list[Printed]
) -> None:
    assert len(printed) > 60
    assert len(complete) > 40
    assert {"uninstall", "get", "apply", "explain", "plan"} <= {
        command.words[0] for command in complete
    }


def test_commands_in_texts_are_ones_that_the_program_takes(complete: list[Printed]) -> None:
    refused = [command for command in complete if not taken(command.words)]
    assert [f"{command.place}: outscaler {shlex.join(command.words)}" for command in refused] == []


@pytest.mark.parametrize(
    "words",
    [
        ("uninstall", "--yes"),
        ("pause", "NAME"),
        ("get", "groups", "--tabel"),
        ("doctor", "--policy"),
    ],
)
def test_incomplete_or_misspelt_command_is_noticed(words: tuple[str, ...]) -> None:
    assert not taken(words)
