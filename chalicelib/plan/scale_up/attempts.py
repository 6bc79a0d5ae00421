"""Several ways to place pending pods on existing nodes; the best whole plan is used.

Which pods are placed on existing nodes first decides which need new ones, and no single order is always best. The
scheduler's own order comes first, and is used unless another way places more pods, or as many with fewer new nodes.
Only small plans are tried again, and only if some pods fit existing nodes and others do not; otherwise all ways give
the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b

from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster, place
from chalicelib.plan.state.pending_pods import PodBatch

Way = Callable[[Sequence[PodBatch], SimulatedCluster], tuple[list[PodBatch], bool]]
"""(queue, simulated cluster) -> the queue in another order, in which pods of higher priority stay first, and whether
pods are placed on the rows in turn instead of first fit."""

_BY_LOT = 4  # random orders, equal for the same pods


def _share(batch: PodBatch, simulated: SimulatedCluster) -> float:
    """Return one pod's share of all existing room, of the scarcest resource."""
    need = simulated.table.columns.need(batch.cls)
    room = simulated.table.free[: simulated.base].sum(axis=0)
    return max(
        (int(asked) / max(1, int(free)) for asked, free in zip(need, room, strict=True) if asked > 0), default=0.0
    )


def _as_they_stand(_each: PodBatch, _simulated: SimulatedCluster) -> float:
    return 0.0


def _by(key: Callable[[PodBatch, SimulatedCluster], float], *, around: bool) -> Way:
    def way(queue: Sequence[PodBatch], simulated: SimulatedCluster) -> tuple[list[PodBatch], bool]:
        simulated.turn = 0
        return sorted(
            queue, key=lambda each: (-(simulated.classes[each.cls].priority or 0), key(each, simulated))
        ), around

    return way


def _lot(seed: int) -> Way:
    """Order at random. The first row of round-robin placement is random too."""

    def drawn(text: str) -> int:
        lot = blake2b(f"{seed}\n{text}".encode("utf-8", "surrogatepass"), digest_size=6)
        return int.from_bytes(lot.digest(), "big")

    def way(queue: Sequence[PodBatch], simulated: SimulatedCluster) -> tuple[list[PodBatch], bool]:
        found, _ = _by(lambda each, _: float(drawn(each.pods[0].key)), around=True)(queue, simulated)
        simulated.turn = drawn("") % max(1, simulated.base)
        return found, True

    return way


def sparing(rows: Collection[int]) -> Way:
    """Place all pods on other rows than these first, as far as those take them."""

    def way(queue: Sequence[PodBatch], simulated: SimulatedCluster) -> tuple[list[PodBatch], bool]:
        shut = [row for row in rows if simulated.open[row]]
        for row in shut:
            simulated.close(row)
        left = place(simulated, queue)
        for row in shut:
            simulated.close(row, is_open=True)
        return list(left), False

    return way


WAYS: tuple[Way, ...] = (
    _by(_as_they_stand, around=False),
    _by(_as_they_stand, around=True),
    _by(lambda each, simulated: -_share(each, simulated), around=False),
    _by(lambda each, simulated: -_share(each, simulated), around=True),
    _by(_share, around=False),
    _by(_share, around=True),
    _by(lambda each, simulated: float(simulated.needs(each.cls) is None), around=False),
    _by(lambda each, simulated: float(simulated.needs(each.cls) is not None), around=False),
    *(_lot(seed) for seed in range(_BY_LOT)),
)
