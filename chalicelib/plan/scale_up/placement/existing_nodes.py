"""Places pending pods on existing and upcoming nodes, before any node is bought.

Upcoming nodes were bought for certain pods (model/purchases.py). In each priority these pods come
first on the nodes of their purchase; whatever is left takes anybody. That is a preference and
no reservation: it ends with the nodes or the pods. If pods find no room although an upcoming node
would take them, pods with the fewest suitable nodes go first: pods that may be anywhere would
otherwise take the places of those that may not, and these would be bought for again in every pass.
See docs/reference/scale-up.md "Upcoming nodes".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

import numpy as np

from chalicelib.model.operation import AwaitedPods, OperationKind
from chalicelib.model.purchases import digest_of, owner_of
from chalicelib.plan.demand.pending_pods import PodBatch
from chalicelib.plan.scale_up.placement.moved_pods import make_room, pack_again
from chalicelib.plan.scale_up.placement.planned_nodes import (
    ExistingPlacement,
    is_small,
    unserved_pods,
)
from chalicelib.plan.scale_up.scale_up_search import ScaleUpSearch
from chalicelib.plan.simulation.simulated_cluster import (
    Placements,
    RoundRobin,
    SimulatedCluster,
    place,
)
from chalicelib.plan.state.cluster_state import ClusterState

Way = Callable[[Sequence[PodBatch], SimulatedCluster, RoundRobin], tuple[list[PodBatch], bool]]
"""(queue, simulated cluster, round_robin) -> the queue in another order, in which pods of higher
priority stay first, and whether pods are placed on the rows in turn instead of first fit."""


Stop = Callable[[], bool]
_SECONDS = 2.0  # for upcoming nodes, where there is a clock
_MOST_MOVED_FOR = 30  # pods without a place for which others are moved


def place_on_existing_nodes(
    search: ScaleUpSearch, queue: Sequence[PodBatch], round_robin: RoundRobin, way: Way | None
) -> ExistingPlacement:
    """Place pods on existing and upcoming nodes, before any new node is added. way: how
    pods are placed; None: on upcoming nodes those first for which they were bought,
    otherwise in the scheduler's order."""
    simulated, pass_time = search.simulated, search.pass_time
    limit = search.state.options.pending_pods_batching_timeout
    started = pass_time.spent()

    def stop() -> bool:
        return pass_time.over(limit)

    if way is not None:
        ordered, in_turn = way(queue, simulated, round_robin)
        place(simulated, ordered, stop, round_robin if in_turn else None)
        simulated.record_lateness()
    elif simulated.coming:
        orders = _Orders(search.state, simulated, queue, round_robin, stop)
        orders.place_most(lambda: stop() or pass_time.over(started + _SECONDS))
    else:
        _place_in_order(simulated, queue, round_robin, stop)
    return ExistingPlacement(
        simulated.standing(), unserved_pods(queue, simulated), simulated.checkpoint()
    )


def _place_in_order(
    simulated: SimulatedCluster, queue: Sequence[PodBatch], round_robin: RoundRobin, stop: Stop
) -> None:
    """Place pods in the scheduler's order, first fit or in turn. Distribution in turn, as
    in Cluster Autoscaler, is closer to how the scheduler spreads pods; first fit is kept
    if it places more of them."""
    place(simulated, queue, stop)
    simulated.record_lateness()
    unserved = unserved_pods(queue, simulated)
    if not unserved or not is_small(simulated, queue):
        return
    first_fit = simulated.standing()
    simulated.rollback(0)
    place(simulated, queue, round_robin=round_robin)
    rest = unserved_pods(queue, simulated)
    if sum(len(batch.pods) for batch in rest) > sum(len(batch.pods) for batch in unserved):
        simulated.rollback(0)
        simulated.put_all(first_fit)


# -- upcoming nodes


_Key = Callable[[PodBatch], tuple[float, ...]]


