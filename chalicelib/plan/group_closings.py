"""Which empty groups of managed pools are deleted: those that were empty for long enough, and those
whose place a new group needs (docs/reference/managed-pools.md "Deleting").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from chalicelib.model.plan import GroupClosing, ScaleUp
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.empty_groups import (
    closable,
    is_drained,
    is_empty,
    may_be_closed,
    pool_of,
)
from chalicelib.plan.state.managed_groups import declaration_of, is_candidate, open_groups


def plan_closings(state: ClusterState, scale_ups: Iterable[ScaleUp]) -> tuple[GroupClosing, ...]:
    """Return the groups to delete, by id. scale_ups: of the plan; what they grow stays."""
    grown = [growth.group for growth in scale_ups]
    empty = {
        group.id: group
        for group in state.groups.values()
        if is_empty(group) and group.id not in grown and may_be_closed(group, state)
    }
    closings: dict[str, GroupClosing] = {}
    for name, group in sorted(empty.items()):
        declaration = declaration_of(group.group)
        pool = pool_of(declaration, state)
        wanted = state.memory.prunes.get(declaration, 0.0) >= group.memory.empty_since
        due = state.now - group.memory.empty_since >= pool.keep_empty
        if wanted or is_drained(group.group, state) or (due and pool.delete_empty):
            closings[name] = GroupClosing(name, group.group.provider)
    needed = _needed_places(state, grown)
    for declaration, places in sorted(needed.items()):
        for group in closable(state, declaration)[:places]:
            if group.id in empty:
                new = tuple(name for name in grown if _is_new_of(state, name, declaration))
                closings[group.id] = GroupClosing(group.id, group.group.provider, new)
    return tuple(closing for _, closing in sorted(closings.items()))


def _needed_places(state: ClusterState, grown: Collection[str]) -> dict[str, int]:
    """Return declaration -> how many groups more than maxPools it would have."""
    existing = open_groups(group.group for group in state.groups.values())
    needed = {}
    for pool in state.policy.managed_pools:
        new = sum(_is_new_of(state, name, pool.name) for name in grown)
        excess = len(existing.get(pool.name, ())) + new - pool.max_pools
        if new and excess > 0:
            needed[pool.name] = excess
    return needed


def _is_new_of(state: ClusterState, name: str, declaration: str) -> bool:
    group = state.groups[name].group
    return is_candidate(group) and declaration_of(group) == declaration
