"""The planned nodes of one attempt and the pods on them, and the places that result.

Two stages change them: the one that buys nodes (new_nodes.py), and the one that removes nodes which
some order leaves empty (every_order.py). Both go back to a former state with `save` and `restore`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

import msgspec
import numpy as np

from chalicelib.model.pod import Pod
from chalicelib.plan.demand.pending_pods import PodBatch
from chalicelib.plan.scale_up.scale_up_search import ScaleUpSearch
from chalicelib.plan.simulation.simulated_cluster import Placements, SimulatedCluster, place
from chalicelib.plan.tables import Ints

_EXACT = 1_000  # rows times runs of pods up to which all pods are placed again as a check


class CompetingClasses(msgspec.Struct, frozen=True):
    """So many places, in the worst order, for the pods of these classes."""

    places: int
    classes: tuple[int, ...]


class FinalPlacement(msgspec.Struct, frozen=True):
    """The expected place of each pod. places: (row, class, pods). unplaced: pods without a place.
    new_nodes: row -> (group, number from 1) of planned nodes. overestimated: classes of which the
    estimator placed more pods than the scheduler will. pod_on_row: row of an existing or upcoming
    node -> one of the pods, uncounted ones included, that will be placed on it. pods_by_priority:
    number of placed pods, the highest priority first. contests: classes of which no single pod has
    a guaranteed place."""

    places: tuple[tuple[int, int, tuple[Pod, ...]], ...]
    unplaced: tuple[PodBatch, ...]
    new_nodes: dict[int, tuple[str, int]]
    overestimated: frozenset[int] = frozenset()
    pod_on_row: dict[int, str] = {}
    pods_by_priority: tuple[int, ...] = ()
    contests: tuple[CompetingClasses, ...] = ()

    @property
    def buys_for_pods(self) -> bool:
        """True if a pod has its place on a new node."""
        return any(row in self.new_nodes for row, _, _ in self.places)


class ExistingPlacement(msgspec.Struct, frozen=True):
    """Pods on existing and upcoming nodes. unserved: the other pods for which a node may be bought,
    in queue order. mark: checkpoint of the simulated cluster after the placements."""

    placements: Placements
    unserved: tuple[PodBatch, ...]
    mark: int

    @property
    def has_choice(self) -> bool:
        """True if some pods are on existing nodes while others found no room."""
        return bool(self.unserved and self.placements)

    @property
    def signature(self) -> tuple[tuple[int, bytes, bytes], ...]:
        """The placements in a form that can be compared."""
        return tuple(
            (cls, rows.tobytes(), counts.tobytes())
            for cls, (rows, counts) in self.placements.items()
        )


class SavedNodes(msgspec.Struct, frozen=True):
    """A state of the planned nodes. grown: group -> new nodes; groups: the
    group of every planned row."""

    grown: dict[str, int]
    groups: list[str]
    existing: ExistingPlacement
    placements: Placements


def unserved_pods(queue: Sequence[PodBatch], simulated: SimulatedCluster) -> tuple[PodBatch, ...]:
    """Return the unplaced pods for which a node may be bought. Pods of a class are equal, so its
    places go to the counted pods first, whichever pods were placed first."""
    served = {cls: int(counts.sum()) for cls, (_, counts) in simulated.standing().items()}
    unserved: list[PodBatch] = []
    for batch in queue:
        if batch.counts:
            skip = min(served.get(batch.cls, 0), len(batch.pods))
            served[batch.cls] = served.get(batch.cls, 0) - skip
            if skip < len(batch.pods):
                unserved.append(batch.only(batch.pods[skip:]))
    return tuple(unserved)


def is_small(simulated: SimulatedCluster, queue: Sequence[PodBatch]) -> bool:
    """Return whether placing all pods again is fast."""
    return len(simulated.table) * (len(queue) + 1) <= _EXACT


class PlannedNodes:
    """What the search and the simulated cluster contain for one attempt: the pods on existing
    nodes, the planned nodes, and the pods on these. minimum_nodes: group -> new nodes that
    stay even if they are empty."""

    def __init__(
        self,
        search: ScaleUpSearch,
        queue: Sequence[PodBatch],
        existing: ExistingPlacement,
        minimum_nodes: Mapping[str, int],
    ) -> None:
        self.search, self.simulated, self.queue, self.existing = (
            search,
            search.simulated,
            queue,
            existing,
        )
        self._minimum_nodes = minimum_nodes

    @property
    def is_small(self) -> bool:
        """True if placing all pods again is fast."""
        return is_small(self.simulated, self.queue)

    def out_of_time(self) -> bool:
        """Return whether the time of the estimator, or of the whole scale-up search, is over."""
        return self.simulated.late() or self.search.pass_time.over(
            self.search.state.options.max_binpacking_time
        )

    def spare(self, group: str) -> int:
        """Return the number of a group's new nodes beyond those for its minimum size."""
        return self.search.grown.get(group, 0) - self._minimum_nodes.get(group, 0)

    def is_atomic(self, group: str) -> bool:
        """Return whether the group scales from zero to its maximum at once."""
        return self.search.groups[group].group.options.zero_or_max

    # -- the nodes

    def rows(self) -> range:
        """Return the rows of planned nodes."""
        return range(self.simulated.base, len(self.simulated.table))

    def groups(self) -> list[str]:
        """Return the group of every planned row."""
        nodes, group_of = self.simulated.table.nodes, self.search.group_of
        return [group_of[nodes[row].name] for row in self.rows()]

    def numbered(self) -> dict[int, tuple[str, int]]:
        """Return row -> (group, number from 1) of the planned nodes."""
        numbers: dict[str, int] = {}
        numbered: dict[int, tuple[str, int]] = {}
        for row, group in zip(self.rows(), map(self.search.own, self.groups()), strict=True):
            numbers[group] = numbers.get(group, 0) + 1
            numbered[row] = (group, numbers[group])
        return numbered

    def add_minimum_nodes(self) -> Sequence[PodBatch]:
        """Add the nodes for minimum sizes, regardless of pending pods, and place pods on them;
        returns the unplaced pods."""
        for group, nodes in self._minimum_nodes.items():
            self.search.add(group, nodes)
        unserved = self.existing.unserved
        return place(self.simulated, unserved) if self._minimum_nodes else unserved

    def add_empty_nodes(self, groups: Sequence[str] | None = None) -> None:
        """Add empty planned nodes of these groups, in this order; None: all
        that are planned, by group."""
        if groups is None:
            groups = [
                group
                for group in sorted(self.search.grown)
                for _ in range(self.search.grown[group])
            ]
        added: dict[str, int] = {}
        for group, run in groupby(groups):
            nodes = len(list(run))
            self.search.put_nodes(group, added.get(group, 0), nodes)
            added[group] = added.get(group, 0) + nodes

    def pods_per_row(self) -> Ints:
        """Return the number of pods on each row that were placed in this attempt."""
        pods: Ints = np.zeros(len(self.simulated.table), dtype=np.int64)
        for rows, counts in self.simulated.standing().values():
            pods[rows] += counts
        return pods

    def has_empty_node(self) -> bool:
        """Return whether a planned node has no pod."""
        return not self.pods_per_row()[self.simulated.base :].all()

    def drop_empty(self) -> bool:
        """Remove planned nodes without pods; the others keep their pods.
        Returns whether there were any."""
        pods = self.pods_per_row()
        empty: dict[str, list[int]] = {}
        for row, group in zip(self.rows(), self.groups(), strict=True):
            if not pods[row]:
                empty.setdefault(group, []).append(row)
        rows_to_drop = [
            row
            for group, rows in empty.items()
            if not self.is_atomic(group) or len(rows) == self.search.grown[group]
            for row in rows[max(0, len(rows) - self.spare(group)) :]
        ]
        self.drop(rows_to_drop)
        return bool(rows_to_drop)

    def drop(self, dropped: Collection[int]) -> None:
        """Remove these rows and keep the placements on the other nodes."""
        if not dropped:
            return
        dropped, groups = set(dropped), self.groups()
        rows = [row for row in self.rows() if row not in dropped]
        moved: Ints = np.arange(len(self.simulated.table))
        moved[rows] = np.arange(self.simulated.base, self.simulated.base + len(rows))
        standing = self.simulated.standing()
        for row in dropped:
            self.search.undo_scale_up(groups[row - self.simulated.base], 1)
        self.simulated.reset(self.existing.mark)
        self.add_empty_nodes([groups[row - self.simulated.base] for row in rows])
        self.simulated.put_all({cls: (moved[at], counts) for cls, (at, counts) in standing.items()})

    # -- the pods

    def place_in_queue_order(self) -> None:
        """Place all pods that existing nodes do not serve again, first fit, on the planned
        nodes."""
        self.simulated.reset(self.existing.mark)
        self.add_empty_nodes()
        place(self.simulated, self.existing.unserved)

    def place_again(self, queue: Sequence[PodBatch]) -> Sequence[PodBatch]:
        """Remove all nodes and pods, and place these pods on existing nodes first;
        returns those without a place."""
        self.simulated.reset()
        unplaced = place(self.simulated, queue)
        self.existing = ExistingPlacement(
            self.simulated.standing(),
            unserved_pods(self.queue, self.simulated),
            self.simulated.checkpoint(),
        )
        return unplaced

    def place_unplaced(self) -> Sequence[PodBatch]:
        """Retry the unplaced pods on the planned nodes, and return those without a place."""
        unplaced = self.unplaced_pods()
        return place(self.simulated, unplaced) if unplaced and self.search.grown else unplaced

    def unplaced_pods(self) -> tuple[PodBatch, ...]:
        """Return the pods without a place for which a node may be bought, a batch per class."""
        counted: dict[int, list[Pod]] = {}
        for batch in self.queue:
            if batch.counts:
                counted.setdefault(batch.cls, []).extend(batch.pods)
        placed = {cls: int(counts.sum()) for cls, (_, counts) in self.simulated.standing().items()}
        return tuple(
            PodBatch(cls, tuple(rest))
            for cls, pods in counted.items()
            if (rest := pods[placed.get(cls, 0) :])
        )

    def pods_by_priority(self) -> list[int]:
        """Return the number of placed pods per priority, the highest first, which is
        the measure of a placement."""
        classes, standing = self.simulated.classes, self.simulated.standing()
        placed: dict[int, int] = {}
        for cls in dict.fromkeys(batch.cls for batch in self.queue):
            pods = int(standing[cls][1].sum()) if cls in standing else 0
            priority = classes[cls].priority or 0
            placed[priority] = placed.get(priority, 0) + pods
        return [placed[priority] for priority in sorted(placed, reverse=True)]

    # -- former states

    def save(self) -> SavedNodes:
        """Return the present state."""
        return SavedNodes(
            dict(self.search.grown), self.groups(), self.existing, self.simulated.standing()
        )

    def restore(self, saved: SavedNodes, *, empty: bool = False) -> None:
        """Restore a state. empty: without the pods on new nodes."""
        for group, nodes in self.search.grown.items():
            if more := nodes - saved.grown.get(group, 0):
                self.search.undo_scale_up(group, more)
        if saved.existing is self.existing:
            self.simulated.reset(self.existing.mark)
        else:
            self.simulated.reset()
            self._put_existing(saved.existing)
        self.add_empty_nodes(saved.groups)
        if not empty:
            self.simulated.put_all(saved.placements)

    def restore_pods(self, saved: SavedNodes) -> None:
        """Restore the pods of a state whose nodes are present."""
        self.simulated.rollback(0)
        self._put_existing(saved.existing)
        self.simulated.put_all(saved.placements)

    def _put_existing(self, existing: ExistingPlacement) -> None:
        self.simulated.put_all(existing.placements)
        self.existing = msgspec.structs.replace(existing, mark=self.simulated.checkpoint())


