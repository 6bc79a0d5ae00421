"""The last step of a plan: decides which nodes it keeps and what it promises, by the worst order that the scheduler
could use.

A new node that stays empty in one of the rehearsed orders is removed from the plan if, on average over the orders, that
costs at most three pods their places for every two empty nodes saved: those pods wait for the next pass, while an empty
node would exist for ten minutes or more. While pending pods fit existing nodes, it may cost no place at all. The orders
differ most in which pods use those nodes, and the scheduler decides that before the new node arrives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import combinations
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from chalicelib.model.node import Taint
from chalicelib.model.pod import Owner, PodClass
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.predicates import tolerates
from chalicelib.plan.scale_up.final_placement import Contest, FinalPlacement
from chalicelib.plan.scale_up.redundant_nodes import Saved, tidy
from chalicelib.plan.simulation.simulated_cluster import Placements, SimulatedCluster
from chalicelib.plan.tables import Floats, Ints

if TYPE_CHECKING:
    from chalicelib.plan.scale_up.final_placement import FinalPlacer

_MOST_SAVED = 6  # nodes that one plan tries to save
_WORTH = 1.5  # pods that may wait for the next pass, per new node that would stay empty


def keep_worst_case(placer: FinalPlacer) -> FinalPlacement:
    """Return the place of every pod, and how certain it is."""
    outcomes = _without_idle_nodes(placer, rehearse(placer))
    wanted, placed, uncounted = Counter[int](), Counter[int](), Counter[int]()
    for demand in placer.queue:
        (wanted if demand.counts else uncounted)[demand.cls] += len(demand.pods)
    settled = placer.settled()
    for _, cls, pods in settled.places:
        placed[cls] += len(pods)
    return msgspec.structs.replace(settled, contests=contests(wanted, placed, uncounted, outcomes))


def _without_idle_nodes(placer: FinalPlacer, outcomes: list[ReplayOutcome]) -> list[ReplayOutcome]:
    for _ in range(_MOST_SAVED):
        idle = Counter(placer.new[row][0] for each in outcomes for row in each.empty)
        found = next(
            (better for group, _ in idle.most_common() if (better := _outcomes_with_one_less(placer, group, outcomes))),
            None,
        )
        if found is None:
            break
        outcomes = found
    return outcomes


def _outcomes_with_one_less(placer: FinalPlacer, group: str, outcomes: Sequence[ReplayOutcome]) -> list[ReplayOutcome]:
    """Return outcomes without one node of a group, which is then removed; none if it stays."""
    if placer.spare(group) <= 0 or placer.atomic(group):
        return []
    before, doubtful = Saved(placer), set(placer.doubtful)
    placer.search.undo_scale_up(group, 1)
    placer.in_queue_order()
    while placer.drop_empty():
        placer.in_queue_order()
    tidy(placer)
    found = rehearse(placer)
    spared, cost = (
        _mean_empty_nodes(outcomes) - _mean_empty_nodes(found),
        _mean_pods_served(outcomes) - _mean_pods_served(found),
    )
    if found and spared > 0 and cost <= (0.0 if placer.fresh else _WORTH * spared):
        return found
    before.restore()
    placer.doubtful = doubtful
    return []


def _mean_empty_nodes(outcomes: Sequence[ReplayOutcome]) -> float:
    """Return the average number of new nodes that stay empty."""
    return sum(len(each.empty) for each in outcomes) / max(1, len(outcomes))


def _mean_pods_served(outcomes: Sequence[ReplayOutcome]) -> float:
    """Return the average number of pods that get a place."""
    return sum(each.served.total() for each in outcomes) / max(1, len(outcomes))


# DOC chalicelib/plan/scale_up/pod_competition.py: Distinguishes pods with a guaranteed place in a plan from pods that compete for one.
# DOC
# DOC A limit, or the order in which the scheduler takes pods, can leave room for only some of several pods. The scheduler
# DOC chooses among them, so no single pod is promised a place; the number of places is promised to all of them together. Pods
# DOC of one class are equal, so a class competes as a whole; classes that take places from each other compete together.
# DOC
def contests(
    pods: Mapping[int, int], placed: Mapping[int, int], uncounted: Mapping[int, int], outcomes: Sequence[ReplayOutcome]
) -> tuple[Contest, ...]:
    """Return the contests of a plan. pods: class -> pods that need a place; placed: how many of these the plan has
    placed; uncounted: further pods of the class, which take a place but are promised none. Without outcomes (a large
    plan) a class competes if the plan places only some of its pods."""
    if not outcomes:
        return tuple(Contest(placed[cls], (cls,)) for cls in sorted(placed) if placed[cls] < pods[cls])
    least = {cls: min(each.served[cls] for each in outcomes) for cls in pods}
    short = [cls for cls in sorted(pods) if least[cls] < pods[cls] + uncounted.get(cls, 0)]
    leader = {cls: cls for cls in short}
    for one, other in combinations(short, 2):
        if min(each.served[one] + each.served[other] for each in outcomes) > least[one] + least[other]:
            first, second = sorted((leader[one], leader[other]))
            leader = {cls: first if head == second else head for cls, head in leader.items()}
    sets = [tuple(cls for cls in short if leader[cls] == head) for head in dict.fromkeys(leader.values())]
    return tuple(
        Contest(
            max(
                0,
                min(sum(each.served[cls] for cls in classes) for each in outcomes)
                - sum(uncounted.get(cls, 0) for cls in classes),
            ),
            classes,
        )
        for classes in sets
        if any(placed.get(cls) for cls in classes)
    )


# DOC chalicelib/plan/scale_up/scheduling_replay.py: Simulates how the scheduler may place the pods of a small plan: the same nodes and pods, in several orders that it
# DOC could use.
# DOC
# DOC A plan has one place for every pod, but kube-scheduler does not read plans. It takes pods by priority and then by the
# DOC time at which they were queued, which is renewed for refused pods. It picks at random among nodes of equal score, and
# DOC new nodes become ready together or one after another. Each rehearsal is one such order. What a class gets in the worst
# DOC of them is what may be promised. Scores are kube-scheduler's, simplified; a small random amount stands for what is left
# DOC out. The random numbers are the same in every pass, so that a plan is predictable.
# DOC
if TYPE_CHECKING:
    from chalicelib.plan.scale_up.final_placement import FinalPlacer

_ZONE_LABEL = "topology.kubernetes.io/zone"
_FIRST, _IF_CONTESTED = 8, 20  # rehearsals of any plan, and additional ones if pods compete
_PODS = 300  # pending pods up to which a plan is rehearsed
_NOISE = (0.0, 20.0, 100.0, 1_000.0)  # the largest random amount added to a score; plugins together reach 1,100
_LIKELY = 100.0  # up to this random amount an outcome reports which nodes stay empty
_GOLDEN, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1  # the increment of splitmix64
_SPREAD, _AFFINITY, _TAINTS = 2, 2, 3  # kube-scheduler's weights of these plugins; 1 for the others


class QueuedPod(msgspec.Struct, frozen=True):
    """One pod in the queue. at: its position in the queue of the plan, which is by priority and age."""

    cls: int
    priority: int
    created: float
    at: int


class ReplayOutcome(msgspec.Struct, frozen=True):
    """Pods per class that got a place, and planned rows without a pod; no such rows are reported where randomness
    dominated the scores."""

    served: Counter[int]
    empty: tuple[int, ...]


def rehearse(placer: FinalPlacer) -> list[ReplayOutcome]:
    """Return the outcomes of several orders, leaving the plan unchanged; none if it is too large or the time is
    over."""
    return _Rehearsal(placer).outcomes()


class _RandomNumbers:
    """Deterministic pseudo-random numbers for a given seed (the additive generator splitmix64)."""

    def __init__(self, start: int) -> None:
        # Hash the seed so that it is not a multiple of the step: otherwise two seeds would give shifted copies of
        # one sequence.
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


class _Rehearsal:
    def __init__(self, placer: FinalPlacer) -> None:
        self.settling, self.simulated = placer, placer.simulated
        classes = self.simulated.classes
        queue = [(demand.cls, pod) for demand in placer.queue for pod in demand.pods]
        able = {cls: bool(self.simulated.static(cls).any()) and not self.simulated.nowhere(cls) for cls, _ in queue}
        self.turns = [
            QueuedPod(cls, classes[cls].priority or 0, pod.created, at)
            for at, (cls, pod) in enumerate(queue)
            if able[cls]
        ]
        self.new: Ints = np.arange(self.simulated.base, len(self.simulated.table))
        self.opens = self.simulated.open[self.new].copy()
        self.score = _SchedulerScore(placer)

    def outcomes(self) -> list[ReplayOutcome]:
        """Return the first few outcomes, and more if these show that pods compete."""
        settling, simulated = self.settling, self.simulated
        if not self.turns or len(self.turns) > _PODS or not settling.small:
            return []
        standing = simulated.standing()
        simulated.rollback(settling.mark)
        early = simulated.standing()
        found: list[ReplayOutcome] = []
        for number in range(_FIRST + _IF_CONTESTED):
            if settling.late() or (number == _FIRST and not self._contested(found)):
                break
            found.append(self.outcome(number))
        if found:
            found += [self.first_fit(standing, order) for order in self._orders()]
        simulated.rollback(0)
        simulated.put_all(early)
        settling.mark = simulated.checkpoint()
        simulated.put_all(standing)
        return found

    def _contested(self, found: Sequence[ReplayOutcome]) -> bool:
        """Return whether the outcomes differ, or a class always gets only some of its places."""
        pods = Counter(turn.cls for turn in self.turns)
        return any(each != found[0] for each in found) or any(
            0 < found[0].served[cls] < count for cls, count in pods.items()
        )

    def _orders(self) -> list[Ints]:
        """Return ranks of rows for first fit: in row order, and with new nodes sorted by their groups' names."""
        named = sorted(self.new.tolist(), key=self.settling.new.__getitem__)
        ranks: Ints = np.arange(len(self.simulated.table))
        if named == self.new.tolist():
            return [ranks]
        by_name = ranks.copy()
        by_name[named] = self.new
        return [ranks, by_name]

    def first_fit(self, standing: Placements, ranks: Ints) -> ReplayOutcome:
        """Place only the pods of the plan, in queue order, each on the node of the lowest rank that takes it."""
        simulated = self.simulated
        left = Counter({cls: int(counts.sum()) for cls, (_, counts) in standing.items()})
        planned = []
        for turn in sorted(self.turns, key=lambda turn: turn.at):
            if left[turn.cls] > 0:
                left[turn.cls] -= 1
                planned.append(turn)
        self._clear()
        waiting = self._place(planned, ranks)
        for at, is_open in enumerate(self.opens):
            simulated.restore_node(int(self.new[at]), is_open=bool(is_open))
        self._place(waiting, ranks)
        return ReplayOutcome(Counter({cls: int(counts.sum()) for cls, (_, counts) in simulated.standing().items()}), ())

    def _clear(self) -> None:
        """Remove all placements and the new nodes."""
        self.simulated.rollback(0)
        for row in self.new.tolist():
            self.simulated.close(row)
            self.simulated.remove_node(row)

    def outcome(self, number: int) -> ReplayOutcome:
        """Simulate one order. Every second one makes the new nodes ready one after another."""
        simulated, draw = self.simulated, _RandomNumbers(number)
        self._clear()
        noise = _NOISE[(number + number // 4) % len(_NOISE)]
        self.score.begin(noise)
        waiting = self._place(self._queue(draw, number, self.turns), draw)
        order = draw.shuffled(range(len(self.new)))
        for batch in [order] if number % 2 == 0 else [[each] for each in order]:
            for at in batch:
                simulated.restore_node(int(self.new[at]), is_open=bool(self.opens[at]))
            if waiting:
                waiting = self._place(self._queue(draw, number, waiting), draw)
        served = Counter({cls: int(counts.sum()) for cls, (_, counts) in simulated.standing().items()})
        crowd = self.score.crowd
        return ReplayOutcome(served, tuple(row for row in self.new.tolist() if not crowd[row] and noise <= _LIKELY))

    def _queue(self, chance: _RandomNumbers, number: int, turns: Sequence[QueuedPod]) -> list[QueuedPod]:
        """Return the pods by priority; among equals in queue order, or at random, with one class before or after all
        others."""
        by_age = number % 4 == 0
        apart, behind = self._apart(number), number % 2 == 1
        lots = {turn.at: chance.random() for turn in turns}
        return sorted(
            turns,
            key=lambda turn: (
                -turn.priority,
                (turn.cls == apart) == behind,
                turn.created if by_age else 0.0,
                lots[turn.at] if number else turn.at,
            ),
        )

    def _apart(self, number: int) -> int | None:
        """Return the class that is moved after the others of its priority (odd numbers) or before them (2, 6, 10 ...);
        each class in turn."""
        classes = list(dict.fromkeys(turn.cls for turn in self.turns))
        return classes[number // (2 if number % 2 else 4) % len(classes)] if number % 4 else None

    def _place(self, queue: Sequence[QueuedPod], chance: _RandomNumbers | Ints) -> list[QueuedPod]:
        """Place each pod on the node with the best score, in rounds until nothing changes, or on the node of the lowest
        rank."""
        simulated, waiting = self.simulated, list(queue)
        full: dict[int, int] = {}
        while True:
            left: list[QueuedPod] = []
            for turn in waiting:
                if full.get(turn.cls) == simulated.generation:
                    left.append(turn)
                    continue
                rows = _rows_that_take(turn.cls, simulated)
                if not len(rows):
                    full[turn.cls] = simulated.generation
                    left.append(turn)
                    continue
                if isinstance(chance, _RandomNumbers):
                    row = int(rows[0]) if len(rows) == 1 else self.score.best(turn.cls, rows, chance)
                else:
                    row = int(rows[chance[rows].argmin()])
                simulated.put_one(turn.cls, row)
                self.score.put(turn.cls, row)
            if len(left) == len(waiting) or not any(simulated.needs(turn.cls) is not None for turn in left):
                return left
            waiting = left


def _rows_that_take(cls: int, simulated: SimulatedCluster) -> Ints:
    """Return all rows that take one more pod of a class; a quota would name only the first rows of each domain."""
    fits = simulated.capacity(cls) > 0
    needs = simulated.needs(cls)
    if needs is not None and fits.any():
        fits = fits & simulated.rows.open(cls, needs)
    found: Ints = fits.nonzero()[0]
    return found


class _SchedulerScore:
    """kube-scheduler's scores, as far as they affect the choice among the nodes of one plan."""

    def __init__(self, placer: FinalPlacer) -> None:
        self.simulated = placer.simulated
        table = self.simulated.table
        self.columns = [at for name in (CPU, MEMORY) if (at := table.columns.at(name)) is not None]
        self.have: Floats = np.maximum(table.allocatable[:, self.columns], 1).astype(np.float64)
        self.zones, zones = table.label(_ZONE_LABEL)
        self.zone_weight, self.host_weight = np.log(len(zones) + 2), np.log(len(table) + 2)
        self.count = len(zones)
        self.crowd: Ints = np.zeros(len(table), dtype=np.int64)
        self.own: dict[tuple[str, Owner | int], Ints] = {}  # by the owner, over which pods are spread
        self.soft: dict[int, Floats | None] = {}
        self.noise = 0.0

    def begin(self, noise: float) -> None:
        """Start a new order."""
        self.crowd = np.zeros(len(self.crowd), dtype=np.int64)
        self.own, self.noise = {}, noise

    def put(self, cls: int, row: int) -> None:
        """Record that a pod was placed."""
        self.crowd[row] += 1
        kin = self._kin(cls)
        own = self.own.get(kin)
        if own is None:
            own = self.own[kin] = np.zeros(len(self.crowd), dtype=np.int64)
        own[row] += 1

    def _kin(self, cls: int) -> tuple[str, Owner | int]:
        pod = self.simulated.classes[cls]
        return pod.namespace, cls if pod.owner is None else pod.owner

    def best(self, cls: int, rows: Ints, chance: _RandomNumbers) -> int:
        """Return one of the rows with the best score, at random."""
        table = self.simulated.table
        need = table.columns.need(cls)[self.columns]
        left = (table.free[rows][:, self.columns] - need) / self.have[rows]
        score = left.mean(axis=1) * 100.0 if self.columns else np.zeros(len(rows))
        if len(self.columns) > 1:
            score = score + 100.0 - np.abs(left[:, 0] - left[:, 1]) * 50.0
        score = np.floor(score) + self._spread(cls, rows)
        soft = self._soft(cls)
        if soft is not None:
            score = score + soft[rows]
        if self.noise:
            score = score + np.array([chance.random() for _ in rows]) * self.noise
        best = rows[score >= score.max() - 1e-9]
        return int(best[0] if len(best) == 1 else best[chance.randrange(len(best))])

    def _spread(self, cls: int, rows: Ints) -> Floats | float:
        """Score the spread of a class over hosts and zones, or by its own constraints if it has any."""
        counters = self.simulated.constraints.soft_spread(cls)
        raw: Floats = np.zeros(len(rows))
        if counters:
            for counter, key in counters:
                codes, values = self.simulated.table.label(key)
                raw = raw + np.append(self.simulated.rows.domains(counter, key), 0)[codes[rows]] * np.log(
                    len(values) + 2
                )
        elif self.simulated.classes[cls].spread or (own := self.own.get(self._kin(cls))) is None:
            return 0.0
        else:
            zones = np.bincount(self.zones + 1, weights=own, minlength=self.count + 1)
            zones[0] = 0.0
            raw = own[rows] * self.host_weight + zones[self.zones[rows] + 1] * self.zone_weight
        high, low = float(raw.max()), float(raw.min())
        return _SPREAD * 100.0 * (high + low - raw) / high if high else 0.0

    def _soft(self, cls: int) -> Floats | None:
        """Score preferred node affinity and PreferNoSchedule taints, which do not change."""
        if cls not in self.soft:
            pod, nodes = self.simulated.classes[cls], self.simulated.table.nodes
            met = (
                [
                    sum(each.weight for each in pod.preferred_nodes if each.term.matches(node.name, node.labels))
                    for node in nodes
                ]
                if pod.preferred_nodes
                else [0]
            )
            bad = [_untolerated_count(pod, node.taints) for node in nodes]
            self.soft[cls] = (
                None
                if not any(met) and not any(bad)
                else (
                    _AFFINITY * 100.0 * np.array(met) / max(1, *met, 1)
                    - _TAINTS * 100.0 * np.array(bad) / max(1, *bad, 1)
                )
            )
        return self.soft[cls]


def _untolerated_count(pod: PodClass, taints: Sequence[Taint]) -> int:
    """Return the number of PreferNoSchedule taints without a toleration."""
    return sum(
        taint.effect == "PreferNoSchedule" and not any(tolerates(each, taint) for each in pod.tolerations)
        for taint in taints
    )
