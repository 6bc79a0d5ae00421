"""Prints the result of a command: `-o table` for people, json, yaml and jsonpath for programs
(stable keys, no other output).

On a terminal a table fits its width: cells wrap between words; where that is not enough, long names
are folded in the middle, then the columns that matter least are left out, and the table says which.
Only on a terminal that is too narrow even for this, rows are shown as lines. Everywhere else tables
are plain columns, one line per row, because they go to files, grep and logs. Names come from
clusters and files: an escape sequence in a pod's name must not reach a terminal, so control
characters are replaced. NO_COLOR, COLUMNS and TERM=dumb are obeyed. rich is imported for a terminal
only.
"""

from __future__ import annotations

import argparse
import json
import operator
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
_NAME = re.compile(r"[^\s,;()]*[^\s,;():.]")
"""A word, without what follows it in a sentence."""
_ADDRESS = "://"
"""A word with this is opened or copied, so that it is never folded."""
_NAME_LENGTHS = (48, 40, 32, 24)
"""Characters of a name at most, in the order in which a layout is tried."""
_COMFORTS = ((24, 3), (24, 0), (14, 0))
"""Characters that a column of sentences has at least, and lines of a row at most (0: any number),
in the order in which a layout is tried."""
_WIDE_ENOUGH = 40
"""Characters of a column of sentences for which no other column is left out."""
_NO_NOTE = ("", "-")
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
    terminal on which not every row fits one line shows them below their row. spare: indexes of
    columns that a narrow terminal may leave out, the first one first; shown_by: what shows them.
    has_head: the names of the columns are shown. is_whole: no name is folded.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    right: frozenset[int] = frozenset()
    empty: str = ""
    notes: frozenset[int] = frozenset()
    spare: tuple[int, ...] = ()
    shown_by: str = "-o json"
    has_head: bool = True
    is_whole: bool = False


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


def show(blocks: Iterable[Block], out: TextIO | None = None, *, apart: bool = True) -> None:
    """Print the blocks. apart: with an empty line between them."""
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
    out.write(("\n" if apart else "").join(texts))


def show_answer(table: Table, before: Sequence[str] = (), after: Sequence[str] = ()) -> None:
    """Print a table that is the whole answer. What is said about it, and that it is empty, goes to
    standard error, so that standard output has rows only."""
    show(before, sys.stderr, apart=False)
    sys.stderr.flush()
    show([msgspec.structs.replace(table, empty="")])
    sys.stdout.flush()
    show(after if table.rows else (table.empty, *after), sys.stderr, apart=False)


def add_head_argument(parser: argparse.ArgumentParser) -> None:
    """Add --no-headers, as `has_head`."""
    parser.add_argument(
        "--no-headers",
        dest="has_head",
        action="store_false",
        help="a table without the names of its columns",
    )


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
    rows = _printable_rows(table)[0 if table.has_head else 1 :]
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


