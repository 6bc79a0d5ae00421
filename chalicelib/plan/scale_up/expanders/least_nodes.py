"""least-nodes: the options that need fewest new nodes, whatever the nodes are."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.plan.scale_up.expanders.context import ExpanderContext, Kept
from chalicelib.plan.scale_up.option import Option


def keep(options: Sequence[Option], _: ExpanderContext) -> Kept:
    """All options with the smallest node count; those without a node are no options (X3)."""
    real = [option for option in options if option.nodes > 0]
    least = min((option.nodes for option in real), default=0)
    return [option for option in real if option.nodes == least], ()
