"""`outscaler pause CLUSTER`: keeps a cluster from being changed for a limited time, without a new policy version.

A pause is stored beside the policy, so an automatic deployment of the policy does not end it. It ends by itself, also
while no function runs. Planning goes on, so that the timers of nodes and the reasons stay current.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from chalicelib.command.argument_types import duration
from chalicelib.command.caller_identity import caller
from chalicelib.command.operator_journal import note
from chalicelib.command.output import emit, warn
from chalicelib.command.store_access import add_table_argument, check_group, open_store, stored_policy
from chalicelib.model.errors import BadInput
from chalicelib.model.pause import LONGEST_REASON, Pause, PausedPart
from chalicelib.model.quantity import format_duration
from chalicelib.model.timestamps import format_time

if TYPE_CHECKING:
    from chalicelib.store import Store

SHORTEST, LONGEST = 60.0, 30 * 86400.0  # seconds; mode shadow is for longer times
_DEFAULT = 86400.0
_LIMITS = f" from {format_duration(SHORTEST)} to {format_duration(LONGEST)}, such as 2h"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add CLUSTER, --for, --removals, --growth, --group, --unseen, --reason and --table."""
    parser.add_argument("name", metavar="CLUSTER", help="the cluster")
    parser.add_argument(
        "--for",
        type=duration(SHORTEST, LONGEST, _LIMITS),
        default=_DEFAULT,
        dest="lasts",
        metavar="DURATION",
        help="how long, from 1m to 30d (default: 24h)",
    )
    add_part_arguments(parser, "pause")
    parser.add_argument("--unseen", action="store_true", help="accept a --group that no pass has seen yet")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why; shown with the pause")
    add_table_argument(parser)


def add_part_arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add --removals, --growth and --group."""
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--removals", action="store_true", help=f"{verb} removals of nodes only")
    part.add_argument("--growth", action="store_true", help=f"{verb} scale-up only")
    parser.add_argument("--group", default="", metavar="GROUP", help=f"{verb} this node group only, by its id")


def part_of(args: argparse.Namespace) -> PausedPart:
    """Return the part that the arguments name."""
    if args.removals:
        return PausedPart.REMOVALS
    return PausedPart.GROWTH if args.growth else PausedPart.ALL


def run(args: argparse.Namespace) -> int:
    """Store the pause and return 0; it is in force from the next pass or step of an operation on."""
    store = open_store(args)
    stored_policy(store, args.name)
    _check_group(store, args)
    now = time.time()
    pause = Pause(
        until=now + args.lasts,
        since=now,
        part=part_of(args),
        group=args.group,
        reason=_reason(args.reason),
        by=caller(),
    )
    pauses = store.pauses.change(
        args.name, lambda before: (*(each for each in before if each.scope != pause.scope), pause)
    )
    note(
        store,
        args.name,
        "pause",
        {"until": format_time(pause.until), "part": pause.part.value, "reason": pause.reason, "by": pause.by},
        group=pause.group,
    )
    data = {"name": args.name, "pauses": pauses_data(pauses)}
    emit(args.output, data, lambda: [f"{args.name}: {pause_line(each)}" for each in pauses])
    return 0


def pauses_data(pauses: tuple[Pause, ...]) -> list[dict[str, Any]]:
    """Return pauses under stable keys; instants as RFC 3339."""
    return [
        {
            "part": each.part.value,
            "group": each.group,
            "since": format_time(each.since),
            "until": format_time(each.until),
            "by": each.by,
            "reason": each.reason,
        }
        for each in pauses
    ]


def pause_line(pause: Pause) -> str:
    """Return a pause as one line that begins with PAUSED."""
    what = "" if pause.part is PausedPart.ALL else f" ({pause.part.value})"
    group = f" for group {pause.group}" if pause.group else ""
    return f"PAUSED{what}{group} until {format_time(pause.until)} by {pause.by or 'unknown'}: {pause.reason}"


def _check_group(store: Store, args: argparse.Namespace) -> None:
    """Raise BadInput for a group that no pass has seen, unless --unseen accepts it: a misspelt pause would pause
    nothing."""
    if not args.group:
        return
    if len(args.group) > 512 or not args.group.isprintable():
        raise BadInput(
            "--group",
            f"{args.group[:40]!r} is not the id of a node group",
            f"outscaler get groups {args.name} lists them",
        )
    try:
        check_group(store, args.name, args.group, otherwise=" (for a group that is still to come, add --unseen)")
    except BadInput as error:
        if not args.unseen:
            raise
        warn(f"{error.problem}; the pause is in force for a group that gets this id, and for no other one")


def _reason(text: str) -> str:
    reason = " ".join(text.split())
    if not reason or len(reason) > LONGEST_REASON or not reason.isprintable():
        raise BadInput("--reason", f"has {len(reason)} characters", f"write 1 to {LONGEST_REASON} printable characters")
    return reason
