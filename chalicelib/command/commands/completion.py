"""`outscaler completion SHELL`: prints a script that completes commands, arguments and files in a shell."""

from __future__ import annotations

import argparse
import sys

from chalicelib.model.errors import BadInput

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add SHELL."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")


def run(args: argparse.Namespace) -> int:
    """Print the script. Always returns 0; raises BadInput where shtab is not installed."""
    try:
        import shtab
    except ImportError:
        raise BadInput("outscaler completion", "needs the package shtab", "pip install shtab") from None
    sys.stdout.write(f"{shtab.complete(_whole(), args.shell)}\n")
    return 0


def _whole() -> argparse.ArgumentParser:
    """Return one parser with every command, as a shell sees it."""
    from chalicelib.command.main import COMMANDS, OUTPUTS

    parser = argparse.ArgumentParser(prog="outscaler")
    commands = parser.add_subparsers(metavar="COMMAND")
    for command in COMMANDS:
        sub = commands.add_parser(command.name, help=command.help, description=command.help)
        command.load().add_arguments(sub)
        sub.add_argument("-o", "--output", choices=OUTPUTS, help="how to print the answer")
        _complete_files(sub)
    return parser


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Complete names of files and folders where an argument takes one."""
    import shtab

    for action in parser._actions:
        if action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
