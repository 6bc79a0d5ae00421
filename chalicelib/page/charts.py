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
STEPS = 560.0
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
