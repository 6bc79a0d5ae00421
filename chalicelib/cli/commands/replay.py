"""`outscaler replay`: makes a recorded plan again, shows what another policy would
have done, also over days.

Reads only. Each decision is planned from its own recorded state: what another policy would have
changed in one decision is not carried into the next one.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from chalicelib.cli import compare, plan_document, plan_output
from chalicelib.cli.arguments import duration
from chalicelib.cli.output import emit
from chalicelib.cli.plan_inputs import PlannedCase, decided
from chalicelib.model.errors import BadInput
from chalicelib.model.resource_names import DECISIONS
from chalicelib.model.timestamps import format_time

if TYPE_CHECKING:
    from chalicelib.cli.replayed_plan import OtherPolicy
    from chalicelib.replay.decision_place import DecisionReader

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
    parser.add_argument(
        "--cluster", default="", metavar="NAME", help="the cluster; required for a span of days"
    )
    parser.add_argument(
        "--from",
        dest="place",
        default=os.environ.get(DECISIONS, ""),
        metavar="PLACE",
        help=(
            f"where decisions are recorded: s3://BUCKET/PREFIX or a folder (default: ${DECISIONS})"
        ),
    )
    parser.add_argument(
        "--with-policy",
        type=Path,
        metavar="FILE",
        help="compare with the plans that this policy would have made",
    )
    parser.add_argument(
        "--since",
        type=_AGO,
        default=None,
        metavar="DURATION",
        help="a span: from so long ago on, such as 7d or 36h",
    )
    parser.add_argument(
        "--until",
        type=_AGO,
        default=0.0,
        metavar="DURATION",
        help="until so long ago (default: now)",
    )
    parser.add_argument(
        "--limit",
        type=_count,
        default=10_000,
        metavar="N",
        help="at most so many decisions of a span (default: 10000)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the replay. Returns 0 if every plan is the recorded one byte for byte, otherwise 1."""
    from chalicelib.cli.replayed_plan import read_policy, show_span

    other = read_policy(args.with_policy) if args.with_policy is not None else None
    if args.decision:
        return _show_decision(args, other)
    if not args.cluster:
        raise BadInput(
            "outscaler replay",
            "names no decision",
            "give DECISION, or --cluster NAME and --since 7d",
        )
    return show_span(args, _reader(args), other)


def _show_decision(args: argparse.Namespace, other: OtherPolicy | None) -> int:
    from chalicelib.cli.replayed_plan import inputs_of, replay, same_prices
    from chalicelib.replay.recorded_decision import decode

    data, place = _read(args)
    start = time.perf_counter()
    header, decision = decode(data, place)
    decoded = time.perf_counter()
    replayed = replay(header, decision)
    timings = {"decode": decoded - start, "plan": time.perf_counter() - decoded}
    verdict = {
        "decision": header.plan,
        "cluster": header.cluster,
        "at": format_time(header.at),
        "release": header.release,
        "same": replayed.same,
        "differs": list(replayed.parts),
        "why": replayed.why,
    }
    sentence = (
        f"The same plan as recorded, byte for byte ({header.plan}, release {header.release})."
    )
    if not replayed.same:
        why = f" {replayed.why[:1].upper()}{replayed.why[1:]}." if replayed.why else ""
        sentence = f"Not the recorded plan: {', '.join(replayed.parts)} differ.{why}"
    if other is None:
        emit(
            args.output,
            verdict | {"plan": plan_document.as_document(replayed.plan, timings)},
            lambda: [*plan_output.as_blocks(replayed.plan, timings), sentence],
        )
    else:
        policy, plan = other.plan(decision)
        case = inputs_of(decision)
        plans = (decided(case), PlannedCase(plan, decision.memory, {}))
        options = compare.differing(decision.policy, policy)
        pair = compare.Pair(case, same_prices(decision.policy, policy), plans, options)
        emit(
            args.output,
            verdict | {"comparison": compare.as_document(pair)},
            lambda: [
                *compare.as_blocks(pair),
                "First: the recorded policy. Second: the given one.",
                sentence,
            ],
        )
    return 0 if replayed.same else _FINDING


def _read(args: argparse.Namespace) -> tuple[bytes, str]:
    """Return the file of the decision, and its name for messages."""
    from chalicelib.replay.decision_place import read_file
    from chalicelib.replay.recorded_decision import key_from

    file = Path(args.decision)
    if file.is_file():
        return read_file(file), str(file)
    reader = _reader(args)
    for path in reader.paths(f"{args.cluster}/" if args.cluster else ""):
        key = key_from(path)
        if key is not None and key.plan == args.decision:
            return reader.get(path), path
    raise BadInput(
        args.decision,
        f"is neither a file nor a decision in {args.place}",
        (
            "outscaler history NAME --kind plan shows ids; only plans with changes are recorded, "
            "and only for some days"
        ),
    )


def _reader(args: argparse.Namespace) -> DecisionReader:
    from chalicelib.replay.decision_place import reader

    if not args.place:
        raise BadInput(
            "--from",
            f"is not given, and {DECISIONS} is not set",
            "give s3://BUCKET/PREFIX or a folder",
        )
    return reader(args.place)


def _count(text: str) -> int:
    if text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= 1_000_000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from 1 to 1000000")
