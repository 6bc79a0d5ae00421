"""Simulates removals on a copy of the cluster, and searches the order that frees most
nodes within the time limit.

A node is closed and its pods are placed on other nodes; if one of them finds no place, the attempt
is rolled back. Successful removals stay for the rest of the trial: later nodes are tried in a
cluster without this one, and the budgets are reduced by what was moved. A closed node stays a
domain of topology spread, as the tainted node will. See docs/reference/scale-down.md "Simulated
removal".

Choosing nodes that can be removed together is a packing problem: every removal uses disruptions and
room that others need too. The first order is by ascending cost: a node's cost is the share of its
budgets' remaining disruptions that it uses, and how full it is. In a large cluster there is time
only for this order, and it frees more nodes than any order that ignores the cost
(docs/performance.md).

While a trial is fast, others are tried too: fuller or emptier nodes first, and some random orders.
One of them is used only if it frees more nodes and includes every node that was unneeded in the
last pass and that the first order frees: if passes alternated between sets of nodes, no timer would
ever expire.

In every order, nodes with nothing to move come first, then those that were unneeded in the
last pass: a node that is not confirmed would lose its timer. See
docs/reference/scale-down.md "Order of simulation".
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import msgspec
import numpy as np

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.node import Node
from chalicelib.model.plan import NodeVerdict, Removal
from chalicelib.model.pod import Pod
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal.candidates import Candidate, DrainabilityChecker, blocked
from chalicelib.plan.removal.headroom_reserve import HeadroomReserve
from chalicelib.plan.removal.pod_destinations import PodDestinations
from chalicelib.plan.removal.pod_disruption_budgets import PodDisruptionBudgets
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.tables import Ints
from chalicelib.reasons.text import sentence, text

WORK = 6_000
"""Maximum pods placed in all trials after the first, per hundred nodes; clusters that need more are
tried in one order only."""
RANDOM_ORDERS = 40


class SimulatedRemoval(msgspec.Struct, frozen=True):
    """A node whose pods all found another place. evict: pods that must move; without any, the node
    is empty. destinations: pod -> node, at the end of the whole trial. waits_for: a pod that must
    complete first. risky: a PodDisruptionBudget has fewer disruptions left than this drain needs at
    once."""

    node: Node
    group: str
    evict: tuple[str, ...]
    destinations: dict[str, str]
    waits_for: str = ""
    risky: bool = False

    def planned(
        self, reason: DisruptionReason = DisruptionReason.UNNEEDED, replacement: str = ""
    ) -> Removal:
        """Return the removal as a plan states it. replacement: the id of that to which it
        belongs."""
        kind = "drain" if self.evict else "empty"
        return Removal(
            self.node.name,
            self.group,
            kind,
            self.evict,
            self.destinations,
            reason=reason,
            replacement=replacement,
        )


class SimulationFailure(msgspec.Struct, frozen=True):
    """A node that must stay. cls: class of the pod that found no place, -1 for another cause.
    budget: it is used up. headroom: it needs the node; then there is no pod."""

    candidate: Candidate
    pod: Pod | None
    cls: int = -1
    budget: str = ""
    headroom: str = ""


class _MovingPod(NamedTuple):
    """A pod to be moved, with the record of the final places of its node's pods."""

    pod: Pod
    record: dict[str, str]


