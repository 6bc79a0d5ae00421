"""The last step of a plan: decides which nodes it keeps and what it promises, by the worst order
that the scheduler could use.

A plan has one place for every pod, but kube-scheduler does not read plans. It takes pods by
priority and then by the time at which they were queued, which is renewed for refused pods. It picks
at random among nodes of equal score, and new nodes become ready together or one after another. Each
rehearsal of a small plan is one such order. What a class gets in the worst of them is what may be
promised. Scores are kube-scheduler's, simplified; a small random amount stands for what is omitted.
The random numbers are the same in every pass, so that a plan is predictable.

A new node that stays empty in one of the rehearsed orders is removed from the plan if, on average
over the orders, that costs at most three pods their places for every two empty nodes saved: those
pods wait for the next pass, while an empty node would exist for ten minutes or more. While pending
pods fit existing nodes, it may cost no place at all. The orders differ most in which pods use those
nodes, and the scheduler decides that before the new node arrives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import combinations

import msgspec
import numpy as np

from chalicelib.model.pod import Owner
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.predicates import tolerates
from chalicelib.plan.scale_up.placement.new_nodes import Attempt, tidy
from chalicelib.plan.scale_up.placement.planned_nodes import (
    CompetingClasses,
    FinalPlacement,
    PlannedNodes,
    final_placement,
)
from chalicelib.plan.simulation.simulated_cluster import Placements, SimulatedCluster
from chalicelib.plan.tables import Floats, Ints

_MOST_SAVED = 6  # nodes that one plan tries to save
_WORTH = 1.5  # pods that may wait for the next pass, per new node that would stay empty

_ZONE_LABEL = "topology.kubernetes.io/zone"
_FIRST, _IF_CONTESTED = 8, 20  # rehearsals of any plan, and additional ones if pods compete
_PODS = 300  # pending pods up to which a plan is rehearsed
# the largest random amount added to a score; plugins together reach 1,100
_NOISE = (0.0, 20.0, 100.0, 1_000.0)
_LIKELY = 100.0  # up to this random amount an outcome reports which nodes stay empty
_GOLDEN, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1  # the increment of splitmix64
_SPREAD, _AFFINITY, _TAINTS = 2, 2, 3  # kube-scheduler's weights of these plugins; 1 for the others


class QueuedPod(msgspec.Struct, frozen=True):
    """One pod in the queue. at: its position in the queue of the plan,
    which is by priority and age."""

    cls: int
    priority: int
    created: float
    at: int


class Outcome(msgspec.Struct, frozen=True):
    """Pods per class that got a place, and planned rows without a pod; no such rows are reported
    where randomness dominated the scores."""

    served: Counter[int]
    empty: tuple[int, ...]


def placement_in_every_order(attempt: Attempt) -> FinalPlacement:
    """Remove nodes that some order leaves empty; returns the place of every
    pod, and how certain it is."""
    planned, refused = attempt.planned, attempt.refused_by_order
    # Some pending pods fit existing nodes: the scheduler has not seen the current
    # state of the cluster yet.
    unseen = attempt.existing.has_choice and any(
        (rows < planned.simulated.real).any() for rows, _ in attempt.existing.placements.values()
    )
    worth = 0.0 if unseen else _WORTH
    outcomes = _Rehearsals(planned).outcomes()
    for _ in range(_MOST_SAVED):
        groups = planned.groups()
        empty = Counter(
            groups[row - planned.simulated.base] for outcome in outcomes for row in outcome.empty
        )
        candidates = (
            _with_one_less(planned, group, outcomes, worth) for group, _ in empty.most_common()
        )
        better = next((better for better in candidates if better is not None), None)
        if better is None:
            break
        outcomes, refused = better[0], refused | better[1]
    counted, placed, uncounted = Counter[int](), Counter[int](), Counter[int]()
    for batch in planned.queue:
        (counted if batch.counts else uncounted)[batch.cls] += len(batch.pods)
    placement = final_placement(planned, attempt.most_placed, refused)
    for _, cls, pods in placement.places:
        placed[cls] += len(pods)
    return msgspec.structs.replace(
        placement, contests=_contests(counted, placed, uncounted, outcomes)
    )


def _with_one_less(
    planned: PlannedNodes, group: str, outcomes: Sequence[Outcome], worth: float
) -> tuple[list[Outcome], frozenset[int]] | None:
    """Remove one node of a group; returns the outcomes without it and the classes that are refused
    because of the scheduler's order. None if the node stays. worth: pods that may lose their
    places per empty node saved."""
    if planned.spare(group) <= 0 or planned.is_atomic(group):
        return None
    saved = planned.save()
    planned.search.undo_scale_up(group, 1)
    planned.place_in_queue_order()
    while planned.drop_empty():
        planned.place_in_queue_order()
    refused = tidy(planned)
    fewer = _Rehearsals(planned).outcomes()
    spared = _mean_empty_nodes(outcomes) - _mean_empty_nodes(fewer)
    cost = _mean_pods_served(outcomes) - _mean_pods_served(fewer)
    if fewer and spared > 0 and cost <= worth * spared:
        return fewer, refused
    planned.restore(saved)
    return None


def _mean_empty_nodes(outcomes: Sequence[Outcome]) -> float:
    return sum(len(outcome.empty) for outcome in outcomes) / max(1, len(outcomes))


def _mean_pods_served(outcomes: Sequence[Outcome]) -> float:
    return sum(outcome.served.total() for outcome in outcomes) / max(1, len(outcomes))


def _contests(
    pods: Mapping[int, int],
    placed: Mapping[int, int],
    uncounted: Mapping[int, int],
    outcomes: Sequence[Outcome],
) -> tuple[CompetingClasses, ...]:
    """Return which pods of a plan compete for a place.

    A limit, or the order in which the scheduler takes pods, can leave room for only some of several
    pods. The scheduler chooses among them, so no single pod is promised a place; the number of
    places is promised to all of them together. Pods of one class are equal, so a class competes as
    a whole; classes that take places from each other compete together.

    pods: class -> pods that need a place; placed: how many of these the plan has placed; uncounted:
    further pods of the class, which take a place but are promised none. Without outcomes (a large
    plan) a class competes if the plan places only some of its pods.
    """
    if not outcomes:
        return tuple(
            CompetingClasses(placed[cls], (cls,))
            for cls in sorted(placed)
            if placed[cls] < pods[cls]
        )
    least = {cls: min(outcome.served[cls] for outcome in outcomes) for cls in pods}
    short = [cls for cls in sorted(pods) if least[cls] < pods[cls] + uncounted.get(cls, 0)]
    leader = {cls: cls for cls in short}
    for one, other in combinations(short, 2):
        if (
            min(outcome.served[one] + outcome.served[other] for outcome in outcomes)
            > least[one] + least[other]
        ):
            first, second = sorted((leader[one], leader[other]))
            leader = {cls: first if head == second else head for cls, head in leader.items()}
    sets = [
        tuple(cls for cls in short if leader[cls] == head)
        for head in dict.fromkeys(leader.values())
    ]
    contests = []
    for classes in sets:
        if any(placed.get(cls) for cls in classes):
            places = min(sum(outcome.served[cls] for cls in classes) for outcome in outcomes)
            places -= sum(uncounted.get(cls, 0) for cls in classes)
            contests.append(CompetingClasses(max(0, places), classes))
    return tuple(contests)


class _RandomNumbers:
    """Deterministic pseudo-random numbers for a given seed (the additive generator splitmix64)."""

    def __init__(self, start: int) -> None:
        # Hash the seed so that it is not a multiple of the step: otherwise two seeds would give
        # shifted copies of one sequence.
        self._state = int.from_bytes(blake2b(str(start).encode(), digest_size=8).digest(), "big")

    def random(self) -> float:
        """Return a number in [0, 1)."""
        self._state = (self._state + _GOLDEN) & _MASK
        mixed = (self._state ^ self._state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
        return ((mixed ^ mixed >> 31) >> 11) / (1 << 53)

    def randrange(self, stop: int) -> int:
        """Return an integer in [0, stop)."""
        return int(self.random() * stop)

    def shuffled(self, items: Sequence[int]) -> list[int]:
        """Return all items in random order."""
        return [item for _, item in sorted((self.random(), item) for item in items)]


class _Rehearsals:
    """Simulates how the scheduler may place the pods of a small plan: the same nodes and pods, in
    several orders that it could use."""

    def __init__(self, planned: PlannedNodes) -> None:
        self.planned, self.simulated = planned, planned.simulated
        classes = self.simulated.classes
        queue = [(batch.cls, pod) for batch in planned.queue for pod in batch.pods]
        placeable = {
            cls: bool(self.simulated.static(cls).any()) and not self.simulated.nowhere(cls)
            for cls, _ in queue
        }
        self.pods = [
            QueuedPod(cls, classes[cls].priority or 0, pod.created, at)
            for at, (cls, pod) in enumerate(queue)
            if placeable[cls]
        ]
        self.new: Ints = np.arange(self.simulated.base, len(self.simulated.table))
        self.is_open = self.simulated.open[self.new].copy()
        self.score = _SchedulerScore(self.simulated)

    def outcomes(self) -> list[Outcome]:
        """Return the first few outcomes, and more if these show that pods compete; none if the plan
        is too large or the time is over. The plan is left unchanged."""
        planned, simulated = self.planned, self.simulated
        if not self.pods or len(self.pods) > _PODS or not planned.is_small:
            return []
        saved = planned.save()
        outcomes: list[Outcome] = []
        for number in range(_FIRST + _IF_CONTESTED):
            if planned.out_of_time() or (number == _FIRST and not self._is_contested(outcomes)):
                break
            outcomes.append(self._outcome(number))
        if outcomes:
            # First fit in row order, and with new nodes sorted by their groups' names.
            ranks: Ints = np.arange(len(simulated.table))
            outcomes.append(self._first_fit(saved.placements, ranks))
            by_name = sorted(self.new.tolist(), key=planned.numbered().__getitem__)
            if by_name != self.new.tolist():
                ranks = ranks.copy()
                ranks[by_name] = self.new
                outcomes.append(self._first_fit(saved.placements, ranks))
        planned.restore_pods(saved)
        return outcomes

    def _is_contested(self, outcomes: Sequence[Outcome]) -> bool:
        """Return whether the outcomes differ, or a class always gets only some of its places."""
        count_of = Counter(pod.cls for pod in self.pods)
        return any(outcome != outcomes[0] for outcome in outcomes) or any(
            0 < outcomes[0].served[cls] < count for cls, count in count_of.items()
        )

    def _first_fit(self, standing: Placements, ranks: Ints) -> Outcome:
        """Place only the pods of the plan, in queue order, each on the node of the
        lowest rank that takes it."""
        unplaced = Counter({cls: int(counts.sum()) for cls, (_, counts) in standing.items()})
        planned = []
        for pod in sorted(self.pods, key=lambda pod: pod.at):
            if unplaced[pod.cls] > 0:
                unplaced[pod.cls] -= 1
                planned.append(pod)
        self._clear()
        waiting = self._place(planned, ranks)
        self._make_ready(range(len(self.new)))
        self._place(waiting, ranks)
        return Outcome(self._served(), ())

    def _clear(self) -> None:
        """Remove all placements and the new nodes."""
        self.simulated.rollback(0)
        for row in self.new.tolist():
            self.simulated.close(row)
            self.simulated.remove_node(row)

    def _make_ready(self, nodes: Sequence[int]) -> None:
        for at in nodes:
            self.simulated.restore_node(int(self.new[at]), is_open=bool(self.is_open[at]))

    def _served(self) -> Counter[int]:
        return Counter(
            {cls: int(counts.sum()) for cls, (_, counts) in self.simulated.standing().items()}
        )

    def _outcome(self, number: int) -> Outcome:
        """Simulate one order. Every second one makes the new nodes ready one after another."""
        chance = _RandomNumbers(number)
        self._clear()
        noise = _NOISE[(number + number // 4) % len(_NOISE)]
        self.score.begin(noise)
        waiting = self._place(self._queue(chance, number, self.pods), chance)
        order = chance.shuffled(range(len(self.new)))
        for nodes in [order] if number % 2 == 0 else [[node] for node in order]:
            self._make_ready(nodes)
            if waiting:
                waiting = self._place(self._queue(chance, number, waiting), chance)
        pods_on = self.score.pods_on
        empty = tuple(row for row in self.new.tolist() if not pods_on[row] and noise <= _LIKELY)
        return Outcome(self._served(), empty)

    def _queue(
        self, chance: _RandomNumbers, number: int, pods: Sequence[QueuedPod]
    ) -> list[QueuedPod]:
        """Return the pods by priority; among equals in queue order, or at random. One
        class, each in turn, comes after the others of its priority (odd numbers) or
        before them (2, 6, 10 ...)."""
        by_age, behind = number % 4 == 0, number % 2 == 1
        classes = list(dict.fromkeys(pod.cls for pod in self.pods))
        apart = None if by_age else classes[number // (2 if number % 2 else 4) % len(classes)]
        lots = {pod.at: chance.random() for pod in pods}
        return sorted(
            pods,
            key=lambda pod: (
                -pod.priority,
                (pod.cls == apart) == behind,
                pod.created if by_age else 0.0,
                lots[pod.at] if number else pod.at,
            ),
        )

    def _place(self, queue: Sequence[QueuedPod], chance: _RandomNumbers | Ints) -> list[QueuedPod]:
        """Place each pod on the node with the best score, in rounds until nothing changes, or on
        the node of the lowest rank. Returns the unplaced pods."""
        simulated, waiting = self.simulated, list(queue)
        full: dict[int, int] = {}
        while True:
            refused: list[QueuedPod] = []
            for pod in waiting:
                if full.get(pod.cls) == simulated.generation:
                    refused.append(pod)
                    continue
                # A quota would name only the first rows of each domain.
                fits, needs = simulated.capacity(pod.cls) > 0, simulated.needs(pod.cls)
                if needs is not None and fits.any():
                    fits = fits & simulated.rows.open(needs)
                rows: Ints = fits.nonzero()[0]
                if not len(rows):
                    full[pod.cls] = simulated.generation
                    refused.append(pod)
                    continue
                if isinstance(chance, _RandomNumbers):
                    row = int(rows[0]) if len(rows) == 1 else self.score.best(pod.cls, rows, chance)
                else:
                    row = int(rows[chance[rows].argmin()])
                simulated.put_one(pod.cls, row)
                self.score.put(pod.cls, row)
            if len(refused) == len(waiting) or not any(
                simulated.needs(pod.cls) is not None for pod in refused
            ):
                return refused
            waiting = refused


class _SchedulerScore:
    """kube-scheduler's scores, as far as they affect the choice among the nodes of one plan.
    pods_on: placed pods per row."""

    def __init__(self, simulated: SimulatedCluster) -> None:
        self.simulated, table = simulated, simulated.table
        self.columns = [at for name in (CPU, MEMORY) if (at := table.columns.at(name)) is not None]
        self.allocatable: Floats = np.maximum(table.allocatable[:, self.columns], 1).astype(
            np.float64
        )
        self.zones, zones = table.label(_ZONE_LABEL)
        self.zone_weight, self.host_weight = np.log(len(zones) + 2), np.log(len(table) + 2)
        self.zone_count = len(zones)
        self.pods_on: Ints = np.zeros(len(table), dtype=np.int64)
        # pods per row by owner, over which pods are spread
        self.of_owner: dict[tuple[str, Owner | int], Ints] = {}
        self.preferences: dict[int, Floats | None] = {}
        self.noise = 0.0

    def begin(self, noise: float) -> None:
        """Start a new order."""
        self.pods_on = np.zeros(len(self.pods_on), dtype=np.int64)
        self.of_owner, self.noise = {}, noise

    def put(self, cls: int, row: int) -> None:
        """Record that a pod was placed."""
        self.pods_on[row] += 1
        owner = self._owner(cls)
        if owner not in self.of_owner:
            self.of_owner[owner] = np.zeros(len(self.pods_on), dtype=np.int64)
        self.of_owner[owner][row] += 1

    def _owner(self, cls: int) -> tuple[str, Owner | int]:
        pod = self.simulated.classes[cls]
        return pod.namespace, cls if pod.owner is None else pod.owner

    def best(self, cls: int, rows: Ints, chance: _RandomNumbers) -> int:
        """Return one of the rows with the best score, at random."""
        table = self.simulated.table
        need = table.columns.need(cls)[self.columns]
        free = (table.free[rows][:, self.columns] - need) / self.allocatable[rows]
        score = free.mean(axis=1) * 100.0 if self.columns else np.zeros(len(rows))
        if len(self.columns) > 1:
            score = score + 100.0 - np.abs(free[:, 0] - free[:, 1]) * 50.0
        score = np.floor(score) + self._spread(cls, rows)
        preferences = self._preferences(cls)
        if preferences is not None:
            score = score + preferences[rows]
        if self.noise:
            score = score + np.array([chance.random() for _ in rows]) * self.noise
        best = rows[score >= score.max() - 1e-9]
        return int(best[0] if len(best) == 1 else best[chance.randrange(len(best))])

    def _spread(self, cls: int, rows: Ints) -> Floats | float:
        """Score the spread of a class over hosts and zones, or by its own
        constraints if it has any."""
        counters = self.simulated.constraints.soft_spread(cls)
        raw: Floats = np.zeros(len(rows))
        if counters:
            for counter, key in counters:
                codes, values = self.simulated.table.label(key)
                pods_in = np.append(self.simulated.rows.domains(counter, key), 0)
                raw = raw + pods_in[codes[rows]] * np.log(len(values) + 2)
        elif (
            self.simulated.classes[cls].spread
            or (own := self.of_owner.get(self._owner(cls))) is None
        ):
            return 0.0
        else:
            zones = np.bincount(self.zones + 1, weights=own, minlength=self.zone_count + 1)
            zones[0] = 0.0
            raw = own[rows] * self.host_weight + zones[self.zones[rows] + 1] * self.zone_weight
        high, low = float(raw.max()), float(raw.min())
        return _SPREAD * 100.0 * (high + low - raw) / high if high else 0.0

    def _preferences(self, cls: int) -> Floats | None:
        """Score preferred node affinity and PreferNoSchedule taints, which do not
        change; None if there are none."""
        if cls not in self.preferences:
            pod, nodes = self.simulated.classes[cls], self.simulated.table.nodes
            met, untolerated = [0], []
            if pod.preferred_nodes:
                met = [
                    sum(
                        p.weight
                        for p in pod.preferred_nodes
                        if p.term.matches(node.name, node.labels)
                    )
                    for node in nodes
                ]
            for node in nodes:
                soft = [taint for taint in node.taints if taint.effect == "PreferNoSchedule"]
                untolerated.append(
                    sum(not any(tolerates(t, taint) for t in pod.tolerations) for taint in soft)
                )
            self.preferences[cls] = (
                _AFFINITY * 100.0 * np.array(met) / max(1, *met, 1)
                - _TAINTS * 100.0 * np.array(untolerated) / max(1, *untolerated, 1)
                if any(met) or any(untolerated)
                else None
            )
        return self.preferences[cls]