class _Orders:
    """The orders in which pods are tried where nodes are coming. stop: when a placement ends."""

    def __init__(
        self,
        state: ClusterState,
        simulated: SimulatedCluster,
        queue: Sequence[PodBatch],
        round_robin: RoundRobin,
        stop: Stop,
    ) -> None:
        self._state, self._simulated, self._queue = state, simulated, queue
        self._round_robin, self._stop = round_robin, stop
        # class -> nodes that take a pod of it now
        self._suitable = {
            batch.cls: int(np.count_nonzero(simulated.capacity(batch.cls))) for batch in queue
        }

    def place_most(self, enough: Stop) -> None:
        """Place pods in the first order that leaves no pod which a node takes now, otherwise in the
        one that places most of the highest priority. enough: when no further order is tried."""
        simulated, queue = self._simulated, self._queue
        best: tuple[list[int], Placements] | None = None
        is_best = False
        for order in self._orders():
            simulated.rollback(0)
            order()
            if (left := self._left()) and not enough():
                make_room(simulated, left, enough)
            lacks = _by_priority(queue, unserved_pods(queue, simulated), simulated)
            is_best = best is None or lacks < best[0]
            if best is None or lacks < best[0]:
                best = lacks, simulated.standing()
            if not self._is_wanting() or enough() or simulated.late():
                break
        if best is not None and not is_best:
            simulated.rollback(0)
            simulated.put_all(best[1])
        if (left := self._left()) and not enough():
            pack_again(simulated, left, enough)

    def _is_wanting(self) -> bool:
        """Return whether a pod has no place that a node would take now."""
        return any(
            self._suitable[batch.cls] for batch in unserved_pods(self._queue, self._simulated)
        )

    def _left(self) -> list[PodBatch]:
        """Return these pods, if they are few."""
        left = [
            batch
            for batch in unserved_pods(self._queue, self._simulated)
            if self._suitable[batch.cls]
        ]
        return left if sum(len(batch.pods) for batch in left) <= _MOST_MOVED_FOR else []

    def _orders(self) -> Iterator[Callable[[], None]]:
        simulated, queue, suitable = self._simulated, self._queue, self._suitable
        if awaited := awaited_classes(self._state, simulated, queue):
            yield partial(_place_awaited_first, simulated, queue, awaited, self._stop)
        yield partial(_place_in_order, simulated, queue, self._round_robin, self._stop)
        share = {batch.cls: share_of_room(batch, simulated) for batch in queue}

        def scarce(batch: PodBatch) -> tuple[float, ...]:
            return (suitable[batch.cls],)

        def scarce_and_large(batch: PodBatch) -> tuple[float, ...]:
            return (suitable[batch.cls], -share[batch.cls])

        def ruled_first(batch: PodBatch) -> tuple[float, ...]:
            return (simulated.needs(batch.cls) is None, *scarce_and_large(batch))

        for key, in_turn in (
            (scarce, False),
            (ruled_first, False),
            (ruled_first, True),
            (scarce_and_large, True),
        ):
            yield partial(self._place_by, key, in_turn)

    def _place_by(self, key: _Key, in_turn: bool) -> None:  # noqa: FBT001 - bound by partial
        """Place pods by priority, and by this key among equals."""
        self._round_robin.begin_at(0)
        ordered = sorted(
            self._queue, key=lambda batch: (-_priority(batch, self._simulated), key(batch))
        )
        place(self._simulated, ordered, self._stop, self._round_robin if in_turn else None)


def _priority(batch: PodBatch, simulated: SimulatedCluster) -> int:
    return simulated.classes[batch.cls].priority or 0


def _by_priority(
    queue: Sequence[PodBatch], unserved: Sequence[PodBatch], simulated: SimulatedCluster
) -> list[int]:
    """Return how many pods are unserved per priority, the highest first."""
    counts = {_priority(batch, simulated): 0 for batch in queue}
    for batch in unserved:
        counts[_priority(batch, simulated)] += len(batch.pods)
    return [counts[priority] for priority in sorted(counts, reverse=True)]


