"""Several attempts to place the pending pods; the one that serves most pods is used.

Which pods are placed on existing nodes first decides which need new ones, and no single order is
always best. The scheduler's own order comes first, and is used unless another way places more pods,
or as many with fewer new nodes. Only small plans are tried again, and only if some pods fit
existing nodes and others do not; otherwise all ways give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b

import msgspec
import numpy as np

from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.demand.pending_pods import PendingPods, PodBatch
from chalicelib.plan.scale_up.expanders import expander_context
from chalicelib.plan.scale_up.placement.existing_nodes import (
    Way,
    place_on_existing_nodes,
    share_of_room,
)
from chalicelib.plan.scale_up.placement.new_nodes import Attempt, buy_nodes
from chalicelib.plan.scale_up.placement.planned_nodes import PlannedNodes
from chalicelib.plan.scale_up.scale_up_limits import enforce_min_size
from chalicelib.plan.scale_up.scale_up_search import ScaleUpSearch
from chalicelib.plan.simulation.pod_constraints import SpreadConstraint
from chalicelib.plan.simulation.simulated_cluster import RoundRobin, SimulatedCluster, place
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.managed_groups import is_candidate
from chalicelib.plan.state.pass_time import PassTime
from chalicelib.plan.state.readiness import ZONE

_SECONDS = 2.0  # for trying alternatives, where there is a clock
_RANDOM_ORDERS = 4  # equal for the same pods


def best_attempt(
    state: ClusterState,
    simulated: SimulatedCluster,
    pending: PendingPods,
    seed: int,
    pass_time: PassTime,
    removable: Callable[[ClusterState, SimulatedCluster], frozenset[int]],
) -> Attempt:
    """Return the plan that places the most pods, over several ways to place them on existing
    and on new nodes; the simulated cluster keeps it. removable: rows of the nodes that
    scale-down could remove."""
    attempts = _Attempts(state, simulated, pending, seed, pass_time)
    best = attempts.make()
    if not best.planned.is_small:
        return best
    if best.existing.has_choice:
        way = attempts.best_way(best)
        best = attempts.make(way)
    else:
        way = attempts.sparing_way(best, removable)
        best = best if attempts.latest is best else attempts.make(way)
    if not _is_limited(best):
        return best
    return attempts.make(way, attempts.best_order(best, way))


class _Attempts:
    """The attempts of one pass. Each of them begins with an empty simulated cluster.
    latest: the one that it holds."""

    def __init__(
        self,
        state: ClusterState,
        simulated: SimulatedCluster,
        pending: PendingPods,
        seed: int,
        pass_time: PassTime,
    ) -> None:
        self._state, self._simulated, self._pending, self._seed = state, simulated, pending, seed
        self._pass_time, self._round_robin = pass_time, RoundRobin()
        self.latest: Attempt | None = None

    def make(self, way: Way | None = None, new_nodes_way: Way | None = None) -> Attempt:
        """Return an attempt. way: how pods are placed on existing nodes; new_nodes_way: how the
        others are placed on new ones; None: as the scheduler places them."""
        self.latest = buy_nodes(self._on_existing_nodes(way, new_nodes_way))
        return self.latest

    def best_way(self, best: Attempt) -> Way | None:
        """Return the way to place pods on existing nodes with which most pods have a place,
        on the fewest new nodes."""
        chosen, started, tried = None, self._pass_time.spent(), {best.existing.signature}
        for way in WAYS:
            is_done = not best.placement.unplaced and not best.planned.search.grown
            if is_done or self._pass_time.over(started + _SECONDS):
                break
            planned = self._on_existing_nodes(way)
            if planned.existing.signature in tried:  # the rest of the plan would also be the same
                continue
            tried.add(planned.existing.signature)
            other = buy_nodes(planned)
            if _is_better(other, best) or (chosen is not None and self._is_surer(other, best)):
                best, chosen = other, way
        return chosen

    def sparing_way(
        self, best: Attempt, removable: Callable[[ClusterState, SimulatedCluster], frozenset[int]]
    ) -> Way | None:
        """Return a way to place the pods on nodes that stay in any case, as far as those take them:
        a node that pods are expected on is not removed, and pods of draining nodes would otherwise
        block one removable node after another. None: there is none that is as good."""
        may_go = (
            removable(self._state, self._simulated)
            if best.placement.pod_on_row
            else frozenset[int]()
        )
        if not may_go & best.placement.pod_on_row.keys():
            return None
        way = _on_other_rows(may_go)
        sparing = self.make(way)
        fewer = len(may_go & sparing.placement.pod_on_row.keys()) < len(
            may_go & best.placement.pod_on_row.keys()
        )
        if (
            _is_equal(sparing, best)
            and fewer
            and _works_in_order(sparing, self._simulated, self._pending)
        ):
            return way
        return None

    def best_order(self, best: Attempt, way: Way | None) -> Way | None:
        """Return the order with which most pods have a place on a limited number of new nodes."""
        chosen, started = None, self._pass_time.spent()
        for order in ORDERS:
            if not best.placement.unplaced or self._pass_time.over(started + _SECONDS):
                break
            other = self.make(way, order)
            pods, most = other.placement.pods_by_priority, best.placement.pods_by_priority
            if pods > most and sum(pods) > sum(most):
                best, chosen = other, order
        return chosen

    def _on_existing_nodes(self, way: Way | None, new_nodes_way: Way | None = None) -> PlannedNodes:
        simulated, queue = self._simulated, self._pending.queue
        simulated.constraints.as_declared()
        simulated.reset()
        search = ScaleUpSearch(
            self._state, simulated, expander_context(self._state, self._seed), self._pass_time
        )
        missing = enforce_min_size(self._state, search.limiter, {})
        minimum_nodes = {
            group: nodes for group, nodes in missing if group in search.candidates.shapes
        }
        existing = place_on_existing_nodes(search, queue, self._round_robin, way)
        if new_nodes_way is not None:
            unserved, _ = new_nodes_way(existing.unserved, simulated, self._round_robin)
            existing = msgspec.structs.replace(existing, unserved=tuple(unserved))
        _spread_over_new_zones(search, {batch.cls for batch in existing.unserved})
        return PlannedNodes(search, queue, existing, minimum_nodes)

    def _is_surer(self, attempt: Attempt, best: Attempt) -> bool:
        """Return whether an attempt is as good and also works in the scheduler's own order,
        which the best one does not."""
        return (
            _is_equal(attempt, best)
            and not _works_in_order(best, self._simulated, self._pending)
            and _works_in_order(attempt, self._simulated, self._pending)
        )


def _is_equal(attempt: Attempt, best: Attempt) -> bool:
    """Return whether an attempt places as many pods with the same new nodes."""
    same_pods = attempt.placement.pods_by_priority == best.placement.pods_by_priority
    return same_pods and attempt.planned.search.grown == best.planned.search.grown


def _is_limited(attempt: Attempt) -> bool:
    """Return whether nodes are bought, and a limit keeps others from pods
    that a group would take."""
    search = attempt.planned.search
    if not search.stops or not any(search.grown.values()):
        return False
    return any(search.candidates.fits(batch.cls).any() for batch in attempt.placement.unplaced)


def _works_in_order(attempt: Attempt, simulated: SimulatedCluster, pending: PendingPods) -> bool:
    """Return whether all placed pods also get a place in the scheduler's own order, first fit by
    row. It clears the simulated cluster."""
    unplaced = {pod.key for batch in attempt.placement.unplaced for pod in batch.pods}
    served = [
        batch.only(tuple(pod for pod in batch.pods if pod.key not in unplaced))
        for batch in pending.queue
    ]
    search = attempt.planned.search
    simulated.reset()
    rest = place(simulated, served)
    for group, nodes in sorted(search.grown.items()):
        if nodes:
            search.put_nodes(group, 0, nodes)
    return not any(batch.counts for batch in place(simulated, rest))


def _is_better(attempt: Attempt, best: Attempt) -> bool:
    """Return whether an attempt places more pods of the highest priority in which the numbers
    differ, or as many pods with no more nodes in any group."""
    if attempt.placement.pods_by_priority != best.placement.pods_by_priority:
        return attempt.placement.pods_by_priority > best.placement.pods_by_priority
    nodes, best_nodes = attempt.planned.search.grown, best.planned.search.grown
    return sum(nodes.values()) < sum(best_nodes.values()) and all(
        count <= best_nodes.get(group, 0) for group, count in nodes.items()
    )


# -- zones without nodes


def _spread_over_new_zones(search: ScaleUpSearch, classes: Iterable[int]) -> None:
    """Require for classes that are spread over zones the zones with nodes, and those in which a
    group could be opened for them. A zone without nodes is no domain for the scheduler, so that all
    pods would be planned for the first zone that gets a node."""
    simulated, candidates = search.simulated, search.candidates
    zones = {
        row: candidates.table.nodes[row].labels.get(ZONE, "")
        for row, group in enumerate(candidates.groups)
        if is_candidate(group.group)
    }
    if not zones:
        return
    for cls in classes:
        constraints = simulated.needs(cls)
        spreads = constraints.evenness if constraints is not None else ()
        over_zones = [spread for spread in spreads if spread.key == ZONE]
        if not over_zones:
            continue
        fits = candidates.fits(cls)
        domains = {zone for row, zone in zones.items() if zone and fits[row]}
        if domains:
            domains |= _zones_with_nodes(simulated, over_zones[0])
            simulated.require_domains(cls, ZONE, len(domains))


def _zones_with_nodes(simulated: SimulatedCluster, spread: SpreadConstraint) -> set[str]:
    codes, values = simulated.table.label(ZONE)
    counted = set(np.unique(codes[simulated.counts_in_spread(spread)]).tolist())
    return {zone for zone, code in values.items() if code in counted}


# -- the ways

_SortKey = Callable[[PodBatch, SimulatedCluster], float]


def _amount(resource: str) -> _SortKey:
    """Order by one resource, pods that ask for least of it first."""

    def amount(batch: PodBatch, simulated: SimulatedCluster) -> float:
        return float(simulated.classes[batch.cls].requests.get(resource, 0))

    return amount


def _sorted_by(key: _SortKey, *, in_turn: bool) -> Way:
    def way(
        queue: Sequence[PodBatch], simulated: SimulatedCluster, round_robin: RoundRobin
    ) -> tuple[list[PodBatch], bool]:
        round_robin.begin_at(0)
        classes = simulated.classes
        return sorted(
            queue, key=lambda batch: (-(classes[batch.cls].priority or 0), key(batch, simulated))
        ), in_turn

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
ORDERS: tuple[Way, ...] = (
    *(_sorted_by(key, in_turn=False) for key, _ in _KEYS[1:]),
    *(_sorted_by(_amount(resource), in_turn=False) for resource in (CPU, MEMORY)),
    *(_in_random_order(seed) for seed in range(_RANDOM_ORDERS)),
)
"""Orders of the pods on a limited number of new nodes."""