class RemovalSimulation:
    """The trial of one order of nodes. staying, going: rows of existing nodes, in the order in
    which pods are placed on them; drains: how many nodes may be drained at once. destinations: what
    places pods instead, in an order of its own."""

    def __init__(
        self,
        simulated: SimulatedCluster,
        pdbs: PodDisruptionBudgets,
        staying: Ints,
        going: Ints,
        drains: int = 1,
        destinations: PodDestinations | None = None,
    ) -> None:
        self._simulated, self._pdbs = simulated, pdbs
        self._places = destinations or PodDestinations(simulated, staying, going)
        self._start = self._places.checkpoint()
        self._reserve = HeadroomReserve(simulated, drains)
        self._size = _sizes(simulated)
        # Pods that earlier removals placed on a node: if that node is removed too,
        # they need yet another place.
        self._guests: dict[int, list[_MovingPod]] = {}
        self._closed: list[tuple[int, bool]] = []
        self._why: dict[int, str] = {}  # class -> why its last pod has no place

    def attempt(self, candidate: Candidate) -> SimulatedRemoval | SimulationFailure:
        """Try one node; a successful removal is kept."""
        if (spent := self._pdbs.exhausted(candidate.limited)) is not None:
            return SimulationFailure(candidate, spent[0], budget=spent[1])
        simulated, places = self._simulated, self._places
        row = simulated.table.index.get(candidate.node.name)
        was_open = row is not None and bool(simulated.open[row])
        if row is not None:
            places.neighbours.leave(row)
        mark = places.checkpoint()
        destinations: dict[str, str] = {}
        own = (
            sorted(candidate.pods, key=self._hardest_first)
            if len(candidate.pods) > 1
            else candidate.pods
        )
        guests = self._guests.get(row, []) if row is not None else []
        waiting = [*(_MovingPod(pod, destinations) for pod in own), *guests]
        self._lift((moving.pod for moving in waiting), row)
        headroom = self._reserve.unsure(row, own)
        placed, homeless = self._place(waiting)
        if homeless is None and not headroom:
            headroom = self._reserve.lacking(row, (at for at, _ in placed))
        if homeless is not None or headroom:
            places.rollback(mark)
            if row is not None:
                places.neighbours.stay(row, is_open=was_open)
            if homeless is not None:
                return SimulationFailure(candidate, homeless, homeless.cls)
            return SimulationFailure(candidate, None, headroom=headroom)
        for at, moving in placed:
            moving.record[moving.pod.key] = simulated.table.nodes[at].name
            self._guests.setdefault(at, []).append(moving)
        if row is not None:
            self._guests.pop(row, None)
            places.neighbours.gone(row)
            self._closed.append((row, was_open))
        evict, risky = tuple(pod.key for pod in candidate.pods), self._pdbs.use(candidate.used)
        return SimulatedRemoval(
            candidate.node, candidate.group, evict, destinations, candidate.waits_for, risky
        )

    def _lift(self, pods: Iterable[Pod], row: int | None) -> None:
        """Remove the pods from their node. A pod that is being deleted is not counted by all
        rules and stays where it is."""
        if row is None:
            return
        for pod in pods:
            if not pod.deleted:
                self._places.lift(pod.cls, row)

    def _place(self, waiting: list[_MovingPod]) -> tuple[list[tuple[int, _MovingPod]], Pod | None]:
        """Find a row for each pod; returns the rows with their pods, and the first pod without a
        place. A pod that depends on another of them is retried after it, as the scheduler does."""
        placed: list[tuple[int, _MovingPod]] = []
        while waiting:
            again: list[_MovingPod] = []
            for moving in waiting:
                at = self._places.put(moving.pod.cls)
                if at is not None:
                    placed.append((at, moving))
                elif self._simulated.needs(moving.pod.cls) is None:
                    return placed, moving.pod
                else:
                    again.append(moving)
            if len(again) == len(waiting):
                return placed, again[0].pod
            waiting = again
        return placed, None

    def undo(self) -> None:
        """Undo the whole trial, budgets included."""
        self._places.rollback(self._start)
        self._places.again()
        for row, was_open in reversed(self._closed):
            self._places.neighbours.stay(row, is_open=was_open)
        self._closed.clear()
        self._guests.clear()
        self._pdbs.reset()
        self._reserve.again()

    def verdict(self, failure: SimulationFailure, *, in_haste: bool = False) -> NodeVerdict:
        """Return why a node stays, for the report, evaluated at the end of the trial. in_haste:
        reuse the reason of a pod of the same class instead of counting again."""
        node, pod = failure.candidate.node, failure.pod
        if pod is None:
            return NodeVerdict(node.name, Reason.of(ReasonCode.HEADROOM, headroom=failure.headroom))
        if failure.cls < 0:
            return blocked(node, pod, self._pdbs.refusal(failure.budget))
        if not in_haste or failure.cls not in self._why:
            self._why[failure.cls] = "no node takes it" if in_haste else self._why_no_node(failure)
        what = self._why[failure.cls]
        return NodeVerdict(
            node.name, Reason.of(ReasonCode.NO_PLACE_TO_MOVE_PODS, pod=pod.key, what=what), pod.key
        )

    def _hardest_first(self, pod: Pod) -> tuple[bool, float, str]:
        """Sort key that puts pods that fit on few nodes first, before others fill those nodes."""
        simulated, cls = self._simulated, pod.cls
        return simulated.is_plain(cls) and simulated.needs(cls) is None, -self._size[cls], pod.key

    def _why_no_node(self, failure: SimulationFailure) -> str:
        """Return why a pod has no other node, in the scheduler's words and counts."""
        simulated, cls = self._simulated, failure.cls
        reasons = simulated.nowhere(cls, moving=True)
        if reasons:
            return "; ".join(sentence(reason) for reason in reasons)
        rows = simulated.open & (np.arange(len(simulated.table)) < simulated.real)
        own = simulated.table.index.get(failure.candidate.node.name)
        mark = self._places.checkpoint()
        if own is not None:
            was_open, rows[own] = bool(simulated.open[own]), False
            self._places.neighbours.leave(own)
            self._lift(failure.candidate.pods, own)
        counts = simulated.tally(cls, rows)
        self._places.rollback(mark)
        if own is not None:
            self._places.neighbours.stay(own, is_open=was_open)
        others = int(rows.sum())
        if not others:
            return "no other node that stays is ready and schedulable"
        words = ", ".join(f"{count} {text(reason)}" for reason, count in counts)
        return (
            f"0/{others} nodes: "
            f"{words or 'the last room went to pods of other nodes that are to be removed'}"
        )


