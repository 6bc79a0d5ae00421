"""`outscaler validate FILE…`: checks each document and warns of settings that may not do what their author expects.

Needs neither AWS nor a cluster: what a deployment permits is as `outscaler login` has kept it. Mistakes and warnings go
to standard error, the result per file to standard output.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

import msgspec

from chalicelib.command.deployment_settings import settings_here
from chalicelib.command.output import emit, warn
from chalicelib.command.policy_files import load_document, place_of, read_document
from chalicelib.command.tables import Table
from chalicelib.command.terminal_text import one_line
from chalicelib.model.errors import BadInput, InputErrors


class FileVerdict(msgspec.Struct, frozen=True):
    """The result for one file. name: the cluster's, where the document is valid."""

    file: str
    name: str = ""
    problems: tuple[BadInput, ...] = ()
    warnings: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add FILE… and --strict."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="policy document, or - for standard input")
    parser.add_argument("--strict", action="store_true", help="exit 1 if there are warnings")


def run(args: argparse.Namespace) -> int:
    """Validate the files. Returns 2 if a document is invalid, 1 if --strict and one has warnings, otherwise 0."""
    if notice := settings_here().notice:
        warn(notice)
    verdicts = _names_once([_verdict(file) for file in args.files])
    for verdict in verdicts:
        for problem in verdict.problems:
            sys.stderr.write(f"{one_line(str(problem))}\n")
        for warning in verdict.warnings:
            warn(warning)
    emit(args.output, [_as_data(verdict) for verdict in verdicts], lambda: [_table(verdicts)])
    if any(verdict.problems for verdict in verdicts):
        return 2
    return 1 if args.strict and any(verdict.warnings for verdict in verdicts) else 0


def _verdict(file: str) -> FileVerdict:
    place = place_of(file)
    text = ""
    try:
        text = read_document(file)
        policy, warnings = load_document(text, place)
    except OSError as error:
        return FileVerdict(place, problems=(BadInput(place, error.strerror or str(error)),))
    except InputErrors as error:
        return FileVerdict(place, problems=_another_form(file, text) or error.problems)
    except BadInput as error:
        return FileVerdict(place, problems=_another_form(file, text) or (error,))
    return FileVerdict(place, policy.name, warnings=warnings)


def _another_form(file: str, text: str) -> tuple[BadInput, ...]:
    """Return one mistake for a configuration of Cluster Autoscaler, in the place of one for each of its keys."""
    from chalicelib.command.importers.read_autoscaler import form_of

    form = form_of(place_of(file), text)
    if not form:
        return ()
    return (
        BadInput(place_of(file), f"is {form}, not a policy", f"run outscaler import {shlex.quote(file)} to make one"),
    )


def _names_once(verdicts: list[FileVerdict]) -> list[FileVerdict]:
    """Report two documents for one cluster: the one applied last would replace the first."""
    first: dict[str, str] = {}
    checked = []
    for verdict in verdicts:
        before = first.setdefault(verdict.name, verdict.file) if verdict.name else verdict.file
        if before != verdict.file:
            twice = BadInput(
                f"{verdict.file}: metadata.name", f"{verdict.name} is already in {before}", "one document per cluster"
            )
            checked.append(msgspec.structs.replace(verdict, problems=(*verdict.problems, twice)))
        else:
            checked.append(verdict)
    return checked


def _as_data(verdict: FileVerdict) -> dict[str, Any]:
    problems = [{"place": each.place, "problem": each.problem, "remedy": each.remedy} for each in verdict.problems]
    return {
        "file": verdict.file,
        "name": verdict.name,
        "valid": not problems,
        "problems": problems,
        "warnings": list(verdict.warnings),
    }


def _table(verdicts: list[FileVerdict]) -> Table:
    return Table(("file", "cluster", "result"), tuple((each.file, each.name, _result(each)) for each in verdicts))


def _result(verdict: FileVerdict) -> str:
    if verdict.problems:
        return f"refused, {_count(len(verdict.problems), 'mistake')}"
    return f"right, {_count(len(verdict.warnings), 'warning')}" if verdict.warnings else "right"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
