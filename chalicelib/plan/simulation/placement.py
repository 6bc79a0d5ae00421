"""Places pods in the simulated cluster in the scheduler's order: higher priority first, then older, then by name; first
fit by row.

Used to find pods that fit existing nodes, and again to determine where the scheduler will put the pods of a plan. Pods
that wait for others to be placed are retried until nothing changes, as the scheduler does on every event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.pending_pods import PodBatch


def place(
    simulated: SimulatedCluster,
    queue: Sequence[PodBatch],
    stop: Callable[[], bool] = lambda: False,
    *,
    around: bool = False,
) -> tuple[PodBatch, ...]:
    """Place what fits; it stays placed. Returns what found no room. stop: called before every batch; batches not tried
    by then are left over. around: distribute pods over the rows in turn."""
    waiting = list(queue)
    while True:
        left: list[PodBatch] = []
        full: dict[int, int] = {}  # class -> the simulated cluster's generation when it found no room
        for demand in waiting:
            if full.get(demand.cls) == simulated.generation or stop() or simulated.late():
                left.append(demand)
                continue
            at = sum(count for _, count in simulated.place_first_fit(demand.cls, len(demand.pods), around=around))
            if at < len(demand.pods):
                left.append(PodBatch(demand.cls, demand.pods[at:], demand.counts))
                full[demand.cls] = simulated.generation
        if simulated.late():
            return tuple(left)
        retry = [demand for demand in left if simulated.needs(demand.cls) is not None]
        if not retry or sum(len(d.pods) for d in left) == sum(len(d.pods) for d in waiting):
            return tuple(left)
        waiting = left
