"""`outscaler history NAME`: shows the versions of a cluster's policy and the journal of events, newest first.

--compare shows the comparison with another autoscaler instead, as `outscaler shadow NAME` does.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from chalicelib.cli.get import ago, instant
from chalicelib.cli.output import emit
from chalicelib.cli.shadow import add_since_argument, show
from chalicelib.cli.store_access import add_table_argument, open_store, stored_policy
from chalicelib.cli.tables import Table

if TYPE_CHECKING:
    from chalicelib.store import JournalEntry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add NAME, --limit, --compare, --since and --table."""
    parser.add_argument("name", metavar="NAME", help="the cluster")
    parser.add_argument("--limit", type=_limit, default=20, metavar="N", help="so many of each (default: 20)")
    parser.add_argument(
        "--compare", action="store_true", help="compare a cluster in mode shadow with the autoscaler that acts there"
    )
    add_since_argument(parser)
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print the history. Always returns 0."""
    store = open_store(args)
    if args.compare:
        return show(store, args.name, args)
    stored_policy(store, args.name)
    versions = store.policies.history(args.name, args.limit)
    entries = store.journal.recent(args.name, args.limit)
    now = time.time()
    data = {
        "versions": [
            {"version": each.version, "storedAt": instant(each.stored_at), "digest": each.digest} for each in versions
        ],
        "journal": [_entry_data(each) for each in entries],
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
                tuple(_entry_row(each, now) for each in entries),
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


def _entry_row(entry: JournalEntry, now: float) -> tuple[str, ...]:
    facts = ", ".join(f"{name} {value}" for name, value in entry.facts.items())
    return ago(entry.at, now), entry.kind, entry.group, facts


def _entry_data(entry: JournalEntry) -> dict[str, Any]:
    return {
        "at": instant(entry.at),
        "kind": entry.kind,
        "group": entry.group,
        "plan": entry.plan,
        "operation": entry.operation,
        "facts": dict(entry.facts),
    }
