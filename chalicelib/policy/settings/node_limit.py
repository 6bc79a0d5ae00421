"""A number of nodes, or a share of them."""

from __future__ import annotations

import msgspec


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
