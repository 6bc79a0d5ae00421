"""`outscaler shadow NAME`: compares a cluster in mode shadow with the autoscaler that acts there.

`outscaler shadow accept NAME ID` records that an operator has looked at a disagreement, and `accept
NAME/NODE` at all removals of a node; the gate then does not count them.
"""

from __future__ import annotations

import argparse
import time
from difflib import get_close_matches
from typing import TYPE_CHECKING

from chalicelib.cli.arguments import duration
from chalicelib.cli.output import emit, is_fold_of
from chalicelib.cli.store_access import add_table_argument, note, open_store, stored_policy
from chalicelib.model.errors import BadInput
from chalicelib.model.timestamps import format_time

if TYPE_CHECKING:
    from chalicelib.shadow.records import Ledger, Match
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
        help=(
            "the cluster; or accept NAME ID, or accept NAME/NODE, to record that a disagreement "
            "was looked at"
        ),
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
        help=(
            "figures from the day on that is so long ago, such as 7d or 36h (default and maximum: "
            "30d)"
        ),
    )


def run(args: argparse.Namespace) -> int:
    """Print the comparison, or accept a result. Always returns 0."""
    first, *rest = args.words
    if first == ACCEPT and rest:
        return _accept(args, *_named(rest))
    if rest:
        raise BadInput(
            "outscaler shadow", f"takes one cluster, but {rest[0]!r} is given too", "write one name"
        )
    return show(open_store(args), first, args)


def show(store: Store, name: str, args: argparse.Namespace) -> int:
    """Print the comparison of one cluster. Always returns 0."""
    from chalicelib.cli.migrate import shadow_view

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
            "outscaler shadow accept",
            "needs one cluster with one node or one id",
            "write NAME/NODE, or NAME ID",
        )
    return name, node or words[-1]


def _accept(args: argparse.Namespace, name: str, word: str) -> int:
    from chalicelib.cli.migrate import shadow_table, shadow_view

    store = open_store(args)
    stored_policy(store, name)
    rows, now = store.shadow(), time.time()
    ledger = rows.load(name)
    what = _whole_name(name, ledger, word)
    matches = _disagreements(name, ledger, what)
    accepted = rows.accepted(name)
    if what not in accepted and len(accepted) >= MOST_ACCEPTED:
        raise BadInput(
            name, f"has {MOST_ACCEPTED} accepted results", "find their common cause instead"
        )
    rows.accept(name, what, now)
    note(store, name, ACCEPT, {"accepted": what}, at=now)
    results = [shadow_view.match_data(match, {what: now}) for match in matches]
    data = {"name": name, "accepted": what, "at": format_time(now), "results": results}
    lines = [f"accepted: {shadow_table.sentence(match)}" for match in matches]
    emit(
        args.output,
        data,
        lambda: ["\n".join((*lines, f"outscaler shadow {name} shows what is left"))],
    )
    return 0


def _whole_name(name: str, ledger: Ledger | None, word: str) -> str:
    """Return the node of this text in the table, or the word. Raises BadInput where
    it may be several nodes."""
    from chalicelib.cli.migrate.shadow_table import node_texts

    texts = node_texts(ledger) if ledger else {}
    if word in texts:
        return word
    nodes = [node for node, text in texts.items() if text == word]
    nodes = nodes or [node for node in texts if is_fold_of(word, node)]  # of an older table
    if len(nodes) > 1:
        problem = f"is the short form of {len(nodes)} nodes"
        raise BadInput(f"{name}/{word}", problem, f"write one of them: {', '.join(nodes[:3])}")
    return nodes[0] if nodes else word


def _disagreements(name: str, ledger: Ledger | None, what: str) -> list[Match]:
    """Return the kept disagreements of that id or node. Raises BadInput where there are none."""
    from chalicelib.shadow.records import AGREEING

    kept = ledger.matches if ledger else ()
    same_name = [match for match in kept if what in (match.id, match.node)]
    matches = [match for match in same_name if match.verdict not in AGREEING]
    if matches:
        return matches
    if same_name:
        raise BadInput(f"{name}/{what}", "is no disagreement", "there is nothing to accept")
    apart = [match for match in kept if match.verdict not in AGREEING]
    known = sorted({word for match in apart for word in (match.id, match.node) if word})
    near = get_close_matches(what, known, n=1)
    listed = f"outscaler shadow {name} lists them" if known else "there are none"
    raise BadInput(
        f"{name}/{what}",
        "is neither the id nor the node of a disagreement",
        f"did you mean {near[0]}?" if near else listed,
    )
