"""Builds the simulated cluster of a pass: existing and upcoming nodes with the pods on them."""

from __future__ import annotations

from operator import attrgetter

import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.pod import Pod
from chalicelib.plan.predicates import NotSimulated
from chalicelib.plan.simulation.pod_constraints import Counting, Matching, PodConstraintTable
from chalicelib.plan.simulation.simulated_cluster import ConstraintState, SimulatedCluster, renamed
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.node_templates import Template
from chalicelib.plan.state.pending_pods import is_expendable
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.tables import Bools, Ints, NodeTable, ResourceColumns
from chalicelib.plan.volumes import Volumes

# upcoming nodes simulated per group, so that a vendor's wrong count of millions does not stall the pass
_UPCOMING = 10_000


def build(state: ClusterState, nominated: tuple[Pod, ...], columns: ResourceColumns) -> SimulatedCluster:
    """Build the simulated cluster of real and upcoming nodes with the pods that occupy them."""
    snapshot, options = state.snapshot, state.options
    late = {name for name, kind in state.buckets.items() if kind is Bucket.NOT_STARTED and name in state.group_of}
    real = sorted((node for node in snapshot.nodes if node.name not in late), key=attrgetter("name"))
    coming = _upcoming(state)
    table = NodeTable([*real, *(node for node, _ in coming)], columns)
    # What a malformed pod requests is unknown, so its node offers no room.
    unknown = {gap.node for gap in snapshot.gaps if gap.node}
    unready = {name for name, kind in state.buckets.items() if kind in {Bucket.UNREADY, Bucket.SUSPENDED}}
    held, barred = _held(state)
    closed = state.leaving | unknown | unready | barred
    is_open: Bools = np.fromiter(
        (not node.unschedulable and node.name not in closed for node in table.nodes), dtype=np.bool_, count=len(table)
    )
    rows, classes, dying = _occupying(state, nominated, table)
    daemons = [(at, cls) for at, (_, template) in enumerate(coming, start=len(real)) for cls in template.daemons]
    rows = np.concatenate([rows, np.array([at for at, _ in daemons], dtype=np.int64)])
    classes = np.concatenate([classes, np.array([cls for _, cls in daemons], dtype=np.int64)])
    dying = np.concatenate([dying, np.zeros(len(daemons), dtype=np.bool_)])
    table.occupy(rows, classes, [cls.ports for cls in snapshot.classes])
    counting = Counting(rows, classes, dying, len(table))
    parts = ConstraintState(
        classes=snapshot.classes,
        counting=counting,
        volumes=Volumes(snapshot),
        constraints=PodConstraintTable(snapshot.classes, Matching(snapshot.classes, snapshot.namespaces), counting),
        unsure=NotSimulated(snapshot.classes, options),
    )
    limits = [parts.volumes.limits(node.name) for node in real] + [template.volume_limits for _, template in coming]
    simulated = SimulatedCluster(
        table,
        is_open,
        parts,
        real=len(real),
        limits=limits,
        nominated=[(table.index.get(pod.nominated), pod.cls) for pod in nominated],
    )
    for row in table.overfull:
        simulated.close(row)
    too_much = "its pods ask for more than can be counted"
    simulated.held = {**held, **{table.nodes[row].name: too_much for row in table.overfull}}
    return simulated


def _held(state: ClusterState) -> tuple[dict[str, str], frozenset[str]]:
    """Return the blocked nodes, those with a pod that exceeds a reading limit, with the reasons; and which of them may
    repel other pods by the unread part of that pod."""
    classes, options = state.snapshot.classes, state.options
    excess = [bool(cls.excess) and not is_expendable(cls, options) for cls in classes]
    if not any(excess):
        return {}, frozenset()
    held: dict[str, str] = {}
    barred: set[str] = set()
    for pod in state.snapshot.pods:
        if pod.node and excess[pod.cls]:
            held.setdefault(pod.node, f"pod {pod.key} is not simulated: {classes[pod.cls].excess}")
            barred.update({pod.node} if classes[pod.cls].excess_bars else ())
    return held, frozenset(barred)


def _occupying(state: ClusterState, nominated: tuple[Pod, ...], table: NodeTable) -> tuple[Ints, Ints, Bools]:
    """Return row, class and terminating flag of every pod that takes room, in any order."""
    index, occupancy, classes = table.index, state.occupancy, state.snapshot.classes
    row_of = np.array([*(index.get(node.name, -1) for node in state.snapshot.nodes), -1], dtype=np.int64)
    expendable = np.array([*(is_expendable(cls, state.options) for cls in classes), False], dtype=np.bool_)
    rows = row_of[occupancy.where]
    keep = (rows >= 0) & ~expendable[occupancy.cls]
    rows, kinds, dying = rows[keep], occupancy.cls[keep], occupancy.dying[keep]
    waiting = [(index[pod.nominated], pod.cls) for pod in nominated if pod.nominated in index]
    return (
        np.concatenate([rows, np.array([row for row, _ in waiting], dtype=np.int64)]),
        np.concatenate([kinds, np.array([cls for _, cls in waiting], dtype=np.int64)]),
        np.concatenate([dying, np.zeros(len(waiting), dtype=np.bool_)]),
    )


def _upcoming(state: ClusterState) -> list[tuple[Node, Template]]:
    """Return one copy of the group's template per upcoming node."""
    coming: list[tuple[Node, Template]] = []
    for _, facts in sorted(state.groups.items()):
        if facts.template is not None:
            names = [f"upcoming-{at}-for-{facts.id}" for at in range(min(facts.upcoming, _UPCOMING))]
            coming += [(node, facts.template) for node in renamed(facts.template.node, names)]
    return coming
