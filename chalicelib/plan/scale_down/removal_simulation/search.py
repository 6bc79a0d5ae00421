"""Searches the removal order that frees most nodes within the time limit.

The first order is the one of lowest cost. While a trial is fast, others are tried too: fuller or emptier nodes first,
and some random orders. One of them is used only if it frees more nodes and includes every node that was unneeded in the
last pass and that the first order frees: if passes alternated between sets of nodes, no timer would ever expire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from chalicelib.plan.scale_down.pdb_tracker import PdbTracker
from chalicelib.plan.scale_down.removal_simulation.drainability import PodsToMove
from chalicelib.plan.scale_down.removal_simulation.node_order import by, drawn, thrifty
from chalicelib.plan.scale_down.removal_simulation.removal_trial import (
    RemovalSimulation,
    SimulationFailure,
    UnneededNode,
)
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.tables import Ints

WORK = 6_000
"""Maximum pods placed in all trials after the first, per hundred nodes; clusters that need more are tried in one order
only."""
LOTS = 40


class Found(msgspec.Struct, frozen=True):
    """The result of a trial: nodes that can be removed, nodes that cannot, and nodes that were not checked in time."""

    candidates: tuple[UnneededNode, ...]
    failures: tuple[SimulationFailure, ...]
    left: tuple[PodsToMove, ...]
    trial: RemovalSimulation


class Search:
    """Trials over one set of nodes. filled: node -> share in use. over: whether the time is up."""

    def __init__(
        self,
        state: ClusterState,
        simulated: SimulatedCluster,
        pdbs: PdbTracker,
        nodes: Sequence[PodsToMove],
        filled: dict[str, float],
        over: Callable[[], bool],
    ) -> None:
        self._state, self._simulated, self._budgets = state, simulated, pdbs
        self._nodes, self._filled, self._over = nodes, filled, over
        self._known = frozenset(name for name, one in state.memory.nodes.items() if one.unneeded_since)
        self._cost = (1 + sum(len(moves.pods) for moves in nodes)) * max(1, simulated.real // 100)
        self._cheap = self._cost <= WORK
        self._trial = RemovalSimulation(simulated, pdbs, *_preferred(simulated, nodes, filled), _at_once(state))

    def best(self) -> Found:
        """Return the best order's trial, whose moves stay in the simulated cluster."""
        first = self._try(thrifty(self._nodes, self._known, self._budgets, self._filled))
        if first.left or not first.failures:
            return first
        kept = self._known & _names(first)
        best, winner, last = first, -1, -1
        orders = self._others()
        for last, order in zip(range(WORK // self._cost), orders, strict=False):
            if self._over():
                break
            self._trial.undo()
            found = self._try(order)
            if len(found.candidates) > len(best.candidates) and kept <= _names(found):
                best, winner = found, last
            if not found.failures:
                break
        return best if winner == last else self._again(winner)

    def _again(self, winner: int) -> Found:
        self._trial.undo()
        if winner < 0:
            return self._try(thrifty(self._nodes, self._known, self._budgets, self._filled))
        return self._try(next(order for at, order in enumerate(self._others()) if at == winner))

    def _others(self) -> Iterator[Iterable[PodsToMove]]:
        nodes, known, filled = self._nodes, self._known, self._filled
        yield thrifty(nodes, known, self._budgets, filled, weight=8.0)
        yield by(nodes, known, lambda moves: len(moves.pods))
        yield by(nodes, known, lambda moves: -filled[moves.node.name])
        yield by(nodes, known, lambda moves: sum(moves.used.values()))
        for seed in range(LOTS):
            yield drawn(nodes, known, seed)

    def _try(self, order: Iterable[PodsToMove]) -> Found:
        candidates: list[UnneededNode] = []
        failures: list[SimulationFailure] = []
        walk = iter(order)
        for moves in walk:
            if self._over():
                return Found(tuple(candidates), tuple(failures), (moves, *walk), self._trial)
            result = self._trial.attempt(moves)
            if isinstance(result, UnneededNode):
                candidates.append(result)
            else:
                failures.append(result)
        if candidates and self._cheap:
            failures = self._once_more(failures, candidates)
        return Found(tuple(candidates), tuple(failures), (), self._trial)

    def _once_more(self, failures: list[SimulationFailure], candidates: list[UnneededNode]) -> list[SimulationFailure]:
        """Retry the failed nodes: a removed node is not a domain any more and may have been an obstacle. Returns the
        nodes that still fail."""
        still: list[SimulationFailure] = []
        for failure in failures:
            result = failure if failure.cls < 0 or self._over() else self._trial.attempt(failure.moves)
            if isinstance(result, UnneededNode):
                candidates.append(result)
            else:
                still.append(result)
        return still


def _names(found: Found) -> frozenset[str]:
    return frozenset(candidate.node.name for candidate in found.candidates)


def _preferred(simulated: SimulatedCluster, nodes: Sequence[PodsToMove], filled: dict[str, float]) -> tuple[Ints, Ints]:
    """Return rows of existing nodes: those that stay in any case, by name; and of the others the fullest first, which
    are the last to be removed."""
    going = [
        (-filled[moves.node.name], row)
        for moves in nodes
        if (row := simulated.table.index.get(moves.node.name)) is not None
    ]
    order: Ints = np.array([row for _, row in sorted(going)], dtype=np.int64)
    staying: Ints = np.setdiff1d(np.flatnonzero(simulated.open[: simulated.real]), order)
    return staying, order


def _at_once(state: ClusterState) -> int:
    """Return how many nodes may be drained at once; a zero-or-max group is drained as a whole."""
    atomic = (len(facts.nodes) for facts in state.groups.values() if facts.group.options.zero_or_max)
    return max(state.options.max_drain_parallelism, *atomic, 1)
