"""`outscaler history NAME --follow`: prints the lines of the journal as they are written.

The table is read every few seconds for entries that are newer than the last one shown. Two functions with different
clocks may write entries out of order, so entries of the last seconds are read again and shown once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from chalicelib.cli.history import JournalFilter, entry_data, entry_row, selected
from chalicelib.cli.output import warn
from chalicelib.cli.terminal_text import one_line
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
    chosen: JournalFilter,
    limit: int,
    output: str,
    sleep: Callable[[float], None],
    rounds: int | None = None,
) -> int:
    """Print the last `limit` lines, oldest first, then each new one. output: `json` prints one object per line. rounds:
    how often the table is read; None: until the process is interrupted. Returns 0."""
    shown: set[bytes] = set()
    newest, first = 0.0, True
    while rounds is None or rounds > 0:
        try:
            since = chosen.since if first else max(chosen.since, newest - _OVERLAP)
            entries = selected(
                store,
                name,
                JournalFilter(chosen.kinds, chosen.group, chosen.operation, since),
                limit if first else _AT_ONCE,
            )
        except StoreError as error:
            warn(f"{name}: the journal cannot be read now, trying again: {error}")
            entries = ()
        kept: set[bytes] = set()
        for entry in reversed(entries):
            key = _key(entry)
            kept.add(key)
            if key not in shown:
                _print(entry, output)
            newest = max(newest, entry.at)
        shown = kept | {key for key in shown if not entries}
        first = first and not entries
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
