"""Limits of a scale-up: the maximum of the group, of the pool that it shares with other groups, and
of the cluster; and the growth to enforced minimum sizes.

The cluster-wide limits count all nodes, autoscaled or not, upcoming ones included, except
virtual-kubelet nodes. The limiter is reduced as options are taken within a pass, so that two groups
never use the same room.

gpu-total applies to any provider. A limit's type is either the value of a node's GPU label or the
name of a resource: `nvidia-tesla-t4:0:8` counts the GPUs of nodes with that label value,
`nvidia.com/gpu:0:8` those of every node with that resource.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, GPU_LABELS, GPU_RESOURCES, MEMORY
from chalicelib.plan.scale_up.declaration_limits import DeclarationLimits
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.pools import pools, rooms
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.state.spot_market import SpotShares

_UNLIMITED = 10**9


class Allowance(msgspec.Struct, frozen=True):
    """A number of nodes, and what prevents more."""

    nodes: int
    stop: Reason


def may_grow(group: NodeGroupState) -> bool:
    """Return whether a group may be changed at all: readable, healthy, not backed off, not scaling
    up by an earlier plan, not paused, and its nodes known. Sizes are not checked."""
    return (
        not group.group.error
        and group.healthy
        and not group.backed_off
        and not group.growing
        and group.growth_paused is None
        and group.template is not None
    )


class ResourceLimiter:
    """The remaining room of the limits that groups share: the cluster's and their pools'. spot: the
    shares of spot groups, None without spec.spot. declared: the limits of spec.managedPools, None
    without. own: groups by the names of their variants
    (scale_up/zone_variants.py), which have their maximum together."""

    own: Mapping[str, NodeGroupState] = {}

    def __init__(self, state: ClusterState) -> None:
        options = state.options
        self._max_nodes = options.max_nodes_total
        self._per_scale_up = options.max_nodes_per_scale_up
        self._max = {CPU: options.cores_total[1], MEMORY: options.memory_total[1]}
        for kind, _, most in sorted(options.gpu_total):
            self._max[kind] = min(most, self._max.get(kind, most))
        self._used = dict.fromkeys(self._max, 0)
        self._pools = rooms(state.groups)
        self.spot = SpotShares(state) if state.policy.spot is not None else None
        has_declarations = bool(state.policy.managed_pools)
        self.declared = DeclarationLimits(state) if has_declarations else None
        counted = [
            node for node in state.snapshot.nodes if node.labels.get("type") != "virtual-kubelet"
        ]
        self._nodes = len(counted)
        self._given: dict[str, int] = {}  # group -> nodes of it and of its variants
        for node in counted:
            self._spend(self._amounts(node), 1)
        for node in counted if options.gpu_total else ():
            self._spend(self._gpus_to_come(node, state), 1)
        for group in state.groups.values():
            # those already count as nodes of the cluster
            ahead = max(0, group.upcoming - group.counts[Bucket.STARTING])
            self._nodes += ahead
            if group.template is not None and ahead:
                self._spend(self._amounts(group.template.node), ahead)

    def copy(self) -> ResourceLimiter:
        """Return a copy for trial calculations."""
        other = copy(self)
        other._used = dict(self._used)
        other._pools = dict(self._pools)
        other._given = dict(self._given)
        other.spot = self.spot.copy() if self.spot is not None else None
        other.declared = self.declared.copy() if self.declared is not None else None
        return other

    def take(self, node: Node, count: int, group: NodeGroup | None = None) -> None:
        """Use room for `count` new nodes like this one. group: their group,
        for the limits of its pool."""
        self._nodes += count
        self._spend(self._amounts(node), count)
        if group is not None and group.pool is not None and group.pool.id in self._pools:
            self._pools[group.pool.id] -= count
        if group is not None:
            self._given[group.id] = self._given.get(group.id, 0) + count
        if group is not None and self.spot is not None:
            self.spot.add(group.id, count)
        if group is not None and self.declared is not None:
            self.declared.take(node, group, count)

    def pool_room(self, group: NodeGroup) -> int:
        """Return how many nodes the limits of a group's pool leave room for; never negative, and
        very large without a pool limit."""
        return (
            max(0, self._pools.get(group.pool.id, _UNLIMITED))
            if group.pool is not None
            else _UNLIMITED
        )

    def room(self, node: Node) -> int:
        """Return how many nodes like this one the cluster-wide limits leave
        room for; never negative."""
        return max(
            0, min((allowance.nodes for allowance in self._allowances(node)), default=_UNLIMITED)
        )

    def shared(self, groups: Sequence[NodeGroupState]) -> list[tuple[tuple[int, ...], int]]:
        """Return the limits that several groups share: what one node of each counts, and how much
        is left. groups: each with a template."""
        amounts = [
            self._amounts(group.template.node) for group in groups if group.template is not None
        ]
        limits = [
            (tuple(of_node.get(name, 0) for of_node in amounts), max(0, most - self._used[name]))
            for name, most in sorted(self._max.items())
        ]
        if self._max_nodes > 0:
            limits.append(((1,) * len(amounts), max(0, self._max_nodes - self._nodes)))
        pool_of = [group.group.pool.id if group.group.pool is not None else "" for group in groups]
        limits += [
            (tuple(int(own == pool) for own in pool_of), max(0, room))
            for pool, room in sorted(self._pools.items())
            if pool in pool_of
        ]
        if self.declared is not None:
            limits += self.declared.shared(groups)
        return limits

    def allowance(self, group: NodeGroupState, grown: int, room_elsewhere: int = 0) -> Allowance:
        """Return how many more nodes a group may get in this pass. grown: nodes that the pass
        already gave it. room_elsewhere: the free capacity of the groups it is balanced with. A
        zero-or-max group gets all nodes or none."""
        assert group.template is not None
        whole = self.own.get(group.id, group)
        most, own = whole.group.max, max(0, group.group.max - group.target - grown)
        if group.zones or group.storage_room or whole is not group:
            own = min(own, max(0, most - whole.target - self._given.get(whole.id, 0)))
        full = Reason.of(ReasonCode.GROUP_MAX_SIZE, max=most)
        share = self.spot.allowance(whole.id) if self.spot is not None else None
        if group.group.options.zero_or_max:
            stop = self.atomic_stop(group, grown)
            stop = share[1] if stop is None and share is not None and share[0] < own else stop
            return Allowance(own, full) if stop is None else Allowance(0, stop)
        allowances = [Allowance(own + room_elsewhere, full), *self._allowances(group.template.node)]
        if self.pool_room(group.group) < _UNLIMITED:
            allowances.append(Allowance(self.pool_room(group.group), _pool_limit(group)))
        if share is not None:
            allowances.append(Allowance(*share))
        if self.declared is not None:
            rooms = self.declared.rooms(group.group, group.template.node)
            allowances += [Allowance(nodes, stop) for nodes, stop in rooms]
        if self._per_scale_up > 0:
            stop = Reason.of(ReasonCode.MAX_NODES_PER_SCALE_UP, max=self._per_scale_up)
            allowances.append(Allowance(self._per_scale_up - grown, stop))
        smallest = min(allowances, key=lambda allowance: allowance.nodes)
        return Allowance(max(0, min(smallest.nodes, _UNLIMITED)), smallest.stop)

    def atomic_stop(self, group: NodeGroupState, grown: int) -> Reason | None:
        """Return why a zero-or-max group cannot get all its missing nodes, None if it can."""
        assert group.template is not None
        lacks = group.group.max - group.target - grown
        if lacks <= 0:
            return Reason.of(ReasonCode.GROUP_MAX_SIZE, max=group.group.max)
        if 0 < self._max_nodes < self._nodes + lacks:
            return Reason.of(
                ReasonCode.ATOMIC_LIMIT, nodes=self._nodes + lacks, max=self._max_nodes
            )
        if self.pool_room(group.group) < lacks:
            return _pool_limit(group)
        short = [name for name, room in self._rooms(group.template.node) if room < lacks]
        return self._resource_limit(short, group.template.node) if short else None

    def _allowances(self, node: Node) -> list[Allowance]:
        allowances = []
        if self._max_nodes > 0:
            stop = Reason.of(ReasonCode.MAX_NODES_TOTAL, max=self._max_nodes)
            allowances.append(Allowance(self._max_nodes - self._nodes, stop))
        rooms = self._rooms(node)
        if rooms:
            least = max(0, min(room for _, room in rooms))
            stop = self._resource_limit([name for name, room in rooms if room <= least], node)
            allowances.append(Allowance(least, stop))
        return allowances

    def _resource_limit(self, names: Sequence[str], node: Node) -> Reason:
        """Return all resources without room, and the amounts of the
        first one: cores, bytes or pieces."""
        first = names[0]
        return Reason.of(
            ReasonCode.RESOURCE_LIMIT,
            resources=", ".join(names),
            used=self._used[first],
            max=self._max[first],
            needs=self._amounts(node).get(first, 0),
        )

    def _rooms(self, node: Node) -> list[tuple[str, int]]:
        return [
            (name, (self._max[name] - self._used[name]) // amount)
            for name, amount in self._amounts(node).items()
            if amount > 0
        ]

    def _amounts(self, node: Node) -> dict[str, int]:
        """Return per limited resource what a node counts: cores, rounded up per node, bytes
        and GPUs of its capacity."""
        source = node.capacity or node.allocatable
        amounts = {CPU: math.ceil(source.get(CPU, 0) / 1000), MEMORY: source.get(MEMORY, 0)}
        if len(self._max) > len(amounts):
            gpus = next((source[name] for name in GPU_RESOURCES if source.get(name)), 0)
            types = {node.labels[label] for label in GPU_LABELS if label in node.labels}
            for kind in self._max.keys() - amounts.keys():
                amounts[kind] = source.get(kind, 0) or (gpus if kind in types else 0)
        return amounts

    def _gpus_to_come(self, node: Node, state: ClusterState) -> dict[str, int]:
        """Return the GPUs that a node of a GPU group will have but does not report yet because
        its driver is not ready."""
        source = node.capacity or node.allocatable
        group = state.groups.get(state.group_of.get(node.name, ""))
        if (
            group is None
            or group.template is None
            or any(source.get(name) for name in GPU_RESOURCES)
        ):
            return {}
        shown, due = self._amounts(node), self._amounts(group.template.node)
        return {kind: max(0, due[kind] - shown[kind]) for kind in due.keys() - {CPU, MEMORY}}

    def _spend(self, amounts: dict[str, int], count: int) -> None:
        for name, amount in amounts.items():
            self._used[name] += amount * count


def _pool_limit(group: NodeGroupState) -> Reason:
    pool = group.group.pool
    assert pool is not None
    return Reason.of(ReasonCode.POOL_MAX_SIZE, pool=pool.name or pool.id, max=pool.max)


def enforce_min_size(
    state: ClusterState, limiter: ResourceLimiter, grown: Mapping[str, int]
) -> list[tuple[str, int]]:
    """Return group -> missing nodes, by id, as far as the limits of the cluster and its pool allow,
    for groups below their minimum size (enforceNodeGroupMinSize); and the nodes that a pool of
    several groups lacks, given to its best groups, the highest rank first.

    This needs no pending pods: otherwise, after the minimum was raised or a group was shrunk
    manually, the group would stay below it. A minimum set by a schedule is always enforced
    (policy/open_schedules.py), because its purpose is to have nodes ready in time. Cluster
    Autoscaler compares maxNodesTotal with the size of the *group* here, so that a full cluster
    continues to grow; here it is the size of the cluster, as everywhere.

    Empty if no minimum is enforced and while the whole cluster is unhealthy. A zero-or-max group
    gets all its nodes or none. Groups that may not scale up now (may_grow) are left for a later
    pass. grown: nodes that the pass already gave each group. The limiter is not changed: the caller
    uses the room.
    """
    spare, added = limiter.copy(), dict[str, int]()

    def is_enforced(group: NodeGroupState) -> bool:
        return state.options.enforce_node_group_min_size or group.group.options.enforce_min

    def size(group: NodeGroupState) -> int:
        return group.target + grown.get(group.id, 0) + added.get(group.id, 0)

    def add(group: NodeGroupState, lacks: int) -> int:
        """Add as many of the missing nodes as a group may have; returns how many."""
        if lacks <= 0 or not may_grow(group) or group.template is None:
            return 0
        own = group.group.max - size(group)
        room = min(own, spare.room(group.template.node), spare.pool_room(group.group))
        if group.group.options.zero_or_max:
            lacks = own
            room = room if room >= lacks else 0
        count = min(lacks, room)
        if count <= 0:
            return 0
        spare.take(group.template.node, count, group.group)
        added[group.id] = added.get(group.id, 0) + count
        return count

    enforced = [group for _, group in sorted(state.groups.items()) if is_enforced(group)]
    if not enforced or not state.health.healthy:
        return []
    for group in enforced:
        add(group, min(group.group.min, group.group.max) - size(group))
    for _, pool in (
        sorted(pools(state).items())
        if any(group.group.pool is not None for group in enforced)
        else ()
    ):
        members = [state.groups[name] for name in pool.groups]
        # The size of a pool with an unreadable group is not known. Its minimum is
        # enforced where every group's is.
        if (
            len(members) < 2
            or any(group.group.error for group in members)
            or not all(map(is_enforced, members))
        ):
            continue
        lacks = min(pool.min, pool.max) if pool.max >= 0 else pool.min
        lacks -= pool.size + sum(size(group) - group.target for group in members)
        for group in sorted(members, key=lambda group: (-group.group.rank, group.id)):
            lacks -= add(group, lacks)
    return sorted(added.items())
