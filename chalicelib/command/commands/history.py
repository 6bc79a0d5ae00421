"""`outscaler history NAME`: shows the versions of a cluster's policy and the journal of events, newest first.

--kind, --group, --operation and --since select lines of the journal; --follow prints new ones as they are written.
--compare shows the comparison with another autoscaler instead, as `outscaler shadow NAME` does.
"""

from __future__ import annotations

import argparse
import time

from chalicelib.command.commands.get import ago, instant
from chalicelib.command.commands.shadow import add_since_argument, show
from chalicelib.command.journal_lines import JournalFilter, entry_data, entry_row, selected
from chalicelib.command.output import emit
from chalicelib.command.store_access import add_table_argument, check_group, open_store, stored_policy
from chalicelib.command.tables import Table


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
    if args.group and not selected(store, args.name, JournalFilter(group=args.group), 1):
        check_group(store, args.name, args.group)  # a group without a line in the journal may be misspelt
    if args.follow:
        from chalicelib.command.history_follow import follow

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
