"""Pods onto nodes that exist or are on their way (scale-up.md §2 "schedulable elsewhere", §3).

First fit by node name, a whole class at a time: how many more each row holds is one vector, who goes where is its
running sum. What is placed stays placed for the rest of the pass, so that no room is promised twice and no node that
pending pods are expected on is removed.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.pod import Pod, PodClass
from chalicelib.plan.arrays import Bools, Ints
from chalicelib.plan.demand import Demand, is_expendable
from chalicelib.plan.fit import static_mask
from chalicelib.plan.fit.not_simulated import NotSimulated
from chalicelib.plan.readiness import Bucket
from chalicelib.plan.table import Columns, NodeTable
from chalicelib.plan.world import World


class Room(msgspec.Struct):
    """The cluster's room in this pass: the table, which rows may take pods, and what could not be judged."""

    table: NodeTable
    open: Bools
    unsure: NotSimulated
    classes: tuple[PodClass, ...]
    masks: dict[int, Bools]
    promised: dict[str, str]

    def mask(self, cls: int) -> Bools:
        """Rows a class may use by the filters that do not change; remembered."""
        found = self.masks.get(cls)
        if found is None:
            found = self.masks[cls] = static_mask(cls, self.classes[cls], self.table) & self.open
        return found

    def capacity(self, cls: int) -> Ints:
        """How many more pods of a class every row takes now; 0 everywhere for a class not simulated."""
        if self.unsure.reasons(cls):
            return np.zeros(len(self.table), dtype=np.int64)
        ports = self.classes[cls].ports
        counts = np.where(self.mask(cls), self.table.room(cls, single=bool(ports)), 0)
        for row in self.table.ports if ports else ():
            if counts[row] and self.table.port_clash(row, ports):
                counts[row] = 0
        return counts


def build(world: World, nominated: tuple[Pod, ...], columns: Columns) -> Room:
    """The table of real and upcoming nodes with the pods they carry."""
    snapshot, options = world.snapshot, world.options
    late = {name for name, kind in world.buckets.items() if kind is Bucket.NOT_STARTED and name in world.group_of}
    real = [node for node in snapshot.nodes if node.name not in late]
    coming = _upcoming(world)
    table = NodeTable([*real, *(node for node, _ in coming)], columns)
    # What a malformed pod takes is unknown, so its node offers nothing.
    unknown = {gap.node for gap in snapshot.gaps if gap.node}
    unready = {name for name, kind in world.buckets.items() if kind in {Bucket.UNREADY, Bucket.SUSPENDED}}
    closed = world.leaving | unknown | unready
    is_open = np.fromiter((not node.unschedulable and node.name not in closed for node in table.nodes),
                          dtype=np.bool_, count=len(table))
    expendable = [is_expendable(cls, options) for cls in snapshot.classes]
    occupying = [(pod.node, pod.cls) for pod in snapshot.pods if pod.node and not expendable[pod.cls]]
    occupying += [(pod.nominated, pod.cls) for pod in nominated]
    running = {cls for _, cls in occupying}
    table.occupy([(row, cls) for name, cls in occupying if (row := table.index.get(name)) is not None],
                 {cls: snapshot.classes[cls].ports for cls in running})
    for at, (_, daemons) in enumerate(coming, start=len(real)):
        for cls in daemons:
            table.take(at, cls, 1, snapshot.classes[cls].ports)
    return Room(table=table, open=is_open, classes=snapshot.classes, masks={}, promised={},
                unsure=NotSimulated(snapshot.classes, running, dict(snapshot.namespaces)))


def _upcoming(world: World) -> list[tuple[Node, tuple[int, ...]]]:
    """A copy of its group's template per node on its way."""
    coming = []
    for facts in world.groups.values():
        if facts.template is None:
            continue
        for at in range(facts.upcoming):
            name = f"upcoming-{at}-for-{facts.id}"
            labels = {**facts.template.node.labels, HOSTNAME_LABEL: name}
            node = msgspec.structs.replace(facts.template.node, name=name, labels=labels)
            coming.append((node, facts.template.daemons))
    return coming


def place(room: Room, demands: tuple[Demand, ...]) -> tuple[Mapping[str, str], tuple[Demand, ...]]:
    """Place what fits. Returns pod key -> node name, and the demands that are left."""
    placed: dict[str, str] = {}
    left: list[Demand] = []
    for demand in demands:
        rest = list(demand.pods)
        counts = room.capacity(demand.cls)
        for row in np.flatnonzero(counts):
            if not rest:
                break
            here, rest = rest[: counts[row]], rest[counts[row] :]
            room.table.take(int(row), demand.cls, len(here), room.classes[demand.cls].ports * len(here))
            name = room.table.nodes[row].name
            placed.update((pod.key, name) for pod in here)
            room.promised.setdefault(name, here[0].key)
        if rest:
            left.append(Demand(demand.cls, tuple(rest)))
    return placed, tuple(left)
