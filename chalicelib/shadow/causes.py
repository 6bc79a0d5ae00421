"""Names the cause of a disagreement: the first row of an ordered table that applies.

The table is ordered from what an operator can change to what no one knows, so that the first answer is the most
useful one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.timestamps import format_time

UNKNOWN = "unknown"
INTERVAL = 60.0
"""Seconds: a difference in time below one interval has no meaning."""


class Situation(msgspec.Struct, frozen=True):
    """What is known about one disagreement. differing: keys of options that differ from the other autoscaler's.
    defaults: keys whose default differs between its version and ours. random: the expander draws at random. apart:
    seconds between both acts, None: only one acted. gaps: what this pass could not read. restarted: when the other
    autoscaler started again after our decision, 0.0: it did not. known: a documented difference, with its place.
    reserved: node and template differ in what the node's own programs reserve."""

    differing: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    random: bool = False
    apart: float | None = None
    gaps: tuple[str, ...] = ()
    restarted: float = 0.0
    known: str = ""
    reserved: bool = False


_CAUSES: tuple[tuple[Callable[[Situation], bool], Callable[[Situation], str]], ...] = (
    (lambda s: bool(s.differing), lambda s: f"options differ: {', '.join(s.differing)}"),
    (lambda s: bool(s.defaults), lambda s: f"default of its version: {', '.join(s.defaults)}"),
    (lambda s: s.random, lambda _: "expander random"),
    (lambda s: s.restarted > 0, lambda s: f"Cluster Autoscaler restarted at {format_time(s.restarted)}"),
    (lambda s: s.apart is not None and abs(s.apart) < INTERVAL, lambda _: "timing: under one interval apart"),
    (lambda s: bool(s.gaps), lambda s: f"this pass could not read {', '.join(s.gaps[:3])}"),
    (lambda s: bool(s.known), lambda s: f"known difference: {s.known}"),
    (lambda s: s.reserved, lambda _: "the node reserves more than its template"),
)


def cause(situation: Situation) -> str:
    """Return the first cause that applies, otherwise `unknown`."""
    return next((words(situation) for applies, words in _CAUSES if applies(situation)), UNKNOWN)
