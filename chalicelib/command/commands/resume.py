"""`outscaler resume CLUSTER`: ends pauses before their time, or puts another mode in force.

It clears no back-off, no circuit breaker and no timer: the first pass decides with everything that is remembered, and
spec.maxDisruption limits it. What it is expected to do is printed before.
"""

from __future__ import annotations

import argparse

from chalicelib.command import apply_gate
from chalicelib.command.commands import apply
from chalicelib.command.commands.pause import add_part_arguments, part_of, pauses_data
from chalicelib.command.operator_journal import note
from chalicelib.command.output import emit, warn
from chalicelib.command.policy_mode import MODES, with_mode
from chalicelib.command.store_access import add_table_argument, check_group, open_store, stored_policy
from chalicelib.command.stored_decision import load_decision
from chalicelib.model.pause import Pause, PausedPart
from chalicelib.model.timestamps import format_time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add CLUSTER, the parts, --mode, the arguments of the check before mode active, and --table."""
    parser.add_argument("name", metavar="CLUSTER", help="the cluster")
    add_part_arguments(parser, "resume")
    parser.add_argument(
        "--mode", dest="wanted", choices=MODES, help="store a version of the policy with this mode, too"
    )
    apply_gate.add_arguments(parser)
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """End the pauses that the arguments name, all of them without a part or a group. Returns 0, also where there was
    none."""
    store = open_store(args)
    stored = stored_policy(store, args.name)
    before = store.pauses.current(args.name)
    if args.group:
        check_group(store, args.name, args.group, {each.group for each in before if each.group})
    ended = tuple(each for each in before if _is_meant(each, args))
    expected = _expected(args)
    if args.wanted:
        apply.put_in_force(args, store, with_mode(stored.text, args.wanted), f"{args.name} with mode {args.wanted}")
    left = store.pauses.change(args.name, lambda now: tuple(each for each in now if not _is_meant(each, args)))
    for each in ended:
        facts = {"part": each.part.value, "was until": format_time(each.until), "reason": each.reason}
        note(store, args.name, "resume", facts, group=each.group)
    data = {
        "name": args.name,
        "ended": pauses_data(ended),
        "pauses": pauses_data(left),
        "expected": expected,
        "mode": args.wanted,
    }
    emit(args.output, data, lambda: _lines(args, ended, left, expected))
    return 0


def _is_meant(pause: Pause, args: argparse.Namespace) -> bool:
    part = part_of(args)
    if args.group and pause.group != args.group:
        return False
    return part is PausedPart.ALL or pause.part is part


def _expected(args: argparse.Namespace) -> dict[str, object] | None:
    """Return what the last decision would have done, None where it is not known."""
    decision, problem = load_decision(open_store(args), args.name)
    if problem:
        warn(problem)
    if decision is None:
        return None
    return {
        "at": format_time(decision.at),
        "grow": [{"group": up.group, "from": up.from_size, "to": up.to_size} for up in decision.plan.scale_ups],
        "remove": [removal.node for removal in decision.plan.removals],
    }


def _lines(
    args: argparse.Namespace, ended: tuple[Pause, ...], left: tuple[Pause, ...], expected: dict[str, object] | None
) -> list[str]:
    lines = [f"{args.name}: {len(ended)} pause{'' if len(ended) == 1 else 's'} ended"]
    if not ended and not args.wanted:
        lines = [f"{args.name}: not paused{' there' if left else ''}; nothing to resume"]
    if left:
        lines.append(f"still paused: {len(left)} (outscaler get clusters shows them)")
    if expected is not None:
        grow, remove = expected["grow"], expected["remove"]
        assert isinstance(grow, list)
        assert isinstance(remove, list)
        growth = ", ".join(f"{each['group']} {each['from']} -> {each['to']}" for each in grow) or "nothing"
        removals = ", ".join(remove[:10]) + (f" and {len(remove) - 10} more" if len(remove) > 10 else "") or "nothing"
        lines += [
            f"by the last decision, {expected['at']}, the next pass grows {growth} and removes {removals};",
            f"spec.maxDisruption limits it; outscaler pause {args.name} --reason TEXT stops it again",
        ]
    return lines
