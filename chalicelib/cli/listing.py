"""Tables of `outscaler get`: each column is stated once, and every form of an answer is made of it.

A column has its title, its cell for people, the key and the values by which -l selects, whether
only -o wide shows it, and what -w compares. Programs get the data of a row, under stable keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from chalicelib.cli.arguments import not_one_of
from chalicelib.cli.output import Table
from chalicelib.model.errors import BadInput

SortKey = tuple[bool, tuple[tuple[int, float, str], ...]]
_DIGITS = re.compile(r"([0-9]{1,15})")
Of = TypeVar("Of")
"""What a row is about."""


class Column(msgspec.Struct, Generic[Of], frozen=True):
    """One column. cell: of a row; cell_at: in place of it, of a row at an instant. blank: what is
    shown where a cell is None or "". label: the key of -l, "" for none; values: of a row, None: its
    cell. wide: only -o wide shows it; such columns are the last ones. watched: -w compares it;
    state: what it compares, None: the cell. spare: a narrow terminal may leave it out, the one with
    the lowest number first; 0: never. order: what --sort-by compares, None: the cell; it
    returns None where nothing is known."""

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
    spare: int = 0
    order: Callable[[Of], float | None] | None = None

    @property
    def word(self) -> str:
        """Return the name that arguments have for it."""
        return self.title.replace(" ", "-")

    def text(self, item: Of, now: float) -> str:
        """Return the cell of a row, "" where nothing is known."""
        value = self.cell(item) if self.cell_at is None else self.cell_at(item, now)
        if value is None:
            return ""
        return value if isinstance(value, str) else str(value)

    def sort_key(self, item: Of, text: str) -> SortKey:
        """Return what --sort-by compares; text: the cell. Numbers within a text count as such, and
        what is not known comes last."""
        if self.order is None:
            return (not text, _natural(text))
        number = self.order(item)
        return (number is None, ((0, number or 0.0, ""),))


def _natural(text: str) -> tuple[tuple[int, float, str], ...]:
    parts = _DIGITS.split(text.casefold())
    return tuple(
        (0, float(part), "") if part.isdecimal() else (1, 0.0, part) for part in parts if part
    )


class Row(msgspec.Struct, frozen=True):
    """One object. name: of NAME arguments and of -o name. cells: also those of -o wide.
    labels: values by key. state: what -w compares. aliases: further names by which a person may
    mean it. sort_keys: of the cells."""

    name: str
    cells: tuple[str, ...]
    data: dict[str, Any]
    labels: Mapping[str, tuple[str, ...]] = {}
    state: tuple[object, ...] = ()
    aliases: tuple[str, ...] = ()
    sort_keys: tuple[SortKey, ...] = ()


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
        sort_keys = []
        for column in self.columns:
            text = column.text(item, now)
            cells.append(text or column.blank)
            sort_keys.append(column.sort_key(item, text))
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
            tuple(sort_keys),
        )


class Listing(msgspec.Struct, frozen=True):
    """Rows of one kind. before: lines above the table. empty: in place of a table without rows.
    document: makes the JSON of the rows' data. names_first: columns that name a row."""

    kind: TableKind[Any]
    rows: tuple[Row, ...]
    before: tuple[str, ...] = ()
    empty: str = ""
    document: Callable[[list[dict[str, Any]]], Any] = list
    names_first: int = 1

    @property
    def data(self) -> Any:
        """Return the answer for programs."""
        return self.document([row.data for row in self.rows])

    def sorted_by(self, word: str) -> Listing:
        """Return it with the rows in the order of a column. Raises BadInput for another word."""
        words = [column.word for column in self.kind.columns]
        wanted = word.strip("{}.").casefold().replace(" ", "-").replace("_", "-")
        if wanted not in words:
            raise BadInput("--sort-by", not_one_of(wanted, words), "")
        at = words.index(wanted)
        rows = sorted(self.rows, key=lambda row: row.sort_keys[at])
        return msgspec.structs.replace(self, rows=tuple(rows))

    def table(self, *, wide: bool) -> Table:
        """Return the table for people. wide: all columns, and nothing of them is left out."""
        columns = [column for column in self.kind.columns if wide or not column.wide]
        rows = tuple(row.cells[: len(columns)] for row in self.rows)
        right = frozenset(at for at, column in enumerate(columns) if column.right)
        spare = sorted((column.spare, at) for at, column in enumerate(columns) if column.spare)
        return Table(
            tuple(column.title for column in columns),
            rows,
            right=right,
            empty=self.empty or self.kind.empty,
            spare=() if wide else tuple(at for _, at in spare),
            shown_by="-o wide or -o json",
            is_whole=wide,
        )


def of_all_clusters(listings: Mapping[str, Listing]) -> Listing:
    """Return the rows of several clusters, at least one, with a column for the cluster. The JSON of
    a listing that is a document of its own is a list of these."""
    first = next(iter(listings.values()))
    kind = msgspec.structs.replace(
        first.kind, columns=(Column("cluster", label="cluster"), *first.kind.columns)
    )
    rows = [
        msgspec.structs.replace(
            row,
            name=f"{cluster}/{row.name}",
            cells=(cluster, *row.cells),
            data={"cluster": cluster, **row.data},
            labels={**row.labels, "cluster": (cluster,)},
            sort_keys=((False, _natural(cluster)), *row.sort_keys),
        )
        for cluster, listing in listings.items()
        for row in listing.rows
    ]
    before = [
        f"{cluster}: {line}" for cluster, listing in listings.items() for line in listing.before
    ]

    def document(data: list[dict[str, Any]]) -> Any:
        if first.document is list:
            return data
        return [
            listing.document([row for row in data if row["cluster"] == cluster])
            for cluster, listing in listings.items()
        ]

    return Listing(kind, tuple(rows), before=tuple(before), document=document, names_first=2)
