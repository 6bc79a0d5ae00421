"""Searches the removal order that frees most nodes within the time limit.

Choosing nodes that can be removed together is a packing problem: every removal uses disruptions and room that others
need too. The first order is by ascending cost: a node's cost is the share of its budgets' remaining disruptions that it
uses, and how full it is. In a large cluster there is time only for this order, and it frees more nodes than any order
that ignores the cost (docs/performance.md).

While a trial is fast, others are tried too: fuller or emptier nodes first, and some random orders. One of them is used
only if it frees more nodes and includes every node that was unneeded in the last pass and that the first order frees:
if passes alternated between sets of nodes, no timer would ever expire.

In every order, nodes with nothing to move come first, then those that were unneeded in the last pass: a node that is
not confirmed would lose its timer. See docs/reference/scale-down.md "Order of simulation".
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b

import msgspec
import numpy as np

from chalicelib.plan.scale_down.candidates import PodsToMove
from chalicelib.plan.scale_down.drain_rules import PdbTracker
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
RANDOM_ORDERS = 40


class TrialResult(msgspec.Struct, frozen=True):
    """Nodes that can be removed, nodes that cannot, and nodes that were not checked in time."""

    candidates: tuple[UnneededNode, ...]
    failures: tuple[SimulationFailure, ...]
    unchecked: tuple[PodsToMove, ...]
    trial: RemovalSimulation

    def names(self) -> frozenset[str]:
        """Return the names of the nodes that can be removed."""
        return frozenset(candidate.node.name for candidate in self.candidates)


class Search:
    """Trials over one set of nodes. shares: node -> share in use. over: whether the time is up."""

    def __init__(
        self,
        state: ClusterState,
        simulated: SimulatedCluster,
        pdbs: PdbTracker,
        nodes: Sequence[PodsToMove],
        shares: dict[str, float],
        over: Callable[[], bool],
    ) -> None:
        self._pdbs, self._nodes, self._shares, self._over = pdbs, nodes, shares, over
        self._confirmed = frozenset(name for name, node in state.memory.nodes.items() if node.unneeded_since)
        self._cost = (1 + sum(len(moves.pods) for moves in nodes)) * max(1, simulated.real // 100)
        # A zero-or-max group is drained as a whole.
        atomic = (len(group.nodes) for group in state.groups.values() if group.group.options.zero_or_max)
        drains = max(state.options.max_drain_parallelism, *atomic, 1)
        self._trial = RemovalSimulation(simulated, pdbs, *_preferred_rows(simulated, nodes, shares), drains)

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
            if len(result.candidates) > len(best.candidates) and confirmed <= result.names():
                best, best_order = result, last_order
            if not result.failures:
                break
        if best_order == last_order:
            return best
        self._trial.undo()  # repeated, because its moves were undone
        if best_order < 0:
            return self._try(self._by_cost(1.0))
        return self._try(next(order for at, order in enumerate(self._other_orders()) if at == best_order))

    def _other_orders(self) -> Iterator[Iterable[PodsToMove]]:
        yield self._by_cost(8.0)
        yield self._by(lambda moves: len(moves.pods))
        yield self._by(lambda moves: -self._shares[moves.node.name])
        yield self._by(lambda moves: sum(moves.used.values()))
        for seed in range(RANDOM_ORDERS):
            yield self._by(partial(_random, seed))

    def _by(self, key: Callable[[PodsToMove], float]) -> list[PodsToMove]:
        """Order by any figure, within what comes first anyway; then by name."""
        return sorted(self._nodes, key=lambda moves: (self._tier(moves), key(moves), moves.node.name))

    def _by_cost(self, weight: float) -> Iterator[PodsToMove]:
        """Return the nodes by ascending cost, with the budgets that are left at each node's turn. weight: how much the
        share in use matters compared with the budgets."""
        pdbs = self._pdbs

        def cost(moves: PodsToMove) -> float:
            scarce = sum(count / left if (left := pdbs.left(name)) > 0 else count for name, count in moves.used.items())
            return scarce + weight * self._shares[moves.node.name]

        heap = [(self._tier(moves), cost(moves), moves.node.name, at) for at, moves in enumerate(self._nodes)]
        heapq.heapify(heap)
        while heap:
            tier, before, name, at = heapq.heappop(heap)
            now = cost(self._nodes[at])
            if now > before + 1e-9 and heap and (tier, now, name) > heap[0][:3]:
                heapq.heappush(heap, (tier, now, name, at))
                continue
            yield self._nodes[at]

    def _tier(self, moves: PodsToMove) -> int:
        if not moves.pods:
            return 0
        return 1 if moves.node.name in self._confirmed else 2

    def _try(self, order: Iterable[PodsToMove]) -> TrialResult:
        candidates: list[UnneededNode] = []
        failures: list[SimulationFailure] = []
        remaining = iter(order)
        for moves in remaining:
            if self._over():
                return TrialResult(tuple(candidates), tuple(failures), (moves, *remaining), self._trial)
            result = self._trial.attempt(moves)
            if isinstance(result, UnneededNode):
                candidates.append(result)
            else:
                failures.append(result)
        if candidates and self._cost <= WORK:
            # A removed node is not a domain any more and may have been an obstacle.
            retried, failures = failures, []
            for failure in retried:
                again = failure if failure.cls < 0 or self._over() else self._trial.attempt(failure.moves)
                if isinstance(again, UnneededNode):
                    candidates.append(again)
                else:
                    failures.append(again)
        return TrialResult(tuple(candidates), tuple(failures), (), self._trial)


def _random(seed: int, moves: PodsToMove) -> float:
    """Return a number that is equal for the same seed and name."""
    text = f"{seed}\n{moves.node.name}".encode("utf-8", "surrogatepass")
    return float(int.from_bytes(blake2b(text, digest_size=6).digest(), "big"))


def _preferred_rows(
    simulated: SimulatedCluster, nodes: Sequence[PodsToMove], shares: dict[str, float]
) -> tuple[Ints, Ints]:
    """Return rows of existing nodes: those that stay in any case, by name; and of the others the fullest first, which
    are the last to be removed."""
    going = [
        (-shares[moves.node.name], row)
        for moves in nodes
        if (row := simulated.table.index.get(moves.node.name)) is not None
    ]
    order: Ints = np.array([row for _, row in sorted(going)], dtype=np.int64)
    staying: Ints = np.setdiff1d(np.flatnonzero(simulated.open[: simulated.real]), order)
    return staying, order
