"""Repairs groups: instances that never became nodes, and targets above what exists.

Per group the first matching row is this pass's repair; what is left is
detected again in the next pass.

    row                       test                                                     repair
    creation failed           the vendor reports that an instance was not created      delete at
                                                                                       once, no
                                                                                       minimum
    long unregistered         no node for longer than the provision time               delete, down
                                                                                       to the
                                                                                       minimum
    scale-up timed out        the request timed out in this pass                       decrease by
                                                                                       what was
                                                                                       requested
    target above reality      the same (nodes, target) for the provision time          decrease to
                                                                                       what exists
    mark left behind          a removal that is over has left a mark on an instance    take it off;
                                                                                       the size
                                                                                       stays

The minimum size does not protect dead instances. With enforceNodeGroupMinSize, an instance that
never joined is deleted even if its group is at its minimum, and the minimum adds a new one in the
pass after. Without that option no instance would replace it, so the dead one stays, as in Cluster
Autoscaler, unless forceDeleteUnregisteredNodes is set.

A zero-or-max group is of no use in part: all its instances without a node are deleted, late or not.
Instances that became nodes are never deleted here; they are left to scale-down, which drains them
(Cluster Autoscaler deletes them).

A vendor's report is not taken as proof. No instance is deleted that might be a node after all, and
no target goes below the instances that are listed or that look like the group's. While the cluster
has no ready node, is unhealthy, or the group's zone is, only failed creations are repaired, because
then the instances are probably not the cause. See docs/reference/node-groups.md "Repairs".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import islice

from chalicelib.model.group import Instance, InstanceState
from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind
from chalicelib.model.plan import Repair
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.state import group_membership
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.policy.timeouts import provision_time

DISCARD, SHRINK = "discard", "shrink"
_AT_ONCE = 100  # instances per operation: each is stored in its row
_REPORTED = 10  # kept instances that are reported per pass
_EARLIER = 900.0  # seconds by which an instance may be older than our first sight of it
_RAN = (
    "it ran before, and node {}, which is no machine of any group, was registered when it lost its "
    "node: the node "
    "may be this machine; correct the node's providerID, or delete the machine at the vendor"
)
_TYPE = "node.kubernetes.io/instance-type"
_NOT_OURS = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
# Open operations of these kinds on the group conflict: a deletion during a removal takes other
# instances, by name; a new size needs a group without other changes.
_CONFLICTS = {
    DISCARD: frozenset(
        {OperationKind.SCALE_UP, OperationKind.DECREASE_TARGET, OperationKind.DELETE_INSTANCES}
    ),
    SHRINK: frozenset(OperationKind) - {OperationKind.RESTART_NODE},
}


def repair(state: ClusterState) -> tuple[Repair, ...]:
    """Return at most one repair per group, by group. A group that cannot be read, that is being
    rolled out, whose last repair failed recently, or with a conflicting operation gets none; other
    groups are not affected."""
    doubt = _Doubt(state)
    repairs = (_repair_of(group, state, doubt) for _, group in sorted(state.groups.items()))
    return tuple(repair for repair in repairs if repair is not None)


def kept(state: ClusterState) -> tuple[Reason, ...]:
    """Return DISCARD_HELD for late instances that are kept because nothing shows that they belong
    to this cluster; at most _REPORTED, by group and instance."""
    doubt = _Doubt(state)
    reasons = (
        Reason.of(ReasonCode.DISCARD_HELD, group=name, instance=instance, detail=why)
        for name, group in sorted(state.groups.items())
        if group.long_unregistered and not group.group.error
        for instance, why in sorted(_kept_instances(group, state, doubt).items())
        if instance in set(group.long_unregistered)
    )
    return tuple(islice(reasons, _REPORTED))


def wrong_size(group: NodeGroupState, now: float) -> tuple[float, tuple[int, int]]:
    """Return since when (epoch seconds) the group's nodes and target do not match, and
    the pair; (0.0, (0, 0)) if they do. A new pair restarts the time, and so does an
    instant from the future."""
    registered, target, memory = (
        len(group.nodes) + len(group.contested),
        group.group.target,
        group.memory,
    )
    if target - len(group.unregistered) <= registered <= target:
        return 0.0, (0, 0)
    pair = registered, target
    unchanged = memory.size_wrong == pair and 0.0 < memory.size_wrong_since <= now
    return (memory.size_wrong_since if unchanged else now), pair


def compatible(
    repairs: Iterable[Repair], grown: Iterable[str], removed: Iterable[str]
) -> tuple[Repair, ...]:
    """Return the repairs that do not conflict with the rest of this plan. grown, removed: the
    groups that it scales up and removes nodes from. Pending pods come first. Together with removals
    only instances that could not be created are deleted: they were never counted in the size that
    the removals leave (NodeGroupState.leaving)."""
    growing, shrinking, failed = set(grown), set(removed), ReasonCode.CREATION_FAILED
    return tuple(
        repair
        for repair in repairs
        if repair.group not in growing
        and (repair.group not in shrinking or repair.reason.code is failed)
    )


def _repair_of(group_state: NodeGroupState, state: ClusterState, doubt: _Doubt) -> Repair | None:
    group, memory = group_state.group, group_state.memory
    if group.error or memory.repair_after > state.now:
        return None
    # A mark is taken off at any time: it removes nothing.
    rows = (_left_mark,) if group.scale_down_held or group_state.removals_paused else _ROWS
    repair = next((repair for row in rows if (repair := row(group_state, state, doubt))), None)
    if repair is None:
        return None
    conflicts = _CONFLICTS[repair.kind]
    open_operations = (
        op.spec for op in state.memory.operations if op.is_open and op.spec.group == group_state.id
    )
    return None if any(spec.kind in conflicts for spec in open_operations) else repair


class _Doubt:
    """Finds instances that may be nodes although they are listed as none, and nodes that may belong
    to a group although they are not listed."""

    def __init__(self, state: ClusterState) -> None:
        groups: dict[str, str] = {}
        self.contested: set[str] = set()  # instances that two groups have
        for group in state.groups.values():
            for instance in group.group.instances:
                if groups.setdefault(instance.id, group.id) != group.id:
                    self.contested.add(instance.id)
        nodes = state.snapshot.nodes
        self._first_seen = state.memory.unregistered
        self._names = {name for node in nodes for name in (node.name, _last_part(node.provider_id))}
        self._strays = [
            node
            for node in nodes
            if node.name not in state.group_of
            and not any(label in node.labels for label in _NOT_OURS)
        ]

    def alive(self, instance: Instance) -> bool:
        """Return whether an instance may be a node: it has no id, it is in two groups, or a node
        has its name or the last part of its id."""
        names = {instance.node, _last_part(instance.id), _last_part(instance.handle)} - {""}
        return not instance.id or instance.id in self.contested or not names.isdisjoint(self._names)

    def strays(
        self, group: NodeGroupState, since: float = 0.0, until: float = math.inf
    ) -> list[str]:
        """Return nodes without a group that were registered in this time and may be instances
        of this one: they have the type, or the size, of its template. Without a known
        template any such node counts."""
        template = group.template.node if group.template is not None else None
        return [
            node.name
            for node in self._strays
            if since <= node.created <= until and (template is None or _alike(node, template))
        ]

    def lost_node(
        self, instance: Instance, group: NodeGroupState, allowed: float, now: float
    ) -> str:
        """Return the node that may be this instance under another id, "" if there is none. That is
        the case if the instance has been a node before (it existed long before it was first seen
        without one, or when the group was first seen), and a similar node without a group
        registered at about that time. allowed: seconds that an instance may take to join."""
        seen, group_seen = min(self._first_seen.get(instance.id, now), now), group.memory.first_seen
        if not instance.created or not (
            seen - instance.created > allowed or instance.created <= group_seen < seen
        ):
            return ""
        return min(self.strays(group, seen - _EARLIER, seen + allowed), default="")


def _last_part(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


def _alike(node: Node, template_node: Node) -> bool:
    if _TYPE in node.labels and _TYPE in template_node.labels:
        return node.labels[_TYPE] == template_node.labels[_TYPE]
    size, expected = (
        node.capacity or node.allocatable,
        template_node.capacity or template_node.allocatable,
    )
    return all(size.get(name) == expected.get(name) for name in (CPU, MEMORY))


def _failed(group: NodeGroupState, state: ClusterState, doubt: _Doubt) -> Repair | None:
    """Return the instances whose creation failed."""
    if not group.failed:
        return None
    deletable = _deletable(group, state, doubt)
    failed = [instance for instance in deletable if instance.id in set(group.failed)]
    options = group.group.options
    if not failed or (
        options.zero_or_max
        and options.allow_non_atomic_scale_up_to_max
        and len(group.failed) < len({instance.id for instance in group.group.instances})
    ):
        return None
    error = failed[0].error
    code, message = (error.code or error.cls, error.message) if error is not None else ("", "")
    reason = Reason.of(
        ReasonCode.CREATION_FAILED, instance=failed[0].id, error=code, detail=message
    )
    return _discard(
        group, deletable if options.zero_or_max else _one_after_failure(failed, group), reason
    )


def _late(group: NodeGroupState, state: ClusterState, doubt: _Doubt) -> Repair | None:
    """Return instances that did not join in time, the longest known first."""
    if not group.long_unregistered or _may_be_healthy(group, state):
        return None
    now, options, own = state.now, state.options, group.group.options
    first_seen = {
        instance: state.memory.unregistered.get(instance, now)
        for instance in group.long_unregistered
    }
    deletable = _deletable(group, state, doubt)
    late = sorted(
        (i for i in deletable if i.id in first_seen), key=lambda i: (first_seen[i.id], i.id)
    )
    late = [
        instance
        for instance in late
        if not _may_have_joined(first_seen[instance.id], group, state, doubt)
    ]
    if not late:
        return None
    forced = options.force_delete_unregistered_nodes or options.enforce_node_group_min_size
    spare = group.target - group.leaving - group.group.min
    if own.zero_or_max:
        chosen = deletable
        if own.allow_non_atomic_scale_up_to_max or (len(chosen) > spare and not forced):
            return None
    else:
        chosen = _one_after_failure(late, group)
        chosen = chosen if forced else chosen[: max(0, spare)]
    since, needs = first_seen[late[0].id], provision_time(group.group, options)
    reason = Reason.of(ReasonCode.LONG_UNREGISTERED, instance=late[0].id, since=since, needs=needs)
    return _discard(group, chosen, reason)


def _timed_out(group: NodeGroupState, state: ClusterState, doubt: _Doubt) -> Repair | None:
    """Decrease the target by what was requested and never became an instance. Cluster
    Autoscaler decreases by the whole request, even if part of it has arrived; this decreases
    only by what is missing."""
    request = state.timed_out.get(group.id)
    if request is None or _may_be_healthy(group, state) or _is_foreign(group):
        return None
    existing = _existing(group) + len(doubt.strays(group, request.since))
    size = max(existing, group.group.target - request.increase)
    reason = Reason.of(
        ReasonCode.SCALE_UP_TIMED_OUT, nodes=group.group.target - size, since=request.since
    )
    return _shrink(group, size, reason)


def _above_reality(group: NodeGroupState, state: ClusterState, doubt: _Doubt) -> Repair | None:
    """Decrease a target that has exceeded the existing nodes for longer than the provision time."""
    since, (registered, target) = wrong_size(group, state.now)
    waits = group.memory.request is not None or not since
    if waits or since + provision_time(group.group, state.options) >= state.now:
        return None
    if _may_be_healthy(group, state) or _is_foreign(group):
        return None
    reason = Reason.of(
        ReasonCode.SIZE_ABOVE_REALITY, registered=registered, target=target, since=since
    )
    return _shrink(group, _existing(group) + len(doubt.strays(group)), reason)


def _left_mark(group: NodeGroupState, state: ClusterState, doubt: _Doubt) -> Repair | None:  # noqa: ARG001
    """Take off the marks that removals have left, because whoever lowers the size by
    hand would lose these nodes."""
    marked = sorted(instance.id for instance in group.group.instances if instance.left_mark)
    if not marked:
        return None
    reason = Reason.of(ReasonCode.MARK_LEFT, instance=marked[0], machines=len(marked))
    size = group.group.target
    return Repair(group=group.id, kind=SHRINK, from_size=size, to_size=size, reason=reason)


_ROWS: tuple[Callable[[NodeGroupState, ClusterState, _Doubt], Repair | None], ...] = (
    _failed,
    _late,
    _timed_out,
    _above_reality,
    _left_mark,
)


def _may_be_healthy(group: NodeGroupState, state: ClusterState) -> bool:
    """Return whether instances that do not join may be healthy while the API server
    or the network is broken."""
    return (
        not state.health.healthy or state.health.ready == 0 or group.zone in state.health.sick_zones
    )


def _is_foreign(group: NodeGroupState) -> bool:
    """Return whether a group that was only discovered has more foreign instances
    than nodes of this cluster."""
    return group.group.discovered and not group.shares.most


def _kept_instances(group: NodeGroupState, state: ClusterState, doubt: _Doubt) -> dict[str, str]:
    """Return late instance that could be deleted -> why it is kept."""
    late, since = set(group.long_unregistered), group.memory.first_seen or state.now
    allowed = provision_time(group.group, state.options)
    reasons: dict[str, str] = {}
    for instance in _without_node(group, doubt):
        why = group_membership.why_kept(group.group, instance, group.shares, since)
        if (
            not why
            and instance.id in late
            and (node := doubt.lost_node(instance, group, allowed, state.now))
        ):
            why = _RAN.format(node)
        if why:
            reasons[instance.id] = why
    return reasons


def _may_have_joined(
    seen: float, group: NodeGroupState, state: ClusterState, doubt: _Doubt
) -> bool:
    """Return whether, in a group of which no instance is known to be a node, one may be a node
    under an unrecognised id. An instance that appeared during observation cannot be a node
    that is older than itself."""
    if group.nodes:
        return False
    watched = seen > state.memory.first_seen > 0.0
    return bool(doubt.strays(group, seen - _EARLIER if watched else 0.0))


def _deletable(group: NodeGroupState, state: ClusterState, doubt: _Doubt) -> list[Instance]:
    kept_instances = _kept_instances(group, state, doubt)
    return [
        instance for instance in _without_node(group, doubt) if instance.id not in kept_instances
    ]


def _without_node(group: NodeGroupState, doubt: _Doubt) -> list[Instance]:
    """Return the group's instances that are not nodes and cannot be, each once, without those
    that the provider blocks."""
    ids = {*group.unregistered, *group.failed}
    instances = {i.id: i for i in group.group.instances if i.id in ids and not i.held}
    return [
        i
        for i in instances.values()
        if i.state is not InstanceState.DELETING and not doubt.alive(i)
    ]


def _one_after_failure(instances: list[Instance], group: NodeGroupState) -> list[Instance]:
    """Return all of them; after a failure a single one, a different one each time, so that one that
    cannot be deleted does not block the others."""
    failures = group.memory.repair_failures
    return [instances[failures % len(instances)]] if failures > 0 else instances


def _existing(group: NodeGroupState) -> int:
    """Return how many instances the vendor lists in any state."""
    return max(len({instance.id for instance in group.group.instances}), len(group.nodes))


def _discard(group: NodeGroupState, instances: list[Instance], reason: Reason) -> Repair | None:
    """Return the deletion, or None while the vendor has more instances than its target: it is
    already removing some, or does not count those that failed. Lowering the target with them would
    then remove running instances (Cluster Autoscaler issue 6795)."""
    size = group.group.target
    if len({i.id for i in group.group.instances if i.state is not InstanceState.DELETING}) > size:
        return None
    most = len(instances) if group.group.options.zero_or_max else _AT_ONCE
    names = tuple(instance.id for instance in instances[:most])
    return (
        Repair(group.id, DISCARD, size, max(0, size - len(names)), reason, names) if names else None
    )


def _shrink(group: NodeGroupState, size: int, reason: Reason) -> Repair | None:
    """Decrease the target to `size`, but never below the minimum, to which the
    group would only grow again."""
    target, size = group.group.target, max(size, group.group.min, 0)
    return Repair(group.id, SHRINK, target, size, reason) if size < target else None
