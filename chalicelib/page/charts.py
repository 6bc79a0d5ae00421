"""Geometry of the charts, as numbers for the templates: SVG without scripts and without style attributes.

Every chart has a title, a description and its numbers as a table, so it is never the only form of a fact.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from chalicelib.model.gauge_ring import EVERY, POINTS, GaugePoint
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
    now, then = min(ready, target) * scale, max(target - ready, 0) * scale
    return SizeBar(round(now, 1), round(then, 1), round(target * scale, 1), round(least * scale, 1))


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
    # Numbers of our own, and longer than any foreign text may be.
    drawn = tuple(Markup(" ".join(run)) for run in runs)  # noqa: S704
    return Sparkline(drawn, most, values[-1] if values else 0)


def steps(entries: Sequence[JournalEntry], size: int, now: float, *, whole: bool) -> Steps:
    """Return the line of a group's size over the last DAYS. entries: of the group. size: its present target. whole: the
    entries reach back that far; otherwise the line begins with the oldest one."""
    begin = now - DAYS * 86400
    ended = sorted(
        (entry for entry in entries if entry.kind == "operation" and entry.facts.get("state") == "succeeded"),
        key=lambda entry: -entry.at,
    )
    corners: list[tuple[float, int]] = []
    for entry in ended:
        before = _size_before(entry, size)
        if before is None or entry.at < begin:
            continue
        corners += [(entry.at, size), (entry.at, before)]
        size = before
    if not whole and corners:
        begin = corners[-1][0]
    levels = [(begin, size), *reversed(corners)]
    levels.append((now, levels[-1][1]))
    most = max(1, *(level for _, level in levels))
    x, y = STEPS / max(now - begin, 1.0), (STEPS_HEIGHT - 4) / most
    drawn = " ".join(f"{(at - begin) * x:.1f},{STEPS_HEIGHT - 2 - level * y:.1f}" for at, level in levels)
    return Steps(Markup(drawn), most, levels[0][1], levels[-1][1], begin)  # noqa: S704 - numbers of our own


def _size_before(entry: JournalEntry, size: int) -> int | None:
    """Return the size before an operation that ended with `size`; None where the entry changed no size."""
    before = entry.facts.get("from")
    if isinstance(before, int | float):
        return int(before)
    if entry.facts.get("kind") == "remove":
        return size + len([name for name in str(entry.facts.get("targets", "")).split(",") if name])
    return None


def use_bar(use: float, threshold: float) -> UseBar:
    """Return the bar of a node's use. use, threshold: shares of what it offers."""
    return UseBar(
        round(min(max(use, 0.0), 1.0) * USE, 1),
        round(min(max(threshold, 0.0), 1.0) * USE, 1),
        f"{use:.0%}",
        f"{threshold:.0%}",
    )


def strip(entries: Sequence[JournalEntry], now: float, days: float = 1.0) -> tuple[Strip, ...]:
    """Return marks for operations that ended well in the last days: scale-ups up, removals down."""
    begin = now - days * 86400
    found = []
    for entry in entries:
        kind, state = str(entry.facts.get("kind", "")), str(entry.facts.get("state", ""))
        if entry.kind != "operation" or state != "succeeded" or entry.at < begin or kind not in _KINDS:
            continue
        x = round((entry.at - begin) / (now - begin) * STEPS, 1)
        found.append(Strip(x, _KINDS[kind], f"{kind} {entry.group}"))
    return tuple(found)


_KINDS = {"grow": True, "remove": False}
