"""Builds the simulated cluster of a pass: existing and upcoming nodes with the pods on them."""

from __future__ import annotations

from collections.abc import Sequence
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
from chalicelib.plan.state.purchase_attempts import coming_in_zones
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.state.time_budget import TimeBudget
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
    budget: TimeBudget | None = None,
) -> SimulatedCluster:
    """Build the simulated cluster of real and upcoming nodes with the pods that occupy them."""
    snapshot, options = state.snapshot, state.options
    starting = {
        name
        for name, kind in state.buckets.items()
        if kind is Bucket.NOT_STARTED and name in state.group_of
    }
    real = sorted(
        (node for node in snapshot.nodes if node.name not in starting), key=attrgetter("name")
    )
    unfinished: dict[int, UnfinishedRow] = {}
    if state.unfinished:
        # pods prefer a place that is certain
        real.sort(key=lambda node: node.name in state.unfinished)
        unfinished = {
            row: UnfinishedRow(node, state.unfinished[node.name])
            for row, node in enumerate(real)
            if node.name in state.unfinished
        }
        real = [state.completed.get(node.name, node) for node in real]
    upcoming = _upcoming_nodes(state)
    table = NodeTable([*real, *(node for node, _ in upcoming)], columns)
    # What a malformed pod requests is unknown, so its node offers no room.
    unknown = {gap.node for gap in snapshot.gaps if gap.node}
    unready = {
        name for name, kind in state.buckets.items() if kind in {Bucket.UNREADY, Bucket.SUSPENDED}
    }
    unread, repelling = _nodes_with_unread_pods(state)
    closed = state.leaving | unknown | unready | repelling
    is_open: Bools = np.fromiter(
        (not node.unschedulable and node.name not in closed for node in table.nodes),
        dtype=np.bool_,
        count=len(table),
    )
    daemons = [
        (row, cls)
        for row, (_, template) in enumerate(upcoming, start=len(real))
        for cls in template.daemons
    ]
    rows, classes, dying = _occupying_pods(state, nominated, table, daemons)
    table.occupy(rows, classes, [cls.ports for cls in snapshot.classes])
    counting, volumes = (
        Counting(rows, classes, dying, len(table)),
        Volumes(_with_storage_to_come(state)),
    )
    for row in table.overfull:
        is_open[row] = False
        unread[table.nodes[row].name] = "its pods ask for more than can be counted"
    limits = [volumes.limits(node.name) for node in real] + [
        template.volume_limits for _, template in upcoming
    ]
    simulated = SimulatedCluster(
        table,
        is_open,
        classes=snapshot.classes,
        constraints=PodConstraintTable(
            snapshot.classes, Matching(snapshot.classes, snapshot.namespaces), counting
        ),
        counting=counting,
        volumes=volumes,
        unsure=NotSimulated(snapshot.classes, options),
        real=len(real),
        limits=limits,
        held=unread,
        budget=budget or TimeBudget(),
        nominated=[(table.index.get(pod.nominated), pod.cls) for pod in nominated],
        in_zones={
            name: group.template.in_zones
            for name, group in sorted(state.groups.items())
            if group.template is not None and group.template.in_zones
        },
        unfinished=unfinished,
        coming=_rows_of_groups([node for node, _ in upcoming], len(real)),
    )
    in_zones = frozenset(name for name, group in state.groups.items() if group.zones)
    simulated.doubt(
        node.name
        for node, _ in upcoming
        if zone_label(node) and node.name.partition(_FOR)[2] in in_zones
    )
    return simulated


def _with_storage_to_come(state: ClusterState) -> Snapshot:
    """Return the snapshot with the capacity that new nodes, and those that have just
    joined, are taken to publish."""
    snapshot, storage = state.snapshot, state.snapshot.storage
    if not state.storage_to_come:
        return snapshot
    capacities = (*storage.capacities, *state.storage_to_come)
    return msgspec.structs.replace(
        snapshot, storage=msgspec.structs.replace(storage, capacities=capacities)
    )


def _nodes_with_unread_pods(state: ClusterState) -> tuple[dict[str, str], frozenset[str]]:
    """Return the nodes with a pod that exceeds a reading limit, with the reasons; and which of them
    may repel other pods by the unread part of that pod."""
    classes, options = state.snapshot.classes, state.options
    excess = [bool(cls.excess) and not is_expendable(cls, options) for cls in classes]
    reasons: dict[str, str] = {}
    repelling: set[str] = set()
    for pod in state.snapshot.pods if any(excess) else ():
        if pod.node and excess[pod.cls]:
            reasons.setdefault(
                pod.node, f"pod {pod.key} is not simulated: {classes[pod.cls].excess}"
            )
            repelling.update({pod.node} if classes[pod.cls].excess_bars else ())
    return reasons, frozenset(repelling)


def _occupying_pods(
    state: ClusterState,
    nominated: tuple[Pod, ...],
    table: NodeTable,
    daemons: list[tuple[int, int]],
) -> tuple[Ints, Ints, Bools]:
    """Return row, class and terminating flag of every pod that takes room, in any order. daemons:
    row and class of the pods of upcoming nodes."""
    index, occupancy, classes = table.index, state.occupancy, state.snapshot.classes
    row_of = np.array(
        [*(index.get(node.name, -1) for node in state.snapshot.nodes), -1], dtype=np.int64
    )
    expendable = np.array(
        [*(is_expendable(cls, state.options) for cls in classes), False], dtype=np.bool_
    )
    rows = row_of[occupancy.where]
    counted = (rows >= 0) & ~expendable[occupancy.cls]
    waiting = [
        (index[pod.nominated], pod.cls) for pod in nominated if pod.nominated in index
    ] + daemons
    return (
        np.concatenate([rows[counted], np.array([row for row, _ in waiting], dtype=np.int64)]),
        np.concatenate(
            [occupancy.cls[counted], np.array([cls for _, cls in waiting], dtype=np.int64)]
        ),
        np.concatenate([occupancy.dying[counted], np.zeros(len(waiting), dtype=np.bool_)]),
    )


def _upcoming_nodes(state: ClusterState) -> list[tuple[Node, Template]]:
    """Return one copy of the group's template per upcoming node; of a group in several zones, those
    that were bought for a zone count as coming there."""
    upcoming: list[tuple[Node, Template]] = []
    for _, group in sorted(state.groups.items()):
        template = group.template
        if template is None:
            continue
        names = [f"upcoming-{at}{_FOR}{group.id}" for at in range(min(group.upcoming, _UPCOMING))]
        zones = coming_in_zones(group, state) if template.in_zones else []
        for zone, name in zip(zones, names, strict=False):
            upcoming += [(node, template) for node in renamed(template.in_zones[zone], [name])]
        upcoming += [(node, template) for node in renamed(template.node, names[len(zones) :])]
    return upcoming


def _rows_of_groups(upcoming: Sequence[Node], first: int) -> dict[str, list[int]]:
    """Return group -> the rows of its upcoming nodes. first: the row of the first one."""
    rows: dict[str, list[int]] = {}
    for row, node in enumerate(upcoming, start=first):
        rows.setdefault(node.name.partition(_FOR)[2], []).append(row)
    return rows
