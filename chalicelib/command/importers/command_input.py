"""Reads an autoscaler's configuration from a bare command line, a shell script, or a container runner's command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from chalicelib.command.importers.autoscaler_input import AutoscalerInput, Remark, Variable
from chalicelib.command.importers.command_line import Word, read_command_line
from chalicelib.command.importers.container_input import Environment
from chalicelib.command.importers.image_version import release_of
from chalicelib.command.importers.placeholders import placeholder_problems
from chalicelib.command.importers.programs import Invocation, invocations_of_script
from chalicelib.command.importers.report import Verdict
from chalicelib.model.errors import BadInput, InputErrors

COMMAND = "--command"
_MOST_NAMED = 10


def read_script(file: str, text: str, given: Mapping[str, str], image_version: str) -> AutoscalerInput | None:
    """Return the configuration of the only autoscaler that a script runs, None where it runs none.

    Raises InputErrors with all mistakes.
    """
    found = invocations_of_script(text, file, 1 if "\n" in text.strip() else 0, given)
    if not found:
        return None
    if len(found) > 1:
        places = ", ".join(each.place for each in found[:_MOST_NAMED])
        raise BadInput(
            file, f"runs the autoscaler {len(found)} times ({places})", "give one command, for example with --command"
        )
    return input_of(found[0], "command line", given, image_version)


def input_of(
    invocation: Invocation,
    kind: str,
    given: Mapping[str, str],
    image_version: str,
    variables: Iterable[tuple[str, Word]] = (),
    remarks: Sequence[Remark] = (),
) -> AutoscalerInput:
    """Return the configuration of one run. variables: known before those of the command. Raises InputErrors."""
    environment = Environment(given)
    for name, word in (*variables, *invocation.assigned):
        environment.add(Variable(word.place, name, word.text))
    environment.add_given()
    line = read_command_line(invocation.words)
    known = tuple(environment.variables.values())
    problems = [*line.problems, *placeholder_problems(line.arguments, known, of_shell=invocation.of_shell)]
    if problems:
        raise InputErrors(tuple(problems))
    told = (Remark(place, word, Verdict.TOLD, text) for place, word, text in invocation.remarks)
    return AutoscalerInput(
        invocation.place,
        kind,
        image=invocation.image,
        version=release_of(invocation.image, image_version),
        arguments=line.arguments,
        variables=known,
        remarks=(*told, *line.remarks, *remarks),
    )
