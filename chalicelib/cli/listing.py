"""Tables of `outscaler get`: each column is stated once, and every form of an answer is made of it.

A column has its title, its cell for people, the key and the values by which -l selects, whether
only -o wide shows it, and what -w compares. Programs get the data of a row, under stable keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from chalicelib.cli.output import Table

Of = TypeVar("Of")
"""What a row is about."""


class Column(msgspec.Struct, Generic[Of], frozen=True):
    """One column. cell: of a row; cell_at: in place of it, of a row at an instant. blank: what is
    shown where a cell is None or "". label: the key of -l, "" for none; values: of a row, None: its
    cell. wide: only -o wide shows it; such columns are the last ones. watched: -w compares it;
    state: what it compares, None: the cell."""

    title: str
    cell: Callable[[Of], str | int | None] = lambda _: None
    cell_at: Callable[[Of, float], str] | None = None
    blank: str = "-"
    wide: bool = False
    right: bool = False
    label: str = ""
    values: Callable[[Of], tuple[str, ...]] | None = None
    watched: bool = True
    state: Callable[[Of], object] | None = None

    def text(self, item: Of, now: float) -> str:
        """Return the cell of a row, "" where nothing is known."""
        value = self.cell(item) if self.cell_at is None else self.cell_at(item, now)
        if value is None:
            return ""
        return value if isinstance(value, str) else str(value)


class Row(msgspec.Struct, frozen=True):
    """One object. name: of NAME arguments and of -o name. cells: also those of -o wide.
    labels: values by key. state: what -w compares. aliases: further names by which a person may
    mean it."""

    name: str
    cells: tuple[str, ...]
    data: dict[str, Any]
    labels: Mapping[str, tuple[str, ...]] = {}
    state: tuple[object, ...] = ()
    aliases: tuple[str, ...] = ()


class TableKind(msgspec.Struct, Generic[Of], frozen=True):
    """What can be listed. word: for one of it. empty: the line in place of a table without rows.
    name, data, aliases: of a row."""

    word: str
    columns: tuple[Column[Of], ...]
    empty: str
    name: Callable[[Of], str]
    data: Callable[[Of], dict[str, Any]]
    aliases: Callable[[Of], tuple[str, ...]] = lambda _: ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the keys of -l."""
        return tuple(sorted(column.label for column in self.columns if column.label))

    def row(self, item: Of, now: float) -> Row:
        """Return the row of an object."""
        cells = []
        labels = {}
        state: list[object] = []
        for column in self.columns:
            text = column.text(item, now)
            cells.append(text or column.blank)
            if column.label:
                labels[column.label] = (text,) if column.values is None else column.values(item)
            if column.watched:
                state.append(text if column.state is None else column.state(item))
        return Row(
            self.name(item),
            tuple(cells),
            self.data(item),
            labels,
            tuple(state),
            self.aliases(item),
        )


class Listing(msgspec.Struct, frozen=True):
    """Rows of one kind. before: lines above the table. empty: in place of a table without rows.
    document: makes the JSON of the rows' data."""

    kind: TableKind[Any]
    rows: tuple[Row, ...]
    before: tuple[str, ...] = ()
    empty: str = ""
    document: Callable[[list[dict[str, Any]]], Any] = list

    @property
    def data(self) -> Any:
        """Return the answer for programs."""
        return self.document([row.data for row in self.rows])

    def table(self, *, wide: bool) -> Table:
        """Return the table for people."""
        columns = [column for column in self.kind.columns if wide or not column.wide]
        rows = tuple(row.cells[: len(columns)] for row in self.rows)
        right = frozenset(at for at, column in enumerate(columns) if column.right)
        titles = tuple(column.title for column in columns)
        return Table(titles, rows, right=right, empty=self.empty or self.kind.empty)
