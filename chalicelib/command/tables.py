"""Prints tables as columns: with colours on a terminal, plain everywhere else.

Columns are never truncated, because they go to files, grep and logs, too. NO_COLOR and TERM=dumb are obeyed
(terminal_text.has_colour).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

import msgspec

from chalicelib.command.terminal_text import columns, has_colour, printable

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
    colours = has_colour(out)
    out.write("\n".join(_text(block, colours=colours) for block in shown))


def _text(block: Block, *, colours: bool) -> str:
    return _paragraph(block) if isinstance(block, str) else _columns(block, colours=colours)


def _paragraph(text: str) -> str:
    return "".join(f"{printable(line)}\n" for line in text.splitlines())


def _columns(table: Table, *, colours: bool) -> str:
    """Return columns separated by three spaces; the last column is not padded."""
    title = f"{_styled(printable(table.title), _BOLD, colours=colours)}\n" if table.title else ""
    if not table.rows:
        return f"{title}{table.empty}\n"
    rows = [tuple(name.upper() for name in table.columns), *(tuple(map(printable, row)) for row in table.rows)]
    widths = [max(columns(row[index]) for row in rows) for index in range(len(table.columns))]
    lines = [
        _GAP.join(_cells(row, widths, table.right, colours=colours and number > 0)) for number, row in enumerate(rows)
    ]
    return title + "".join(f"{line.rstrip()}\n" for line in lines)


def _cells(row: Sequence[str], widths: Sequence[int], right: frozenset[int], *, colours: bool) -> Iterable[str]:
    for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
        fill = " " * (width - columns(cell))
        shown = _styled(cell, style_of(cell), colours=colours)
        yield fill + shown if index in right else shown + fill


_BOLD, _RED, _YELLOW, _GREEN, _MAGENTA, _END = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[35m", "\x1b[0m"
_STYLES = (
    (re.compile(r"(?i)error\Z|refused|failed|missed"), _RED),
    (re.compile(r"(?i)warn(ing)?\Z|unknown\Z|only ours\Z"), _YELLOW),
    (re.compile(r"\+[0-9]+ -> "), _GREEN),
    (re.compile(r"-[0-9]+ -> "), _MAGENTA),
)


def style_of(cell: str) -> str:
    """Return the colour of a cell that says how bad something is, or how a size changes; "" for any other."""
    return next((style for pattern, style in _STYLES if pattern.match(cell)), "")


def _styled(text: str, style: str, *, colours: bool) -> str:
    return f"{style}{text}{_END}" if colours and style else text
