"""least-nodes: keeps the options that need the fewest new nodes, regardless of node type."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.plan.scale_up.expanders.context import ExpanderContext, Kept
from chalicelib.plan.scale_up.option import Option


def keep(options: Sequence[Option], _: ExpanderContext) -> Kept:
    """Return all options with the smallest node count; options without a node are dropped."""
    real = [option for option in options if option.nodes > 0]
    least = min((option.nodes for option in real), default=0)
    return [option for option in real if option.nodes == least], ()
