"""The page docs/commands.md: every command with its arguments.

It reads the parsers and not their `--help`, whose form depends on Python's version
and the terminal's width.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from chalicelib.cli.main import COMMANDS, OUTPUTS, Command

_HEAD = """\
# Commands

Every command with its arguments, as `outscaler COMMAND --help` shows them; `make docs` makes this page.
[Command line](cli.md) explains their use. Every command takes `-o` with one of {outputs}.
"""


def reference() -> str:
    """Return the page."""
    outputs = ", ".join(f"`{name}`" for name in OUTPUTS)
    return "\n".join(
        [
            _HEAD.format(outputs=outputs),
            *(line for command in COMMANDS for line in _section(command)),
        ]
    )


def _section(command: Command) -> Iterator[str]:
    parser = argparse.ArgumentParser(prog=f"outscaler {command.name}", add_help=False)
    command.load().add_arguments(parser)
    yield from (f"## {command.name}", "", f"{_sentence(command.help)}.", "")
    actions = [action for action in parser._actions if action.help is not argparse.SUPPRESS]
    if actions:
        yield from ("| Argument | Meaning |", "|---|---|")
        yield from (f"| {_spelling(action, parser)} | {_meaning(action)} |" for action in actions)
        yield ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _spelling(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """Return how an argument is typed: its flags and the name of its value."""
    formatter = parser._get_formatter()
    if not action.option_strings:
        return f"`{_plain(formatter._format_args(action, formatter._get_default_metavar_for_positional(action)))}`"
    flags = ", ".join(action.option_strings)
    if action.nargs == 0:
        return f"`{flags}`"
    value = formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
    return f"`{flags} {_plain(value)}`"


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "") % (vars(action) | {"prog": "outscaler"})
    return _plain(" ".join(text.split())).replace("*", "\\*")


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
