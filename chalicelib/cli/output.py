"""Prints the result of a command: `-o table` for people, json, yaml and jsonpath for programs
(stable keys, no other output).

On a terminal a table fits its width: cells wrap between words, and a table that is too wide for
that is shown row by row. Everywhere else tables are plain columns, one line per row, because they
go to files, grep and logs. Names come from clusters and files: an escape sequence in a pod's name
must not reach a terminal, so control characters are replaced. NO_COLOR, COLUMNS and TERM=dumb are
obeyed. rich is imported for a terminal only.
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
_INDENT = "  "
_FOLD = "…"
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
    """Rows of text under column names. Without rows it prints `empty`, and is omitted if
    `empty` is empty as well.

    right: indexes of right-aligned numeric columns. notes: indexes of columns with sentences; a
    terminal on which not every row fits one line shows them below their row.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    right: frozenset[int] = frozenset()
    empty: str = ""
    notes: frozenset[int] = frozenset()


Block = Table | str  # a str is printed as it is


def emit(output: str, data: Any, blocks: Callable[[], Iterable[Block]]) -> None:
    """Print data (dicts, lists, text, numbers, None) as json, as yaml or through a jsonpath
    template, or blocks() as text and tables."""
    if output == "json":
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    elif output == "yaml":
        import yaml

        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    elif output.startswith(JSONPATH):
        from chalicelib.cli.jsonpath import rendered

        sys.stdout.write(
            rendered(output.removeprefix(JSONPATH), data, _harmless if sys.stdout.isatty() else str)
        )
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
    width = shutil.get_terminal_size().columns if is_terminal(out) else 0
    texts = []
    for block in blocks:
        if isinstance(block, str):
            texts.append("".join(f"{line}\n" for line in _lines(block, width)))
        elif block.rows or block.empty:
            texts.append(
                _fitting_table(block, width, out) if width and block.rows else _plain_table(block)
            )
    out.write("\n".join(texts))


