"""Prints the result of a command: `-o table` for people, json, yaml and jsonpath for programs (stable keys, no other
output).

On a terminal a table fits its width: cells wrap between words, and a table that is too wide for that is shown row by
row. Everywhere else tables are plain columns, one line per row, because they go to files, grep and logs. Names come
from clusters and files: an escape sequence in a pod's name must not reach a terminal, so control characters are
replaced. NO_COLOR, COLUMNS and TERM=dumb are obeyed. rich is imported for a terminal only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.timestamps import format_time, parse_time

JSONPATH = "jsonpath="
FIRST = 1.0
"""Seconds before the first line of `progress`, and between its updates."""
_GAP = "   "
_ERASE = "\r\x1b[K"
_STYLES = (
    (re.compile(r"(?i)error\Z|refused|failed|missed"), "red"),
    (re.compile(r"(?i)warn(ing)?\Z|unknown\Z|only ours\Z"), "yellow"),
    (re.compile(r"\+[0-9]+ -> "), "green"),
    (re.compile(r"-[0-9]+ -> "), "magenta"),
)
_PADDING = re.compile(r"(?: |\x1b\[[\d;]*m)+\Z")  # rich pads the last cell
_INSTANT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_CODES = {"red": 31, "yellow": 33}


class Styled(str):
    """A cell with its own colour: red, yellow, green or dim."""

    __slots__ = ("style",)
    style: str

    def __new__(cls, text: str, style: str) -> Styled:
        """Return the text with its colour."""
        cell = super().__new__(cls, text)
        cell.style = style
        return cell


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


def emit(output: str, data: Any, blocks: Callable[[], Iterable[Block]]) -> None:
    """Print data (dicts, lists, text, numbers, None) as json, as yaml or through a jsonpath template, or blocks() as
    text and tables."""
    if output == "json":
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    elif output == "yaml":
        import yaml

        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    elif output.startswith(JSONPATH):
        from chalicelib.command.jsonpath import rendered

        sys.stdout.write(rendered(output.removeprefix(JSONPATH), data, _harmless if sys.stdout.isatty() else str))
    else:
        show(blocks())


def _harmless(value: str) -> str:
    """Return a text of several lines without what a terminal would obey."""
    return "\n".join(map(printable, value.split("\n")))


def warn(text: str) -> None:
    """Print a warning on standard error, so that standard output contains only the result."""
    sys.stderr.write(f"{as_warning(f'warning: {one_line(text)}', sys.stderr)}\n")


def show(blocks: Iterable[Block], out: TextIO | None = None) -> None:
    """Print the blocks with an empty line between them."""
    out = out or sys.stdout
    width = shutil.get_terminal_size().columns if _is_terminal(out) else 0
    texts = []
    for block in blocks:
        if isinstance(block, str):
            texts.append("".join(f"{line}\n" for line in _lines(block, width)))
        elif block.rows or block.empty:
            texts.append(_fitting_table(block, width, out) if width and block.rows else _plain_table(block))
    out.write("\n".join(texts))


def _lines(text: str, width: int) -> list[str]:
    """Return the lines of a text, wrapped between words. width: 0 for none."""
    lines = [printable(line) for line in text.splitlines()]
    if not width:
        return lines
    wrap = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False, drop_whitespace=True)
    return [part for line in lines for part in (wrap.wrap(line) if columns(line) > width else (line,))]


def _plain_table(table: Table) -> str:
    """Return columns separated by three spaces; the last column is not padded."""
    title = f"{printable(table.title)}\n" if table.title else ""
    if not table.rows:
        return f"{title}{table.empty}\n"
    rows = _printable_rows(table)
    widths = _natural_widths(rows)
    lines = [_GAP.join(_padded(row, widths, table.right)) for row in rows]
    return title + "".join(f"{line.rstrip()}\n" for line in lines)


def _printable_rows(table: Table) -> list[tuple[str, ...]]:
    """Return the head and the rows."""
    return [tuple(name.upper() for name in table.columns), *(tuple(map(printable, row)) for row in table.rows)]


def _padded(row: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> Iterable[str]:
    for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
        fill = " " * max(0, width - columns(cell))
        yield fill + cell if index in right else cell + fill


def row_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return one row below a table that has these widths."""
    return _GAP.join(_padded([printable(cell) for cell in cells], widths[: len(cells)], frozenset())).rstrip()


def style_of(cell: str) -> str:
    """Return the colour of a cell that says how bad something is, or how a size changes; "" for any other."""
    if isinstance(cell, Styled):
        return cell.style
    return next((style for pattern, style in _STYLES if pattern.match(cell)), "")


# -- tables on a terminal


