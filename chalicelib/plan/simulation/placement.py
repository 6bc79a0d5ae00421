"""Pods onto the floor in the scheduler's order: higher priority first, then older, then by name; first fit by row.

Used for "schedulable elsewhere" (scale-up.md §2) and again to see where the scheduler will put what a plan promises.
Pods that wait for others to be placed are tried again until nothing moves, as the scheduler does on every event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.pending_pods import PodBatch


def place(
    floor: SimulatedCluster,
    queue: Sequence[PodBatch],
    stop: Callable[[], bool] = lambda: False,
    *,
    around: bool = False,
) -> tuple[PodBatch, ...]:
    """Place what fits; it stays placed. Returns what found no room. stop: asked before every demand; what was not tried
    by then is left. around: deal pods over the rows in turn."""
    waiting = list(queue)
    while True:
        left: list[PodBatch] = []
        full: dict[int, int] = {}  # class -> the floor's generation when it found no room
        for demand in waiting:
            if full.get(demand.cls) == floor.generation or stop() or floor.late():
                left.append(demand)
                continue
            at = sum(count for _, count in floor.place_first_fit(demand.cls, len(demand.pods), around=around))
            if at < len(demand.pods):
                left.append(PodBatch(demand.cls, demand.pods[at:], demand.counts))
                full[demand.cls] = floor.generation
        if floor.late():
            return tuple(left)
        retry = [demand for demand in left if floor.needs(demand.cls) is not None]
        if not retry or sum(len(d.pods) for d in left) == sum(len(d.pods) for d in waiting):
            return tuple(left)
        waiting = left
