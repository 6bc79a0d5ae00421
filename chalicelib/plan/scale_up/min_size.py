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


def enforce_min_size(state: ClusterState, ledger: ResourceLimiter, grown: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return group -> missing nodes, by id, as far as the limits of the cluster and its pool allow; and the nodes that
    a pool of several groups lacks, given to its best groups, the highest rank first.

    Empty if no minimum is enforced and while the whole cluster is unhealthy. A zero-or-max group gets all its nodes or
    none. Groups that may not scale up now (limits.may_grow) are left for a later pass. grown: nodes that the pass
    already gave each group. The limiter is not changed: the caller uses the room.
    """
    enforced = [facts for _, facts in sorted(state.groups.items()) if _is_enforced(facts, state)]
    if not enforced or not state.health.healthy:
        return []
    raised = _Raised(ledger, grown)
    for facts in enforced:
        raised.give(facts, min(facts.group.min, facts.group.max) - raised.size(facts))
    if any(facts.group.pool is not None for facts in enforced):
        _pools(state, raised)
    return sorted(raised.nodes.items())


def _is_enforced(facts: NodeGroupState, state: ClusterState) -> bool:
    return state.options.enforce_node_group_min_size or facts.group.options.enforce_min


class _Raised:
    """What groups get, computed on a copy of the limiter."""

    def __init__(self, ledger: ResourceLimiter, grown: Mapping[str, int]) -> None:
        self._spare, self._grown = ledger.copy(), grown
        self.nodes: dict[str, int] = {}

    def size(self, facts: NodeGroupState) -> int:
        """Return a group's size including what it has been given."""
        return facts.target + self._grown.get(facts.id, 0) + self.nodes.get(facts.id, 0)

    def give(self, facts: NodeGroupState, lacks: int) -> int:
        """Give a group as many of `count` nodes as it may have; returns how many."""
        if lacks <= 0 or not may_grow(facts) or facts.template is None:
            return 0
        own = facts.group.max - self.size(facts)
        room = min(own, self._spare.room(facts.template.node), self._spare.pool_room(facts.group))
        if facts.group.options.zero_or_max:
            lacks = own
            room = room if room >= lacks else 0
        count = min(lacks, room)
        if count <= 0:
            return 0
        self._spare.take(facts.template.node, count, facts.group)
        self.nodes[facts.id] = self.nodes.get(facts.id, 0) + count
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
