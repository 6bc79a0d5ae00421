"""Geometry of the charts, as numbers for the templates: SVG without scripts and without style attributes.

Every chart has a title, a description and its numbers as a table, so it is never the only form of a fact.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from chalicelib.model.gauge_ring import EVERY, POINTS, GaugePoint
from chalicelib.model.operation import OperationKind
from chalicelib.record.journal_lines import operation_of
from chalicelib.store.journal import JournalEntry

BAR = 160.0
LINE, LINE_HEIGHT = 288.0, 40.0
STEPS, STEPS_HEIGHT = 560.0, 60.0
USE = 100.0
DAYS = 14.0


class SizeBar(msgspec.Struct, frozen=True):
    """A group's size between its bounds. ready, coming: widths of the bars; target, least: positions of the marks; all
    of BAR."""

    ready: float
    coming: float
    target: float
    least: float


class Sparkline(msgspec.Struct, frozen=True):
    """Points of a polyline per run without a gap, as SVG's attribute has them; most: the value at the top."""

    runs: tuple[str, ...]
    most: int
    last: int


class Steps(msgspec.Struct, frozen=True):
    """The size of a group over time: points of a polyline. most: the value at the top; first, last: sizes at both ends;
    begin: epoch seconds of the left edge."""

    points: str
    most: int
    first: int
    last: int
    begin: float


class UseBar(msgspec.Struct, frozen=True):
    """What a node's pods request, against the threshold below which it is removed. use, threshold: positions of USE;
    shown, limit: as percentages."""

    use: float
    threshold: float
    shown: str
    limit: str


class Strip(msgspec.Struct, frozen=True):
    """One mark of the strip of growths and removals. x: of STEPS. up: a growth."""

    x: float
    up: bool
    label: str


def size_bar(ready: int, target: int, least: int, most: int) -> SizeBar:
    """Return the bar of a group; most: its maximum, at least 1 is drawn."""
    scale = BAR / max(most, target, ready, 1)
    now, coming = min(ready, target) * scale, max(target - ready, 0) * scale
    return SizeBar(round(now, 1), round(coming, 1), round(target * scale, 1), round(least * scale, 1))


def sparkline(points: Sequence[GaugePoint], values: Sequence[int], now: float) -> Sparkline:
    """Return the line of these values, the newest at the right edge. points, values: of the same length."""
    most = max([*values, 1])
    first = now // EVERY - POINTS + 1
    runs: list[list[str]] = []
    before = -2.0
    for point, value in zip(points, values, strict=True):
        slot = point.at // EVERY - first
        if not 0 <= slot < POINTS:
            continue
        if slot != before + 1:
            runs.append([])
        runs[-1].append(f"{slot * LINE / POINTS:.0f},{LINE_HEIGHT - 2 - value / most * (LINE_HEIGHT - 4):.1f}")
        before = slot
    # Markup: these are no foreign texts, and longer than any of those may be.
    lines = tuple(Markup(" ".join(run)) for run in runs)  # noqa: S704
    return Sparkline(lines, most, values[-1] if values else 0)


def steps(entries: Sequence[JournalEntry], size: int, now: float, *, whole: bool) -> Steps:
    """Return the line of a group's size over the last DAYS. entries: of the group. size: its present target. whole: the
    entries reach back that far; otherwise the line begins with the oldest one."""
    begin = now - DAYS * 86400
    corners: list[tuple[float, int]] = []
    for entry in sorted(entries, key=lambda entry: -entry.at):
        operation = operation_of(entry)
        if operation is None or not operation.succeeded or entry.at < begin:
            continue
        before = operation.from_size
        if before is None and operation.kind is OperationKind.DELETE_NODES:
            before = size + len(operation.target_names)
        if before is not None:
            corners += [(entry.at, size), (entry.at, before)]
            size = before
    if not whole and corners:
        begin = corners[-1][0]
    levels = [(begin, size), *reversed(corners)]
    levels.append((now, levels[-1][1]))
    most = max(1, *(level for _, level in levels))
    x, y = STEPS / max(now - begin, 1.0), (STEPS_HEIGHT - 4) / most
    line = " ".join(f"{(at - begin) * x:.1f},{STEPS_HEIGHT - 2 - level * y:.1f}" for at, level in levels)
    return Steps(Markup(line), most, levels[0][1], levels[-1][1], begin)  # noqa: S704 - numbers, as above


def use_bar(use: float, threshold: float) -> UseBar:
    """Return the bar of a node's use. use, threshold: shares of what it offers."""
    bar, mark = (round(min(max(share, 0.0), 1.0) * USE, 1) for share in (use, threshold))
    return UseBar(bar, mark, f"{use:.0%}", f"{threshold:.0%}")


def strip(entries: Sequence[JournalEntry], now: float, days: float = 1.0) -> tuple[Strip, ...]:
    """Return marks for operations that ended well in the last days: scale-ups up, removals down."""
    begin = now - days * 86400
    marks = []
    for entry in entries:
        operation = operation_of(entry)
        if operation is None or not operation.succeeded or entry.at < begin:
            continue
        if operation.kind in (OperationKind.SCALE_UP, OperationKind.DELETE_NODES):
            x = round((entry.at - begin) / (now - begin) * STEPS, 1)
            up = operation.kind is OperationKind.SCALE_UP
            marks.append(Strip(x, up, f"{operation.kind.value} {entry.group}"))
    return tuple(marks)
