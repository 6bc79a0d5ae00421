"""Limits of a scale-up: the maximum of the group, of the pool that it shares with other groups, and of the cluster.

The cluster-wide limits count all nodes, autoscaled or not, upcoming ones included, except virtual-kubelet nodes. The
limiter is reduced as options are taken within a pass, so that two groups never use the same room.

gpu-total applies to any provider. A limit's type is either the value of a node's GPU label or the name of a resource:
`nvidia-tesla-t4:0:8` counts the GPUs of nodes with that label value, `nvidia.com/gpu:0:8` those of every node with that
resource.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.plan import IgnoredPods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, GPU_LABELS, GPU_RESOURCES, MEMORY
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.pending_pods import PendingPods
from chalicelib.plan.state.pools import pools, rooms
from chalicelib.plan.state.readiness import Bucket

_UNLIMITED = 10**9


class Allowance(msgspec.Struct, frozen=True):
    """A number of nodes, and what prevents more."""

    nodes: int
    stop: Reason


def may_grow(group: NodeGroupState) -> bool:
    """Return whether a group may be changed at all: readable, healthy, not backed off, not scaling up by an earlier
    plan, not paused, and its nodes known. Sizes are not checked."""
    return (
        not group.group.error
        and group.healthy
        and not group.backed_off
        and not group.growing
        and group.growth_paused is None
        and group.template is not None
    )


class ResourceLimiter:
    """The remaining room of the limits that groups share: the cluster's and their pools'."""

    def __init__(self, state: ClusterState) -> None:
        options = state.options
        self._max_nodes = options.max_nodes_total
        self._per_scale_up = options.max_nodes_per_scale_up
        self._max = {CPU: options.cores_total[1], MEMORY: options.memory_total[1]}
        for kind, _, most in sorted(options.gpu_total):
            self._max[kind] = min(most, self._max.get(kind, most))
        self._used = dict.fromkeys(self._max, 0)
        self._pools = rooms(state.groups)
        counted = [node for node in state.snapshot.nodes if node.labels.get("type") != "virtual-kubelet"]
        self._nodes = len(counted)
        for node in counted:
            self._spend(self._amounts(node), 1)
        for node in counted if options.gpu_total else ():
            self._spend(self._gpus_to_come(node, state), 1)
        for facts in state.groups.values():
            # those already count as nodes of the cluster
            ahead = max(0, facts.upcoming - facts.counts[Bucket.NOT_STARTED])
            self._nodes += ahead
            if facts.template is not None and ahead:
                self._spend(self._amounts(facts.template.node), ahead)

    def copy(self) -> ResourceLimiter:
        """Return a copy for trial calculations."""
        other = copy(self)
        other._used = dict(self._used)
        other._pools = dict(self._pools)
        return other

    def take(self, node: Node, count: int, group: NodeGroup | None = None) -> None:
        """Use room for `count` new nodes like this one. group: their group, for the limits of its pool."""
        self._nodes += count
        self._spend(self._amounts(node), count)
        if group is not None and group.pool is not None and group.pool.id in self._pools:
            self._pools[group.pool.id] -= count

    def pool_room(self, group: NodeGroup) -> int:
        """Return how many nodes the limits of a group's pool leave room for; never negative, and very large without a
        pool limit."""
        return max(0, self._pools.get(group.pool.id, _UNLIMITED)) if group.pool is not None else _UNLIMITED

    def room(self, node: Node) -> int:
        """Return how many nodes like this one the cluster-wide limits leave room for; never negative."""
        return max(0, min((offer.nodes for offer in self._offers(node)), default=_UNLIMITED))

    def shared(self, able: Sequence[NodeGroupState]) -> list[tuple[tuple[int, ...], int]]:
        """Return the limits that several groups share: what one node of each counts, and how much is left. able: groups
        with a template."""
        nodes = [facts.template.node for facts in able if facts.template is not None]
        each = [self._amounts(node) for node in nodes]
        limits = [
            (tuple(one.get(name, 0) for one in each), max(0, most - self._used[name]))
            for name, most in sorted(self._max.items())
        ]
        if self._max_nodes > 0:
            limits.append(((1,) * len(nodes), max(0, self._max_nodes - self._nodes)))
        homes = [facts.group.pool.id if facts.group.pool is not None else "" for facts in able]
        limits += [
            (tuple(int(home == pool) for home in homes), max(0, room))
            for pool, room in sorted(self._pools.items())
            if pool in homes
        ]
        return limits

    def allowance(self, group: NodeGroupState, grown: int, beside: int = 0) -> Allowance:
        """Return how many more nodes a group may get in this pass. grown: nodes that the pass already gave it. beside:
        the free capacity of the groups it is balanced with. A zero-or-max group gets all nodes or none."""
        assert group.template is not None
        most, own = group.group.max, max(0, group.group.max - group.target - grown)
        full = Reason.of(ReasonCode.GROUP_MAX_SIZE, max=most)
        if group.group.options.zero_or_max:
            stop = self.atomic(group, grown)
            return Allowance(own, full) if stop is None else Allowance(0, stop)
        offers = [Allowance(own + beside, full), *self._offers(group.template.node)]
        if self.pool_room(group.group) < _UNLIMITED:
            offers.append(Allowance(self.pool_room(group.group), self._pool_limit(group)))
        if self._per_scale_up > 0:
            offers.append(
                Allowance(
                    self._per_scale_up - grown, Reason.of(ReasonCode.MAX_NODES_PER_SCALE_UP, max=self._per_scale_up)
                )
            )
        smallest = min(offers, key=lambda offer: offer.nodes)
        return Allowance(max(0, min(smallest.nodes, _UNLIMITED)), smallest.stop)

    def atomic(self, group: NodeGroupState, grown: int) -> Reason | None:
        """Return why a zero-or-max group cannot get all its missing nodes, None if it can."""
        assert group.template is not None
        lacks = group.group.max - group.target - grown
        if lacks <= 0:
            return Reason.of(ReasonCode.GROUP_MAX_SIZE, max=group.group.max)
        if 0 < self._max_nodes < self._nodes + lacks:
            return Reason.of(ReasonCode.ATOMIC_LIMIT, nodes=self._nodes + lacks, max=self._max_nodes)
        if self.pool_room(group.group) < lacks:
            return self._pool_limit(group)
        short = [name for name, room in self._rooms(group.template.node) if room < lacks]
        return self._resource_limit(short, group.template.node) if short else None

    def _pool_limit(self, group: NodeGroupState) -> Reason:
        pool = group.group.pool
        assert pool is not None
        return Reason.of(ReasonCode.POOL_MAX_SIZE, pool=pool.name or pool.id, max=pool.max)

    def _offers(self, node: Node) -> list[Allowance]:
        offers = []
        if self._max_nodes > 0:
            offers.append(
                Allowance(self._max_nodes - self._nodes, Reason.of(ReasonCode.MAX_NODES_TOTAL, max=self._max_nodes))
            )
        rooms = self._rooms(node)
        if rooms:
            least = max(0, min(room for _, room in rooms))
            offers.append(Allowance(least, self._resource_limit([name for name, room in rooms if room <= least], node)))
        return offers

    def _resource_limit(self, names: Sequence[str], node: Node) -> Reason:
        """Return all resources without room, and the amounts of the first one: cores, bytes or pieces."""
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
        """Return per limited resource what a node counts: cores, rounded up per node, bytes and GPUs of its
        capacity."""
        source = node.capacity or node.allocatable
        amounts = {CPU: math.ceil(source.get(CPU, 0) / 1000), MEMORY: source.get(MEMORY, 0)}
        if len(self._max) > len(amounts):
            gpus = next((source[name] for name in GPU_RESOURCES if source.get(name)), 0)
            types = {node.labels[label] for label in GPU_LABELS if label in node.labels}
            for kind in self._max.keys() - amounts.keys():
                amounts[kind] = source.get(kind, 0) or (gpus if kind in types else 0)
        return amounts

    def _gpus_to_come(self, node: Node, state: ClusterState) -> dict[str, int]:
        """Return the GPUs that a node of a GPU group will have but does not report yet because its driver is not
        ready."""
        source = node.capacity or node.allocatable
        facts = state.groups.get(state.group_of.get(node.name, ""))
        if facts is None or facts.template is None or any(source.get(name) for name in GPU_RESOURCES):
            return {}
        shown, due = self._amounts(node), self._amounts(facts.template.node)
        return {kind: max(0, due[kind] - shown[kind]) for kind in due.keys() - {CPU, MEMORY}}

    def _spend(self, amounts: dict[str, int], count: int) -> None:
        for name, amount in amounts.items():
            self._used[name] += amount * count


# DOC chalicelib/plan/scale_up/min_size.py: Raises groups that are below their minimum size, if enforceNodeGroupMinSize is set.
# DOC
# DOC This needs no pending pods: otherwise, after the minimum was raised or a group was shrunk manually, the group would stay
# DOC below it. Cluster Autoscaler compares maxNodesTotal with the size of the *group* here, so that a full cluster continues
# DOC to grow; this module compares it with the size of the cluster, as everywhere.
# DOC
# DOC A minimum set by a schedule is always enforced (schedules/apply.py), because its purpose is to have nodes ready in time.
# DOC
def enforce_min_size(state: ClusterState, limiter: ResourceLimiter, grown: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return group -> missing nodes, by id, as far as the limits of the cluster and its pool allow; and the nodes that
    a pool of several groups lacks, given to its best groups, the highest rank first.

    Empty if no minimum is enforced and while the whole cluster is unhealthy. A zero-or-max group gets all its nodes or
    none. Groups that may not scale up now (limits.may_grow) are left for a later pass. grown: nodes that the pass
    already gave each group. The limiter is not changed: the caller uses the room.
    """
    enforced = [facts for _, facts in sorted(state.groups.items()) if _minimum_is_enforced(facts, state)]
    if not enforced or not state.health.healthy:
        return []
    raised = _MinimumGrowth(limiter, grown)
    for facts in enforced:
        raised.give(facts, min(facts.group.min, facts.group.max) - raised.size(facts))
    if any(facts.group.pool is not None for facts in enforced):
        _raise_pools(state, raised)
    return sorted(raised.nodes.items())