def _sizes(simulated: SimulatedCluster) -> list[float]:
    """Return per class its largest share of what an average node offers, which tells
    which pods are hard to place."""
    table = simulated.table
    offers: Mapping[str, float] = (
        dict(zip(table.columns.names, table.allocatable.mean(axis=0).tolist(), strict=True))
        if len(table)
        else {}
    )
    return [
        max(
            (amount / offers[name] for name, amount in cls.requests.items() if offers.get(name)),
            default=0.0,
        )
        for cls in simulated.classes
    ]


def carry_out(
    removals: Iterable[SimulatedRemoval],
    checker: DrainabilityChecker,
    simulated: SimulatedCluster,
    pdbs: PodDisruptionBudgets,
) -> None:
    """Make removals that were found elsewhere part of the simulated cluster, with the places that
    their pods have already, and use the disruptions of their budgets."""
    no_rows: Ints = np.array([], dtype=np.int64)
    places, index = PodDestinations(simulated, no_rows, no_rows), simulated.table.index
    for removal in removals:
        row, candidate = index.get(removal.node.name), checker.of(removal.node)
        if row is None or not isinstance(candidate, Candidate):
            continue
        places.neighbours.leave(row)
        for pod in candidate.pods:
            at = index.get(removal.destinations.get(pod.key, ""))
            if not pod.deleted:
                places.lift(pod.cls, row)
            if at is not None:
                simulated.put_one(pod.cls, at)
        places.neighbours.gone(row)
        pdbs.use(candidate.used)


class TrialResult(msgspec.Struct, frozen=True):
    """removals: nodes that can be removed; failures: nodes that cannot; unchecked: nodes that
    were not checked in time."""

    removals: tuple[SimulatedRemoval, ...]
    failures: tuple[SimulationFailure, ...]
    unchecked: tuple[Candidate, ...]
    trial: RemovalSimulation

    def names(self) -> frozenset[str]:
        """Return the names of the nodes that can be removed."""
        return frozenset(removal.node.name for removal in self.removals)

    def keep(
        self, chosen: Sequence[SimulatedRemoval], candidates: Sequence[Candidate]
    ) -> list[SimulatedRemoval]:
        """Repeat the trial for these of its removals alone, so that the simulated cluster is as it
        will be after them; return them with the places that their pods get now. If one of them is
        not possible without the others, the trial stays as it was."""
        by_name = {candidate.node.name: candidate for candidate in candidates}
        wanted = frozenset(removal.node.name for removal in chosen)
        self.trial.undo()
        again = [
            self.trial.attempt(by_name[removal.node.name])
            for removal in self.removals
            if removal.node.name in wanted
        ]
        repeated = {
            removal.node.name: removal for removal in again if isinstance(removal, SimulatedRemoval)
        }
        if len(repeated) == len(wanted):
            return [repeated[removal.node.name] for removal in chosen]
        self.trial.undo()
        for removal in self.removals:
            self.trial.attempt(by_name[removal.node.name])
        return list(chosen)


