"""Determines the final place of every pod before anything is promised. See docs/reference/scale-up.md "Final
placement".

The estimator places the largest pods first, but the scheduler takes pods by priority and age. In a small plan all pods
are placed once more in the scheduler's own order, first fit, and these places are promised if no pod loses its place.
Otherwise, and in a large plan, the estimator's places are used. Nodes that stay empty are not bought, nor is a node
without which all pods still find a place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec
import numpy as np

from chalicelib.model.pod import Pod
from chalicelib.plan.scale_up.attempts import Way
from chalicelib.plan.scale_up.estimator import PodRequest
from chalicelib.plan.scale_up.expanders import LEAST_COST
from chalicelib.plan.scale_up.search import ScaleUpSearch
from chalicelib.plan.simulation.simulated_cluster import Placements, place
from chalicelib.plan.state.pending_pods import PodBatch
from chalicelib.plan.tables import Ints

_EXACT = 1_000  # rows times runs of pods up to which all pods are placed again as a check


_State = tuple[dict[str, int], list[str], Placements]  # nodes per group, the group of every planned row, places


def _pod_count(left: Sequence[PodBatch]) -> int:
    return sum(len(demand.pods) for demand in left)


class FinalPlacer:
    """A plan under construction."""

    def __init__(
        self, search: ScaleUpSearch, queue: Sequence[PodBatch], kept: dict[str, int], way: Way | None = None
    ) -> None:
        """kept: group -> new nodes that stay even if they are empty. way: how pods are placed on existing nodes; None:
        in the scheduler's order, first fit or in turn. early: the placements before any new node, for comparison."""
        self.search, self.simulated, self.queue, self.kept = search, search.simulated, queue, kept
        self.most: dict[int, int] = {}  # class -> highest number of pods that the estimator has placed
        self.doubtful: set[int] = set()  # refused classes that one more node would take in the current state
        self.new: dict[int, tuple[str, int]] = {}
        # Pods that fit existing or upcoming nodes are placed there now, before any new node is added.
        limit, budget = search.state.options.pending_pods_batching_timeout, search.budget
        ordered, around = way(queue, self.simulated) if way is not None else (queue, False)
        place(self.simulated, ordered, lambda: budget.over(limit), around=around)
        self.simulated.unsettled = self.simulated.late()
        self.rest = self._unserved()
        if way is None and self.rest and self.small:
            self._in_turn()
        standing = self.simulated.standing()
        self.early = tuple((cls, rows.tobytes(), counts.tobytes()) for cls, (rows, counts) in standing.items())
        self.choice = bool(self.rest and standing)
        # Some pending pods fit existing nodes: the scheduler has not seen the current state of the cluster yet.
        self.fresh = self.choice and any((rows < self.simulated.real).any() for rows, _ in standing.values())
        self.mark = self.simulated.checkpoint()
        # Nodes for minimum sizes are added regardless of pending pods, and together with the other new nodes.
        for group, nodes in kept.items():
            search.add(group, nodes)
        self.left = place(self.simulated, self.rest) if kept else self.rest
        self._number()

    def _unserved(self) -> tuple[PodBatch, ...]:
        """Return the unplaced pods for which a node may be bought. Pods of a class are equal, so its places go to the
        counted pods first, whichever pods were placed first."""
        served = {cls: int(counts.sum()) for cls, (_, counts) in self.simulated.standing().items()}
        left: list[PodBatch] = []
        for demand in self.queue:
            if demand.counts:
                skip = min(served.get(demand.cls, 0), len(demand.pods))
                served[demand.cls] = served.get(demand.cls, 0) - skip
                if skip < len(demand.pods):
                    left.append(PodBatch(demand.cls, demand.pods[skip:]))
        return tuple(left)

    def _in_turn(self) -> None:
        """Place the pods again, distributed over the nodes in turn as Cluster Autoscaler does, which is closer to how
        the scheduler spreads them; first fit is kept if it places more pods."""
        first, count = self.simulated.standing(), _pod_count(self.rest)
        self.simulated.rollback(0)
        place(self.simulated, self.queue, around=True)
        turned = self._unserved()
        if _pod_count(turned) <= count:
            self.rest = turned
        else:
            self.simulated.rollback(0)
            self.simulated.put_all(first)

    def begin_at(self, mark: int) -> None:
        """Treat what was placed before this checkpoint as pods on existing or upcoming nodes."""
        self.mark, self.rest = mark, self._unserved()

    def late(self) -> bool:
        """Return whether the time of the estimator, or of the whole scale-up search, is over."""
        return self.simulated.late() or self.search.budget.over(self.search.state.options.max_binpacking_time)

    def idle(self) -> bool:
        """Return whether a planned node has no pod."""
        return not self._crowd()[self.simulated.base :].all()

    @property
    def small(self) -> bool:
        """True if placing all pods again is fast."""
        return len(self.simulated.table) * (len(self.queue) + 1) <= _EXACT

    def grow(self, left: Sequence[PodBatch]) -> None:
        """Add new nodes for these pods."""
        start = self.state()
        rest = self.search.search(requests_of(left))
        self._number()
        if LEAST_COST in self.search.state.options.expander and any(not self._alone(demand.cls) for demand in left):
            self._cheaper(left, rest, start)
        for cls, (_, counts) in self.simulated.standing().items():
            self.most[cls] = max(self.most.get(cls, 0), int(counts.sum()))
        self.drop_empty()

    def _alone(self, cls: int) -> bool:
        """Return whether least-cost handles a class: one without rules, ports or claims."""
        return (
            self.simulated.needs(cls) is None
            and not self.simulated.classes[cls].ports
            and (not self.simulated.volumes.concerns(cls))
        )

    def _cheaper(self, left: Sequence[PodBatch], rest: Sequence[PodRequest], start: _State) -> None:
        """Run the rest of the chain without least-cost and keep the cheaper result: with the pods that least-cost does
        not handle, its mix may cost more in total."""
        search, mixed = self.search, self.state()
        mix = sum(ask.count for ask in rest), search.cost()
        self._back_to(start)
        rest = search.search(requests_of(left), mixed=False)
        self._number()
        if (sum(ask.count for ask in rest), search.cost()) >= mix:
            self._back_to(mixed)

    def state(self) -> _State:
        """Return nodes and placements, for `_back_to`."""
        return dict(self.search.grown), self.groups(), self.simulated.standing()

    def _back_to(self, state: _State) -> None:
        """Restore nodes and placements."""
        grown, groups, standing = state
        for group, nodes in list(self.search.grown.items()):
            self.search.undo_scale_up(group, nodes - grown.get(group, 0))
        self.restore(groups, standing)

    def _number(self) -> None:
        numbers: dict[str, int] = {}
        self.new = {}
        for row in range(self.simulated.base, len(self.simulated.table)):
            group = self.search.group_of[self.simulated.table.nodes[row].name]
            numbers[group] = numbers.get(group, 0) + 1
            self.new[row] = (group, numbers[group])

    def spare(self, group: str) -> int:
        """Return the number of a group's new nodes beyond those for its minimum size."""
        return self.search.grown.get(group, 0) - self.kept.get(group, 0)

    def _rows(self) -> list[int]:
        """Return the rows of planned nodes."""
        return list(range(self.simulated.base, len(self.simulated.table)))

    def _crowd(self) -> Ints:
        """Return the number of pods per row."""
        crowd: Ints = np.zeros(len(self.simulated.table), dtype=np.int64)
        for rows, counts in self.simulated.standing().values():
            crowd[rows] += counts
        return crowd

    def drop_empty(self) -> bool:
        """Remove planned nodes without pods; the others keep their pods. Returns whether there were any."""
        crowd = self._crowd()
        idle: dict[str, list[int]] = {}
        for row in self._rows():
            if not crowd[row]:
                idle.setdefault(self.new[row][0], []).append(row)
        drop = [
            row
            for group, rows in idle.items()
            if not self.atomic(group) or len(rows) == self.search.grown[group]
            for row in rows[max(0, len(rows) - self.spare(group)) :]
        ]
        self._without(drop)
        return bool(drop)

    def _without(self, rows: Sequence[int]) -> None:
        """Remove these rows and keep the placements on the other nodes."""
        if not rows:
            return
        gone = set(rows)
        stay = [row for row in self._rows() if row not in gone]
        moved: Ints = np.arange(len(self.simulated.table))
        moved[stay] = np.arange(self.simulated.base, self.simulated.base + len(stay))
        standing, groups = self.simulated.standing(), [self.new[row][0] for row in stay]
        for row in rows:
            self.search.undo_scale_up(self.new[row][0], 1)
        self.restore(groups, {cls: (moved[at], counts) for cls, (at, counts) in standing.items()})

    def lay(self, groups: Sequence[str]) -> None:
        """Add empty planned nodes of these groups, in this order."""
        have: dict[str, int] = {}
        for group, run in groupby(groups):
            nodes = len(list(run))
            self.search.put_nodes(group, have.get(group, 0), nodes)
            have[group] = have.get(group, 0) + nodes
        self._number()

    def worth(self) -> list[int]:
        """Return the number of placed pods per priority, the highest first, which is the measure of a placement."""
        classes, standing = self.simulated.classes, self.simulated.standing()
        placed: dict[int, int] = {}
        for cls in dict.fromkeys(demand.cls for demand in self.queue):
            here = int(standing[cls][1].sum()) if cls in standing else 0
            priority = classes[cls].priority or 0
            placed[priority] = placed.get(priority, 0) + here
        return [placed[priority] for priority in sorted(placed, reverse=True)]

    def unjust(self) -> bool:
        """Return whether a pod has a place on a new node while a pod of higher priority has none."""
        classes, crowd = self.simulated.classes, self.simulated.standing()
        on_new = [classes[cls].priority or 0 for cls, (rows, _) in crowd.items() if (rows >= self.simulated.base).any()]
        left = [
            classes[demand.cls].priority or 0
            for demand in self.settled().left
            if self.search.candidates.fits(demand.cls).any()
        ]
        return bool(on_new) and bool(left) and max(left) > min(on_new)

    def arrange(self) -> None:
        """Place pods first fit in the scheduler's order if that is not worse for any priority and there is time;
        otherwise keep the estimator's places."""
        if self.simulated.late():
            return
        standing, groups, count = self.simulated.standing(), self.groups(), self.worth()
        if self.small or self.unjust():
            self.in_queue_order()
            if self.simulated.late():
                self.restore(groups, standing)
                return
            if self.worth() >= count:
                while self.drop_empty():
                    self.in_queue_order()
                return
        elif all(self.simulated.needs(cls) is None for cls in standing):
            return  # no class depends on other pods: the estimator's places are valid in any order
        self.restore(groups, {})
        self._as_promised(standing)
        self.drop_empty()

    def _as_promised(self, standing: Placements) -> None:
        """Place pods where the estimator placed them, in the scheduler's order and with its retries. A pod that is
        refused there was placed by chance, before others whose presence forbids it, and is promised nothing."""
        here = self.simulated.standing()
        waiting: dict[int, Ints] = {}
        for cls, (rows, counts) in standing.items():
            target: Ints = np.zeros(len(self.simulated.table), dtype=np.int64)
            target[rows] += counts
            if cls in here:
                target[here[cls][0]] -= here[cls][1]
            waiting[cls] = np.maximum(target, 0)
        order = [cls for cls in dict.fromkeys(demand.cls for demand in self.rest) if cls in waiting]
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

    def top_up(self) -> Sequence[PodBatch]:
        """Retry the unplaced pods on the planned nodes, and return those without a place."""
        left = self.settled().left
        return place(self.simulated, left) if left and self.search.grown else left

    def groups(self) -> list[str]:
        """Return the group of every planned row."""
        return [self.new[row][0] for row in self._rows()]

    def restore(self, groups: Sequence[str], standing: Placements) -> None:
        """Restore planned nodes and placements."""
        self.simulated.reset(self.mark)
        self.lay(groups)
        self.simulated.put_all(standing)

    def lay_all(self) -> None:
        """Add the planned nodes by group, empty."""
        self.lay([group for group in sorted(self.search.grown) for _ in range(self.search.grown[group])])

    def in_queue_order(self) -> None:
        """Place all pods that existing nodes do not serve again, first fit, on the planned nodes."""
        self.simulated.reset(self.mark)
        self.lay_all()
        place(self.simulated, self.rest)

    def drop_needless(self, group: str) -> None:
        """Remove nodes of a group without which all pods still find a place."""
        if self.atomic(group) or self.simulated.late():
            return
        if not self.small:
            self._without(self._shed(group))
            return
        while self.spare(group) > 0 and not self.simulated.late():
            standing, groups, count = self.simulated.standing(), self.groups(), self.worth()
            self.search.undo_scale_up(group, 1)
            self.in_queue_order()
            if self.worth() < count:
                self.search.redo_scale_up(group, 1)
                self.restore(groups, standing)
                return
            while self.drop_empty():
                self.in_queue_order()

    def _shed(self, group: str) -> list[int]:
        """Move the pods of the group's emptiest new nodes to other nodes while they find room there; returns the rows
        of the emptied nodes."""
        simulated, crowd = self.simulated, self._crowd()
        mine = sorted((row for row in self._rows() if self.new[row][0] == group), key=lambda row: (crowd[row], -row))
        on: dict[int, dict[int, int]] = {row: {} for row in mine}
        for cls, (rows, counts) in simulated.standing().items():
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                if row in on:
                    on[row][cls] = count
        gone: list[int] = []
        for row in mine[: self.spare(group)]:
            if simulated.late():
                return gone
            mark = simulated.checkpoint()
            simulated.close(row)
            moved: list[tuple[int, int, int]] = []
            for cls, count in on[row].items():
                simulated.put_one(cls, row, -count)
                done = simulated.place_first_fit(cls, count)
                moved += [(to, cls, many) for to, many in done]
                if sum(many for _, many in done) < count:
                    simulated.rollback(mark)
                    simulated.close(row, is_open=True)
                    return gone
            for to, cls, many in moved:
                if to in on:
                    on[to][cls] = on[to].get(cls, 0) + many
            gone.append(row)
        return gone

    def atomic(self, group: str) -> bool:
        """Return whether the group scales from zero to its maximum at once."""
        return self.search.state.groups[group].group.options.zero_or_max

    def settled(self) -> FinalPlacement:
        """Assign pods to places: within a class in the scheduler's order, rows in order."""
        waiting: dict[int, list[Pod]] = {}
        bystanders: set[str] = set()
        for demand in sorted(self.queue, key=lambda demand: not demand.counts):
            waiting.setdefault(demand.cls, []).extend(demand.pods)
            if not demand.counts:
                bystanders.update(pod.key for pod in demand.pods)

        def counted(pods: Sequence[Pod]) -> tuple[Pod, ...]:
            return tuple(pod for pod in pods if pod.key not in bystanders) if bystanders else tuple(pods)

        places = []
        expected: dict[int, str] = {}
        taken = dict.fromkeys(waiting, 0)
        for cls, (rows, counts) in self.simulated.standing().items():
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                at = taken[cls]
                here = waiting[cls][at : at + count]
                places.append((row, cls, counted(here)))
                taken[cls] = at + count
                if row < self.simulated.base:
                    expected[row] = min(*(pod.key for pod in here), expected.get(row, here[0].key))
        left = tuple(PodBatch(cls, rest) for cls, pods in waiting.items() if (rest := counted(pods[taken[cls] :])))
        lost = self.doubtful.union(cls for cls, most in self.most.items() if taken[cls] < most)
        return FinalPlacement(
            tuple(place for place in places if place[2]),
            left,
            dict(self.new),
            frozenset(lost),
            expected,
            tuple(self.worth()),
            self.small,
            self.choice,
        )


