"""Prints the result of a command: `-o table` for people, json and yaml for programs (stable keys, no other output).

Tables are columns, with colours on a terminal and plain everywhere else. They are never truncated, because they go to
files, grep and logs, too. Names come from clusters and files: an escape sequence in a pod's name must not reach a
terminal, so control characters are replaced. NO_COLOR and TERM=dumb are obeyed.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import msgspec

FIRST = 1.0
"""Seconds before the first line of `progress`, and between its updates."""
_GAP = "   "
_BOLD, _RED, _YELLOW, _GREEN, _MAGENTA, _END = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[35m", "\x1b[0m"
_ERASE = "\r\x1b[K"
_STYLES = (
    (re.compile(r"(?i)error\Z|refused|failed|missed"), _RED),
    (re.compile(r"(?i)warn(ing)?\Z|unknown\Z|only ours\Z"), _YELLOW),
    (re.compile(r"\+[0-9]+ -> "), _GREEN),
    (re.compile(r"-[0-9]+ -> "), _MAGENTA),
)


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
    """Print data (dicts, lists, text, numbers, None) as json or yaml, or blocks() as text and tables."""
    if output == "json":
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    elif output == "yaml":
        import yaml

        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    else:
        show(blocks())


def warn(text: str) -> None:
    """Print a warning on standard error, so that standard output contains only the result."""
    sys.stderr.write(f"{as_warning(f'warning: {one_line(text)}', sys.stderr)}\n")


def show(blocks: Iterable[Block], out: TextIO | None = None) -> None:
    """Print the blocks with an empty line between them."""
    out = out or sys.stdout
    colours = has_colour(out)
    texts = []
    for block in blocks:
        if isinstance(block, str):
            texts.append("".join(f"{printable(line)}\n" for line in block.splitlines()))
        elif block.rows or block.empty:
            texts.append(_table_text(block, colours=colours))
    out.write("\n".join(texts))


def _table_text(table: Table, *, colours: bool) -> str:
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
        text = _styled(cell, style_of(cell), colours=colours)
        yield fill + text if index in right else text + fill


def style_of(cell: str) -> str:
    """Return the colour of a cell that says how bad something is, or how a size changes; "" for any other."""
    return next((style for pattern, style in _STYLES if pattern.match(cell)), "")


def has_colour(stream: TextIO) -> bool:
    """Return whether text on this stream may be coloured: a terminal, without NO_COLOR (https://no-color.org)."""
    return stream.isatty() and os.environ.get("TERM", "") not in {"dumb", ""} and not os.environ.get("NO_COLOR")


def as_error(text: str, stream: TextIO) -> str:
    """Return a line in red where the stream has colours."""
    return _styled(text, _RED, colours=has_colour(stream))


def as_warning(text: str, stream: TextIO) -> str:
    """Return a line in yellow where the stream has colours."""
    return _styled(text, _YELLOW, colours=has_colour(stream))


def _styled(text: str, style: str, *, colours: bool) -> str:
    return f"{style}{text}{_END}" if colours and style else text


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
