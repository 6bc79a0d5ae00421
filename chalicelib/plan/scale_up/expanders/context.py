"""Context that an expander may use besides the options, so that no expander depends on the cluster state.

It is constant within one pass. Expanders are pure: a chain called twice gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from chalicelib.model.policy import NodePrices
from chalicelib.model.reason import Reason
from chalicelib.model.snapshot import PriorityConfig
from chalicelib.plan.scale_up.option import Option


class ExpanderContext(msgspec.Struct, frozen=True):
    """cluster_nodes: nodes in the cluster, from which the price expander derives the preferred size of new ones.
    priorities: None if the cluster has no such ConfigMap; then group_priorities apply (group id -> priority, 0 if
    missing). group_prices: hourly price of a node of a group by its provider (group id -> price; missing: unknown).
    group_aliases: further names of a group (group id -> names). group_ranks: preference among equal groups, higher
    is preferred (group id -> rank, 0 if missing). group_pools: the pool that a group shares with others (group id ->
    pool id). absent: groups that would have to be created first."""

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
"""(options, context) -> the best options, in the order given, and notes for the plan."""
