"""The charts of a cluster: numbers over a span, with marks for growths and removals, and the
cells of a group's size.

The script draws them (static/page.js) from attributes of the page. Without it the same numbers are
a table, so a chart is never the only form of a fact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from chalicelib.model.operation import OperationKind
from chalicelib.store.gauge_ring import EVERY, GaugePoint, extremes_of, hourly
from chalicelib.store.journal import JournalEntry
from chalicelib.views.journal_lines import operation_of

HOUR, DAY = 3600.0, 86400.0
MOST_CELLS = 24
"""Nodes of a group that are drawn as a cell each; a larger maximum is drawn as one bar."""
CELLS = 150.0
"""The width of a group's cells."""


class ChartSpan(msgspec.Struct, frozen=True):
    """A choice of time. row: seconds of one row of the table. hourly: drawn from
    the points of an hour each."""

    key: str
    title: str
    seconds: float
    row: float
    hourly: bool = False


SPANS = (
    ChartSpan("1h", "Last hour", HOUR, 300.0),
    ChartSpan("24h", "Last 24 hours", DAY, HOUR),
    ChartSpan("7d", "Last 7 days", 7 * DAY, 6 * HOUR, hourly=True),
    ChartSpan("14d", "Last 14 days", 14 * DAY, 12 * HOUR, hourly=True),
)
USUAL = SPANS[1]


class Mark(msgspec.Struct, frozen=True):
    """A growth or a removal that ended well. at: epoch seconds."""

    at: float
    up: bool
    entry: JournalEntry


class ChartRow(msgspec.Struct, frozen=True):
    """One row of the table, of the points that begin in it: the fewest ready nodes, and the most of
    everything else. None where they are not known."""

    at: float
    least_nodes: int
    nodes: int
    wanted: int | None
    pending: int
    cpu: int | None
    memory: int | None
    cost: float | None


class Charts(msgspec.Struct, frozen=True):
    """The charts of one span. begin, every: epoch seconds of the first point, and seconds between
    two. columns: the values by the names that the script knows, with a comma after each but the
    last, empty where there is none. rows: newest first."""

    span: ChartSpan
    begin: float
    every: float
    columns: dict[str, str]
    rows: tuple[ChartRow, ...]
    marks: tuple[Mark, ...]


def span_of(key: str) -> ChartSpan:
    """Return the choice of this name, the usual one for any other text."""
    return next((span for span in SPANS if span.key == key), USUAL)


def first_span(points: Sequence[GaugePoint], hours: Sequence[GaugePoint], now: float) -> str:
    """Return the choice that a cluster's page begins with: a new cluster
    fills no more than an hour."""
    oldest = min((point.at for point in (*hours[:1], *points[:1])), default=0.0)
    is_new = oldest > now - HOUR
    return SPANS[0].key if is_new else USUAL.key


def charts(
    span: ChartSpan,
    points: Sequence[GaugePoint],
    hours: Sequence[GaugePoint],
    marks: Sequence[Mark],
    now: float,
) -> Charts:
    """Return the charts of a span that ends at `now`. points: of five minutes; hours: of an hour
    each, to which the hour is added that is not over."""
    every = HOUR if span.hourly else EVERY
    count = round(span.seconds / every)
    first = int(now // every) - count + 1
    all_points = hourly(hours, points, now + HOUR) if span.hourly else points
    by_slot = {int(point.at // every): point for point in all_points}
    shown = [by_slot.get(first + slot) for slot in range(count)]
    columns = _columns(shown)
    begin = first * every
    rows = _rows([point for point in shown if point is not None], span.row)
    shown_marks = tuple(mark for mark in marks if mark.at >= begin)
    return Charts(span, begin, every, columns, rows, shown_marks)


def _columns(points: Sequence[GaugePoint | None]) -> dict[str, str]:
    """Return the columns, without edges that are the line itself."""
    columns = {name: _column(points, value) for name, value in _COLUMNS.items()}

    def is_drawn(name: str) -> bool:
        line, is_edge, _ = name.partition("-")
        return not is_edge or columns[name] != columns[line]

    return {name: values for name, values in columns.items() if is_drawn(name)}


def _column(
    points: Sequence[GaugePoint | None], value: Callable[[GaugePoint], float | None]
) -> str:
    return ",".join("" if point is None else _text(value(point)) for point in points)


_COLUMNS: dict[str, Callable[[GaugePoint], float | None]] = {
    "nodes": lambda point: point.nodes,
    "nodes-least": lambda point: point.bounds.least_nodes,
    "nodes-most": lambda point: point.bounds.nodes,
    "wanted": lambda point: _known(point.bounds.wanted),
    "pending": lambda point: point.bounds.pending,
    "cpu": lambda point: _known(point.cpu),
    "cpu-most": lambda point: _known(point.bounds.cpu),
    "memory": lambda point: _known(point.memory),
    "memory-most": lambda point: _known(point.bounds.memory),
    "cost": lambda point: _known(point.cost),
    "cost-most": lambda point: _known(point.bounds.cost),
}
"""What is drawn: lines, and the edges of the bands around them. Of wanted nodes and waiting pods
only the most matters."""


def _known(value: float) -> float | None:
    return None if value < 0 else value


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _rows(points: Sequence[GaugePoint], seconds: float) -> tuple[ChartRow, ...]:
    by_row: dict[float, list[GaugePoint]] = {}
    for point in points:
        begin = point.at // seconds * seconds
        by_row.setdefault(begin, []).append(point)
    rows = []
    for at, of_row in sorted(by_row.items(), reverse=True):
        extremes = extremes_of(of_row)
        row = ChartRow(
            at,
            extremes.least_nodes,
            extremes.nodes,
            None if extremes.wanted < 0 else extremes.wanted,
            extremes.pending,
            None if extremes.cpu < 0 else extremes.cpu,
            None if extremes.memory < 0 else extremes.memory,
            _known(extremes.cost),
        )
        rows.append(row)
    return tuple(rows)


def marks_of(entries: Sequence[JournalEntry]) -> tuple[Mark, ...]:
    """Return the growths and removals that ended well, in the order of the entries."""
    marks = []
    for entry in entries:
        operation = operation_of(entry)
        if operation is None or not operation.succeeded:
            continue
        if operation.kind in (OperationKind.SCALE_UP, OperationKind.DELETE_NODES):
            marks.append(Mark(entry.at, operation.kind is OperationKind.SCALE_UP, entry))
    return tuple(marks)


class Cells(msgspec.Struct, frozen=True):
    """A group's size: rectangles (x, width, class of the style sheet) of CELLS, and the position of
    the minimum, None where it is 0."""

    rectangles: tuple[tuple[float, float, str], ...]
    least: float | None


def cells(ready: int, coming: int, least: int, most: int) -> Cells:
    """Return one cell per node up to the maximum, or three rectangles where there are too many."""
    count = max(most, ready + coming, 1)
    free = count - ready - coming
    width = CELLS / count
    if count <= MOST_CELLS:
        kinds = ["ready"] * ready + ["coming"] * coming + ["free"] * free
        rectangles = [
            (round(at * width + 1, 1), round(width - 2, 1), kind) for at, kind in enumerate(kinds)
        ]
    else:
        parts = ((0, ready, "ready"), (ready, coming, "coming"), (ready + coming, free, "free"))
        rectangles = [
            (round(at * width, 1), round(nodes * width, 1), kind)
            for at, nodes, kind in parts
            if nodes > 0
        ]
    minimum = round(min(least * width, CELLS - 1), 1) if least > 0 else None
    return Cells(tuple(rectangles), minimum)
