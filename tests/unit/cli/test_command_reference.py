"""docs/commands.md has every argument of every command."""

from __future__ import annotations

import argparse

from chalicelib.cli.main import COMMANDS
from infra.tools.command_reference import reference


def test_every_flag_of_every_command_is_on_the_page() -> None:
    sections = dict(part.split("\n", 1) for part in reference().split("\n## ")[1:])
    assert list(sections) == [*(command.name for command in COMMANDS), "Common arguments"]
    flags = 0
    for command in COMMANDS:
        parser = argparse.ArgumentParser(add_help=False)
        command.load().add_arguments(parser)
        for action in parser._actions:
            shown = action.help is not argparse.SUPPRESS
            assert all((flag in sections[command.name]) == shown for flag in action.option_strings)
            flags += len(action.option_strings)
    assert flags > 100
