"""Groups of managed pools that have no machine, or are to have none: since when they are empty,
which of them may be deleted, and which an operator drains."""

from __future__ import annotations

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import DRAIN_FOR, GroupMemory
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.managed_groups import declaration_of
from chalicelib.policy.settings.managed_pools import ManagedPool, PoolMode

_GONE = ManagedPool("", "")
"""Stands for a declaration that is gone."""


def pool_of(declaration: str, state: ClusterState) -> ManagedPool:
    """Return a declaration by its name, the usual one for one that is gone."""
    pools = {pool.name: pool for pool in state.policy.managed_pools}
    return pools.get(declaration, _GONE)


def drained_pools(state: ClusterState) -> frozenset[str]:
    """Return the declarations of which an operator has asked to drain the groups that retire. A
    request ends by itself, so that it does not meet groups that retire long after it."""
    asked = state.memory.drains.items()
    return frozenset(pool for pool, at in asked if 0.0 <= state.now - at < DRAIN_FOR)


def is_drained(group: NodeGroup, state: ClusterState) -> bool:
    """Return whether the nodes of a group that retires are to go because an operator asked."""
    is_retiring = group.managed is not None and bool(group.managed.retiring)
    return is_retiring and declaration_of(group) in drained_pools(state)


def is_empty(group: NodeGroupState) -> bool:
    """Return whether a group that Outscaler has made has no machine and gets none."""
    managed = group.group.managed
    is_known = managed is not None and managed.exists and not group.group.error
    return is_known and not (group.target or group.nodes or group.group.instances or group.growing)


def may_be_closed(group: NodeGroupState, state: ClusterState) -> bool:
    """Return whether nothing stands against the deletion of an empty group: an operation, a pause
    of removals, a declaration that is off, or a failure that is not long ago."""
    memory = group.memory
    if group.removals_paused is not None:
        return False
    pool = pool_of(declaration_of(group.group), state)
    if pool.mode is PoolMode.OFF:
        return False
    has_work = any(
        operation.is_open and operation.spec.group == group.id
        for operation in state.memory.operations
    )
    return bool(memory.empty_since) and memory.repair_after <= state.now and not has_work


def closable(state: ClusterState, declaration: str) -> list[NodeGroupState]:
    """Return the empty groups of a declaration whose place a new group may take, the longest empty
    first. Without deleteEmpty only those that were empty for keepEmpty."""
    pool = pool_of(declaration, state)
    groups = [
        group
        for group in state.groups.values()
        if declaration_of(group.group) == declaration
        and is_empty(group)
        and may_be_closed(group, state)
        and (pool.delete_empty or state.now - group.memory.empty_since >= pool.keep_empty)
    ]
    return sorted(groups, key=lambda group: (group.memory.empty_since, group.id))


def with_emptiness(memory: GroupMemory, group: NodeGroupState, now: float) -> GroupMemory:
    """Return a group's memory with the instant since which it is empty, 0.0 if it is not."""
    since = (memory.empty_since or now) if is_empty(group) else 0.0
    if since == memory.empty_since:
        return memory
    return msgspec.structs.replace(memory, empty_since=since)