def _fitting_table(table: Table, width: int, out: TextIO) -> str:
    """Return the table in this width. No word is broken: where the longest words of all columns do not fit beside each
    other, each row is a block of lines."""
    from rich.console import Console
    from rich.table import Table as Columns
    from rich.text import Text

    head, *rows = _printable_rows(table)
    cells = [
        [Text(text, style_of(cell)) for text, cell in zip(*both, strict=True)]
        for both in zip(rows, table.rows, strict=True)
    ]
    widths, right = _column_widths([head, *rows], width), table.right
    grid = Columns(
        box=None,
        padding=(0, len(_GAP), 0, 0),
        pad_edge=False,
        header_style="bold",
        show_header=bool(widths),
    )
    if not widths:
        cells = [
            [Text(name, "bold"), cell] for row in cells for name, cell in zip(("", *head), (Text(), *row), strict=True)
        ][1:]
        names = max(map(columns, head))
        longest = max(columns(word) for row in rows for cell in row for word in cell.split() or [""])
        right, head, widths = frozenset(), ("", ""), [names, max(longest, width - names - len(_GAP))]
    for index, (name, column_width) in enumerate(zip(head, widths, strict=True)):
        grid.add_column(name, width=column_width, justify="right" if index in right else "left")
    for row in cells:
        grid.add_row(*row)
    console = Console(
        file=out,
        width=max(width, sum(widths) + len(_GAP) * len(widths)),
        color_system="standard" if has_colour(out) else None,
    )
    with console.capture() as capture:
        if table.title:
            console.print(Text(printable(table.title), "bold"))
        console.print(grid)
    return "".join(_PADDING.sub(_reset, line) + "\n" for line in capture.get().splitlines())


def _reset(padding: re.Match[str]) -> str:
    """Return what ends the colours of a line in place of its padding."""
    return "\x1b[0m" if "\x1b" in padding[0] else ""


def _natural_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(columns(row[index]) for row in rows) for index in range(len(rows[0]))]


def _column_widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the widths of the columns, [] where their longest words do not fit. Columns that need least get it first;
    the rest is for the others."""
    natural = _natural_widths(rows)
    widths = [
        max(columns(word) for row in rows for word in row[index].split() or [""]) for index in range(len(natural))
    ]
    left = width - len(_GAP) * (len(widths) - 1) - sum(widths)
    if left < 0:
        return []
    needs = sorted((natural[index] - widths[index], index) for index in range(len(widths)))
    for place, (need, index) in enumerate(needs):
        more = min(need, left // (len(needs) - place))
        widths[index] += more
        left -= more
    return widths


# -- text on a stream


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "") not in {"dumb", ""}


def has_colour(stream: TextIO) -> bool:
    """Return whether text on this stream may be coloured: a terminal, without NO_COLOR (https://no-color.org)."""
    return _is_terminal(stream) and not os.environ.get("NO_COLOR")


def as_error(text: str, stream: TextIO) -> str:
    """Return a line in red where the stream has colours."""
    return _coloured(text, "red", stream)


def as_warning(text: str, stream: TextIO) -> str:
    """Return a line in yellow where the stream has colours."""
    return _coloured(text, "yellow", stream)


def _coloured(text: str, style: str, stream: TextIO) -> str:
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if has_colour(stream) else text


def printable(text: str) -> str:
    """Replace control and format characters (escapes, newlines, direction marks) by a visible character."""
    if text.isascii() and text.isprintable():
        return text
    hidden = {"Cc", "Cf", "Cs"}
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(char) in hidden else char for char in text)


def one_line(text: str) -> str:
    """Join several lines into one that is safe to print."""
    return printable(" ".join(text.split()))


def columns(text: str) -> int:
    """Return the width in columns: wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in {"W", "F"} for char in text if not unicodedata.combining(char))
    return wide + sum(not unicodedata.combining(char) for char in text)


def local_time(at: float, now: float, stream: TextIO) -> str:
    """Return an instant for a person on a terminal: the local time, with the day if it is another one. Files and pipes
    get RFC 3339."""
    if not stream.isatty():
        return format_time(at)
    try:
        moment, today = (datetime.fromtimestamp(instant, UTC).astimezone() for instant in (at, now))
    except (ValueError, OverflowError, OSError):  # beyond the calendar
        return format_time(at)
    return moment.strftime("%H:%M" if moment.date() == today.date() else "%b %d %H:%M")


def with_local_times(text: str, now: float, stream: TextIO) -> str:
    """Return a text with its instants as local_time writes them; what is no instant stays."""

    def local(match: re.Match[str]) -> str:
        try:
            return local_time(parse_time(match[0]), now, stream)
        except BadInput:
            return match[0]

    return _INSTANT.sub(local, text)


def plural(count: int, noun: str) -> str:
    """Return `1 node` or `2 nodes`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


@contextmanager
def progress(
    what: str, stream: TextIO | None = None, wait: Callable[[threading.Event, float], bool] = threading.Event.wait
) -> Iterator[None]:
    """Show `what … 3 s` on a terminal while the block runs, once it has taken longer than a second; files and pipes get
    nothing. wait: waits for the event, and returns whether it was set in time."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield
        return
    ended = threading.Event()

    def update() -> None:
        seconds = 0
        while not wait(ended, FIRST):
            seconds += int(FIRST)
            stream.write(f"{_ERASE}{one_line(what)} … {seconds} s")
            stream.flush()
        if seconds:
            stream.write(_ERASE)
            stream.flush()

    thread = threading.Thread(target=update, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
