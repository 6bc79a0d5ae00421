"""`outscaler explain pod|node|group NAME`: explains the part of the plan about one object, in sentences with all
reasons.

It makes the same plan as `outscaler plan` with the same arguments, and shows only what concerns the object. With
--cluster it explains the last decision of the deployment, without access to the cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from chalicelib.command import explain_group, explain_node, explain_pod, explain_stored, explain_view, plan_inputs
from chalicelib.command.explain_view import ExplainContext, Explanation
from chalicelib.command.output import emit
from chalicelib.command.store_access import add_table_argument

_KINDS: dict[str, Callable[[ExplainContext, str], Explanation]] = {
    "pod": explain_pod.answer,
    "node": explain_node.answer,
    "group": explain_group.answer,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add KIND, NAME and the input arguments."""
    parser.add_argument("kind", choices=tuple(_KINDS), help="what NAME is")
    parser.add_argument("name", metavar="NAME", help="a pod as namespace/name, or by its name alone; a node; a group")
    plan_inputs.add_arguments(parser, stored=True)
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print the explanation; raises BadInput, also for an unknown name."""
    if args.cluster is not None:
        return explain_stored.run(args)
    case = plan_inputs.read(args)
    scene = ExplainContext(case, plan_inputs.decided(case))
    answer = _KINDS[args.kind](scene, args.name)
    emit(args.output, explain_view.as_document(answer, scene), lambda: explain_view.as_blocks(answer, scene))
    return 0