def _lines(text: str, width: int) -> list[str]:
    """Return the lines of a text, wrapped between words. width: 0 for none."""
    lines = [printable(line) for line in text.splitlines()]
    if not width:
        return lines
    wrap = textwrap.TextWrapper(
        width, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return [
        part for line in lines for part in (wrap.wrap(line) if columns(line) > width else (line,))
    ]


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
    return [
        tuple(name.upper() for name in table.columns),
        *(tuple(map(printable, row)) for row in table.rows),
    ]


def _padded(row: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> Iterable[str]:
    for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
        fill = " " * max(0, width - columns(cell))
        yield fill + cell if index in right else cell + fill


def row_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return one row below a table that has these widths."""
    return _GAP.join(
        _padded([printable(cell) for cell in cells], widths[: len(cells)], frozenset())
    ).rstrip()


def style_of(cell: str) -> str:
    """Return the colour of a cell that says how bad something is, or how a size
    changes; "" for any other."""
    if isinstance(cell, Styled):
        return cell.style
    return next((style for pattern, style in _STYLES if pattern.match(cell)), "")


# -- tables on a terminal


def _fitting_table(table: Table, width: int, out: TextIO) -> str:
    """Return the table in this width. No word is broken: where the longest words of all columns do
    not fit beside each other, each row is a block of lines."""
    from rich.console import Console
    from rich.text import Text

    rows = _printable_rows(table)
    beside = _columns_beside(table, rows, width)
    head, *cells = [[row[index] for index in beside] for row in rows]
    styled = [
        [Text(text, style_of(row[index])) for text, index in zip(texts, beside, strict=True)]
        for texts, row in zip(cells, table.rows, strict=True)
    ]
    widths = _column_widths([head, *cells], width)
    right = [position for position, index in enumerate(beside) if index in table.right]
    parts: list[Any] = []
    if len(beside) < len(table.columns):
        for number, row in enumerate(styled):
            parts.append(_grid(head, [row], widths, right, show_header=number == 0))
            parts += map(Text, _notes_below(table, rows[number + 1], width))
    elif widths:
        parts.append(_grid(head, styled, widths, right, show_header=True))
    else:
        parts.append(_row_by_row(head, styled, width))
    needed = max(map(columns, head)) + _longest_word(rows)
    console = Console(
        file=out,
        width=max(width, needed) + 2 * len(_GAP),  # rich pads each column
        color_system="standard" if has_colour(out) else None,
    )
    with console.capture() as capture:
        if table.title:
            console.print(Text(printable(table.title), "bold"), width=width)
        for part in parts:
            console.print(part)
    return "".join(_PADDING.sub(_reset, line) + "\n" for line in capture.get().splitlines())


def _columns_beside(table: Table, rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the indexes of the columns that stand beside each other: without the notes, where a
    row with them takes several lines."""
    everything = list(range(len(table.columns)))
    without_notes = [index for index in everything if index not in table.notes]
    one_line = sum(_natural_widths(rows)) + len(_GAP) * (len(everything) - 1)
    fits = bool(_column_widths([[row[index] for index in without_notes] for row in rows], width))
    return without_notes if one_line > width and fits else everything


def _notes_below(table: Table, row: Sequence[str], width: int) -> list[str]:
    """Return the notes of a row as lines, with the names of their columns."""
    notes = [
        f"{printable(table.columns[index])}: {row[index]}"
        for index in sorted(table.notes)
        if row[index]
    ]
    return textwrap.wrap(
        "; ".join(notes),
        width,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _grid(
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    widths: Sequence[int],
    right: Iterable[int],
    *,
    show_header: bool,
) -> Any:
    """Return rich's table of these rows, in columns of these widths."""
    from rich.table import Table as Columns

    grid = Columns(
        box=None,
        padding=(0, len(_GAP), 0, 0),
        pad_edge=False,
        header_style="bold",
        show_header=show_header,
    )
    for index, (name, width) in enumerate(zip(head, widths, strict=True)):
        grid.add_column(name, width=width, justify="right" if index in right else "left")
    for row in rows:
        grid.add_row(*row)
    return grid


def _row_by_row(head: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> Any:
    """Return rich's table in which each cell is a line with its column's name."""
    from rich.text import Text

    pairs = [
        [Text(name, "bold"), cell]
        for row in rows
        for name, cell in zip(("", *head), (Text(), *row), strict=True)
    ]
    names = max(map(columns, head))
    longest = _longest_word([[cell.plain for cell in row] for row in rows])
    widths = [names, max(longest, width - names - len(_GAP))]
    return _grid(("", ""), pairs[1:], widths, (), show_header=False)


def _reset(padding: re.Match[str]) -> str:
    """Return what ends the colours of a line in place of its padding."""
    return "\x1b[0m" if "\x1b" in padding[0] else ""


def _longest_word(rows: Iterable[Sequence[str]]) -> int:
    return max(columns(word) for row in rows for cell in row for word in cell.split() or [""])


def _natural_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(columns(row[index]) for row in rows) for index in range(len(rows[0]))]


def _column_widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the widths of the columns, [] where their longest words do not fit. Columns that need
    least get it first; the rest is for the others."""
    natural = _natural_widths(rows)
    widths = [
        max(columns(word) for row in rows for word in row[index].split() or [""])
        for index in range(len(natural))
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


# -- long names


def folded(names: Iterable[str], most: int) -> dict[str, str]:
    """Return name -> its text of `most` characters, `gke-prod…x7k2m` for a longer one. No two texts
    are equal: names of which both ends are equal are folded elsewhere, or are longer."""
    distinct = sorted(set(names))
    texts = {name: name for name in distinct if len(name) <= most}
    alike: dict[str, list[str]] = {}
    for name in distinct:
        if len(name) > most:
            alike.setdefault(_fold(name, most, _middle(most)), []).append(name)
    taken = set(texts)
    for group in alike.values():
        own_texts = _distinct_folds(group, most, taken)
        taken.update(own_texts)
        texts.update(zip(group, own_texts, strict=True))
    return texts


def _distinct_folds(names: list[str], most: int, taken: set[str]) -> list[str]:
    """Return the first texts of these names that differ from each other and from those taken."""
    length, longest = most, max(map(len, names))
    while length < longest:
        middle = _middle(length)
        for head in sorted(range(1, length - 1), key=lambda head: abs(head - middle)):
            texts = [_fold(name, length, head) for name in names]
            if len(set(texts)) == len(names) and taken.isdisjoint(texts):
                return texts
        length *= 2
    return names


def _middle(length: int) -> int:
    return (length - len(_FOLD)) // 2


def _fold(name: str, length: int, head: int) -> str:
    """Return the first `head` characters and the last ones, in `length` characters."""
    tail = length - head - len(_FOLD)
    return name if len(name) <= length else f"{name[:head]}{_FOLD}{name[len(name) - tail :]}"


def is_fold_of(text: str, name: str) -> bool:
    """Return whether the text is a folded form of the name."""
    head, fold, tail = text.partition(_FOLD)
    return (
        bool(head and fold and tail)
        and len(head) + len(tail) < len(name)
        and name.startswith(head)
        and name.endswith(tail)
    )


# -- text on a stream


def is_terminal(stream: TextIO) -> bool:
    """Return whether tables on this stream fit its width."""
    return stream.isatty() and os.environ.get("TERM", "") not in {"dumb", ""}


def has_colour(stream: TextIO) -> bool:
    """Return whether text on this stream may be coloured: a terminal, without
    NO_COLOR (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def as_error(text: str, stream: TextIO) -> str:
    """Return a line in red where the stream has colours."""
    return _coloured(text, "red", stream)


def as_warning(text: str, stream: TextIO) -> str:
    """Return a line in yellow where the stream has colours."""
    return _coloured(text, "yellow", stream)


def _coloured(text: str, style: str, stream: TextIO) -> str:
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if has_colour(stream) else text


def printable(text: str) -> str:
    """Replace control and format characters (escapes, newlines, direction
    marks) by a visible character."""
    if text.isascii() and text.isprintable():
        return text
    hidden = {"Cc", "Cf", "Cs"}
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(char) in hidden else char
        for char in text
    )


def one_line(text: str) -> str:
    """Join several lines into one that is safe to print."""
    return printable(" ".join(text.split()))


def columns(text: str) -> int:
    """Return the width in columns: wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    wide = sum(
        unicodedata.east_asian_width(char) in {"W", "F"}
        for char in text
        if not unicodedata.combining(char)
    )
    return wide + sum(not unicodedata.combining(char) for char in text)


def local_time(at: float, now: float, stream: TextIO) -> str:
    """Return an instant for a person on a terminal: the local time, with the day if it is another
    one. Files and pipes get RFC 3339."""
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


@contextmanager
def progress(
    what: str,
    stream: TextIO | None = None,
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
) -> Iterator[None]:
    """Show `what … 3 s` on a terminal while the block runs, once it has taken longer
    than a second; files and pipes get nothing. wait: waits for the event, and returns
    whether it was set in time."""
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
