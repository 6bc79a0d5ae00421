"""Buys nodes for the pods that existing nodes do not serve, places all pods, and removes
nodes that are not needed.

The estimator places the largest pods first, but the scheduler takes pods by priority and age. In a
small plan all pods are placed once more in the scheduler's own order, first fit, and these places
are promised if no pod loses its place. Otherwise, and in a large plan, the estimator's places are
used. Nodes that stay empty are not bought, nor is a node without which all pods still find a place.

Two checks of a small plan follow: every new node is needed, and no pod is refused that one more
node would take. They are needed because the scheduler takes pods one at a time, while the estimator
and `place` move runs of equal pods at once. For a refused pod that one more node would take, this
node is added if the scheduler's order then places more pods; otherwise its refusal says so. Both
checks stop when the estimator's time is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

import msgspec
import numpy as np

from chalicelib.model.pod import Pod
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.demand.pending_pods import PodBatch
from chalicelib.plan.scale_up.estimator import PodRequest
from chalicelib.plan.scale_up.expanders import LEAST_COST, Option, choose_option
from chalicelib.plan.scale_up.placement.planned_nodes import (
    ExistingPlacement,
    FinalPlacement,
    PlannedNodes,
    final_placement,
)
from chalicelib.plan.simulation.simulated_cluster import Placements, place
from chalicelib.plan.tables import Ints

_TRIES = 3  # maximum number of plans for pods that lost their place
_ROUNDS = 3  # maximum number of purchases for refused pods
_SINGLES = 200  # up to this many promised pods are placed one at a time, more as runs of equal pods


class Attempt(msgspec.Struct, frozen=True):
    """One plan for the pending pods. planned: its nodes, as in the simulated cluster until the next
    attempt. existing: pods on existing nodes before any node was bought. most_placed: class ->
    highest number of pods that the estimator has placed. refused_by_order: refused classes that one
    more node would take."""

    planned: PlannedNodes
    existing: ExistingPlacement
    placement: FinalPlacement
    most_placed: dict[int, int]
    refused_by_order: frozenset[int]


def buy_nodes(planned: PlannedNodes) -> Attempt:
    """Scale up for the pods that existing nodes do not serve and place all pods;
    plan/scale_up/placement/every_order.py determines which places may be promised."""
    search, existing = planned.search, planned.existing
    most_placed: dict[int, int] = {}
    unplaced = planned.add_minimum_nodes()
    for _ in range(_TRIES):
        before = dict(search.grown)
        _grow(planned, unplaced)
        for cls, (_, pods) in planned.simulated.standing().items():
            most_placed[cls] = max(most_placed.get(cls, 0), int(pods.sum()))
        planned.drop_empty()
        if search.grown == before:
            break
        _arrange(planned)
        for group in sorted(search.grown, reverse=True):
            _drop_needless(planned, group)
        unplaced = planned.place_unplaced()
        if not unplaced:
            break
    refused: frozenset[int] = frozenset()
    if planned.is_small:
        for bought in range(_ROUNDS + 1):
            planned.place_unplaced()
            _drop_redundant_nodes(planned)
            if bought == _ROUNDS or not _buy_overlooked_node(planned):
                break
        refused = _refused_by_order(planned)
    return Attempt(
        planned, existing, final_placement(planned, most_placed, refused), most_placed, refused
    )


def tidy(planned: PlannedNodes) -> frozenset[int]:
    """Remove unneeded nodes without buying, after nodes were removed for another reason. Returns
    the classes that are refused because of the scheduler's order."""
    planned.place_unplaced()
    _drop_redundant_nodes(planned)
    return _refused_by_order(planned)


def _grow(planned: PlannedNodes, unplaced: Sequence[PodBatch]) -> None:
    """Add new nodes for these pods."""
    counts: dict[int, int] = {}
    first: dict[int, str] = {}
    for batch in unplaced:
        counts[batch.cls] = counts.get(batch.cls, 0) + len(batch.pods)
        first.setdefault(batch.cls, batch.owner)
    requests = [PodRequest(cls, count, first[cls]) for cls, count in counts.items()]
    search, start = planned.search, planned.save()
    rest = search.search(requests)
    if LEAST_COST in search.state.options.expander and not all(
        map(planned.simulated.is_independent, counts)
    ):
        # With the pods that least-cost does not handle, its mix may cost more in total: run the
        # rest of the chain without it and keep the cheaper result.
        mixed, worth = planned.save(), (sum(request.count for request in rest), search.cost())
        planned.restore(start)
        rest = search.search(requests, least_cost=False)
        if (sum(request.count for request in rest), search.cost()) >= worth:
            planned.restore(mixed)


