"""`outscaler history NAME`: shows the versions of a cluster's policy and the journal of events, newest first.

--kind, --group, --operation and --since select lines of the journal; --follow prints new ones as they are written.
--compare shows the comparison with another autoscaler instead, as `outscaler shadow NAME` does.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.cli.get import ago, instant
from chalicelib.cli.output import emit
from chalicelib.cli.shadow import add_since_argument, show
from chalicelib.cli.store_access import add_table_argument, open_store, stored_policy
from chalicelib.cli.tables import Table

if TYPE_CHECKING:
    from chalicelib.store import JournalEntry, Store

SEARCHED = 10_000
"""Entries of the journal that a filter searches at most."""
_PAGE = 200


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


def run(args: argparse.Namespace) -> int:
    """Print the history. Returns 0; --follow ends with Ctrl-C."""
    store = open_store(args)
    if args.compare:
        return show(store, args.name, args)
    stored_policy(store, args.name)
    chosen = JournalFilter(tuple(args.kind), args.group, args.operation, time.time() - args.since)
    if args.follow:
        from chalicelib.cli.history_follow import follow

        return follow(store, args.name, chosen, args.limit, args.output, time.sleep)
    versions = store.policies.history(args.name, args.limit)
    entries = selected(store, args.name, chosen, args.limit)
    now = time.time()
    data = {
        "versions": [
            {"version": each.version, "storedAt": instant(each.stored_at), "digest": each.digest} for each in versions
        ],
        "journal": [entry_data(each) for each in entries],
    }
    emit(
        args.output,
        data,
        lambda: [
            Table(
                ("version", "stored", "digest"),
                tuple((str(each.version), ago(each.stored_at, now), each.digest[:12]) for each in versions),
                title="Policy",
                right=frozenset({0}),
            ),
            Table(
                ("when", "what", "group", "facts"),
                tuple((ago(each.at, now), *entry_row(each)) for each in entries),
                title="Journal",
                empty="nothing has happened yet",
            ),
        ],
    )
    return 0


def _limit(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= 1000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")


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


def selected(store: Store, name: str, chosen: JournalFilter, limit: int) -> tuple[JournalEntry, ...]:
    """Return the newest entries that the filter selects, newest first, at most `limit`. SEARCHED entries are read at
    most."""
    found: list[JournalEntry] = []
    before: float | None = None
    for _ in range(SEARCHED // _PAGE):
        page = store.journal.recent(name, _PAGE if before is not None else max(limit, 1), before=before)
        found += [entry for entry in page if chosen(entry)]
        if len(found) >= limit or not page or page[-1].at < chosen.since:
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
