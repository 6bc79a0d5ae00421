"""Raises groups that are below their minimum size, if enforceNodeGroupMinSize is set.

This needs no pending pods: otherwise, after the minimum was raised or a group was shrunk manually, the group would stay
below it. Cluster Autoscaler compares maxNodesTotal with the size of the *group* here, so that a full cluster continues
to grow; this module compares it with the size of the cluster, as everywhere.

A minimum set by a schedule is always enforced (schedules/apply.py), because its purpose is to have nodes ready in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chalicelib.plan.scale_up.limits import ResourceLimiter, may_grow
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.pools import pools


def enforce_min_size(state: ClusterState, limiter: ResourceLimiter, grown: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return group -> missing nodes, by id, as far as the limits of the cluster and its pool allow; and the nodes that
    a pool of several groups lacks, given to its best groups, the highest rank first.

    Empty if no minimum is enforced and while the whole cluster is unhealthy. A zero-or-max group gets all its nodes or
    none. Groups that may not scale up now (limits.may_grow) are left for a later pass. grown: nodes that the pass
    already gave each group. The limiter is not changed: the caller uses the room.
    """
    enforced = [facts for _, facts in sorted(state.groups.items()) if _is_enforced(facts, state)]
    if not enforced or not state.health.healthy:
        return []
    raised = _Raised(limiter, grown)
    for facts in enforced:
        raised.give(facts, min(facts.group.min, facts.group.max) - raised.size(facts))
    if any(facts.group.pool is not None for facts in enforced):
        _pools(state, raised)
    return sorted(raised.nodes.items())


def _is_enforced(group: NodeGroupState, state: ClusterState) -> bool:
    return state.options.enforce_node_group_min_size or group.group.options.enforce_min


class _Raised:
    """What groups get, computed on a copy of the limiter."""

    def __init__(self, limiter: ResourceLimiter, grown: Mapping[str, int]) -> None:
        self._spare, self._grown = limiter.copy(), grown
        self.nodes: dict[str, int] = {}

    def size(self, group: NodeGroupState) -> int:
        """Return a group's size including what it has been given."""
        return group.target + self._grown.get(group.id, 0) + self.nodes.get(group.id, 0)

    def give(self, group: NodeGroupState, lacks: int) -> int:
        """Give a group as many of `count` nodes as it may have; returns how many."""
        if lacks <= 0 or not may_grow(group) or group.template is None:
            return 0
        own = group.group.max - self.size(group)
        room = min(own, self._spare.room(group.template.node), self._spare.pool_room(group.group))
        if group.group.options.zero_or_max:
            lacks = own
            room = room if room >= lacks else 0
        count = min(lacks, room)
        if count <= 0:
            return 0
        self._spare.take(group.template.node, count, group.group)
        self.nodes[group.id] = self.nodes.get(group.id, 0) + count
        return count


def _pools(state: ClusterState, raised: _Raised) -> None:
    """Raise pools of several groups to their shared minimum; enforced where it is for every group."""
    for _, pool in sorted(pools(state).items()):
        members = [state.groups[name] for name in pool.groups]
        if any(facts.group.error for facts in members):
            continue  # its size is not known
        if len(members) < 2 or not all(_is_enforced(facts, state) for facts in members):
            continue
        lacks = min(pool.min, pool.max) if pool.max >= 0 else pool.min
        lacks -= pool.size + sum(raised.size(facts) - facts.target for facts in members)
        for facts in _best_first(members):
            if lacks > 0:
                lacks -= raised.give(facts, lacks)


def _best_first(members: Sequence[NodeGroupState]) -> list[NodeGroupState]:
    return sorted(members, key=lambda facts: (-facts.group.rank, facts.id))
