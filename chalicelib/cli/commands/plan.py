"""`outscaler plan`: shows what would happen now and why. Reads files or a live cluster,
and never writes to either.

It runs the same planner as the reconcile function and needs no AWS, so that decisions can
be reviewed before the deployment receives credentials, and an old decision can be
replayed from its saved inputs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from chalicelib.cli import compare, plan_document, plan_inputs, plan_output
from chalicelib.cli.output import emit
from chalicelib.model.plan import Plan

_FINDING, _UNREAD = 1, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the input arguments, --save-memory and --compare-option."""
    plan_inputs.add_arguments(parser)
    parser.add_argument(
        "--strict",
        action="store_true",
        help=(
            f"exit {_FINDING} if anything was not read (default: exit {_UNREAD} if a provider was "
            "not)"
        ),
    )
    parser.add_argument(
        "--save-memory", metavar="FILE", type=Path, help="write the memory after the plan"
    )
    parser.add_argument(
        "--compare-option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help=(
            "also make a second plan with this option and compare both; several options make one "
            "second plan"
        ),
    )


def run(args: argparse.Namespace) -> int:
    """Print the plan, or two plans in comparison; raises BadInput."""
    case = plan_inputs.read(args)
    other = compare.policy_of(case.policy, args.compare_option) if args.compare_option else None
    first = plan_inputs.decided(case)
    if args.save_memory is not None:
        plan_inputs.write_memory(args.save_memory, first.memory)
    if other is None:
        emit(
            args.output,
            plan_document.as_document(first.plan, first.timings, case.assumed),
            lambda: plan_output.as_blocks(first.plan, first.timings, case.assumed),
        )
        return _code(first.plan, strict=args.strict)
    pair = compare.Pair(
        case,
        (case.policy, other),
        (first, plan_inputs.decided(case, other)),
        compare.names_of(args.compare_option),
    )
    emit(args.output, compare.as_document(pair), lambda: compare.as_blocks(pair))
    return _code(first.plan, strict=args.strict)


def _code(plan: Plan, *, strict: bool) -> int:
    """Return the exit code: a plan without a provider's node groups must not be
    taken for a complete one."""
    if strict and plan.gaps:
        return _FINDING
    return _UNREAD if plan_document.unread_providers(plan) else 0
