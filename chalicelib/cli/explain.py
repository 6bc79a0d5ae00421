"""`outscaler explain pod|node|group NAME`: one thing's part of the plan, in sentences first and with all its reasons.

It makes the same plan as `outscaler plan` with the same arguments, and shows of it what concerns the one thing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from chalicelib.cli import explain_group, explain_node, explain_pod, explain_view, plan_inputs
from chalicelib.cli.explain_view import ExplainContext, Explanation
from chalicelib.cli.output import emit

_KINDS: dict[str, Callable[[ExplainContext, str], Explanation]] = {
    "pod": explain_pod.answer,
    "node": explain_node.answer,
    "group": explain_group.answer,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """KIND, NAME, and the sources."""
    parser.add_argument("kind", choices=tuple(_KINDS), help="what NAME is")
    parser.add_argument("name", metavar="NAME", help="a pod as namespace/name, or by its name alone; a node; a group")
    plan_inputs.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the answer; raises BadInput, also for a name that is not known."""
    case = plan_inputs.read(args)
    scene = ExplainContext(case, plan_inputs.decided(case))
    answer = _KINDS[args.kind](scene, args.name)
    emit(args.output, explain_view.as_document(answer, scene), lambda: explain_view.as_blocks(answer, scene))
    return 0
