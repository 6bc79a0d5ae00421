"""Builds the simulated cluster of a pass: existing and upcoming nodes with the pods on them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from operator import attrgetter

import msgspec
import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.pod import Pod
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.demand.pending_pods import is_expendable
from chalicelib.plan.predicates import NotSimulated
from chalicelib.plan.simulation.pod_constraints import Counting, Matching, PodConstraintTable
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster, renamed
from chalicelib.plan.simulation.unfinished_rows import UnfinishedRow
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.node_templates import Template
from chalicelib.plan.state.pass_time import PassTime
from chalicelib.plan.state.purchase_attempts import coming_in_zones
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.state.zones import zone_label
from chalicelib.plan.tables import Bools, Ints, NodeTable, ResourceColumns
from chalicelib.plan.volumes import Volumes

# upcoming nodes simulated per group, so that a vendor's wrong count of
# millions does not stall the pass
_UPCOMING = 10_000
_FOR = "-for-"  # before the group in the name of an upcoming node


def build(
    state: ClusterState,
    nominated: tuple[Pod, ...],
    columns: ResourceColumns,
    pass_time: PassTime | None = None,
) -> SimulatedCluster:
    """Build the simulated cluster of real and upcoming nodes with the pods that occupy them."""
    snapshot, options = state.snapshot, state.options
    classes = snapshot.classes
    real, unfinished = _real_nodes(state)
    upcoming = _upcoming_nodes(state)
    upcoming_nodes = [node for node, _ in upcoming]
    table = NodeTable([*real, *upcoming_nodes], columns)
    unread, repelling = _nodes_with_unread_pods(state)
    is_open = _open_rows(state, table, repelling)
    daemons = [
        (row, cls)
        for row, (_, template) in enumerate(upcoming, start=len(real))
        for cls in template.daemons
    ]
    rows, class_of_pod, dying = _occupying_pods(state, nominated, table, daemons)
    table.occupy(rows, class_of_pod, [cls.ports for cls in classes])
    counting = Counting(rows, class_of_pod, dying, len(table))
    volumes = Volumes(_with_storage_to_come(state))
    for row in table.overfull:
        is_open[row] = False
        unread[table.nodes[row].name] = "its pods ask for more than can be counted"
    limits = [volumes.limits(node.name) for node in real]
    limits += [template.volume_limits for _, template in upcoming]
    matching = Matching(classes, snapshot.namespaces)
    simulated = SimulatedCluster(
        table,
        is_open,
        classes=classes,
        constraints=PodConstraintTable(classes, matching, counting),
        counting=counting,
        volumes=volumes,
        unsure=NotSimulated(classes, options),
        real=len(real),
        limits=limits,
        held=unread,
        pass_time=pass_time or PassTime(),
        nominated=[(table.index.get(pod.nominated), pod.cls) for pod in nominated],
        in_zones={
            name: group.template.in_zones
            for name, group in sorted(state.groups.items())
            if group.template is not None and group.template.in_zones
        },
        unfinished=unfinished,
        coming=_rows_of_groups(upcoming_nodes, len(real)),
    )
    in_zones = {name for name, group in state.groups.items() if group.zones}
    with_zone = [node.name for node in upcoming_nodes if zone_label(node)]
    simulated.doubt(name for name in with_zone if _group_in(name) in in_zones)
    return simulated


def _real_nodes(state: ClusterState) -> tuple[list[Node], dict[int, UnfinishedRow]]:
    """Return the existing nodes in the order of their rows, and what unfinished ones lack yet."""
    starting = {name for name, kind in state.buckets.items() if kind is Bucket.STARTING}
    starting &= state.group_of.keys()
    real = [node for node in state.snapshot.nodes if node.name not in starting]
    real.sort(key=attrgetter("name"))
    if not state.unfinished:
        return real, {}
    # pods prefer a place that is certain
    real.sort(key=lambda node: node.name in state.unfinished)
    unfinished = {
        row: UnfinishedRow(node, state.unfinished[node.name])
        for row, node in enumerate(real)
        if node.name in state.unfinished
    }
    return [state.completed.get(node.name, node) for node in real], unfinished


def _open_rows(state: ClusterState, table: NodeTable, repelling: Set[str]) -> Bools:
    """Return which nodes take pods. repelling: those that may repel any."""
    # What a malformed pod requests is unknown, so its node offers no room.
    unknown = {gap.node for gap in state.snapshot.gaps if gap.node}
    not_ready = {Bucket.UNREADY, Bucket.SUSPENDED}
    unready = {name for name, kind in state.buckets.items() if kind in not_ready}
    closed = state.leaving | unknown | unready | repelling
    is_open = [not node.unschedulable and node.name not in closed for node in table.nodes]
    return np.array(is_open, dtype=np.bool_)


def _with_storage_to_come(state: ClusterState) -> Snapshot:
    """Return the snapshot with the capacity that new nodes, and those that have just
    joined, are taken to publish."""
    snapshot, storage = state.snapshot, state.snapshot.storage
    if not state.storage_to_come:
        return snapshot
    capacities = (*storage.capacities, *state.storage_to_come)
    storage = msgspec.structs.replace(storage, capacities=capacities)
    return msgspec.structs.replace(snapshot, storage=storage)


def _nodes_with_unread_pods(state: ClusterState) -> tuple[dict[str, str], frozenset[str]]:
    """Return the nodes with a pod that exceeds a reading limit, with the reasons; and which of them
    may repel other pods by the unread part of that pod."""
    classes, options = state.snapshot.classes, state.options
    excess = [bool(cls.excess) and not is_expendable(cls, options) for cls in classes]
    reasons: dict[str, str] = {}
    repelling: set[str] = set()
    for pod in state.snapshot.pods if any(excess) else ():
        if pod.node and excess[pod.cls]:
            cls = classes[pod.cls]
            reasons.setdefault(pod.node, f"pod {pod.key} is not simulated: {cls.excess}")
            if cls.excess_bars:
                repelling.add(pod.node)
    return reasons, frozenset(repelling)


def _occupying_pods(
    state: ClusterState,
    nominated: tuple[Pod, ...],
    table: NodeTable,
    daemons: list[tuple[int, int]],
) -> tuple[Ints, Ints, Bools]:
    """Return row, class and terminating flag of every pod that takes room, in any order. daemons:
    row and class of the pods of upcoming nodes."""
    index, occupancy = table.index, state.occupancy
    row_of = [*(index.get(node.name, -1) for node in state.snapshot.nodes), -1]
    rows = np.array(row_of, dtype=np.int64)[occupancy.where]
    expendable = [is_expendable(cls, state.options) for cls in state.snapshot.classes]
    is_ignored = np.array([*expendable, False], dtype=np.bool_)
    counted = (rows >= 0) & ~is_ignored[occupancy.cls]
    waiting = [(index[pod.nominated], pod.cls) for pod in nominated if pod.nominated in index]
    waiting += daemons
    waiting_rows = np.array([row for row, _ in waiting], dtype=np.int64)
    waiting_classes = np.array([cls for _, cls in waiting], dtype=np.int64)
    none_dying = np.zeros(len(waiting), dtype=np.bool_)
    return (
        np.concatenate([rows[counted], waiting_rows]),
        np.concatenate([occupancy.cls[counted], waiting_classes]),
        np.concatenate([occupancy.dying[counted], none_dying]),
    )


def _upcoming_nodes(state: ClusterState) -> list[tuple[Node, Template]]:
    """Return one copy of the group's template per upcoming node; of a group in several zones, those
    that were bought for a zone count as coming there."""
    upcoming: list[tuple[Node, Template]] = []
    for _, group in sorted(state.groups.items()):
        template = group.template
        if template is None:
            continue
        count = min(group.upcoming, _UPCOMING)
        names = [f"upcoming-{at}{_FOR}{group.id}" for at in range(count)]
        zones = coming_in_zones(group, state) if template.in_zones else []
        nodes: list[Node] = []
        for zone, name in zip(zones, names, strict=False):
            nodes += renamed(template.in_zones[zone], [name])
        nodes += renamed(template.node, names[len(zones) :])
        upcoming += [(node, template) for node in nodes]
    return upcoming


def _group_in(name: str) -> str:
    """Return the group that the name of an upcoming node contains."""
    return name.partition(_FOR)[2]


def _rows_of_groups(upcoming: Sequence[Node], first: int) -> dict[str, list[int]]:
    """Return group -> the rows of its upcoming nodes. first: the row of the first one."""
    rows: dict[str, list[int]] = {}
    for row, node in enumerate(upcoming, start=first):
        rows.setdefault(_group_in(node.name), []).append(row)
    return rows
