"""Prints tables: with rich on a terminal, as plain columns everywhere else.

Plain columns are never truncated or coloured, because they go to files, grep and logs. rich is optional; without it a
terminal gets plain columns, too. NO_COLOR and TERM=dumb are obeyed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

import msgspec

from chalicelib.cli.terminal_text import columns, printable

_GAP = "   "


class Table(msgspec.Struct, frozen=True):
    """Rows of text under column names. Without rows it prints `empty`, and is omitted if `empty` is empty as well.

    right: indexes of right-aligned numeric columns.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    right: frozenset[int] = frozenset()
    empty: str = ""


Block = Table | str  # a str is printed as it is


def show(blocks: Iterable[Block], out: TextIO | None = None) -> None:
    """Print the blocks with an empty line between them."""
    out = out or sys.stdout
    shown = [block for block in blocks if isinstance(block, str) or block.rows or block.empty]
    if not (wants_rich(out) and _show_rich(shown, out)):
        out.write(plain(shown))


def wants_rich(out: TextIO) -> bool:
    """Return whether output goes to a terminal that supports formatting."""
    return out.isatty() and os.environ.get("TERM", "") not in {"dumb", ""}


def plain(blocks: Iterable[Block]) -> str:
    """Print columns separated by three spaces; the last column is not padded."""
    return "\n".join(_paragraph(block) if isinstance(block, str) else _plain_table(block) for block in blocks)


def _paragraph(text: str) -> str:
    return "".join(f"{printable(line)}\n" for line in text.splitlines())


def _plain_table(table: Table) -> str:
    title = f"{printable(table.title)}\n" if table.title else ""
    if not table.rows:
        return f"{title}{table.empty}\n"
    rows = [tuple(name.upper() for name in table.columns), *(tuple(map(printable, row)) for row in table.rows)]
    widths = [max(columns(row[index]) for row in rows) for index in range(len(table.columns))]
    return title + "".join(f"{_GAP.join(_cells(row, widths, table.right)).rstrip()}\n" for row in rows)


def _cells(row: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> Iterable[str]:
    for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
        fill = " " * (width - columns(cell))
        yield fill + cell if index in right else cell + fill


_STYLES = (
    (re.compile(r"(?i)error\Z|refused|failed|missed"), "red"),
    (re.compile(r"(?i)warn(ing)?\Z|unknown\Z|only ours\Z"), "yellow"),
    (re.compile(r"\+[0-9]+ -> "), "green"),
    (re.compile(r"-[0-9]+ -> "), "magenta"),
)


def style_of(cell: str) -> str:
    """Return the style of a cell that says how bad something is, or how a size changes; "" for any other."""
    return next((style for pattern, style in _STYLES if pattern.match(cell)), "")


def _show_rich(blocks: Sequence[Block], out: TextIO) -> bool:
    """Print with rich; returns False where rich is not installed."""
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text
    except ImportError:
        return False
    console = Console(file=out, highlight=False)
    for table in blocks:
        if isinstance(table, str):
            console.print(Text(_paragraph(table)))
            continue
        if table.title:
            console.print(Text(printable(table.title), style="bold"))
        if not table.rows:
            console.print(Text(f"{table.empty}\n", style="dim"))
            continue
        shown = RichTable(box=SIMPLE_HEAD, pad_edge=False)
        for position, name in enumerate(table.columns):
            shown.add_column(Text(name), justify="right" if position in table.right else "left", overflow="fold")
        for row in table.rows:
            shown.add_row(*(Text(printable(cell), style=style_of(cell)) for cell in row))
        console.print(shown)
    return True
