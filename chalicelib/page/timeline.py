"""What happened to a cluster, as events of a day: which group changed when, why, what it took,
what failed, who did it.

Passes that changed nothing are folded away and counted. Each operation leads to the
decision that planned it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from chalicelib.model.health import HealthState, Tone
from chalicelib.model.operation import OperationKind, OperationState
from chalicelib.page.charts import DAY
from chalicelib.store.journal import JournalEntry
from chalicelib.views.journal_lines import (
    EVERY_KIND,
    KINDS,
    FailingLine,
    OperationLine,
    OtherLine,
    PlanLine,
    RecoveredLine,
    kind_of_operation,
    kinds_of,
    line_of,
    sentence,
)

if TYPE_CHECKING:
    from chalicelib.store import Store

READ_AT_ONCE, MOST = 200, 2000
"""Entries of one read, and of one day."""
LANES = 12
"""Groups that have a lane of their own."""


class Event(msgspec.Struct, frozen=True):
    """One thing that happened. kind: growth, removal, repair, decision, passes, people or other.
    mark: up, down, bad or "". word: the tag, "" for none. began: epoch seconds, equal to `at` where
    it took no time. group: the id. plan: the id of the decision that led to it. folded: a pass that
    changed nothing. words: that select it (KINDS)."""

    at: float
    began: float
    kind: str
    mark: str
    word: str
    tone: Tone
    text: str
    group: str = ""
    plan: str = ""
    failed: bool = False
    folded: bool = False
    words: frozenset[str] = frozenset()

    @property
    def decided(self) -> float:
        """Return about when it was decided: the pass that planned it began no later."""
        return self.began


FILTERS = (EVERY_KIND, *(kind.word for kind in KINDS if kind.on_page))
"""Words that select events, in the order of the links."""
_MARKS = {
    OperationKind.SCALE_UP: "up",
    OperationKind.DELETE_NODES: "down",
    OperationKind.DECREASE_TARGET: "down",
    OperationKind.DELETE_INSTANCES: "down",
    OperationKind.RESTART_NODE: "",
    OperationKind.REMOVE_GROUP: "",
}


def event_of(entry: JournalEntry, names: Mapping[str, str]) -> Event:
    """Return what an entry of the journal says. names: of groups by their id."""
    line = line_of(entry)
    text = sentence(entry, names.get(entry.group, ""))
    began, failed = entry.at, False
    kind, mark, word, tone = "other", "", "", Tone.INFO
    match line:
        case OperationLine():
            kind, mark = kind_of_operation(line.kind), _MARKS[line.kind]
            began -= line.seconds or 0.0
            failed = not line.succeeded
            undone = line.state is OperationState.ABANDONED
            word, tone = (
                ("done", Tone.OK)
                if line.succeeded
                else ("not done" if undone else "failed", Tone.BAD)
            )
            mark = "bad" if failed else mark
        case PlanLine():
            kind, word = "decision", "decision"
        case FailingLine():
            kind, mark, word, tone, failed = (
                "passes",
                "bad",
                HealthState.PASSES_FAIL.word,
                Tone.BAD,
                True,
            )
        case RecoveredLine():
            kind, word, tone = "passes", "recovered", Tone.OK
        case OtherLine():
            pass  # of a later release, or without a fact that its kind has
        case _:
            kind, word = "people", "by a person"
    folded = isinstance(line, PlanLine) and line.changes_nothing
    return Event(
        entry.at,
        began,
        kind,
        mark,
        word,
        tone,
        text,
        entry.group,
        entry.plan,
        failed,
        folded,
        kinds_of(entry),
    )


class TimelineDay(msgspec.Struct, frozen=True):
    """The events of 24 hours, newest first, without decisions of which an event says what became of
    them. begin, end: epoch seconds. folded: how many passes without a change there were. more: some
    older entries of these 24 hours were not read."""

    begin: float
    end: float
    events: tuple[Event, ...]
    folded: int
    more: bool


def read_day(
    store: Store, name: str, end: float, names: Mapping[str, str], *, whole: bool = False
) -> TimelineDay:
    """Return the events of the 24 hours before `end` (epoch seconds). whole: with passes without a
    change. Raises StoreError."""
    begin = end - DAY
    entries: list[JournalEntry] = []
    before = end
    while len(entries) < MOST:
        page = store.journal.recent(name, READ_AT_ONCE, before=before)
        entries += [entry for entry in page if entry.at >= begin]
        if len(page) < READ_AT_ONCE or page[-1].at < begin:
            break
        before = page[-1].at
    events = [event_of(entry, names) for entry in entries]
    folded = sum(event.folded for event in events)
    has_more = len(entries) >= MOST
    shown = events if whole else _without_repetition(events)
    return TimelineDay(begin, end, tuple(shown), folded, has_more)


def _without_repetition(events: Sequence[Event]) -> list[Event]:
    """Return the events without passes that changed nothing, and without decisions of which
    another event says what became of them."""
    carried_out = {event.plan for event in events if event.kind != "decision"}
    shown = []
    for event in events:
        is_repeated = event.kind == "decision" and event.plan in carried_out
        if not event.folded and not is_repeated:
            shown.append(event)
    return shown


def selected(events: Sequence[Event], kind: str, group: str) -> list[Event]:
    """Return the events of this kind (one of FILTERS) and about this group; "" for all."""
    word = kind if kind in FILTERS and kind != EVERY_KIND else ""
    return [
        event
        for event in events
        if (not word or word in event.words) and group in ("", event.group)
    ]


class Lane(msgspec.Struct, frozen=True):
    """A group's day. bars: position and width of 1000, class of the style
    sheet, and what happened."""

    group: str
    bars: tuple[tuple[float, float, str, str], ...]


def lanes(day: TimelineDay) -> tuple[Lane, ...]:
    """Return a lane per group with operations, those with the most first."""
    by_group: dict[str, list[tuple[float, float, str, str]]] = {}
    for event in day.events:
        if event.kind in ("growth", "removal", "repair"):
            left = max((event.began - day.begin) / DAY * 1000, 0.0)
            right = (event.at - day.begin) / DAY * 1000
            position = round(min(left, 996.0), 1)
            width = round(max(right - left, 4.0), 1)
            bar = (position, width, event.mark, event.text)
            by_group.setdefault(event.group, []).append(bar)
    order = sorted(by_group, key=lambda group: (-len(by_group[group]), group))[:LANES]
    return tuple(Lane(group, tuple(by_group[group])) for group in order)
