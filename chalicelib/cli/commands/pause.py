"""`outscaler pause CLUSTER`: keeps a cluster from being changed for a limited time,
without a new policy version.

A pause is stored beside the policy, so an automatic deployment of the policy does not end it. It
ends by itself, also while no function runs. Planning goes on, so that the timers of nodes and
the reasons stay current.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from chalicelib.cli.arguments import AmbiguousGroup, add_duration_argument
from chalicelib.cli.deployments import caller
from chalicelib.cli.output import emit, warn
from chalicelib.cli.store_access import (
    add_table_argument,
    check_group,
    note,
    open_store,
    stored_policy,
)
from chalicelib.model.errors import BadInput
from chalicelib.model.pause import LONGEST_REASON, Pause, PausedPart
from chalicelib.model.timestamps import format_time
from chalicelib.views.cluster_view import as_json, pause_view

if TYPE_CHECKING:
    from chalicelib.store import Store

SHORTEST, LONGEST = 60.0, 30 * 86400.0  # seconds; mode shadow is for longer times


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add CLUSTER, --for, --removals, --growth, --group, --unseen, --reason and --table."""
    parser.add_argument("name", metavar="CLUSTER", help="the cluster")
    help_text = "how long, from 1m to 30d (default: 24h)"
    add_duration_argument(parser, SHORTEST, LONGEST, "2h", default=86400.0, text=help_text)
    add_part_arguments(parser, "pause")
    parser.add_argument(
        "--unseen", action="store_true", help="accept a --group that no pass has seen yet"
    )
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why; shown with the pause")
    add_table_argument(parser)


def add_part_arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add --removals, --growth and --group."""
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--removals", action="store_true", help=f"{verb} removals of nodes only")
    part.add_argument("--growth", action="store_true", help=f"{verb} scale-up only")
    parser.add_argument("--group", default="", metavar="GROUP", help=f"{verb} this node group only")


def part_of(args: argparse.Namespace) -> PausedPart:
    """Return the part that the arguments name."""
    if args.removals:
        return PausedPart.REMOVALS
    return PausedPart.GROWTH if args.growth else PausedPart.ALL


def run(args: argparse.Namespace) -> int:
    """Store the pause and return 0; it is in force from the next pass or
    step of an operation on."""
    store = open_store(args)
    stored_policy(store, args.name)
    if args.group:
        args.group = _group_id(store, args)
    reason, now = " ".join(args.reason.split()), time.time()
    if not reason or len(reason) > LONGEST_REASON or not reason.isprintable():
        raise BadInput(
            "--reason",
            f"has {len(reason)} characters",
            f"write 1 to {LONGEST_REASON} printable characters",
        )
    pause = Pause(
        until=now + args.lasts,
        since=now,
        part=part_of(args),
        group=args.group,
        reason=reason,
        by=caller(),
    )
    pauses = store.pauses.change(
        args.name,
        lambda before: (*(other for other in before if other.scope != pause.scope), pause),
    )
    note(
        store,
        args.name,
        "pause",
        {
            "until": format_time(pause.until),
            "part": pause.part.value,
            "reason": pause.reason,
            "by": pause.by,
        },
        group=pause.group,
    )
    in_force = [pause_view(pause) for pause in pauses]
    data = {"name": args.name, "pauses": [as_json(view) for view in in_force]}
    emit(args.output, data, lambda: [f"{args.name}: {view.paused_line}" for view in in_force])
    return 0


def _group_id(store: Store, args: argparse.Namespace) -> str:
    """Return the id of the group. Raises BadInput for one that no pass has seen, unless --unseen
    accepts it: a misspelt pause would pause nothing."""
    if len(args.group) > 512 or not args.group.isprintable():
        problem = f"{args.group[:40]!r} is not the id of a node group"
        raise BadInput("--group", problem, f"outscaler get groups {args.name} lists them")
    try:
        return check_group(
            store,
            args.name,
            args.group,
            otherwise=" (for a group that is still to come, add --unseen)",
        )
    except AmbiguousGroup:
        raise
    except BadInput as error:
        if not args.unseen:
            raise
        warn(
            f"{error.problem}; the pause is in force for a group that gets this id, and for no "
            "other one"
        )
        return str(args.group)
