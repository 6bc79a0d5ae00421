"""The output of the demonstration: one line per event, with virtual and wall time, and on a terminal a status below.

Without a terminal (a pipe, a CI log) only the lines are printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

STYLES = {
    "cluster": "cyan",
    "outscaler": "green",
    "provider": "yellow",
    "you": "bold white",
    "killed": "bold red",
    "time": "magenta",
}


class Account(Protocol):
    """The interface for the demonstration's output."""

    def chapter(self, number: int, title: str, words: str) -> None:
        """Start a chapter. words: what it shows."""

    def say(self, who: str, words: str) -> None:
        """Print one line. who: one of STYLES."""

    def status(self, lines: Sequence[tuple[str, str]]) -> None:
        """Show the status, as (name, value)."""


Say = Callable[[str, str], None]
"""The type of Account.say."""


def names(found: Iterable[str], most: int = 3) -> str:
    """Return `a, b, c and 4 more`, in order and without duplicates."""
    ordered = sorted(set(found))
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(ordered[:most]) + more


def count(number: int, word: str) -> str:
    """Return `1 pod` or `2 pods`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def span(seconds: float) -> str:
    """Return a duration as `04:07`."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


class Screen:
    """An Account on a console; a context manager. elapsed: (virtual, wall) seconds since the beginning."""

    def __init__(self, console: Console, elapsed: Callable[[], tuple[float, float]]) -> None:
        self._console, self._elapsed = console, elapsed
        self._lines: Sequence[tuple[str, str]] = ()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.still()

    def still(self) -> None:
        """Remove the status; from now on only lines are printed."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def chapter(self, number: int, title: str, words: str) -> None:
        """See Account."""
        self._console.print()
        self._console.print(Text(f"{number}. {title}", style="bold"))
        self._console.print(Text(words, style="dim"), width=min(110, self._console.width))

    def say(self, who: str, words: str) -> None:
        """See Account."""
        virtual, wall = self._elapsed()
        head = Text.assemble((f"{span(virtual)} ", "bold"), (f"{wall:5.1f}s ", "dim"), (f"{who:>9}", STYLES[who]))
        if self._console.is_terminal:  # continuation lines are indented below the text
            line = Table.grid(padding=(0, 1))
            line.add_row(head, words)
            self._console.print(line)
        else:
            self._console.print(Text.assemble(head, " ", words), soft_wrap=True)

    def status(self, lines: Sequence[tuple[str, str]]) -> None:
        """See Account; shown only on a terminal."""
        if self._live is None or lines == self._lines:
            return
        self._lines = lines
        grid = Table.grid(padding=(0, 2))
        for what, how in lines:
            grid.add_row(Text(what, style="dim"), how)
        self._live.update(Group(Text("─" * 40, style="dim"), grid), refresh=True)