def _arrange(planned: PlannedNodes) -> None:
    """Place pods first fit in the scheduler's order if that is not worse for any priority and there
    is time; otherwise keep the estimator's places."""
    simulated = planned.simulated
    if simulated.late():
        return
    saved, worth = planned.save(), planned.pods_by_priority()
    if planned.is_small or _is_unjust(planned):
        planned.place_in_queue_order()
        if simulated.late():
            planned.restore(saved)
            return
        if planned.pods_by_priority() >= worth:
            while planned.drop_empty():
                planned.place_in_queue_order()
            return
    elif all(simulated.needs(cls) is None for cls in saved.placements):
        return  # no class depends on other pods: the estimator's places are valid in any order
    planned.restore(saved, empty=True)
    _place_as_estimated(planned, saved.placements)
    planned.drop_empty()


def _is_unjust(planned: PlannedNodes) -> bool:
    """Return whether a pod has a place on a new node while a pod of higher priority has none."""
    simulated = planned.simulated
    classes, standing = simulated.classes, simulated.standing()
    on_new = [
        classes[cls].priority or 0
        for cls, (rows, _) in standing.items()
        if (rows >= simulated.base).any()
    ]
    unplaced = [
        classes[batch.cls].priority or 0
        for batch in planned.unplaced_pods()
        if planned.search.candidates.fits(batch.cls).any()
    ]
    return bool(on_new) and bool(unplaced) and max(unplaced) > min(on_new)


def _place_as_estimated(planned: PlannedNodes, standing: Placements) -> None:
    """Place pods where the estimator placed them, in the scheduler's order and with its retries.
    A pod that is refused there was placed by chance, before others whose presence forbids it,
    and is promised nothing."""
    simulated = planned.simulated
    placed = simulated.standing()
    waiting: dict[int, Ints] = {}
    for cls, (rows, counts) in standing.items():
        target: Ints = np.zeros(len(simulated.table), dtype=np.int64)
        target[rows] += counts
        if cls in placed:
            target[placed[cls][0]] -= placed[cls][1]
        waiting[cls] = np.maximum(target, 0)
    order = [
        cls
        for cls in dict.fromkeys(batch.cls for batch in planned.existing.unserved)
        if cls in waiting
    ]
    moved = True
    while moved:
        moved = False
        for cls in order:
            if not waiting[cls].any() or simulated.late():
                continue
            quota, _ = simulated.quota(cls)
            take = simulated.attached.one_of(cls, np.minimum(waiting[cls], quota))
            rows = np.flatnonzero(take)
            if len(rows):
                simulated.place(cls, rows, take[rows])
                waiting[cls] -= take
                moved = True


def _drop_needless(planned: PlannedNodes, group: str) -> None:
    """Remove nodes of a group without which all pods still find a place."""
    if planned.is_atomic(group) or planned.simulated.late():
        return
    if not planned.is_small:
        planned.drop(_emptied_rows(planned, group))
        return
    while planned.spare(group) > 0 and not planned.simulated.late():
        saved, worth = planned.save(), planned.pods_by_priority()
        planned.search.undo_scale_up(group, 1)
        planned.place_in_queue_order()
        if planned.pods_by_priority() < worth:
            planned.restore(saved)
            return
        while planned.drop_empty():
            planned.place_in_queue_order()


def _emptied_rows(planned: PlannedNodes, group: str) -> list[int]:
    """Move the pods of the group's emptiest new nodes to other nodes while they find room there;
    returns the rows of the emptied nodes."""
    simulated, pods = planned.simulated, planned.pods_per_row()
    rows = [
        row for row, other in zip(planned.rows(), planned.groups(), strict=True) if other == group
    ]
    rows.sort(key=lambda row: (pods[row], -row))
    pods_on: dict[int, dict[int, int]] = {row: {} for row in rows}
    for cls, (cls_rows, counts) in simulated.standing().items():
        for row, count in zip(cls_rows.tolist(), counts.tolist(), strict=True):
            if row in pods_on:
                pods_on[row][cls] = count
    emptied: list[int] = []
    for row in rows[: planned.spare(group)]:
        if simulated.late():
            return emptied
        mark = simulated.checkpoint()
        simulated.close(row)
        moved: list[tuple[int, int, int]] = []
        for cls, count in pods_on[row].items():
            simulated.put_one(cls, row, -count)
            targets = simulated.place_first_fit(cls, count)
            moved += [(to, cls, many) for to, many in targets]
            if sum(many for _, many in targets) < count:
                simulated.rollback(mark)
                simulated.close(row, is_open=True)
                return emptied
        for to, cls, many in moved:
            if to in pods_on:
                pods_on[to][cls] = pods_on[to].get(cls, 0) + many
        emptied.append(row)
    return emptied


