"""Builds the context that expanders may use in a pass (expanders/context.py)."""

from __future__ import annotations

from chalicelib.plan.scale_up.expanders import ExpanderContext
from chalicelib.plan.state.cluster_state import ClusterState


def expander_context(state: ClusterState, seed: int) -> ExpanderContext:
    """Return the expander context of a pass; seed: for expanders that draw at random."""
    return ExpanderContext(
        seed=seed,
        cluster_nodes=len(state.snapshot.nodes),
        prices=state.policy.prices,
        priorities=state.snapshot.priorities,
        group_priorities={facts.id: facts.group.priority for facts in state.groups.values()},
        group_prices={facts.id: facts.group.price for facts in state.groups.values() if facts.group.price},
        group_aliases={facts.id: facts.group.aliases for facts in state.groups.values() if facts.group.aliases},
        group_ranks={facts.id: facts.group.rank for facts in state.groups.values() if facts.group.rank},
        group_pools={facts.id: facts.group.pool.id for facts in state.groups.values() if facts.group.pool is not None},
    )
