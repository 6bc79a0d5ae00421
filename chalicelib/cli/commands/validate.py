"""`outscaler validate FILE…`: checks each document and warns of settings that may not do
what their author expects.

Needs neither AWS nor a cluster: what a deployment permits is as `outscaler login` has kept it.
Mistakes and warnings go to standard error, the result per file to standard output.
"""

from __future__ import annotations

import argparse
import shlex
import sys

import msgspec

from chalicelib.cli.deployment_settings import settings_here
from chalicelib.cli.output import Table, emit, one_line, warn
from chalicelib.cli.policy_files import load_document, place_of, read_document
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.reasons.words import counted


class FileVerdict(msgspec.Struct, frozen=True):
    """The result for one file. name: the cluster's, where the document is valid."""

    file: str
    name: str = ""
    problems: tuple[BadInput, ...] = ()
    warnings: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add FILE… and --strict."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="policy document, or - for standard input"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 if there are warnings")


def run(args: argparse.Namespace) -> int:
    """Validate the files. Returns 2 if a document is invalid, 1 if --strict and one
    has warnings, otherwise 0."""
    if notice := settings_here().notice:
        warn(notice)
    verdicts = _names_once([_verdict(file) for file in args.files])
    for verdict in verdicts:
        for problem in verdict.problems:
            sys.stderr.write(f"{one_line(str(problem))}\n")
        for warning in verdict.warnings:
            warn(warning)
    data = [
        {
            "file": verdict.file,
            "name": verdict.name,
            "valid": not verdict.problems,
            "problems": [
                {"place": bad.place, "problem": bad.problem, "remedy": bad.remedy}
                for bad in verdict.problems
            ],
            "warnings": list(verdict.warnings),
        }
        for verdict in verdicts
    ]
    rows = tuple((verdict.file, verdict.name, _result(verdict)) for verdict in verdicts)
    emit(args.output, data, lambda: [Table(("file", "cluster", "result"), rows)])
    if any(verdict.problems for verdict in verdicts):
        return 2
    return 1 if args.strict and any(verdict.warnings for verdict in verdicts) else 0


def _verdict(file: str) -> FileVerdict:
    place, text = place_of(file), ""
    try:
        text = read_document(file)
        policy, warnings = load_document(text, place)
    except OSError as error:
        return FileVerdict(place, problems=(BadInput(place, error.strerror or str(error)),))
    except BadInput as error:
        problems = error.problems if isinstance(error, InputErrors) else (error,)
        return FileVerdict(place, problems=_another_form(file, text) or problems)
    return FileVerdict(place, policy.name, warnings=warnings)


def _another_form(file: str, text: str) -> tuple[BadInput, ...]:
    """Return one mistake for a configuration of Cluster Autoscaler, in the place of
    one for each of its keys."""
    from chalicelib.cli.migrate.read_autoscaler import form_of

    form = form_of(place_of(file), text)
    remedy = f"run outscaler import {shlex.quote(file)} to make one"
    return (BadInput(place_of(file), f"is {form}, not a policy", remedy),) if form else ()


def _names_once(verdicts: list[FileVerdict]) -> list[FileVerdict]:
    """Report two documents for one cluster: the one applied last would replace the first."""
    first: dict[str, str] = {}
    checked = []
    for verdict in verdicts:
        before = first.setdefault(verdict.name, verdict.file) if verdict.name else verdict.file
        problems = verdict.problems
        if before != verdict.file:
            place, problem = (
                f"{verdict.file}: metadata.name",
                f"{verdict.name} is already in {before}",
            )
            problems = (*problems, BadInput(place, problem, "one document per cluster"))
        checked.append(msgspec.structs.replace(verdict, problems=problems))
    return checked


def _result(verdict: FileVerdict) -> str:
    if verdict.problems:
        return f"not valid, {counted(len(verdict.problems), 'mistake')}"
    return f"valid, {counted(len(verdict.warnings), 'warning')}" if verdict.warnings else "valid"
