"""In which order nodes are tried, so that as many as possible can go.

Which nodes go together is a packing problem: every removal uses up disruptions and room that others need too. Tried is
what takes least of what is scarce: a node's price is the share it takes of what its budgets have left, and how full it
is. In a small cluster several orders are tried and the one counts that frees most nodes; in a large one the first is
all there is time for, and it frees more than any order that does not look (docs/performance.md).

Nodes with nothing to move come first, then those that were unneeded in the last pass: a node that is not confirmed
would lose its timer (scale-down.md §2.3).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b

from chalicelib.plan.scale_down.pdb_tracker import PdbTracker
from chalicelib.plan.scale_down.removal_simulation.drainability import PodsToMove

Order = Callable[[], Iterable[PodsToMove]]


def thrifty(
    nodes: Sequence[PodsToMove],
    known: frozenset[str],
    budgets: PdbTracker,
    filled: dict[str, float],
    weight: float = 1.0,
) -> Iterator[PodsToMove]:
    """Cheapest first, by what the budgets have left when a node's turn comes. filled: node -> share in use; weight: how
    much that share matters beside the budgets."""

    def price(moves: PodsToMove) -> float:
        scarce = sum(count / left if (left := budgets.left(name)) > 0 else count for name, count in moves.used.items())
        return scarce + weight * filled[moves.node.name]

    heap = [(_tier(moves, known), price(moves), moves.node.name, at) for at, moves in enumerate(nodes)]
    heapq.heapify(heap)
    while heap:
        tier, asked, name, at = heapq.heappop(heap)
        now = price(nodes[at])
        if now > asked + 1e-9 and heap and (tier, now, name) > heap[0][:3]:
            heapq.heappush(heap, (tier, now, name, at))
            continue
        yield nodes[at]


def by(nodes: Sequence[PodsToMove], known: frozenset[str], key: Callable[[PodsToMove], float]) -> list[PodsToMove]:
    """By any figure, within what comes first anyway; then by name."""
    return sorted(nodes, key=lambda moves: (_tier(moves, known), key(moves), moves.node.name))


def drawn(nodes: Sequence[PodsToMove], known: frozenset[str], seed: int) -> list[PodsToMove]:
    """By lot, the same every time for the same seed and names."""

    def lot(moves: PodsToMove) -> float:
        text = f"{seed}\n{moves.node.name}".encode("utf-8", "surrogatepass")
        return float(int.from_bytes(blake2b(text, digest_size=6).digest(), "big"))

    return by(nodes, known, lot)


def _tier(moves: PodsToMove, known: frozenset[str]) -> int:
    if not moves.pods:
        return 0
    return 1 if moves.node.name in known else 2
