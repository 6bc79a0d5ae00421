"""Builds the context that expanders may use in a pass (expanders/context.py)."""

from __future__ import annotations

from chalicelib.plan.scale_up.expanders import ExpanderContext
from chalicelib.plan.state.cluster_state import ClusterState


def expander_context(world: ClusterState, seed: int) -> ExpanderContext:
    """Return the expander context of a pass; seed: for expanders that draw at random."""
    return ExpanderContext(
        seed=seed,
        cluster_nodes=len(world.snapshot.nodes),
        prices=world.policy.prices,
        priorities=world.snapshot.priorities,
        group_priorities={facts.id: facts.group.priority for facts in world.groups.values()},
        group_prices={facts.id: facts.group.price for facts in world.groups.values() if facts.group.price},
        group_aliases={facts.id: facts.group.aliases for facts in world.groups.values() if facts.group.aliases},
        group_ranks={facts.id: facts.group.rank for facts in world.groups.values() if facts.group.rank},
        group_pools={facts.id: facts.group.pool.id for facts in world.groups.values() if facts.group.pool is not None},
    )