def awaited_classes(
    state: ClusterState, simulated: SimulatedCluster, queue: Sequence[PodBatch]
) -> dict[str, dict[int, int]]:
    """Return group -> class -> pods for which its upcoming nodes were
    bought, of the pods that wait."""
    entries = {name: tuple(_awaited(state, name)) for name in simulated.coming}
    if not any(entries.values()):
        return {}
    classes = simulated.classes
    waiting = {
        (owner_of(classes[cls]), digest_of(classes[cls])): cls
        for cls in {batch.cls for batch in queue}
    }
    awaited: dict[str, dict[int, int]] = {}
    for name, pods in entries.items():
        for entry in pods:
            cls = waiting.get((entry.owner, entry.digest))
            if cls is not None:
                of_group = awaited.setdefault(name, {})
                of_group[cls] = of_group.get(cls, 0) + entry.count
    return awaited


def _awaited(state: ClusterState, name: str) -> Iterator[AwaitedPods]:
    """Yield for whom a group's upcoming nodes were bought, by purchases and by open scale-ups."""
    request = state.groups[name].memory.request
    for row in request.purchases if request is not None else ():
        yield from row.pods
    for operation in state.memory.operations:
        if (
            operation.is_open
            and operation.spec.group == name
            and operation.spec.kind is OperationKind.SCALE_UP
        ):
            yield from operation.spec.awaited


def _place_awaited_first(
    simulated: SimulatedCluster,
    queue: Sequence[PodBatch],
    awaited: Mapping[str, Mapping[int, int]],
    stop: Stop,
) -> None:
    """Place the pods of each priority, those for which nodes were bought first, on
    the nodes of their groups."""
    unplaced: list[PodBatch] = []
    share = {batch.cls: share_of_room(batch, simulated) for batch in queue}
    for _, level in groupby(queue, key=lambda batch: _priority(batch, simulated)):
        batches = list(level)
        waiting = Counter[int]()
        for batch in batches:
            waiting[batch.cls] += len(batch.pods)
        placed = Counter[int]()
        # Pods with rules about other pods first: they have the fewest places; then the largest.
        for cls in sorted(
            waiting, key=lambda cls: (simulated.needs(cls) is None, -share[cls], cls)
        ):
            count = _place_class(
                simulated,
                cls,
                waiting[cls],
                {name: of[cls] for name, of in awaited.items() if cls in of},
            )
            placed[cls] = count
        unplaced += place(simulated, _without(batches, placed), stop)
    place(simulated, unplaced, stop)
    simulated.record_lateness()


def _place_class(
    simulated: SimulatedCluster, cls: int, waiting: int, awaited: Mapping[str, int]
) -> int:
    """Place pods of a class on the upcoming nodes of groups; returns how many. awaited: group -> at
    most so many. Pods that are spread over groups need several turns."""
    left, placed, before = dict(awaited), 0, -1
    while placed > before:
        before = placed
        for name in sorted(left):
            count = min(left[name], waiting - placed)
            rows = simulated.coming[name]
            done = sum(pods for _, pods in simulated.place_first_fit(cls, count, only=rows))
            left[name] -= done
            placed += done
    return placed


def _without(batches: Sequence[PodBatch], placed: Counter[int]) -> list[PodBatch]:
    """Return the batches without this many pods of each class, the first ones."""
    left: list[PodBatch] = []
    for batch in batches:
        gone = min(placed[batch.cls], len(batch.pods))
        placed[batch.cls] -= gone
        if gone < len(batch.pods):
            left.append(batch.only(batch.pods[gone:]))
    return left


def share_of_room(batch: PodBatch, simulated: SimulatedCluster) -> float:
    """Return one pod's share of all existing room, of the scarcest resource."""
    need = simulated.table.columns.need(batch.cls)
    room = simulated.table.free[: simulated.base].sum(axis=0)
    return max(
        (int(want) / max(1, int(free)) for want, free in zip(need, room, strict=True) if want > 0),
        default=0.0,
    )
