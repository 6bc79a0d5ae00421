"""`outscaler resume CLUSTER`: ends pauses before their time, or puts another mode in force.

It clears no back-off, no circuit breaker and no timer: the first pass decides with everything that
is remembered, and spec.maxDisruption limits it. What it is expected to do is printed before.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from chalicelib.cli.commands import apply
from chalicelib.cli.commands.pause import add_part_arguments, part_of
from chalicelib.cli.output import emit, warn
from chalicelib.cli.policy_files import MODES, with_mode
from chalicelib.cli.store_access import (
    add_table_argument,
    check_group,
    load_decision,
    note,
    open_store,
    stored_policy,
)
from chalicelib.model.pause import Pause, PausedPart
from chalicelib.model.timestamps import format_time
from chalicelib.reasons.words import counted, some
from chalicelib.views.cluster_view import as_json, pause_view

if TYPE_CHECKING:
    from chalicelib.journal.journal import LastDecision


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add CLUSTER, the parts, --mode, the arguments of the check before
    mode active, and --table."""
    parser.add_argument("name", metavar="CLUSTER", help="the cluster")
    add_part_arguments(parser, "resume")
    parser.add_argument(
        "--mode",
        dest="wanted",
        choices=MODES,
        help="store a version of the policy with this mode, too",
    )
    apply.add_gate_arguments(parser)
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """End the pauses that the arguments name, all of them without a part or a group. Returns 0,
    also where there was none."""
    store, part = open_store(args), part_of(args)

    def is_meant(pause: Pause) -> bool:
        return args.group in ("", pause.group) and part in (PausedPart.ALL, pause.part)

    stored = stored_policy(store, args.name)
    before = store.pauses.current(args.name)
    if args.group:
        args.group = check_group(
            store, args.name, args.group, {pause.group for pause in before if pause.group}
        )
    ended = tuple(pause for pause in before if is_meant(pause))
    decision, problem = load_decision(store, args.name)
    if problem:
        warn(problem)
    if args.wanted:
        apply.put_in_force(
            args, store, with_mode(stored.text, args.wanted), f"{args.name} with mode {args.wanted}"
        )
    remaining = store.pauses.change(
        args.name, lambda now: tuple(pause for pause in now if not is_meant(pause))
    )
    for pause in ended:
        facts = {
            "part": pause.part.value,
            "was until": format_time(pause.until),
            "reason": pause.reason,
        }
        note(store, args.name, "resume", facts, group=pause.group)
    data = {
        "name": args.name,
        "ended": [as_json(pause_view(pause)) for pause in ended],
        "pauses": [as_json(pause_view(pause)) for pause in remaining],
        "expected": {
            "at": format_time(decision.at),
            "grow": [
                {"group": up.group, "from": up.from_size, "to": up.to_size}
                for up in decision.plan.scale_ups
            ],
            "remove": [removal.node for removal in decision.plan.removals],
        }
        if decision is not None
        else None,
        "mode": args.wanted,
    }
    emit(args.output, data, lambda: _lines(args, ended, remaining, decision))
    return 0


def _lines(
    args: argparse.Namespace,
    ended: tuple[Pause, ...],
    remaining: tuple[Pause, ...],
    decision: LastDecision | None,
) -> list[str]:
    lines = [f"{args.name}: {counted(len(ended), 'pause')} ended"]
    if not ended and not args.wanted:
        lines = [f"{args.name}: not paused{' there' if remaining else ''}; nothing to resume"]
    if remaining:
        lines.append(f"still paused: {len(remaining)} (outscaler get clusters shows them)")
    if decision is not None:
        growth = (
            ", ".join(
                f"{up.group} {up.from_size} -> {up.to_size}" for up in decision.plan.scale_ups
            )
            or "nothing"
        )
        nodes = [removal.node for removal in decision.plan.removals]
        removals = some(nodes, 10) or "nothing"
        lines += [
            (
                f"by the last decision, {format_time(decision.at)}, the next pass grows {growth} "
                f"and removes {removals};"
            ),
            (
                f"spec.maxDisruption limits it; outscaler pause {args.name} --reason TEXT stops it "
                "again"
            ),
        ]
    return lines
