"""Tries removals one node after the other on a copy of the cluster, keeping the moves of earlier ones.

A node is closed and its pods are placed on other nodes; if one of them finds no place, the attempt is rolled back.
Successful removals stay for the rest of the trial: later nodes are tried in a cluster without this one, and the budgets
are reduced by what was moved. A closed node stays a domain of topology spread, as the tainted node will. See
docs/reference/scale-down.md "Simulated removal".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.plan import NodeVerdict
from chalicelib.model.pod import Pod
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_down.candidates import PodsToMove, blocked
from chalicelib.plan.scale_down.drain_rules import PdbTracker
from chalicelib.plan.scale_down.removal_simulation.headroom_reserve import HeadroomReserve
from chalicelib.plan.scale_down.removal_simulation.pod_destinations import PodDestinations
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.tables import Ints
from chalicelib.reasons.text import sentence, text


class UnneededNode(msgspec.Struct, frozen=True):
    """A node whose pods all found another place. destinations: pod -> node, at the end of the whole trial. risky: a
    PodDisruptionBudget has fewer disruptions left than this drain needs at once."""

    moves: PodsToMove
    destinations: dict[str, str]
    risky: bool

    @property
    def node(self) -> Node:
        """The node."""
        return self.moves.node

    @property
    def group(self) -> str:
        """Its group."""
        return self.moves.group

    @property
    def evict(self) -> tuple[str, ...]:
        """Pods that must move; without any, the node is empty."""
        return tuple(pod.key for pod in self.moves.pods)

    @property
    def waits_for(self) -> str:
        """A pod that must complete first."""
        return self.moves.waits_for


class SimulationFailure(msgspec.Struct, frozen=True):
    """A node that must stay. cls: class of the pod that found no place, -1 for another cause. budget: it is used up.
    headroom: it needs the node; then there is no pod."""

    moves: PodsToMove
    pod: Pod | None
    cls: int = -1
    budget: str = ""
    headroom: str = ""


class _MovingPod(NamedTuple):
    """A pod to be moved, with the record of the final places of its node's pods."""

    pod: Pod
    record: dict[str, str]


class RemovalSimulation:
    """The trial of one order of nodes. staying, going: rows of existing nodes, in the order in which pods are placed on
    them; drains: how many nodes may be drained at once."""

    def __init__(
        self, simulated: SimulatedCluster, pdbs: PdbTracker, staying: Ints, going: Ints, drains: int = 1
    ) -> None:
        self._simulated, self._pdbs = simulated, pdbs
        self._places = PodDestinations(simulated, staying, going)
        self._start = self._places.checkpoint()
        self._reserve = HeadroomReserve(simulated, drains)
        self._size = _sizes(simulated)
        # Pods that earlier removals placed on a node: if that node is removed too, they need yet another place.
        self._guests: dict[int, list[_MovingPod]] = {}
        self._closed: list[tuple[int, bool]] = []
        self._why: dict[int, str] = {}  # class -> why its last pod has no place

    def attempt(self, moves: PodsToMove) -> UnneededNode | SimulationFailure:
        """Try one node; a successful removal is kept."""
        for pod, names in moves.limited:
            for name in names:
                if self._pdbs.left(name) < 1:
                    return SimulationFailure(moves, pod, budget=name)
        simulated, places = self._simulated, self._places
        row = simulated.table.index.get(moves.node.name)
        was_open = row is not None and bool(simulated.open[row])
        if row is not None:
            places.neighbours.leave(row)
        mark = places.checkpoint()
        destinations: dict[str, str] = {}
        own = sorted(moves.pods, key=self._hardest_first) if len(moves.pods) > 1 else moves.pods
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
                return SimulationFailure(moves, homeless, homeless.cls)
            return SimulationFailure(moves, None, headroom=headroom)
        for at, moving in placed:
            moving.record[moving.pod.key] = simulated.table.nodes[at].name
            self._guests.setdefault(at, []).append(moving)
        if row is not None:
            self._guests.pop(row, None)
            places.neighbours.gone(row)
            self._closed.append((row, was_open))
        return UnneededNode(moves, destinations, risky=self._pdbs.use(moves.used))

    def _lift(self, pods: Iterable[Pod], row: int | None) -> None:
        """Remove the pods from their node. A pod that is being deleted is not counted by all rules and stays where it
        is."""
        if row is None:
            return
        for pod in pods:
            if not pod.deleted:
                self._places.lift(pod.cls, row)

    def _place(self, waiting: list[_MovingPod]) -> tuple[list[tuple[int, _MovingPod]], Pod | None]:
        """Find a row for each pod; returns the rows with their pods, and the first pod without a place. A pod that
        depends on another of them is retried after it, as the scheduler does."""
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
        """Return why a node stays, for the report, evaluated at the end of the trial. in_haste: reuse the reason of a
        pod of the same class instead of counting again."""
        node, pod = failure.moves.node, failure.pod
        if pod is None:
            return NodeVerdict(node.name, Reason.of(ReasonCode.HEADROOM, headroom=failure.headroom))
        if failure.cls < 0:
            return blocked(node, pod, Reason.of(ReasonCode.NOT_ENOUGH_PDB, budget=failure.budget))
        if not in_haste or failure.cls not in self._why:
            self._why[failure.cls] = "no node takes it" if in_haste else self._why_no_node(failure)
        what = self._why[failure.cls]
        return NodeVerdict(node.name, Reason.of(ReasonCode.NO_PLACE_TO_MOVE_PODS, pod=pod.key, what=what), pod.key)

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
        own = simulated.table.index.get(failure.moves.node.name)
        mark = self._places.checkpoint()
        if own is not None:
            was_open, rows[own] = bool(simulated.open[own]), False
            self._places.neighbours.leave(own)
            self._lift(failure.moves.pods, own)
        counts = simulated.tally(cls, rows)
        self._places.rollback(mark)
        if own is not None:
            self._places.neighbours.stay(own, is_open=was_open)
        others = int(rows.sum())
        if not others:
            return "no other node that stays is ready and schedulable"
        words = ", ".join(f"{count} {text(reason)}" for reason, count in counts)
        return f"0/{others} nodes: {words or 'the last room went to pods of other nodes that are to be removed'}"


def _sizes(simulated: SimulatedCluster) -> list[float]:
    """Return per class its largest share of what an average node offers, which tells which pods are hard to place."""
    table = simulated.table
    offers: Mapping[str, float] = (
        dict(zip(table.columns.names, table.allocatable.mean(axis=0).tolist(), strict=True)) if len(table) else {}
    )
    return [
        max((amount / offers[name] for name, amount in cls.requests.items() if offers.get(name)), default=0.0)
        for cls in simulated.classes
    ]
