"""Each `outscaler …` command in the documents is one that the command line takes."""

from __future__ import annotations

import argparse
import functools
import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path

import botocore.session
from botocore import xform_name
from botocore.exceptions import UnknownServiceError

from chalicelib.cli.doctor.registry import CHECKS, subjects
from chalicelib.cli.main import COMMANDS, parser_of
from chalicelib.model.errors import BadInput
from tests.unit.test_docs import (
    DOCS,
    ROOT,
    SPAN,
    block_lines,
    code,
    each_document,
    prose,
    rows,
)

COMMAND = {command.name: command for command in COMMANDS}


def options_of(command: str) -> set[str]:
    """Returns the flags of a command."""
    return {
        flag for action in parser_of(COMMAND[command])._actions for flag in action.option_strings
    }


def commands(document: Path) -> Iterator[list[str]]:
    """Returns the `outscaler …` commands of a document, split into words."""
    for line in code(document):
        if re.match(r"(?:\$ )?(?:\.venv/bin/)?outscaler( |$)", line.strip()):
            try:
                words = shlex.split(line.strip().removeprefix("$ "), comments=True)
            except ValueError:
                words = line.split()
            yield list(takewhile(lambda word: word not in {"|", "&&"}, words[1:]))


@each_document
def test_docs_commands_and_their_flags_exist(document: Path) -> None:
    for words in commands(document):
        if not words or words[0].startswith("-") or words[0].isupper():
            continue  # `outscaler`, `outscaler --help`, `outscaler COMMAND`
        assert words[0] in COMMAND, words
        flags = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert flags - options_of(words[0]) <= {"--help"}, words


def parse_command(words: list[str]) -> argparse.Namespace:
    """Parses a command line as `outscaler` does. Raises ValueError."""
    if "--help" in words:
        return argparse.Namespace(only="")
    try:
        return parser_of(COMMAND[words[0]]).parse_intermixed_args(words[1:])
    except BadInput as error:
        raise ValueError(error.problem) from None


def command_lines(lines: Iterable[str]) -> Iterator[list[str]]:
    """The words of each `outscaler COMMAND …` in lines of a shell."""
    for line in lines:
        for part in re.split(r"&&|\|\||[;|>]", re.sub(r"(^|\s)#.*", "", line)):
            found = re.match(r"(?:\$ )?(?:\S*/)?outscaler ([a-z].*)", part.strip())
            if found is not None:
                yield shlex.split(found[1])


_MENTION = re.compile("required|expected one argument")

# -- the AWS CLI

#: Commands that the CLI has besides the services' own operations.
_CUSTOM = {
    "s3": {"cp", "mb", "ls"},
    "logs": {"tail"},
    "cloudformation": {"package", "deploy"},
    "configure": {"get", "list"},
}
_GLOBAL = {"--query", "--output", "--region", "--profile", "--endpoint-url"}


@functools.cache
def _flags_of_aws(service: str, operation: str) -> frozenset[str]:
    """The flags of an operation. Raises LookupError where the service has no such operation."""
    model = botocore.session.get_session().get_service_model(service)
    names = {xform_name(name, "-"): name for name in model.operation_names}
    shape = model.operation_model(names[operation]).input_shape
    flags = {f"--{xform_name(name, '-')}" for name in (shape.members if shape else ())}
    return frozenset(flags | {flag.replace("--", "--no-", 1) for flag in flags} | _GLOBAL)


def _unknown_to_aws(line: str) -> Iterator[str]:
    """The words of a line that the AWS CLI does not know."""
    for command in re.findall(r"(?:^|[\s(;|])aws ([a-z0-9]+(?: [^;|)#]*)?)", line):
        words = command.split()
        if len(words) < 2 or words[1] in _CUSTOM.get(words[0], ()) or words[1].startswith("$"):
            continue
        if words[1] == "wait":
            continue
        try:
            known = _flags_of_aws(words[0], words[1])
        except (LookupError, UnknownServiceError):
            yield f"{words[0]} {words[1]}"
            continue
        flags = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
        yield from sorted(flags - known)


@each_document
def test_docs_aws_commands_and_their_flags_exist(document: Path) -> None:
    unknown = {line: list(_unknown_to_aws(line)) for line in block_lines(document)}
    assert {line: words for line, words in unknown.items() if words} == {}


def test_docs_an_unknown_command_of_aws_is_an_error() -> None:
    assert list(_unknown_to_aws("aws ssm put-parameter --tier x --name y")) == []
    assert list(_unknown_to_aws("aws ssm put-parameters --name y")) == ["ssm put-parameters"]
    assert list(_unknown_to_aws("x=$(aws ssm put-parameter --nme y)")) == ["--nme"]


# -- the command


def test_docs_command_lines_parse() -> None:
    """Lines of blocks are typed as they are; code in a sentence may also name a command or
    a flag without the rest."""
    typed = 0
    wrong = []
    for document in DOCS:
        blocks = block_lines(document)
        spans = [each for each in SPAN.findall(prose(document)) if "…" not in each]
        for lines, may_be_mention in ((blocks, False), (spans, True)):
            for words in command_lines(lines):
                typed += not may_be_mention
                try:
                    args = parse_command(words)
                except ValueError as error:
                    if not (may_be_mention and _MENTION.search(str(error))):
                        wrong.append(f"{document.name}: {' '.join(words)}: {error}")
                else:
                    wrong += [
                        f"{document.name}: {' '.join(words)}"
                        for each in _unknown_checks(words, args)
                        if each
                    ]
    assert wrong == []
    assert typed > 100


def _unknown_checks(words: list[str], args: argparse.Namespace) -> set[str]:
    """The words after `--only` of a doctor's command that no check has, and
    that are no placeholder."""
    if words[0] != "doctor":
        return set()
    known = {*subjects(), *(id_ for check in CHECKS for id_ in check.ids)}
    return {
        each
        for each in args.only.split(",")
        if each and (not each.isupper() or each.startswith("DR"))
    } - known


def test_docs_subjects_of_the_doctor_are_those_of_only() -> None:
    page = ROOT / "docs" / "doctor.md"
    listed = [word for row in rows(page, "Findings") for word in SPAN.findall(row[0])]
    assert listed == ["error", "warn", "unknown", "info"]
    table = page.read_text("utf-8").partition("| Subject | Checks |")[2].partition("\n\n")[0]
    documented = {
        word for line in table.splitlines()[2:] for word in SPAN.findall(line.split("|")[1])
    }
    assert documented == set(subjects())