# DOC chalicelib/plan/scale_up/placement_result.py: The result of planning for pending pods: the expected place of each pod, and the unplaced pods.
# DOC
# DOC It is separate from the computation (plan/scale_up/final_placement.py) because the promised outcome
# DOC (plan/scale_up/worst_case.py) and the report (plan/scale_up/planner.py) need the result only.
# DOC
class Contest(msgspec.Struct, frozen=True):
    """So many places, in the worst order, for the pods of these classes."""

    places: int
    classes: tuple[int, ...]


class FinalPlacement(msgspec.Struct, frozen=True):
    """places: (row, class, pods); left: unplaced pods; new: row -> (group, number from 1) of planned nodes. lost:
    classes of which the estimator placed more pods than the scheduler will. expected: row of an existing or upcoming
    node -> one of the pods, including uncounted ones, that will be placed on it. worth: number of placed pods per
    priority, highest priority first. small: placing all pods again is fast. choice: some pods are on existing nodes
    while others found no room."""

    places: tuple[tuple[int, int, tuple[Pod, ...]], ...]
    left: tuple[PodBatch, ...]
    new: dict[int, tuple[str, int]]
    lost: frozenset[int] = frozenset()
    expected: dict[int, str] = {}
    worth: tuple[int, ...] = ()
    small: bool = False
    choice: bool = False
    contests: tuple[Contest, ...] = ()  # classes of which no single pod has a guaranteed place


def requests_of(left: Sequence[PodBatch]) -> list[PodRequest]:
    """Return the unplaced pods, per class."""
    counts: dict[int, int] = {}
    first: dict[int, str] = {}
    for demand in left:
        counts[demand.cls] = counts.get(demand.cls, 0) + len(demand.pods)
        first.setdefault(demand.cls, demand.pods[0].key)
    return [PodRequest(cls, count, first[cls]) for cls, count in counts.items()]
