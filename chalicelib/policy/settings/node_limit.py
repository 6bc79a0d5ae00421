"""A number of nodes, or a share of them."""

import re

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import quote
from chalicelib.policy.value_types import scalar


class NodeLimit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A number of nodes, or a share of the nodes of a pool. Exactly one of them is set."""

    nodes: int | None = None
    share: float | None = None

    def of(self, registered: int) -> int:
        """Return the limit for a pool of so many nodes: a share is rounded down, but a share of 1 %
        and more is at least one node of a pool that has any."""
        if self.nodes is not None:
            return self.nodes
        share = self.share or 0.0
        least = 1 if share >= 0.01 and registered > 0 else 0
        return max(least, int(share * registered + 1e-9))


_NODES = "a number of nodes or a percentage, such as 3 or 10%"


def _parse_node_limit(value: str) -> NodeLimit:
    match = re.fullmatch(r"(0|[1-9][0-9]{0,8})( ?%)?", value)
    if match is None or (match[2] and int(match[1]) > 100):
        raise BadInput(
            "", f"{quote(value)} is not a number of nodes or a percentage", f"write {_NODES}"
        )
    return NodeLimit(share=int(match[1]) / 100) if match[2] else NodeLimit(nodes=int(match[1]))


def _show_node_limit(limit: NodeLimit) -> int | str:
    return f"{round((limit.share or 0.0) * 100)}%" if limit.nodes is None else limit.nodes


NODE_LIMIT = scalar(
    "number or percentage",
    _parse_node_limit,
    _NODES,
    _show_node_limit,
    lambda: {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+ ?%?$"},
)
