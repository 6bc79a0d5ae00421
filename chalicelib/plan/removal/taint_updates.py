"""Determines which taints to add or remove independently of removals.

Cluster Autoscaler removes every hard taint when its process starts, because no removal can be in
progress then. Functions have no such moment, since they start and stop all the time. Every pass
therefore compares the taints with the open operations and removes those without one. The soft taint
asks the scheduler to keep unneeded nodes empty if it can; marks do the same for nodes that leave.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from chalicelib.model.group import InstanceState
from chalicelib.model.node import DELETION_CANDIDATE, TO_BE_DELETED, Node, mark_level
from chalicelib.model.operation import CORDONED_ANNOTATION, OPERATION_ANNOTATION, OperationKind
from chalicelib.model.plan import TaintUpdate
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.timeouts import operation_timeout

REMOVE_STALE_TAINT = "cleanup"
REMOVE_SOFT_TAINT = "unsoften"
ADD_SOFT_TAINT = "soften"
SET_MARKS = "mark"
TAKEN_BACK_AFTER = 120.0
"""Seconds of passes that act after which a removal that was begun before them is taken
back if no pod ends there."""
_AHEAD = 86400.0
"""Seconds by which another program's clock may be ahead; a value further in the future
is not a valid taint time."""


def taint_updates(
    state: ClusterState,
    unneeded: Collection[str],
    levels: Mapping[str, int] = {},
    mark: str = "",
) -> tuple[TaintUpdate, ...]:
    """Return first the removals of stale hard taints, then the removals of soft taints, then the
    new soft taints, then the marks that change, new ones first, as Horizon.batch expects; each
    sorted by node name. unneeded: names of the nodes that are unneeded after this pass. levels:
    node -> number of its marks, where not 0; mark: the value of new ones. Nodes of open operations,
    and of groups that could not be read or are not autoscaled, are not touched.
    passes/soft_taints.py limits how many soft taints are written per pass."""
    open_operations = [operation for operation in state.memory.operations if operation.is_open]
    busy = {target.node for operation in open_operations for target in operation.spec.targets}
    readable = {group.id for group in state.groups.values() if not group.group.error}
    idle_nodes = [node for node in state.snapshot.nodes if node.name not in busy]
    nodes = [node for node in idle_nodes if state.group_of.get(node.name) in readable]
    nodes.sort(key=lambda node: node.name)
    marks_nodes = state.options.max_bulk_soft_taint_count > 0
    to_mark = frozenset(unneeded) if marks_nodes else frozenset()
    removals = []
    additions = []
    for node in nodes:
        is_marked = node.taint(DELETION_CANDIDATE) is not None
        if node.taint(TO_BE_DELETED) is not None or is_marked == (node.name in to_mark):
            continue
        if is_marked:
            removals.append(TaintUpdate(node.name, REMOVE_SOFT_TAINT))
        else:
            additions.append(TaintUpdate(node.name, ADD_SOFT_TAINT))
    marks = [
        TaintUpdate(node.name, SET_MARKS, level=levels.get(node.name, 0), value=mark)
        for node in nodes
        if node.taint(TO_BE_DELETED) is None and mark_level(node) != levels.get(node.name, 0)
    ]
    marks.sort(key=lambda update: update.level == 0)
    return (*_stale_taints(nodes, state), *removals, *additions, *marks)


def _stale_taints(nodes: list[Node], state: ClusterState) -> Iterator[TaintUpdate]:
    """Return hard taints without an open operation. A taint with our annotation is removed as soon
    as its operation is over, and the node is uncordoned if the annotation says that the cordon is
    ours. A taint of another program is left until it must be stale, or that program is gone; then
    its cordon is removed too, as Cluster Autoscaler does. A node whose instance the vendor is still
    removing keeps its taint, even after our operation has stopped waiting:
    pods placed on it now would die with it."""
    open_ids = {operation.spec.id for operation in state.memory.operations if operation.is_open}
    machines_being_deleted = _names_of_machines_being_deleted(state)
    for node in nodes:
        taint = node.taint(TO_BE_DELETED)
        operation_id = node.annotations.get(OPERATION_ANNOTATION, "")
        if taint is None or operation_id in open_ids:
            continue
        if not machines_being_deleted.isdisjoint((node.name, node.provider_id)):
            continue
        if operation_id:
            is_own_cordon = node.annotations.get(CORDONED_ANNOTATION) == "true"
            yield TaintUpdate(node.name, REMOVE_STALE_TAINT, cordoned=is_own_cordon)
            continue
        is_stale = _is_stale(taint.value, state.now, state.options)
        if is_stale or _is_abandoned(node, taint.value, state):
            yield TaintUpdate(node.name, REMOVE_STALE_TAINT, cordoned=True)


def _names_of_machines_being_deleted(state: ClusterState) -> frozenset[str]:
    """Return the ids and the node names of instances that the vendor is removing."""
    names: set[str] = set()
    for group in state.groups.values():
        for machine in group.group.instances:
            if machine.state is InstanceState.DELETING:
                names.update((machine.id, machine.node))
    return frozenset(names - {""})


def _is_abandoned(node: Node, value: str, state: ClusterState) -> bool:
    """Return whether another autoscaler had begun a removal before these passes began
    to act, and does not finish it. One that still runs evicts pods, so a pod that
    ends there is a sign of it."""
    acting_since = state.memory.acting_since
    if not acting_since or state.now - acting_since < TAKEN_BACK_AFTER:
        return False
    if not _is_instant(value) or int(value) > acting_since:
        return False
    recently = state.now - TAKEN_BACK_AFTER
    classes = state.snapshot.classes
    ended_pods = (pod for pod in state.occupancy.on(node.name) if pod.deleted > recently)
    return all(classes[pod.cls].is_daemonset for pod in ended_pods)


def _is_instant(value: str) -> bool:
    return value.isascii() and value.isdecimal() and len(value) <= 12


def _is_stale(value: str, now: float, options: Options) -> bool:
    """Return whether a foreign taint is older than the longest possible
    removal, or has no timestamp."""
    if not _is_instant(value):
        return True
    eviction_times = (
        grace_period + options.max_pod_eviction_time
        for _, grace_period in options.drain_priority_config
    )
    timeout = operation_timeout(OperationKind.DELETE_NODES, options)
    longest_removal = timeout + sum(eviction_times)
    age = now - int(value)
    return age > longest_removal or age < -_AHEAD
