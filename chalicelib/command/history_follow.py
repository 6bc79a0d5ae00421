"""`outscaler history NAME --follow`: prints the lines of the journal as they are written.

The table is read every few seconds for entries that are newer than the last one shown. Two functions with different
clocks may write entries out of order, so entries of the last seconds are read again and shown once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from chalicelib.command.journal_lines import JournalFilter, entry_data, entry_row, selected
from chalicelib.command.output import warn
from chalicelib.command.terminal_text import one_line
from chalicelib.model.timestamps import format_time
from chalicelib.store.errors import StoreError

if TYPE_CHECKING:
    from chalicelib.store import JournalEntry, Store

EVERY = 5.0
"""Seconds between two reads."""
_AT_ONCE = 500
_OVERLAP = 120.0  # seconds; a function writes no entry that is older than this


def follow(
    store: Store,
    name: str,
    journal_filter: JournalFilter,
    limit: int,
    output: str,
    sleep: Callable[[float], None],
    rounds: int | None = None,
) -> int:
    """Print the last `limit` lines, oldest first, then each new one. output: `json` prints one object per line. rounds:
    how often the table is read; None: until the process is interrupted. Returns 0."""
    shown: set[bytes] = set()
    since, first = journal_filter.since, True
    while rounds is None or rounds > 0:
        wanted = msgspec.structs.replace(journal_filter, since=since)
        try:
            entries = selected(store, name, wanted, limit if first else _AT_ONCE)
        except StoreError as error:
            warn(f"{name}: the journal cannot be read now, trying again: {error}")
            entries = ()
        for entry in reversed(entries):
            if _key(entry) not in shown:
                _print(entry, output)
        if entries:
            shown = {_key(entry) for entry in entries}
            # Entries before the first one that was shown are not shown later, either.
            since = max(entries[-1].at if first else since, entries[0].at - _OVERLAP)
            first = False
        if rounds is not None:
            rounds -= 1
        if rounds != 0:
            sleep(EVERY)
    return 0


def _key(entry: JournalEntry) -> bytes:
    return json.dumps([entry.at, entry_data(entry)], sort_keys=True).encode()


def _print(entry: JournalEntry, output: str) -> None:
    if output == "table":
        line = one_line("  ".join(filter(None, (format_time(entry.at), *entry_row(entry)))))
    else:
        line = json.dumps(entry_data(entry), ensure_ascii=False)
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