def _drop_redundant_nodes(planned: PlannedNodes) -> None:
    """Remove new nodes without which the promised pods still find places, checked one by one in the
    order of the queue, group by group."""
    for group in sorted(planned.search.grown, reverse=True):
        while (
            planned.spare(group) > 0 and not planned.is_atomic(group) and not planned.out_of_time()
        ):
            saved = planned.save()
            waiting = planned.place_again(_promised_pods(planned))
            planned.search.undo_scale_up(group, 1)
            planned.add_empty_nodes()
            if place(planned.simulated, waiting):
                planned.restore(saved)
                break
            planned.drop_empty()


def _promised_pods(planned: PlannedNodes) -> list[PodBatch]:
    """Return placed pods and uncounted pods that take room, in the order of the queue."""
    served = {cls: int(counts.sum()) for cls, (_, counts) in planned.simulated.standing().items()}
    promised: list[tuple[PodBatch, Pod]] = []
    for batch in sorted(planned.queue, key=lambda batch: not batch.counts):
        count = min(served.get(batch.cls, 0), len(batch.pods))
        served[batch.cls] = served.get(batch.cls, 0) - count
        promised += [(batch, pod) for pod in batch.pods[:count]]
    place_of = {
        pod.key: at for at, pod in enumerate(pod for batch in planned.queue for pod in batch.pods)
    }
    promised.sort(key=lambda entry: place_of[entry[1].key])
    if len(promised) <= _SINGLES:
        return [batch.only((pod,)) for batch, pod in promised]
    runs = [
        list(run) for _, run in groupby(promised, key=lambda entry: (entry[0].cls, entry[0].counts))
    ]
    return [run[0][0].only(tuple(pod for _, pod in run)) for run in runs]


def _buy_overlooked_node(planned: PlannedNodes) -> bool:
    """Buy one more node for pods that were refused although it would take them, if
    the expander takes it and placing all pods in queue order then succeeds better.
    Returns whether it was bought."""
    search, classes = planned.search, planned.simulated.classes
    for group, refused in _overlooked_groups(planned):
        stop, requested = search.stops.get(group), Counter[str]()
        if stop is not None and stop.code is ReasonCode.TIME_BUDGET:
            continue
        for cls in refused:
            requested.update(classes[cls].requests)
        option = Option(
            group,
            1,
            dict.fromkeys(refused, 1),
            search.candidates.shapes[group].template.node,
            requested,
        )
        if choose_option([option], search.state.options.expander, search.context)[0] is None:
            continue
        saved, worth = planned.save(), planned.pods_by_priority()
        search.add(group, 1)
        planned.place_in_queue_order()
        if planned.pods_by_priority() > worth and not planned.has_empty_node():
            return True
        planned.restore(saved)
    return False


def _refused_by_order(planned: PlannedNodes) -> frozenset[int]:
    """Retry the unplaced pods; returns which of the rest are refused because of the scheduler's
    order, not because of the choice of a group."""
    planned.place_unplaced()
    overlooked = _overlooked_groups(planned, is_one_enough=True)
    return frozenset(cls for _, refused in overlooked for cls in refused)


def _overlooked_groups(
    planned: PlannedNodes, *, is_one_enough: bool = False
) -> list[tuple[str, list[int]]]:
    """Return groups that may scale up, with the refused classes that one more node would take.
    is_one_enough: whether each class is asked for until a group would take it; with managed pools
    there are hundreds of groups."""
    search, simulated = planned.search, planned.simulated
    candidates, overlooked = search.candidates, []
    refused = dict.fromkeys(
        batch.cls for batch in planned.unplaced_pods() if candidates.fits(batch.cls).any()
    )
    saved = None
    for row, group in enumerate(candidates.groups):
        if group.id in candidates.variants:
            continue
        fitting = [
            cls for cls in refused if candidates.fits(cls)[row] and not candidates.against(cls, row)
        ]
        if not fitting or planned.out_of_time() or search.allowance(group).nodes <= 0:
            continue
        saved = saved or planned.save()
        search.put_nodes(group.id, search.grown.get(group.id, 0), 1)
        classes = [cls for cls in fitting if simulated.quota(cls)[0][-1] > 0]
        planned.restore(saved)
        if classes:
            overlooked.append((group.id, classes))
        if is_one_enough:
            refused = {cls: None for cls in refused if cls not in classes}
    return overlooked
