"""Determines the final place of every pod before anything is promised. See docs/reference/scale-up.md "Final
placement".

The estimator places the largest pods first, but the scheduler takes pods by priority and age. In a small plan all pods
are placed once more in the scheduler's own order, first fit, and these places are promised if no pod loses its place.
Otherwise, and in a large plan, the estimator's places are used. Nodes that stay empty are not bought, nor is a node
without which all pods still find a place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import msgspec
import numpy as np

from chalicelib.model.pod import Pod
from chalicelib.plan.scale_up.estimator import PodRequest
from chalicelib.plan.scale_up.expanders import LEAST_COST
from chalicelib.plan.scale_up.search import ScaleUpSearch
from chalicelib.plan.simulation.simulated_cluster import Placements, SimulatedCluster, place
from chalicelib.plan.state.pending_pods import PodBatch
from chalicelib.plan.tables import Ints

_EXACT = 1_000  # rows times runs of pods up to which all pods are placed again as a check

Way = Callable[[Sequence[PodBatch], SimulatedCluster], tuple[list[PodBatch], bool]]
"""(queue, simulated cluster) -> the queue in another order, in which pods of higher priority stay first, and whether
pods are placed on the rows in turn instead of first fit."""

_State = tuple[dict[str, int], list[str], Placements]  # nodes per group, the group of every planned row, places


class CompetingClasses(msgspec.Struct, frozen=True):
    """So many places, in the worst order, for the pods of these classes."""

    places: int
    classes: tuple[int, ...]


class FinalPlacement(msgspec.Struct, frozen=True):
    """The expected place of each pod. places: (row, class, pods). unplaced: pods without a place. new_nodes: row ->
    (group, number from 1) of planned nodes. overestimated: classes of which the estimator placed more pods than the
    scheduler will. pod_on_row: row of an existing or upcoming node -> one of the pods, uncounted ones included, that
    will be placed on it. pods_by_priority: number of placed pods, the highest priority first. contests: classes of
    which no single pod has a guaranteed place."""

    places: tuple[tuple[int, int, tuple[Pod, ...]], ...]
    unplaced: tuple[PodBatch, ...]
    new_nodes: dict[int, tuple[str, int]]
    overestimated: frozenset[int] = frozenset()
    pod_on_row: dict[int, str] = {}
    pods_by_priority: tuple[int, ...] = ()
    contests: tuple[CompetingClasses, ...] = ()


class FinalPlacer:
    """A plan under construction.

    rest: unplaced pods before any new node; unplaced: those after the nodes for minimum sizes. mark: checkpoint after
    the placements on existing nodes; early_placements: these, for comparison. new_nodes: row -> (group, number).
    refused_by_order: refused classes that one more node would take.
    """

    def __init__(
        self, search: ScaleUpSearch, queue: Sequence[PodBatch], minimum_nodes: dict[str, int], way: Way | None = None
    ) -> None:
        """Place pods on existing and upcoming nodes. minimum_nodes: group -> new nodes that stay even if they are
        empty. way: how pods are placed; None: in the scheduler's order, first fit or in turn."""
        self.search, self.simulated, self.queue, self.minimum_nodes = search, search.simulated, queue, minimum_nodes
        self.refused_by_order: set[int] = set()
        self.new_nodes: dict[int, tuple[str, int]] = {}
        self._most_placed: dict[int, int] = {}  # class -> highest number of pods that the estimator has placed
        # Pods that fit existing or upcoming nodes are placed there now, before any new node is added.
        limit, budget = search.state.options.pending_pods_batching_timeout, search.budget
        ordered, in_turn = way(queue, self.simulated) if way is not None else (queue, False)
        place(self.simulated, ordered, lambda: budget.over(limit), around=in_turn)
        self.simulated.unsettled = self.simulated.late()
        self.rest = self._unserved()
        if way is None and self.rest and self.is_small:
            self._place_in_turn()
        standing = self.simulated.standing()
        self.early_placements = tuple(
            (cls, rows.tobytes(), counts.tobytes()) for cls, (rows, counts) in standing.items()
        )
        self.has_choice = bool(self.rest and standing)  # some pods are on existing nodes while others found no room
        # Some pending pods fit existing nodes: the scheduler has not seen the current state of the cluster yet.
        self.unseen = self.has_choice and any((rows < self.simulated.real).any() for rows, _ in standing.values())
        self.mark = self.simulated.checkpoint()
        # Nodes for minimum sizes are added regardless of pending pods, and together with the other new nodes.
        for group, nodes in minimum_nodes.items():
            search.add(group, nodes)
        self.unplaced = place(self.simulated, self.rest) if minimum_nodes else self.rest
        self._number_nodes()

    def _unserved(self) -> tuple[PodBatch, ...]:
        """Return the unplaced pods for which a node may be bought. Pods of a class are equal, so its places go to the
        counted pods first, whichever pods were placed first."""
        served = {cls: int(counts.sum()) for cls, (_, counts) in self.simulated.standing().items()}
        unserved: list[PodBatch] = []
        for batch in self.queue:
            if batch.counts:
                skip = min(served.get(batch.cls, 0), len(batch.pods))
                served[batch.cls] = served.get(batch.cls, 0) - skip
                if skip < len(batch.pods):
                    unserved.append(PodBatch(batch.cls, batch.pods[skip:]))
        return tuple(unserved)

    def _place_in_turn(self) -> None:
        """Place the pods again, distributed over the nodes in turn as Cluster Autoscaler does, which is closer to how
        the scheduler spreads them; first fit is kept if it places more pods."""
        first_fit, before = self.simulated.standing(), self.rest
        self.simulated.rollback(0)
        place(self.simulated, self.queue, around=True)
        self.rest = self._unserved()
        if sum(len(batch.pods) for batch in self.rest) > sum(len(batch.pods) for batch in before):
            self.simulated.rollback(0)
            self.simulated.put_all(first_fit)
            self.rest = before

    def begin_at(self, mark: int) -> None:
        """Treat what was placed before this checkpoint as pods on existing or upcoming nodes."""
        self.mark, self.rest = mark, self._unserved()

    def out_of_time(self) -> bool:
        """Return whether the time of the estimator, or of the whole scale-up search, is over."""
        return self.simulated.late() or self.search.budget.over(self.search.state.options.max_binpacking_time)

    @property
    def is_small(self) -> bool:
        """True if placing all pods again is fast."""
        return len(self.simulated.table) * (len(self.queue) + 1) <= _EXACT

    def grow(self, unplaced: Sequence[PodBatch]) -> None:
        """Add new nodes for these pods."""
        counts: dict[int, int] = {}
        first: dict[int, str] = {}
        for batch in unplaced:
            counts[batch.cls] = counts.get(batch.cls, 0) + len(batch.pods)
            first.setdefault(batch.cls, batch.pods[0].key)
        requests = [PodRequest(cls, count, first[cls]) for cls, count in counts.items()]
        start = self.state()
        rest = self.search.search(requests)
        self._number_nodes()
        if LEAST_COST in self.search.state.options.expander and not all(map(self.simulated.is_independent, counts)):
            # With the pods that least-cost does not handle, its mix may cost more in total: run the rest of the chain
            # without it and keep the cheaper result.
            mixed, worth = self.state(), (sum(request.count for request in rest), self.search.cost())
            self._back_to(start)
            rest = self.search.search(requests, least_cost=False)
            self._number_nodes()
            if (sum(request.count for request in rest), self.search.cost()) >= worth:
                self._back_to(mixed)
        for cls, (_, pods) in self.simulated.standing().items():
            self._most_placed[cls] = max(self._most_placed.get(cls, 0), int(pods.sum()))
        self.drop_empty()

    def state(self) -> _State:
        """Return nodes per group, the group of every planned row, and placements."""
        return dict(self.search.grown), self.groups(), self.simulated.standing()

    def _back_to(self, state: _State) -> None:
        grown, groups, standing = state
        for group, nodes in list(self.search.grown.items()):
            self.search.undo_scale_up(group, nodes - grown.get(group, 0))
        self.restore(groups, standing)

    def _number_nodes(self) -> None:
        numbers: dict[str, int] = {}
        self.new_nodes = {}
        for row in self._rows():
            group = self.search.group_of[self.simulated.table.nodes[row].name]
            numbers[group] = numbers.get(group, 0) + 1
            self.new_nodes[row] = (group, numbers[group])

    def spare(self, group: str) -> int:
        """Return the number of a group's new nodes beyond those for its minimum size."""
        return self.search.grown.get(group, 0) - self.minimum_nodes.get(group, 0)

    def is_atomic(self, group: str) -> bool:
        """Return whether the group scales from zero to its maximum at once."""
        return self.search.state.groups[group].group.options.zero_or_max

    def _rows(self) -> range:
        """Return the rows of planned nodes."""
        return range(self.simulated.base, len(self.simulated.table))

    def _pods_per_row(self) -> Ints:
        pods: Ints = np.zeros(len(self.simulated.table), dtype=np.int64)
        for rows, counts in self.simulated.standing().values():
            pods[rows] += counts
        return pods

    def has_empty_node(self) -> bool:
        """Return whether a planned node has no pod."""
        return not self._pods_per_row()[self.simulated.base :].all()

    def drop_empty(self) -> bool:
        """Remove planned nodes without pods; the others keep their pods. Returns whether there were any."""
        pods = self._pods_per_row()
        empty: dict[str, list[int]] = {}
        for row in self._rows():
            if not pods[row]:
                empty.setdefault(self.new_nodes[row][0], []).append(row)
        drop = [
            row
            for group, rows in empty.items()
            if not self.is_atomic(group) or len(rows) == self.search.grown[group]
            for row in rows[max(0, len(rows) - self.spare(group)) :]
        ]
        self._without(drop)
        return bool(drop)

    def _without(self, rows: Sequence[int]) -> None:
        """Remove these rows and keep the placements on the other nodes."""
        if not rows:
            return
        dropped = set(rows)
        staying = [row for row in self._rows() if row not in dropped]
        moved: Ints = np.arange(len(self.simulated.table))
        moved[staying] = np.arange(self.simulated.base, self.simulated.base + len(staying))
        standing, groups = self.simulated.standing(), [self.new_nodes[row][0] for row in staying]
        for row in rows:
            self.search.undo_scale_up(self.new_nodes[row][0], 1)
        self.restore(groups, {cls: (moved[at], counts) for cls, (at, counts) in standing.items()})

    def groups(self) -> list[str]:
        """Return the group of every planned row."""
        return [self.new_nodes[row][0] for row in self._rows()]

    def add_empty_nodes(self, groups: Sequence[str] | None = None) -> None:
        """Add empty planned nodes of these groups, in this order; None: all that are planned, by group."""
        if groups is None:
            groups = [group for group in sorted(self.search.grown) for _ in range(self.search.grown[group])]
        added: dict[str, int] = {}
        for group, run in groupby(groups):
            nodes = len(list(run))
            self.search.put_nodes(group, added.get(group, 0), nodes)
            added[group] = added.get(group, 0) + nodes
        self._number_nodes()

    def restore(self, groups: Sequence[str], standing: Placements) -> None:
        """Restore planned nodes and placements."""
        self.simulated.reset(self.mark)
        self.add_empty_nodes(groups)
        self.simulated.put_all(standing)

    def pods_by_priority(self) -> list[int]:
        """Return the number of placed pods per priority, the highest first, which is the measure of a placement."""
        classes, standing = self.simulated.classes, self.simulated.standing()
        placed: dict[int, int] = {}
        for cls in dict.fromkeys(batch.cls for batch in self.queue):
            pods = int(standing[cls][1].sum()) if cls in standing else 0
            priority = classes[cls].priority or 0
            placed[priority] = placed.get(priority, 0) + pods
        return [placed[priority] for priority in sorted(placed, reverse=True)]

    def _is_unjust(self) -> bool:
        """Return whether a pod has a place on a new node while a pod of higher priority has none."""
        classes, standing = self.simulated.classes, self.simulated.standing()
        on_new = [
            classes[cls].priority or 0 for cls, (rows, _) in standing.items() if (rows >= self.simulated.base).any()
        ]
        unplaced = [
            classes[batch.cls].priority or 0
            for batch in self.placement().unplaced
            if self.search.candidates.fits(batch.cls).any()
        ]
        return bool(on_new) and bool(unplaced) and max(unplaced) > min(on_new)

    def arrange(self) -> None:
        """Place pods first fit in the scheduler's order if that is not worse for any priority and there is time;
        otherwise keep the estimator's places."""
        if self.simulated.late():
            return
        standing, groups, worth = self.simulated.standing(), self.groups(), self.pods_by_priority()
        if self.is_small or self._is_unjust():
            self.place_in_queue_order()
            if self.simulated.late():
                self.restore(groups, standing)
                return
            if self.pods_by_priority() >= worth:
                while self.drop_empty():
                    self.place_in_queue_order()
                return
        elif all(self.simulated.needs(cls) is None for cls in standing):
            return  # no class depends on other pods: the estimator's places are valid in any order
        self.restore(groups, {})
        self._place_as_estimated(standing)
        self.drop_empty()

    def _place_as_estimated(self, standing: Placements) -> None:
        """Place pods where the estimator placed them, in the scheduler's order and with its retries. A pod that is
        refused there was placed by chance, before others whose presence forbids it, and is promised nothing."""
        placed = self.simulated.standing()
        waiting: dict[int, Ints] = {}
        for cls, (rows, counts) in standing.items():
            target: Ints = np.zeros(len(self.simulated.table), dtype=np.int64)
            target[rows] += counts
            if cls in placed:
                target[placed[cls][0]] -= placed[cls][1]
            waiting[cls] = np.maximum(target, 0)
        order = [cls for cls in dict.fromkeys(batch.cls for batch in self.rest) if cls in waiting]
        moved = True
        while moved:
            moved = False
            for cls in order:
                if not waiting[cls].any() or self.simulated.late():
                    continue
                quota, _ = self.simulated.quota(cls)
                take = self.simulated.attached.one_of(cls, np.minimum(waiting[cls], quota))
                rows = np.flatnonzero(take)
                if len(rows):
                    self.simulated.place(cls, rows, take[rows])
                    waiting[cls] -= take
                    moved = True

    def place_unplaced(self) -> Sequence[PodBatch]:
        """Retry the unplaced pods on the planned nodes, and return those without a place."""
        unplaced = self.placement().unplaced
        return place(self.simulated, unplaced) if unplaced and self.search.grown else unplaced

    def place_in_queue_order(self) -> None:
        """Place all pods that existing nodes do not serve again, first fit, on the planned nodes."""
        self.simulated.reset(self.mark)
        self.add_empty_nodes()
        place(self.simulated, self.rest)

    def drop_needless(self, group: str) -> None:
        """Remove nodes of a group without which all pods still find a place."""
        if self.is_atomic(group) or self.simulated.late():
            return
        if not self.is_small:
            self._without(self._emptied_rows(group))
            return
        while self.spare(group) > 0 and not self.simulated.late():
            standing, groups, worth = self.simulated.standing(), self.groups(), self.pods_by_priority()
            self.search.undo_scale_up(group, 1)
            self.place_in_queue_order()
            if self.pods_by_priority() < worth:
                self.search.undo_scale_up(group, -1)
                self.restore(groups, standing)
                return
            while self.drop_empty():
                self.place_in_queue_order()

    def _emptied_rows(self, group: str) -> list[int]:
        """Move the pods of the group's emptiest new nodes to other nodes while they find room there; returns the rows
        of the emptied nodes."""
        simulated, pods = self.simulated, self._pods_per_row()
        rows = sorted(
            (row for row in self._rows() if self.new_nodes[row][0] == group), key=lambda row: (pods[row], -row)
        )
        pods_on: dict[int, dict[int, int]] = {row: {} for row in rows}
        for cls, (cls_rows, counts) in simulated.standing().items():
            for row, count in zip(cls_rows.tolist(), counts.tolist(), strict=True):
                if row in pods_on:
                    pods_on[row][cls] = count
        emptied: list[int] = []
        for row in rows[: self.spare(group)]:
            if simulated.late():
                return emptied
            mark = simulated.checkpoint()
            simulated.close(row)
            moved: list[tuple[int, int, int]] = []
            for cls, count in pods_on[row].items():
                simulated.put_one(cls, row, -count)
                targets = simulated.place_first_fit(cls, count)
                moved += [(to, cls, many) for to, many in targets]
                if sum(many for _, many in targets) < count:
                    simulated.rollback(mark)
                    simulated.close(row, is_open=True)
                    return emptied
            for to, cls, many in moved:
                if to in pods_on:
                    pods_on[to][cls] = pods_on[to].get(cls, 0) + many
            emptied.append(row)
        return emptied

    def placement(self) -> FinalPlacement:
        """Assign pods to places: within a class in the scheduler's order, rows in order."""
        waiting: dict[int, list[Pod]] = {}
        uncounted: set[str] = set()
        for batch in sorted(self.queue, key=lambda batch: not batch.counts):
            waiting.setdefault(batch.cls, []).extend(batch.pods)
            if not batch.counts:
                uncounted.update(pod.key for pod in batch.pods)

        def counted(pods: Sequence[Pod]) -> tuple[Pod, ...]:
            return tuple(pod for pod in pods if pod.key not in uncounted) if uncounted else tuple(pods)

        places = []
        pod_on_row: dict[int, str] = {}
        placed = dict.fromkeys(waiting, 0)
        for cls, (rows, counts) in self.simulated.standing().items():
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                pods = waiting[cls][placed[cls] : placed[cls] + count]
                placed[cls] += count
                if counted_pods := counted(pods):
                    places.append((row, cls, counted_pods))
                if row < self.simulated.base:
                    pod_on_row[row] = min(*(pod.key for pod in pods), pod_on_row.get(row, pods[0].key))
        unplaced = tuple(PodBatch(cls, rest) for cls, pods in waiting.items() if (rest := counted(pods[placed[cls] :])))
        fewer = (cls for cls, most in self._most_placed.items() if placed[cls] < most)
        return FinalPlacement(
            tuple(places),
            unplaced,
            dict(self.new_nodes),
            frozenset(self.refused_by_order.union(fewer)),
            pod_on_row,
            tuple(self.pods_by_priority()),
        )
