"""Several attempts to place the pending pods; the one that serves most pods is used.

Which pods are placed on existing nodes first decides which need new ones, and no single order is always best. The
scheduler's own order comes first, and is used unless another way places more pods, or as many with fewer new nodes.
Only small plans are tried again, and only if some pods fit existing nodes and others do not; otherwise all ways give
the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b

from chalicelib.plan.demand.pending_pods import PendingPods, PodBatch
from chalicelib.plan.scale_up.expanders import expander_context
from chalicelib.plan.scale_up.limits import enforce_min_size
from chalicelib.plan.scale_up.placement.existing_nodes import Way, place_on_existing_nodes, share_of_room
from chalicelib.plan.scale_up.placement.new_nodes import Attempt, buy_nodes
from chalicelib.plan.scale_up.placement.planned_nodes import PlannedNodes
from chalicelib.plan.scale_up.search import ScaleUpSearch
from chalicelib.plan.simulation.simulated_cluster import RoundRobin, SimulatedCluster, place
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.time_budget import TimeBudget

_SECONDS = 2.0  # for trying alternatives, where there is a clock
_IF_ALL_SERVED = 4  # alternatives that are tried only to save nodes, when all pods have a place
_RANDOM_ORDERS = 4  # equal for the same pods


def best_attempt(
    state: ClusterState,
    simulated: SimulatedCluster,
    pending: PendingPods,
    seed: int,
    budget: TimeBudget,
    removable: Callable[[ClusterState, SimulatedCluster], frozenset[int]],
) -> Attempt:
    """Return the plan that places the most pods, over several ways to place them on existing nodes; the simulated
    cluster keeps it. removable: rows of the nodes that scale-down could remove."""

    round_robin = RoundRobin()

    def on_existing_nodes(way: Way | None) -> PlannedNodes:
        simulated.reset()
        search = ScaleUpSearch(state, simulated, expander_context(state, seed), budget)
        missing = enforce_min_size(state, search.limiter, {})
        minimum_nodes = {group: nodes for group, nodes in missing if group in search.candidates.shapes}
        existing = place_on_existing_nodes(search, pending.queue, round_robin, way)
        return PlannedNodes(search, pending.queue, existing, minimum_nodes)

    def attempt(way: Way | None) -> Attempt:
        return buy_nodes(on_existing_nodes(way))

    best, chosen = attempt(None), None
    if not best.planned.is_small:
        return best
    if not best.existing.has_choice:
        # Place the pods on nodes that stay in any case, as far as those take them: a node that pods are expected on is
        # not removed, and pods of draining nodes would otherwise block one removable node after another.
        may_go = removable(state, simulated) if best.placement.pod_on_row else frozenset[int]()
        if not may_go & best.placement.pod_on_row.keys():
            return best
        way = _on_other_rows(may_go)
        sparing = attempt(way)
        fewer = len(may_go & sparing.placement.pod_on_row.keys()) < len(may_go & best.placement.pod_on_row.keys())
        same = sparing.placement.pods_by_priority == best.placement.pods_by_priority
        same = same and sparing.planned.search.grown == best.planned.search.grown
        return attempt(way if same and fewer and _works_in_order(sparing, simulated, pending) else None)
    started, tried = budget.spent(), {best.existing.signature}
    for number, way in enumerate(WAYS):
        if budget.over(started + _SECONDS) or (number >= _IF_ALL_SERVED and not best.placement.unplaced):
            break
        planned = on_existing_nodes(way)
        if planned.existing.signature in tried:  # the rest of the plan would also be the same
            continue
        tried.add(planned.existing.signature)
        other = buy_nodes(planned)
        if _is_better(other, best) or (chosen is not None and _is_surer(other, best, simulated, pending)):
            best, chosen = other, way
    return attempt(chosen)


def _works_in_order(attempt: Attempt, simulated: SimulatedCluster, pending: PendingPods) -> bool:
    """Return whether all placed pods also get a place in the scheduler's own order, first fit by row. It clears the
    simulated cluster."""
    unplaced = {pod.key for batch in attempt.placement.unplaced for pod in batch.pods}
    served = [batch.only(tuple(pod for pod in batch.pods if pod.key not in unplaced)) for batch in pending.queue]
    search = attempt.planned.search
    simulated.reset()
    rest = place(simulated, served)
    for group, nodes in sorted(search.grown.items()):
        if nodes:
            search.put_nodes(group, 0, nodes)
    return not any(batch.counts for batch in place(simulated, rest))


def _is_better(attempt: Attempt, best: Attempt) -> bool:
    """Return whether an attempt places more pods of the highest priority in which the numbers differ, or as many pods
    with no more nodes in any group."""
    if attempt.placement.pods_by_priority != best.placement.pods_by_priority:
        return attempt.placement.pods_by_priority > best.placement.pods_by_priority
    nodes, best_nodes = attempt.planned.search.grown, best.planned.search.grown
    return sum(nodes.values()) < sum(best_nodes.values()) and all(
        count <= best_nodes.get(group, 0) for group, count in nodes.items()
    )


def _is_surer(attempt: Attempt, best: Attempt, simulated: SimulatedCluster, pending: PendingPods) -> bool:
    """Return whether an attempt is as good and also works in the scheduler's own order, which the best one does not. It
    clears the simulated cluster."""
    return (
        attempt.placement.pods_by_priority == best.placement.pods_by_priority
        and attempt.planned.search.grown == best.planned.search.grown
        and not _works_in_order(best, simulated, pending)
        and _works_in_order(attempt, simulated, pending)
    )


# -- the ways

_SortKey = Callable[[PodBatch, SimulatedCluster], float]


def _sorted_by(key: _SortKey, *, in_turn: bool) -> Way:
    def way(
        queue: Sequence[PodBatch], simulated: SimulatedCluster, round_robin: RoundRobin
    ) -> tuple[list[PodBatch], bool]:
        round_robin.begin_at(0)
        classes = simulated.classes
        return sorted(queue, key=lambda batch: (-(classes[batch.cls].priority or 0), key(batch, simulated))), in_turn

    return way


def _in_random_order(seed: int) -> Way:
    """Order at random. The first row of round-robin placement is random too."""

    def drawn(text: str) -> int:
        lot = blake2b(f"{seed}\n{text}".encode("utf-8", "surrogatepass"), digest_size=6)
        return int.from_bytes(lot.digest(), "big")

    by_lot = _sorted_by(lambda batch, _: float(drawn(batch.pods[0].key)), in_turn=True)

    def way(
        queue: Sequence[PodBatch], simulated: SimulatedCluster, round_robin: RoundRobin
    ) -> tuple[list[PodBatch], bool]:
        ordered, in_turn = by_lot(queue, simulated, round_robin)
        round_robin.begin_at(drawn("") % max(1, simulated.base))
        return ordered, in_turn

    return way


def _on_other_rows(rows: Collection[int]) -> Way:
    """Place all pods on other rows than these first, as far as those take them."""

    def way(
        queue: Sequence[PodBatch], simulated: SimulatedCluster, _round_robin: RoundRobin
    ) -> tuple[list[PodBatch], bool]:
        closed = [row for row in rows if simulated.open[row]]
        for row in closed:
            simulated.close(row)
        unplaced = place(simulated, queue)
        for row in closed:
            simulated.close(row, is_open=True)
        return list(unplaced), False

    return way


_KEYS: tuple[tuple[_SortKey, tuple[bool, ...]], ...] = (
    (lambda _batch, _simulated: 0.0, (False, True)),  # as they stand
    (lambda batch, simulated: -share_of_room(batch, simulated), (False, True)),
    (share_of_room, (False, True)),
    (lambda batch, simulated: float(simulated.needs(batch.cls) is None), (False,)),
    (lambda batch, simulated: float(simulated.needs(batch.cls) is not None), (False,)),
)
WAYS: tuple[Way, ...] = (
    *(_sorted_by(key, in_turn=in_turn) for key, variants in _KEYS for in_turn in variants),
    *(_in_random_order(seed) for seed in range(_RANDOM_ORDERS)),
)
