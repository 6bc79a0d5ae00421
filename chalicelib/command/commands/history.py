"""`outscaler history NAME`: shows the versions of a cluster's policy and the journal of events, newest first.

--kind, --group, --operation and --since select lines of the journal; --follow prints new ones as they are written.
--compare shows the comparison with another autoscaler instead, as `outscaler shadow NAME` does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.command.commands.shadow import add_since_argument, show
from chalicelib.command.output import Table, emit, one_line, warn
from chalicelib.command.store_access import add_table_argument, check_group, open_store, stored_policy
from chalicelib.model.timestamps import format_time
from chalicelib.record.journal_lines import sentence
from chalicelib.record.views import ago, instant
from chalicelib.store.errors import StoreError

if TYPE_CHECKING:
    from chalicelib.store import JournalEntry, Store

SEARCHED = 10_000
"""Entries of the journal that a filter searches at most."""
EVERY = 5.0
"""Seconds between two reads of --follow."""
_PAGE = 200
_AT_ONCE = 500
_OVERLAP = 120.0  # seconds; a function writes no entry that is older than this


class JournalFilter(msgspec.Struct, frozen=True):
    """Which lines are shown. since: epoch seconds; the rest: "" and () select all."""

    kinds: tuple[str, ...] = ()
    group: str = ""
    operation: str = ""
    since: float = 0.0

    def selects(self, entry: JournalEntry) -> bool:
        """Return whether the line is shown."""
        return (
            entry.at >= self.since
            and (not self.kinds or entry.kind in self.kinds)
            and self.group in ("", entry.group)
            and self.operation in ("", entry.operation)
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add NAME, --limit, the filters, --follow, --compare, --since and --table."""
    parser.add_argument("name", metavar="NAME", help="the cluster")
    parser.add_argument("--limit", type=_limit, default=20, metavar="N", help="so many of each (default: 20)")
    parser.add_argument(
        "--kind",
        action="append",
        default=[],
        metavar="KIND",
        help="lines of this kind only: plan, operation, pass, policy, pause, resume, retry, release …; may be repeated",
    )
    parser.add_argument("--group", default="", metavar="GROUP", help="lines about this node group only")
    parser.add_argument("--operation", default="", metavar="ID", help="lines about this operation only")
    parser.add_argument("--follow", action="store_true", help="print new lines as they are written, until Ctrl-C")
    parser.add_argument(
        "--compare", action="store_true", help="compare a cluster in mode shadow with the autoscaler that acts there"
    )
    add_since_argument(parser)
    add_table_argument(parser)


def _limit(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= 1000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")


def run(args: argparse.Namespace) -> int:
    """Print the history. Returns 0; --follow ends with Ctrl-C."""
    store = open_store(args)
    if args.compare:
        return show(store, args.name, args)
    stored_policy(store, args.name)
    if args.group and not selected(store, args.name, JournalFilter(group=args.group), 1):
        args.group = check_group(store, args.name, args.group)  # a group that the journal has may be gone
    journal_filter = JournalFilter(tuple(args.kind), args.group, args.operation, time.time() - args.since)
    if args.follow:
        return follow(store, args.name, journal_filter, args.limit, args.output, time.sleep)
    versions = store.policies.history(args.name, args.limit)
    entries = selected(store, args.name, journal_filter, args.limit)
    now = time.time()
    data = {
        "versions": [
            {"version": stored.version, "storedAt": instant(stored.stored_at), "digest": stored.digest}
            for stored in versions
        ],
        "journal": [entry_data(entry) for entry in entries],
    }
    tables = [
        Table(
            ("version", "stored", "digest"),
            tuple((str(stored.version), ago(stored.stored_at, now), stored.digest[:12]) for stored in versions),
            title="Policy",
            right=frozenset({0}),
        ),
        Table(
            ("when", "what", "group", "what happened"),
            tuple((ago(entry.at, now), entry.kind, entry.group, sentence(entry)) for entry in entries),
            title="Journal",
            empty="nothing has happened yet",
        ),
    ]
    emit(args.output, data, lambda: tables)
    return 0


def selected(store: Store, name: str, journal_filter: JournalFilter, limit: int) -> tuple[JournalEntry, ...]:
    """Return the newest entries that the filter selects, newest first, at most `limit`. SEARCHED entries are read at
    most."""
    entries: list[JournalEntry] = []
    before: float | None = None
    for _ in range(SEARCHED // _PAGE):
        page = store.journal.recent(name, _PAGE if before is not None else max(limit, 1), before=before)
        entries += [entry for entry in page if journal_filter.selects(entry)]
        if len(entries) >= limit or not page or page[-1].at < journal_filter.since:
            break
        before = page[-1].at
    return tuple(entries[:limit])


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
    how often the table is read; None: until the process is interrupted. Returns 0.

    The table is read for entries that are newer than the last one shown. Two functions with different clocks may write
    entries out of order, so entries of the last seconds are read again and shown once.
    """
    shown: set[bytes] = set()
    since, first = journal_filter.since, True
    while rounds is None or rounds > 0:
        try:
            newer = msgspec.structs.replace(journal_filter, since=since)
            entries = selected(store, name, newer, limit if first else _AT_ONCE)
        except StoreError as error:
            warn(f"{name}: the journal cannot be read now, trying again: {error}")
            entries = ()
        for entry in reversed(entries):
            if _key(entry) not in shown:
                line = json.dumps(entry_data(entry), ensure_ascii=False)
                if output == "table":
                    parts = (format_time(entry.at), entry.kind, entry.group, sentence(entry))
                    line = one_line("  ".join(filter(None, parts)))
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
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
