"""Evacuation of nodes that their vendor takes back.

All their pods go at once, by the Eviction API, which asks PodDisruptionBudgets. Nothing that limits
removals limits this: the machine goes anyway, and its pods with it. It is counted afterwards, so
that other removals see it. See docs/reference/spot.md "Evacuation".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import InstanceState
from chalicelib.model.operation import OperationKind
from chalicelib.model.plan import PodPlacement, Removal
from chalicelib.model.pod import Pod
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal.disruption_command import DisruptionCommand
from chalicelib.plan.removal.removal_limits import RemovalLimits
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.interruptions import MOST_REPORTED
from chalicelib.plan.state.spot_market import known_ready_time

_ENDED = frozenset({"Succeeded", "Failed"})


def evacuate(
    state: ClusterState, removal_limits: RemovalLimits, placements: Iterable[PodPlacement]
) -> tuple[DisruptionCommand, ...]:
    """Return the removals of the nodes at risk, the first deadline first, as one command;
    none if there is none. placements: of all pods in this pass; the removals say where
    their pods are expected."""
    if not state.at_risk:
        return ()
    places: dict[str, str] = {}
    for placement in placements:
        place = placement.node or f"{placement.group}/{placement.number}"
        places.update(dict.fromkeys(placement.pods, place))
    busy = _nodes_of_open_operations(state)
    idle_names = [name for name in state.at_risk if name not in busy]
    names = [name for name in idle_names if not _is_left_alone(name, state)]
    names.sort(key=lambda name: (state.at_risk[name].leaves_at, name))
    removals = tuple(_removal(name, state, places) for name in names)
    removal_limits.evacuate(removals)
    return (DisruptionCommand(DisruptionReason.INTERRUPTED, removals),) if removals else ()


def _nodes_of_open_operations(state: ClusterState) -> set[str]:
    """Return the nodes that an operation removes or restarts already."""
    kinds = {OperationKind.DELETE_NODES, OperationKind.RESTART_NODE}
    open_specs = [operation.spec for operation in state.memory.operations if operation.is_open]
    return {target.node for spec in open_specs if spec.kind in kinds for target in spec.targets}


def _is_left_alone(name: str, state: ClusterState) -> bool:
    """Return whether nothing is to be done: the group could not be read or may be another
    cluster's, the vendor is deleting the machine already, or it has not taken it after its last
    deadline, a short time ago. An instant too far away comes from a wrong clock."""
    group = state.groups[state.group_of[name]]
    if group.group.error:
        return True
    provider_id = state.snapshot.nodes[state.occupancy.index[name]].provider_id
    for instance in group.group.instances:
        is_own = instance.node == name or instance.id == provider_id
        if is_own and instance.state is InstanceState.DELETING:
            return True
    failed = group.memory.failed_removals.get(name)
    until = failed.until if failed is not None and failed.taken_back else 0.0
    longest_wait = state.options.max_node_group_backoff_duration
    is_late = state.at_risk[name].leaves_at <= state.now
    return is_late and state.now < until <= state.now + longest_wait


def _removal(name: str, state: ClusterState, places: Mapping[str, str]) -> Removal:
    evict = tuple(pod.key for pod in state.occupancy.on(name) if _is_evictable(pod, state))
    destinations = {pod: places[pod] for pod in evict if pod in places}
    return Removal(
        name,
        state.group_of[name],
        "drain" if evict else "empty",
        evict,
        destinations=destinations,
        reason=DisruptionReason.INTERRUPTED,
        leaves_at=state.at_risk[name].leaves_at,
    )


def _is_evictable(pod: Pod, state: ClusterState) -> bool:
    pod_class = state.snapshot.classes[pod.cls]
    return not (pod.deleted or pod.phase in _ENDED or pod_class.mirror or pod_class.is_daemonset)


def late_replacements(state: ClusterState, placements: Iterable[PodPlacement]) -> list[Reason]:
    """Return NO_REPLACEMENT_IN_TIME for nodes at risk with pods that get a new node which is
    usually ready too late, by name. Of a group whose times are not known, nothing is said: how long
    a node may take at most is no forecast. placements: of all pods in this pass."""
    if not state.at_risk:
        return []
    node_of = {pod.key: name for name in state.at_risk for pod in state.occupancy.on(name)}
    ready: dict[str, float] = {}
    for placement in placements:
        if not placement.group:
            continue
        ready_time = known_ready_time(state.groups[placement.group])
        if ready_time is None:
            continue
        old_nodes = {node_of[pod] for pod in placement.pods if pod in node_of}
        for name in old_nodes:
            if state.now + ready_time > state.at_risk[name].leaves_at:
                ready[name] = max(ready_time, ready.get(name, 0.0))
    code = ReasonCode.NO_REPLACEMENT_IN_TIME
    reasons = []
    for name, ready_time in islice(sorted(ready.items()), MOST_REPORTED):
        leaves_at = state.at_risk[name].leaves_at
        reasons.append(Reason.of(code, node=name, until=leaves_at, ready=ready_time))
    return reasons
