"""Orders the nodes for the removal simulation so that as many as possible can be removed.

Choosing nodes that can be removed together is a packing problem: every removal uses disruptions and room that others
need too. Nodes that use the least of what is scarce come first: a node's cost is the share of its budgets' remaining
disruptions that it uses, and how full it is. In a small cluster several orders are tried, and the one that frees most
nodes is used. In a large one there is time only for the first, and it frees more nodes than any order that ignores this
cost (docs/performance.md).

Nodes with nothing to move come first, then those that were unneeded in the last pass: a node that is not confirmed
would lose its timer. See docs/reference/scale-down.md "Order of simulation".
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
    pdbs: PdbTracker,
    filled: dict[str, float],
    weight: float = 1.0,
) -> Iterator[PodsToMove]:
    """Return the nodes by ascending cost, with the budgets that are left at each node's turn. filled: node -> share in
    use; weight: how much that share matters compared with the budgets."""

    def price(moves: PodsToMove) -> float:
        scarce = sum(count / left if (left := pdbs.left(name)) > 0 else count for name, count in moves.used.items())
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
    """Order by any figure, within what comes first anyway; then by name."""
    return sorted(nodes, key=lambda moves: (_tier(moves, known), key(moves), moves.node.name))


def drawn(nodes: Sequence[PodsToMove], known: frozenset[str], seed: int) -> list[PodsToMove]:
    """Order at random, equal for the same seed and names."""

    def lot(moves: PodsToMove) -> float:
        text = f"{seed}\n{moves.node.name}".encode("utf-8", "surrogatepass")
        return float(int.from_bytes(blake2b(text, digest_size=6).digest(), "big"))

    return by(nodes, known, lot)


def _tier(moves: PodsToMove, known: frozenset[str]) -> int:
    if not moves.pods:
        return 0
    return 1 if moves.node.name in known else 2
