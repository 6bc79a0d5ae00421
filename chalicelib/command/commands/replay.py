"""`outscaler replay`: makes a recorded plan again, shows what another policy would have done, also over days.

Reads only. Each decision is planned from its own recorded state: what another policy would have changed in one decision
is not carried into the next one.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chalicelib.command import compare, plan_output
from chalicelib.command.arguments import duration
from chalicelib.command.output import Block, emit
from chalicelib.command.plan_inputs import PlannedCase, decided
from chalicelib.command.replay_inputs import OtherPolicy, inputs_of, read_policy, same_prices
from chalicelib.model.errors import BadInput
from chalicelib.model.resource_names import DECISIONS
from chalicelib.model.timestamps import format_time

if TYPE_CHECKING:
    from chalicelib.replay.decision_place import DecisionReader
    from chalicelib.replay.recorded_decision import RecordedDecision

_FINDING = 1
_AGO = duration(0.0, math.inf, ", such as 7d or 36h", days=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add DECISION, --cluster, --from, --with-policy, --since, --until and --limit."""
    parser.add_argument(
        "decision",
        nargs="?",
        default="",
        metavar="DECISION",
        help="the plan's id, as outscaler history shows it, or a file; omit it for a span of days",
    )
    parser.add_argument("--cluster", default="", metavar="NAME", help="the cluster; required for a span of days")
    parser.add_argument(
        "--from",
        dest="place",
        default=os.environ.get(DECISIONS, ""),
        metavar="PLACE",
        help=f"where decisions are recorded: s3://BUCKET/PREFIX or a folder (default: ${DECISIONS})",
    )
    parser.add_argument(
        "--with-policy", type=Path, metavar="FILE", help="compare with the plans that this policy would have made"
    )
    parser.add_argument(
        "--since", type=_AGO, default=None, metavar="DURATION", help="a span: from so long ago on, such as 7d or 36h"
    )
    parser.add_argument("--until", type=_AGO, default=0.0, metavar="DURATION", help="until so long ago (default: now)")
    parser.add_argument(
        "--limit", type=_count, default=10_000, metavar="N", help="at most so many decisions of a span (default: 10000)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the replay. Returns 0 if every plan is the recorded one byte for byte, otherwise 1."""
    other = read_policy(args.with_policy) if args.with_policy is not None else None
    if not args.decision:
        from chalicelib.command.replay_span import show_span

        if not args.cluster:
            raise BadInput("outscaler replay", "names no decision", "give DECISION, or --cluster NAME and --since 7d")
        return show_span(args, _reader(args), other)
    data, place = _found(args)
    return _one(data, place, args, other)


def _one(data: bytes, place: str, args: argparse.Namespace, other: OtherPolicy | None) -> int:
    from chalicelib.command.replayed_plan import replay
    from chalicelib.replay.recorded_decision import decode

    begun = time.perf_counter()
    header, decision = decode(data, place)
    read = time.perf_counter()
    replayed = replay(header, decision)
    timings = {"decode": read - begun, "plan": time.perf_counter() - read}
    verdict = {
        "decision": header.plan,
        "cluster": header.cluster,
        "at": format_time(header.at),
        "release": header.release,
        "same": replayed.same,
        "differs": list(replayed.parts),
        "why": replayed.why,
    }
    code = 0 if replayed.same else _FINDING
    if other is None:
        emit(
            args.output,
            verdict | {"plan": plan_output.as_document(replayed.plan, timings)},
            lambda: [*plan_output.as_blocks(replayed.plan, timings), _sentence(verdict)],
        )
        return code
    pair = _pair(decision, other)
    emit(
        args.output,
        verdict | {"comparison": compare.as_document(pair)},
        lambda: [*compare.as_blocks(pair), "First: the recorded policy. Second: the given one.", _sentence(verdict)],
    )
    return code


def _pair(decision: RecordedDecision, other: OtherPolicy) -> compare.Pair:
    case = inputs_of(decision)
    snapshot, policy = other.of(decision)
    first = decided(case)
    from chalicelib.command.replayed_plan import with_policy

    second = PlannedCase(with_policy(decision, snapshot, policy), decision.memory, {})
    options = compare.differing(decision.policy, policy)
    return compare.Pair(case, same_prices(decision.policy, policy), (first, second), options)


def _sentence(verdict: dict[str, Any]) -> Block:
    if verdict["same"]:
        return f"The same plan as recorded, byte for byte ({verdict['decision']}, release {verdict['release']})."
    said = f"Not the recorded plan: {', '.join(verdict['differs'])} differ."
    return f"{said} {verdict['why'][:1].upper()}{verdict['why'][1:]}." if verdict["why"] else said


def _found(args: argparse.Namespace) -> tuple[bytes, str]:
    """Return the file of the decision, and its name for messages."""
    from chalicelib.replay.decision_folder import read_file
    from chalicelib.replay.recorded_decision import key_from

    file = Path(args.decision)
    if file.is_file():
        return read_file(file), str(file)
    reader = _reader(args)
    prefix = f"{args.cluster}/" if args.cluster else ""
    for path in reader.paths(prefix):
        key = key_from(path)
        if key is not None and key.plan == args.decision:
            return reader.get(path), path
    raise BadInput(
        args.decision,
        f"is neither a file nor a decision in {args.place}",
        "outscaler history NAME --kind plan shows ids; only plans with changes are recorded, and only for some days",
    )


def _reader(args: argparse.Namespace) -> DecisionReader:
    from chalicelib.replay.decision_place import reader

    if not args.place:
        raise BadInput("--from", f"is not given, and {DECISIONS} is not set", "give s3://BUCKET/PREFIX or a folder")
    return reader(args.place)


def _count(text: str) -> int:
    if text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= 1_000_000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from 1 to 1000000")
