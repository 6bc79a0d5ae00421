"""Counts the nodes that join, and those that do not: what groups teach. See
docs/reference/learning.md "What is counted".

    counts as           when
    joined              a node of the group, created since its statistics began, is
                        ready for the first time
    failed              a node that has not been ready is gone; an instance could not be created; an
                        instance has no node for longer than it may take; a request timed out of
                        which something became no instance

An instance that counted as failed and joins later has joined. Memory changes only where something
starts, joins or fails, so that a pass without any of it writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from chalicelib.model.group import Instance
from chalicelib.model.join_summary import remaining_weight
from chalicelib.model.memory import GroupMemory, JoinStatistics, Memory, ScaleUpRequest
from chalicelib.model.node import Node
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.managed_groups import is_candidate
from chalicelib.plan.state.readiness import Bucket

MOST_TIMES = 100
"""Times of joins that are kept, the last ones."""
MOST_STARTING = 1_000
"""Nodes of a group that are followed until they are ready; further ones are not counted."""
LONGEST = 86_400.0
"""Seconds beyond which a time is that of a wrong clock, or of a machine that was off."""
_AHEAD = 3_600.0  # seconds by which the clock of the API server may be ahead
# seconds after its creation until a new instance is in the vendor's list, or is a node
_UNSEEN = 900.0


def count_joins(state: ClusterState, memory: Memory) -> ClusterState:
    """Return the cluster state with the statistics of this pass. state: after requests were
    resolved; memory: before. What is known of a group that could not be read stays. Of groups that
    could be opened, of which there may be thousands, nothing is begun."""
    changed: dict[str, GroupMemory] = {}
    for group in state.groups.values():
        if group.group.error or (is_candidate(group.group) and group.id not in memory.groups):
            continue
        statistics = _next_statistics(group, memory.groups.get(group.id, GroupMemory()), state)
        if statistics != group.memory.joins:
            changed[group.id] = msgspec.structs.replace(group.memory, joins=statistics)
    if not changed:
        return state
    groups = {
        name: msgspec.structs.replace(group, memory=changed[name]) if name in changed else group
        for name, group in state.groups.items()
    }
    memory_after = msgspec.structs.replace(state.memory, groups={**state.memory.groups, **changed})
    return msgspec.structs.replace(state, groups=groups, memory=memory_after)


def _next_statistics(
    group: NodeGroupState, memory: GroupMemory, state: ClusterState
) -> JoinStatistics:
    """Return the statistics after this pass. memory: of the group, before its request was resolved.
    What exists when they begin is never counted."""
    statistics, latest = memory.joins, state.now + _AHEAD
    newest = max((node.created for node in group.nodes if node.created <= latest), default=0.0)
    if statistics is None or statistics.seen_until > latest:
        late = group.long_unregistered[:MOST_STARTING]
        statistics = statistics if statistics is not None else JoinStatistics()
        return msgspec.structs.replace(
            statistics, seen_until=newest, starting={}, unfinished=(), late=late
        )
    count = _Count(group, memory, state, statistics)
    for node in group.nodes:
        if statistics.seen_until < node.created <= latest or node.name in statistics.starting:
            count.follow(node)
    count.fail()
    return count.statistics(max(newest, statistics.seen_until))


class _Count:
    """The nodes of one group that start, have joined and have failed in this pass."""

    def __init__(
        self,
        group: NodeGroupState,
        memory: GroupMemory,
        state: ClusterState,
        statistics: JoinStatistics,
    ) -> None:
        """memory: of the group, before its request was resolved.
        statistics: those before this pass."""
        self.group, self.memory, self.state, self.before = group, memory, state, statistics
        self.starting, self.unfinished = dict(statistics.starting), set(statistics.unfinished)
        self.times: list[int] = []
        self.joined = self.failed = 0
        self.timed_out = False
        self._instances: dict[str, Instance] | None = None

    def follow(self, node: Node) -> None:
        """Take up a node that is new, and count it if it is ready."""
        if node.name not in self.starting:
            if len(self.starting) >= MOST_STARTING:
                return
            self.starting[node.name] = self._requested_at(node)
        ready_at = _kubelet_ready(node, self.state.now)
        if self.state.buckets[node.name] is not Bucket.READY:
            if ready_at:
                self.unfinished.add(node.name)
            return
        requested_at = self.starting.pop(node.name)
        seconds = (
            self.state.now if node.name in self.unfinished or not ready_at else ready_at
        ) - requested_at
        self.joined += 1
        instance = self._instance(node)
        if instance is not None and instance.id in self.before.late:
            self.failed -= 1
        if requested_at and 0.0 <= seconds <= LONGEST:
            self.times.append(round(seconds))

    def fail(self) -> None:
        """Count what did not come."""
        gone = [name for name in self.starting if name not in self.state.buckets]
        for name in gone:
            del self.starting[name]
        group, late = self.group, set(self.before.late)
        known = late.union(self.memory.failed_instances)
        overdue = [name for name in group.long_unregistered if name not in late]
        missing = self._never_created(self.state.timed_out.get(group.id))
        self.failed += (
            len(gone) + sum(name not in known for name in group.failed) + len(overdue) + missing
        )
        self.timed_out = bool(overdue) or group.id in self.state.timed_out

    def statistics(self, seen_until: float) -> JoinStatistics:
        """Return the statistics after this pass."""
        before, now = self.before, self.state.now
        absent = {*self.group.unregistered, *self.group.failed}
        late = [name for name in before.late if name in absent]
        late += [name for name in self.group.long_unregistered if name not in before.late]
        since_timeout = (
            0 if self.timed_out else min(MOST_TIMES, before.since_timeout + len(self.times))
        )
        after = msgspec.structs.replace(
            before,
            ready=(*before.ready, *self.times)[-MOST_TIMES:],
            starting=self.starting,
            unfinished=tuple(sorted(self.unfinished & self.starting.keys())),
            late=tuple(late[:MOST_STARTING]),
            since_timeout=since_timeout,
            seen_until=seen_until,
        )
        if not self.joined and not self.failed:
            return after
        weight = remaining_weight(before.counted_at, now)
        return msgspec.structs.replace(
            after,
            joined=round(before.joined * weight + self.joined, 3),
            failed=round(max(0.0, before.failed * weight + self.failed), 3),
            counted_at=now,
        )

    def _never_created(self, request: ScaleUpRequest | None) -> int:
        """Return how much of a request that timed out became no instance. Its instances count by
        themselves, once they are late."""
        if request is None:
            return 0
        group = self.group
        existing = (
            len(group.nodes) + len(group.contested) + len(group.failed) + len(group.unregistered)
        )
        return max(0, min(request.increase, group.group.target - existing))

    def _requested_at(self, node: Node) -> float:
        """Return when a node was requested, 0.0 if that is not known: with the open request, unless
        its instance existed before it, otherwise with the creation of its instance. An instance
        that is first seen without a Node long after its creation has been a node before."""
        instance, request, now = self._instance(node), self.memory.request, self.state.now
        created = instance.created if instance is not None else 0.0
        # Creation times are whole seconds.
        rows = request.purchases if request is not None else ()
        asked = [row.since for row in rows if math.floor(row.since) <= (created or node.created)]
        if asked:
            return asked[-1]
        if (
            instance is None
            or min(self.state.memory.unregistered.get(instance.id, now), now) > created + _UNSEEN
        ):
            return 0.0
        return created

    def _instance(self, node: Node) -> Instance | None:
        if self._instances is None:
            instances: Sequence[Instance] = self.group.group.instances
            self._instances = {i.id: i for i in instances} | {
                i.node: i for i in instances if i.node
            }
        return self._instances.get(node.name) or self._instances.get(node.provider_id)


def _kubelet_ready(node: Node, now: float) -> float:
    """Return since when the kubelet is ready, 0.0 if it is not; `now` where the API gives no
    instant of this node's life."""
    condition = next((c for c in node.conditions if c.type == "Ready" and c.status == "True"), None)
    if condition is None:
        return 0.0
    return condition.changed if node.created <= condition.changed <= now else now
