"""What an expander may know besides the options, so that none of them has to reach for the world.

The same for all calls of one pass, but for nothing: expanders are pure, and a chain asked twice answers twice the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from chalicelib.model.policy import NodePrices
from chalicelib.model.reason import Reason
from chalicelib.model.snapshot import PriorityConfig
from chalicelib.plan.scale_up.option import Option


class ExpanderContext(msgspec.Struct, frozen=True):
    """cluster_nodes: nodes in the cluster, the price expander's measure of how large new ones should be.
    priorities: None where the cluster has no such ConfigMap; then group_priorities count (group id -> priority, 0 if
    not there). group_prices: what a node of a group costs per hour by its provider (group id -> price; not there: it
    does not say). group_aliases: further names of a group (group id -> names). group_ranks: which group is
    preferred among equals, the higher the more (group id -> rank, 0 if not there). group_pools: the pool that a group
    shares with others (group id -> pool id). absent: groups that would have to be
    created first."""

    seed: int = 0
    cluster_nodes: int = 0
    prices: NodePrices | None = None
    priorities: PriorityConfig | None = None
    group_priorities: dict[str, int] = {}
    group_prices: dict[str, float] = {}
    group_aliases: dict[str, tuple[str, ...]] = {}
    group_ranks: dict[str, int] = {}
    group_pools: dict[str, str] = {}
    absent: frozenset[str] = frozenset()


Kept = tuple[list[Option], tuple[Reason, ...]]
Expander = Callable[[Sequence[Option], ExpanderContext], Kept]
"""(options, situation) -> the options that are as good as any, in the order given, and what is to be told."""
