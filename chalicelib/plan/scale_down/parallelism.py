"""Limits how many nodes may be in removal at once, and how many of them may be draining.

An atomic group is one unit: it is taken whole or not at all. The first one of a plan may exceed what is left, because
otherwise a large group could never be removed; it may not if nothing is left. See docs/reference/scale-down.md
"Parallelism".
"""

from __future__ import annotations

from chalicelib.model.operation import OperationKind
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState


class Parallelism:
    """What is left of the two limits after removals in flight."""

    def __init__(self, state: ClusterState) -> None:
        options = state.options
        going = [
            target
            for op in state.memory.operations
            if op.is_open and op.spec.kind is OperationKind.DELETE_NODES
            for target in op.spec.targets
        ]
        self._most, self._most_drains = options.max_scale_down_parallelism, options.max_drain_parallelism
        self._left = max(0, self._most - len(going))
        self._drains_left = max(0, self._most_drains - sum(bool(target.evict) for target in going))
        self._may_overflow = True

    def refuse(self, nodes: int, drains: int, *, atomic: bool) -> Reason | None:
        """Return why a unit of this many nodes, some of which need a drain, may not be removed now. Drained nodes count
        as nodes too, so the node limit also applies to them."""
        if nodes <= self._left and drains <= self._drains_left:
            return None
        if atomic and self._may_overflow and self._left and (self._drains_left or not drains):
            return None
        return Reason.of(ReasonCode.PARALLELISM, limit=self._most if nodes > self._left else self._most_drains)

    def take(self, nodes: int, drains: int, *, atomic: bool) -> None:
        """Count a unit that is removed. After an overflow nothing is left."""
        self._left = max(0, self._left - nodes)
        self._drains_left = max(0, self._drains_left - drains)
        self._may_overflow = self._may_overflow and not atomic
