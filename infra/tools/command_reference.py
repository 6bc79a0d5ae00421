"""The page docs/commands.md: every command with its arguments.

It reads the parsers and not their `--help`, whose form depends on Python's version
and the terminal's width.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator

from chalicelib.cli.main import COMMANDS, OUTPUTS, Command

_HEAD = """\
# Commands

Every command with its arguments, as `outscaler COMMAND --help` shows them; `make docs` makes this page.
[Command line](cli.md) explains their use. Every command takes `-o` with one of {outputs}.
"""
_COMMON = """\
## Common arguments

Arguments that mean the same for several commands. Each command names those that it takes.
"""
Row = tuple[str, str]
"""An argument as it is typed, and its meaning."""


def reference() -> str:
    """Return the page."""
    outputs = ", ".join(f"`{name}`" for name in OUTPUTS)
    rows = {command.name: list(_rows(command)) for command in COMMANDS}
    common = _common(row for of_command in rows.values() for row in of_command)
    return "\n".join(
        [
            _HEAD.format(outputs=outputs),
            *(
                line
                for command in COMMANDS
                for line in _section(command, rows[command.name], common)
            ),
            _COMMON,
            *_table(common),
            "",
        ]
    )


def _common(rows: Iterable[Row]) -> list[Row]:
    """The flags of several commands; of several meanings of a flag the one with most commands."""
    common: dict[str, Row] = {}
    for row, users in Counter(rows).most_common():
        if users > 1 and row[0].startswith("`-"):
            common.setdefault(_flags(row[0]), row)
    return list(common.values())


def _rows(command: Command) -> Iterator[Row]:
    parser = argparse.ArgumentParser(prog=f"outscaler {command.name}", add_help=False)
    command.load().add_arguments(parser)
    for action in parser._actions:
        if action.help is not argparse.SUPPRESS:
            yield _spelling(action, parser), _meaning(action)


def _section(command: Command, rows: list[Row], common: list[Row]) -> Iterator[str]:
    yield from (f"## {command.name}", "", f"{_sentence(command.help)}.", "")
    own = [row for row in rows if row not in common]
    shared = [_flags(spelling) for spelling, meaning in rows if (spelling, meaning) in common]
    if own:
        yield from (*_table(own), "")
    if shared:
        yield from (f"[Common arguments](#common-arguments): {', '.join(shared)}.", "")


def _table(rows: list[Row]) -> Iterator[str]:
    yield from ("| Argument | Meaning |", "|---|---|")
    yield from (f"| {spelling} | {meaning} |" for spelling, meaning in rows)


def _flags(spelling: str) -> str:
    """The flags of an argument, without the name of its value."""
    words = spelling.strip("`").split(" ")
    return f"`{' '.join(word for word in words if word.startswith('-'))}`"


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
