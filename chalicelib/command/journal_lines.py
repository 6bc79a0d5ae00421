"""Selects lines of the journal and gives them the form in which `outscaler history` prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.command.commands.get import instant

if TYPE_CHECKING:
    from chalicelib.store import JournalEntry, Store

SEARCHED = 10_000
"""Entries of the journal that a filter searches at most."""
_PAGE = 200


class JournalFilter(msgspec.Struct, frozen=True):
    """Which lines are shown. since: epoch seconds; the rest: "" and () select all."""

    kinds: tuple[str, ...] = ()
    group: str = ""
    operation: str = ""
    since: float = 0.0

    def __call__(self, entry: JournalEntry) -> bool:
        """Return whether the line is shown."""
        return (
            entry.at >= self.since
            and (not self.kinds or entry.kind in self.kinds)
            and self.group in ("", entry.group)
            and self.operation in ("", entry.operation)
        )


def selected(store: Store, name: str, journal_filter: JournalFilter, limit: int) -> tuple[JournalEntry, ...]:
    """Return the newest entries that the filter selects, newest first, at most `limit`. SEARCHED entries are read at
    most."""
    found: list[JournalEntry] = []
    before: float | None = None
    for _ in range(SEARCHED // _PAGE):
        page = store.journal.recent(name, _PAGE if before is not None else max(limit, 1), before=before)
        found += [entry for entry in page if journal_filter(entry)]
        if len(found) >= limit or not page or page[-1].at < journal_filter.since:
            break
        before = page[-1].at
    return tuple(found[:limit])


def entry_row(entry: JournalEntry) -> tuple[str, ...]:
    """Return kind, group and facts as text."""
    return entry.kind, entry.group, ", ".join(f"{name} {value}" for name, value in entry.facts.items())


def entry_data(entry: JournalEntry) -> dict[str, Any]:
    """Return the entry under stable keys."""
    return {
        "at": instant(entry.at),
        "kind": entry.kind,
        "group": entry.group,
        "plan": entry.plan,
        "operation": entry.operation,
        "facts": dict(entry.facts),
    }
