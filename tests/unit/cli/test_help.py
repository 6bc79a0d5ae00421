"""`--help` fits a terminal, keeps names as they are written, and shows
examples that the command takes.
"""

from __future__ import annotations

import re
import shlex

import pytest

from chalicelib.cli.main import COMMANDS, GROUPS, Command, main, parser_of

Said = pytest.CaptureFixture[str]
each_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)


def help_of(capsys: Said, *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_commands_are_grouped_by_what_a_person_wants_to_do(capsys: Said) -> None:
    text = help_of(capsys, "--help")
    assert [line[:-1] for line in text.splitlines() if line.endswith(":")] == list(GROUPS)
    assert len(GROUPS) == 4
    assert [line.split()[0] for line in text.splitlines() if line.startswith("  ")] == [
        command.name for command in COMMANDS
    ]
    assert max(map(len, text.splitlines())) <= 80


@each_command
def test_help_fits_eighty_columns_and_breaks_no_word(command: Command, capsys: Said) -> None:
    text = help_of(capsys, command.name, "--help")
    assert max(map(len, text.splitlines())) <= 80
    description = text.partition("\n\n")[2].partition("\n\n")[0]
    assert " ".join(description.split()) == f"{command.help[0].upper()}{command.help[1:]}."


@each_command
def test_help_of_a_command_has_examples_that_it_takes(command: Command, capsys: Said) -> None:
    assert "\nexamples:\n  outscaler " in help_of(capsys, command.name, "--help")
    assert command.examples
    lines = [words for words in map(_words, command.examples) if words[0] == command.name]
    assert lines
    for words in lines:
        parser_of(command).parse_intermixed_args(words[1:])


def _words(example: str) -> list[str]:
    return shlex.split(re.split(r" [>|] ", example)[0], comments=True)


@each_command
def test_help_names_values_in_capitals(command: Command) -> None:
    actions = [action for action in parser_of(command)._actions if action.nargs != 0]
    assert len(actions) >= 1
    for action in actions:
        assert re.fullmatch(
            r"[A-Z][^a-z]*|1\.29|GROUP:.*|RFC3339", str(action.metavar or action.dest.upper())
        ), action


def test_help_keeps_the_case_of_names(capsys: Said) -> None:
    text = help_of(capsys, "import", "--help")
    assert "Make a policy of the settings of Cluster Autoscaler, or of CCE." in text
    assert "Outscaler" in help_of(capsys, "uninstall", "--help")


def test_help_of_a_command_can_be_asked_in_front_of_it(capsys: Said) -> None:
    assert help_of(capsys, "help", "get") == help_of(capsys, "get", "--help")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("gte", "'gte' is not a command; did you mean get?"),
        ("get nod", "did you mean node?"),
        ("get gruops", "did you mean groups?"),
        (
            "get groups a -o jsn",
            (
                "'jsn' is not one of table, wide, name, json, yaml, jsonpath=TEMPLATE; did you "
                "mean json?"
            ),
        ),
        ("validate a -o wide", "'wide' is not one of table, json, yaml, jsonpath=TEMPLATE"),
        (
            "explain pods/a a --clster b",
            "unrecognized arguments: --clster b; did you mean --cluster?",
        ),
        ("explain deployment a b", "'deployment' is not one of pod, node, group"),
        ("retry a grop b", "did you mean group?"),
    ],
)
def test_misspelt_word_is_answered_with_the_nearest_one(line: str, says: str, capsys: Said) -> None:
    assert main(shlex.split(line)) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert error.count("; see ") + error.count("?") == 1