def _minimum_is_enforced(group: NodeGroupState, state: ClusterState) -> bool:
    return state.options.enforce_node_group_min_size or group.group.options.enforce_min


class _MinimumGrowth:
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


def _raise_pools(state: ClusterState, raised: _MinimumGrowth) -> None:
    """Raise pools of several groups to their shared minimum; enforced where it is for every group."""
    for _, pool in sorted(pools(state).items()):
        members = [state.groups[name] for name in pool.groups]
        if any(facts.group.error for facts in members):
            continue  # its size is not known
        if len(members) < 2 or not all(_minimum_is_enforced(facts, state) for facts in members):
            continue
        lacks = min(pool.min, pool.max) if pool.max >= 0 else pool.min
        lacks -= pool.size + sum(raised.size(facts) - facts.target for facts in members)
        for facts in _best_first(members):
            if lacks > 0:
                lacks -= raised.give(facts, lacks)


def _best_first(members: Sequence[NodeGroupState]) -> list[NodeGroupState]:
    return sorted(members, key=lambda facts: (-facts.group.rank, facts.id))


# DOC chalicelib/plan/scale_up/preconditions.py: Preconditions for scaling up for pending pods in this pass. When one fails, pods keep their place in the report.
def blocking_reason(state: ClusterState) -> Reason | None:
    """Return why no scale-up is allowed in this pass, whatever requests it; None if it is allowed."""
    health = state.health
    checks = (
        (
            not health.healthy,
            Reason.of(ReasonCode.CLUSTER_UNHEALTHY, unready=health.unready, registered=health.registered),
        ),
        (
            health.ready == 0 and not state.options.scale_up_from_zero,
            Reason.of(
                ReasonCode.CLUSTER_UNHEALTHY,
                unready=health.unready,
                registered=health.registered,
                option="scaleUpFromZero",
            ),
        ),
    )
    return next((reason for fails, reason in checks if fails), None)


def apply_preconditions(state: ClusterState, pending: PendingPods) -> PendingPods:
    """Apply the preconditions: if one fails, drop all demand and give every pod the reason."""
    reason = blocking_reason(state)
    if not pending.queue:
        return pending
    if reason is not None:
        return PendingPods((), _ignored_with(pending, reason), pending.nominated, pending.hold)
    return pending if state.policy.scale_up.unschedulable_pods else _without_purchases(pending)


def _without_purchases(pending: PendingPods) -> PendingPods:
    """Handle rules-only scale-up: pods use the existing room and keep a node that they will run on, but buy no
    nodes."""
    queue = tuple(msgspec.structs.replace(demand, counts=False) for demand in pending.queue)
    return msgspec.structs.replace(pending, queue=queue, ignored=_ignored_with(pending, Reason.of(ReasonCode.PODS_OFF)))


def _ignored_with(pending: PendingPods, reason: Reason) -> tuple[IgnoredPods, ...]:
    """Return the ignored pods, including all pods for which a node might have been bought."""
    pods = tuple(sorted(pod.key for demand in pending.queue if demand.counts for pod in demand.pods))
    return (*pending.ignored, IgnoredPods(pods, reason)) if pods else pending.ignored
