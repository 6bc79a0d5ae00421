"""`outscaler shadow NAME`: compares a cluster in mode shadow with the autoscaler that acts there.

`outscaler shadow accept NAME/NODE` records that an operator has looked at a removal that only Outscaler would have
made.
"""

from __future__ import annotations

import argparse
import time
from difflib import get_close_matches
from typing import TYPE_CHECKING

from chalicelib.command.arguments import duration
from chalicelib.command.output import emit
from chalicelib.command.store_access import add_table_argument, note, open_store, stored_policy
from chalicelib.model.errors import BadInput
from chalicelib.model.timestamps import format_time

if TYPE_CHECKING:
    from chalicelib.store import Store

ACCEPT = "accept"
LONGEST = 30 * 86400.0  # seconds for which results are kept
_SHORTEST = 0.001
MOST_ACCEPTED = 1000
"""Accepted results of a cluster at most; one row holds them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add WORD, --since and --table."""
    parser.add_argument(
        "words",
        nargs="+",
        metavar="NAME",
        help="the cluster; or accept NAME/NODE, or accept NAME ID, to record that a removal was looked at",
    )
    add_since_argument(parser)
    add_table_argument(parser)


def add_since_argument(parser: argparse.ArgumentParser) -> None:
    """Add --since."""
    parser.add_argument(
        "--since",
        type=duration(_SHORTEST, LONGEST, " up to 30d, such as 7d or 36h", days=True),
        default=LONGEST,
        metavar="DURATION",
        help="figures from the day on that is so long ago, such as 7d or 36h (default and maximum: 30d)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the comparison, or accept a result. Always returns 0."""
    first, *rest = args.words
    if first == ACCEPT and rest:
        return _accept(args, *_named(rest))
    if rest:
        raise BadInput("outscaler shadow", f"takes one cluster, but {rest[0]!r} is given too", "write one name")
    return show(open_store(args), first, args)


def show(store: Store, name: str, args: argparse.Namespace) -> int:
    """Print the comparison of one cluster. Always returns 0."""
    from chalicelib.command import shadow_view

    stored_policy(store, name)
    now, rows = time.time(), store.shadow()
    report = shadow_view.Report(name, rows.load(name), rows.accepted(name), now - args.since, now)
    emit(args.output, shadow_view.data(report), lambda: shadow_view.blocks(report))
    return 0


def _named(words: list[str]) -> tuple[str, str]:
    """Return the cluster and the node or id."""
    name, slash, node = words[0].partition("/")
    if (slash and len(words) > 1) or (not slash and len(words) != 2) or len(words) > 2:
        raise BadInput(
            "outscaler shadow accept", "needs one cluster with one node or one id", "write NAME/NODE, or NAME ID"
        )
    return name, node or words[-1]


def _accept(args: argparse.Namespace, name: str, what: str) -> int:
    from chalicelib.shadow.records import ShadowVerdict

    store = open_store(args)
    stored_policy(store, name)
    rows, now = store.shadow(), time.time()
    ledger = rows.load(name)
    found = [match for match in (ledger.matches if ledger else ()) if match.verdict is ShadowVerdict.ONLY_OURS]
    if not any(what in (match.node, match.id) for match in found):
        known = sorted({match.node for match in found})
        near = get_close_matches(what, known, n=1)
        listed = f"known: {', '.join(known[:10])}" if known else f"outscaler shadow {name} lists them"
        raise BadInput(
            f"{name}/{what}",
            "is not a removal that only Outscaler would have made",
            f"did you mean {near[0]}?" if near else listed,
        )
    if len(rows.accepted(name)) >= MOST_ACCEPTED:
        raise BadInput(name, f"has {MOST_ACCEPTED} accepted results", "find their common cause instead")
    rows.accept(name, what, now)
    note(store, name, ACCEPT, {"accepted": what}, at=now)
    data = {"name": name, "accepted": what, "at": format_time(now)}
    emit(args.output, data, lambda: [f"{name}: {what} is accepted; outscaler shadow {name} shows what is left"])
    return 0