class Search:
    """Trials over one set of candidates. over: whether the time is up."""

    def __init__(
        self,
        state: ClusterState,
        simulated: SimulatedCluster,
        pdbs: PodDisruptionBudgets,
        candidates: Sequence[Candidate],
        over: Callable[[], bool],
    ) -> None:
        self._pdbs, self._candidates, self._over = pdbs, candidates, over
        self._confirmed = frozenset(
            name for name, node in state.memory.nodes.items() if node.unneeded_since
        )
        self._cost = (1 + sum(len(candidate.pods) for candidate in candidates)) * max(
            1, simulated.real // 100
        )
        # Pods are placed on nodes that stay in any case, by name, then on the others, the fullest
        # first, which are the last to be removed.
        rows = simulated.table.index
        going = [
            (-node.share, row)
            for node in candidates
            if (row := rows.get(node.node.name)) is not None
        ]
        order: Ints = np.array([row for _, row in sorted(going)], dtype=np.int64)
        staying: Ints = np.setdiff1d(np.flatnonzero(simulated.open[: simulated.real]), order)
        # A zero-or-max group is drained as a whole.
        atomic = (
            len(group.nodes) for group in state.groups.values() if group.group.options.zero_or_max
        )
        drains = max(state.options.max_drain_parallelism, *atomic, 1)
        self._trial = RemovalSimulation(simulated, pdbs, staying, order, drains)

    def best(self) -> TrialResult:
        """Return the best order's trial, whose moves stay in the simulated cluster."""
        first = self._try(self._by_cost(1.0))
        if first.unchecked or not first.failures:
            return first
        confirmed = self._confirmed & first.names()
        best, best_order, last_order = first, -1, -1
        for last_order, order in zip(range(WORK // self._cost), self._other_orders(), strict=False):
            if self._over():
                break
            self._trial.undo()
            result = self._try(order)
            if len(result.removals) > len(best.removals) and confirmed <= result.names():
                best, best_order = result, last_order
            if not result.failures:
                break
        if best_order == last_order:
            return best
        self._trial.undo()  # repeated, because its moves were undone
        if best_order < 0:
            return self._try(self._by_cost(1.0))
        return self._try(
            next(order for at, order in enumerate(self._other_orders()) if at == best_order)
        )

    def _other_orders(self) -> Iterator[Iterable[Candidate]]:
        yield self._by_cost(8.0)
        yield self._by(lambda candidate: len(candidate.pods))
        yield self._by(lambda candidate: -candidate.share)
        yield self._by(lambda candidate: sum(candidate.used.values()))
        for seed in range(RANDOM_ORDERS):
            yield self._by(partial(_random, seed))

    def _by(self, key: Callable[[Candidate], float]) -> list[Candidate]:
        """Order by any figure, within what comes first anyway; then by name."""
        return sorted(
            self._candidates,
            key=lambda candidate: (self._tier(candidate), key(candidate), candidate.node.name),
        )

    def _by_cost(self, weight: float) -> Iterator[Candidate]:
        """Return the nodes by ascending cost, with the budgets that are left at each node's turn.
        weight: how much the share in use matters compared with the budgets."""
        pdbs = self._pdbs

        def cost(candidate: Candidate) -> float:
            used = candidate.used.items()
            scarce = sum(
                count / left if (left := pdbs.left(name)) > 0 else count for name, count in used
            )
            return scarce + weight * candidate.share

        heap = [
            (self._tier(candidate), cost(candidate), candidate.node.name, at)
            for at, candidate in enumerate(self._candidates)
        ]
        heapq.heapify(heap)
        while heap:
            tier, before, name, at = heapq.heappop(heap)
            now = cost(self._candidates[at])
            if now > before + 1e-9 and heap and (tier, now, name) > heap[0][:3]:
                heapq.heappush(heap, (tier, now, name, at))
                continue
            yield self._candidates[at]

    def _tier(self, candidate: Candidate) -> int:
        if not candidate.pods:
            return 0
        return 1 if candidate.node.name in self._confirmed else 2

    def _try(self, order: Iterable[Candidate]) -> TrialResult:
        removals: list[SimulatedRemoval] = []
        failures: list[SimulationFailure] = []
        remaining = iter(order)
        for candidate in remaining:
            if self._over():
                return TrialResult(
                    tuple(removals), tuple(failures), (candidate, *remaining), self._trial
                )
            result = self._trial.attempt(candidate)
            if isinstance(result, SimulatedRemoval):
                removals.append(result)
            else:
                failures.append(result)
        if removals and self._cost <= WORK:
            # A removed node is not a domain any more and may have been an obstacle.
            retried, failures = failures, []
            for failure in retried:
                again = (
                    failure
                    if failure.cls < 0 or self._over()
                    else self._trial.attempt(failure.candidate)
                )
                if isinstance(again, SimulatedRemoval):
                    removals.append(again)
                else:
                    failures.append(again)
        return TrialResult(tuple(removals), tuple(failures), (), self._trial)


def _random(seed: int, candidate: Candidate) -> float:
    """Return a number that is equal for the same seed and name."""
    text = f"{seed}\n{candidate.node.name}".encode("utf-8", "surrogatepass")
    return float(int.from_bytes(blake2b(text, digest_size=6).digest(), "big"))