class _Folding(msgspec.Struct, frozen=True):
    """Which names are folded. longest: characters, 0 for any number. in_sentences: also those that
    are no cell by themselves."""

    longest: int = 0
    in_sentences: bool = False

    def texts(self, rows: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return the rows with folded names."""
        if not self.longest:
            return [list(row) for row in rows]
        names: set[str] = set()
        for cell in (cell for row in rows for cell in row):
            words = _NAME.findall(cell) if len(cell) > self.longest else []
            if self.in_sentences or words == [cell]:
                names.update(word for word in words if _ADDRESS not in word)
        texts = folded(names, self.longest)

        def text_of(match: re.Match[str]) -> str:
            return texts.get(match[0], match[0])

        return [[_NAME.sub(text_of, cell) for cell in row] for row in rows]


_FOLDINGS = (
    _Folding(),
    *(_Folding(most, in_sentences) for most in _NAME_LENGTHS for in_sentences in (False, True)),
)


class _Layout(msgspec.Struct, frozen=True):
    """How a table fits a terminal. beside: indexes of the columns beside each other; widths: of
    these, () where rows are shown as lines. left_out: indexes."""

    beside: tuple[int, ...]
    widths: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()
    folding: _Folding = _Folding()


def _layout(table: Table, rows: Sequence[Sequence[str]], width: int) -> _Layout:
    """Return the first layout in which no column of sentences is too narrow: names are folded
    before a column is left out. rows: with the head."""
    everything = tuple(range(len(table.columns)))
    natural = _natural_widths(rows)
    if sum(natural) + len(_GAP) * (len(everything) - 1) <= width:
        return _Layout(everything, tuple(natural))
    columns_left = [index for index in everything if index not in table.notes]
    measured: dict[_Folding, list[_ColumnNeed]] = {}
    for least, lines in _COMFORTS:
        for count in range(len(table.spare) + 1):
            left_out = table.spare[:count]
            beside = tuple(index for index in columns_left if index not in left_out)
            for folding in _FOLDINGS[:1] if table.is_whole else _FOLDINGS:
                if folding not in measured:
                    measured[folding] = _needs(folding.texts(rows))
                needs = [measured[folding][index] for index in beside]
                widths = _column_widths(needs, width)
                wanted = [need.wanted(least, lines) for need in needs]
                if widths and all(map(operator.ge, widths, wanted)):
                    return _Layout(beside, tuple(widths), left_out, folding)
    return _Layout(everything)


def _fitting_table(table: Table, width: int, out: TextIO, layout: _Layout | None = None) -> str:
    """Return the table in this width. No word but a long name is broken: where the longest words of
    all columns do not fit beside each other, each row is a block of lines. layout: of an earlier
    table whose rows these continue."""
    from rich.console import Console
    from rich.text import Text

    whole_rows = _printable_rows(table)
    continues = layout is not None
    layout = layout or _layout(table, whole_rows, width)
    rows = layout.folding.texts(whole_rows)
    head, *cells = [[row[index] for index in layout.beside] for row in rows]
    styled = [
        [Text(text, style_of(row[index])) for text, index in zip(texts, layout.beside, strict=True)]
        for texts, row in zip(cells, table.rows, strict=True)
    ]
    widths = layout.widths
    right = [position for position, index in enumerate(layout.beside) if index in table.right]
    noted = [index for index in sorted(table.notes) if index not in layout.beside]
    parts: list[Any] = []
    if noted:
        for number, row in enumerate(styled):
            has_head = number == 0 and table.has_head
            parts.append(_grid(head, [row], widths, right, show_header=has_head))
            parts += map(Text, _notes_below(table, rows[number + 1], noted, width))
    elif widths:
        parts.append(_grid(head, styled, widths, right, show_header=table.has_head))
    else:
        parts.append(_row_by_row(head, styled, width))
    if layout.left_out and not continues:
        parts += map(Text, _lines(_left_out_line(table, layout), width))
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


def _left_out_line(table: Table, layout: _Layout) -> str:
    names = [table.columns[index].upper() for index in sorted(layout.left_out)]
    verb = "shows it" if len(names) == 1 else "shows them"
    return f"({', '.join(names)}: no room on this terminal; {table.shown_by} {verb})"


class GrowingTable:
    """A table whose rows are printed as they come, below each other."""

    def __init__(self, table: Table, out: TextIO) -> None:
        self._out = out
        self._width = shutil.get_terminal_size().columns if is_terminal(out) else 0
        rows = _printable_rows(table)
        self._layout = _layout(table, rows, self._width) if self._width else None
        self._widths = _natural_widths(rows)

    def add(self, table: Table) -> None:
        """Print the rows of a table that has the same columns, without its head."""
        if not table.rows:
            return
        if self._layout is None:
            lines = [row_line(row, self._widths) for row in table.rows]
            self._out.write("".join(f"{line}\n" for line in lines))
            return
        continued = msgspec.structs.replace(table, has_head=False)
        self._out.write(_fitting_table(continued, self._width, self._out, self._layout))


def _notes_below(table: Table, row: Sequence[str], noted: Iterable[int], width: int) -> list[str]:
    """Return the notes of a row as lines, with the names of their columns. noted: indexes."""
    notes = [
        f"{printable(table.columns[index])}: {row[index]}"
        for index in noted
        if row[index] not in _NO_NOTE
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
    """Return rich's table of these rows, in columns of these widths. Cells are wrapped here: rich
    counts wide characters once."""
    from rich.table import Table as Columns
    from rich.text import Text

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
        grid.add_row(
            *(
                Text(_wrapped(cell.plain, width), cell.style)
                for cell, width in zip(row, widths, strict=True)
            )
        )
    return grid


def _wrapped(text: str, width: int) -> str:
    """Return a cell in lines of this many columns, broken between words."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and columns(lines[-1]) + 1 + columns(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)


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


class _ColumnNeed(msgspec.Struct, frozen=True):
    """Widths of a column: of its longest cell, and of its longest word."""

    natural: int
    word: int

    def wanted(self, least: int, lines: int) -> int:
        """Return the width at which its cells are easy to read: of at least so many characters, and
        about so many lines at most (0: any number)."""
        for_lines = -(-self.natural // lines) if lines else 0
        return max(min(self.natural, least), min(for_lines, _WIDE_ENOUGH))


def _needs(rows: Sequence[Sequence[str]]) -> list[_ColumnNeed]:
    words = [
        max(columns(word) for row in rows for word in row[index].split() or [""])
        for index in range(len(rows[0]))
    ]
    return list(map(_ColumnNeed, _natural_widths(rows), words))


def _column_widths(needs: Sequence[_ColumnNeed], width: int) -> list[int]:
    """Return the widths of the columns, [] where their longest words do not fit. Columns that need
    least get it first; the rest is for the others."""
    widths = [need.word for need in needs]
    left = width - len(_GAP) * (len(widths) - 1) - sum(widths)
    if left < 0:
        return []
    order = sorted((need.natural - need.word, index) for index, need in enumerate(needs))
    for place, (more_wanted, index) in enumerate(order):
        more = min(more_wanted, left // (len(order) - place))
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


def is_folded(text: str) -> bool:
    """Return whether the text may be a folded name."""
    return _FOLD in text


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