def final_placement(
    planned: PlannedNodes, most_placed: Mapping[int, int], refused_by_order: Collection[int]
) -> FinalPlacement:
    """Assign pods to places: within a class in the scheduler's order, rows in order.

    most_placed: class -> the highest number of pods that the estimator has placed.
    refused_by_order: refused classes that one more node would take.
    """
    waiting: dict[int, list[Pod]] = {}
    uncounted: set[str] = set()
    for batch in sorted(planned.queue, key=lambda batch: not batch.counts):
        waiting.setdefault(batch.cls, []).extend(batch.pods)
        if not batch.counts:
            uncounted.update(pod.key for pod in batch.pods)
    places = []
    pod_on_row: dict[int, str] = {}
    placed = dict.fromkeys(waiting, 0)
    for cls, (rows, counts) in planned.simulated.standing().items():
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            pods = waiting[cls][placed[cls] : placed[cls] + count]
            placed[cls] += count
            if (
                counted := tuple(pod for pod in pods if pod.key not in uncounted)
                if uncounted
                else tuple(pods)
            ):
                places.append((row, cls, counted))
            if row < planned.simulated.base:
                pod_on_row[row] = min(*(pod.key for pod in pods), pod_on_row.get(row, pods[0].key))
    return FinalPlacement(
        tuple(places),
        planned.unplaced_pods(),
        planned.numbered(),
        frozenset(refused_by_order).union(
            cls for cls, most in most_placed.items() if placed[cls] < most
        ),
        pod_on_row,
        tuple(planned.pods_by_priority()),
    )
