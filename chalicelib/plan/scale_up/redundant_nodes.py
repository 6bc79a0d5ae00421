"""Runs the final placement: scales up, places all pods, removes nodes that are not needed, and buys those that the
search has missed.

The last two are checks of a small plan: every new node is needed, and no pod is refused that one more node would take.
They are needed because the scheduler takes pods one at a time, while the estimator and `place` move runs of equal pods
at once. For a refused pod that one more node would take, this node is added if the scheduler's order then places more
pods; otherwise its refusal says so. Both checks stop when the estimator's time is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from chalicelib.model.pod import Pod
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.scale_up.expanders import Option, choose_option
from chalicelib.plan.scale_up.final_placement import FinalPlacer
from chalicelib.plan.simulation.simulated_cluster import place
from chalicelib.plan.state.pending_pods import PodBatch

_TRIES = 3  # maximum number of plans for pods that lost their place
_ROUNDS = 3  # maximum number of purchases for refused pods
_SINGLES = 200  # up to this many promised pods are placed one at a time, more as runs of equal pods


def finalize_placement(placer: FinalPlacer) -> None:
    """Scale up for the queue and place all pods; plan/scale_up/worst_case.py determines which places may be
    promised."""
    search = placer.search
    unplaced: Sequence[PodBatch] = placer.unplaced
    for _ in range(_TRIES):
        before = dict(search.grown)
        placer.grow(unplaced)
        if search.grown == before:
            break
        placer.arrange()
        for group in sorted(search.grown, reverse=True):
            placer.drop_needless(group)
        unplaced = placer.place_unplaced()
        if not unplaced:
            break
    if placer.is_small:
        for bought in range(_ROUNDS + 1):
            placer.place_unplaced()
            _drop_redundant_nodes(placer)
            if bought == _ROUNDS or not _buy_overlooked_node(placer):
                break
        _note_refusals(placer)


def tidy(placer: FinalPlacer) -> None:
    """Remove unneeded nodes without buying, after nodes were removed for another reason."""
    placer.place_unplaced()
    _drop_redundant_nodes(placer)
    _note_refusals(placer)


class Saved:
    """A saved state of nodes and places, including pods on existing nodes; the planned nodes are removed."""

    def __init__(self, placer: FinalPlacer) -> None:
        self._placer = placer
        self._grown, self._groups, self._standing = placer.state()
        self._rest = placer.rest
        placer.simulated.reset(placer.mark)
        self._early = placer.simulated.standing()

    def restore(self) -> None:
        """Restore the saved state."""
        placer, simulated, search = self._placer, self._placer.simulated, self._placer.search
        for group, nodes in list(search.grown.items()):
            search.undo_scale_up(group, nodes - self._grown.get(group, 0))
        simulated.reset()
        simulated.put_all(self._early)
        placer.mark, placer.rest = simulated.checkpoint(), self._rest
        placer.add_empty_nodes(self._groups)
        simulated.put_all(self._standing)


def _drop_redundant_nodes(placer: FinalPlacer) -> None:
    """Remove new nodes without which the promised pods still find places, checked one by one in the order of the
    queue, group by group."""
    simulated = placer.simulated
    for group in sorted(placer.search.grown, reverse=True):
        while placer.spare(group) > 0 and not placer.is_atomic(group) and not placer.out_of_time():
            queue, before = _promised_pods(placer), Saved(placer)
            simulated.reset()
            waiting = place(simulated, queue)
            placer.begin_at(simulated.checkpoint())
            placer.search.undo_scale_up(group, 1)
            placer.add_empty_nodes()
            if place(simulated, waiting):
                before.restore()
                break
            placer.drop_empty()


def _promised_pods(placer: FinalPlacer) -> list[PodBatch]:
    """Return placed pods and uncounted pods that take room, in the order of the queue."""
    served = {cls: int(counts.sum()) for cls, (_, counts) in placer.simulated.standing().items()}
    promised: list[tuple[int, Pod, bool]] = []
    for batch in sorted(placer.queue, key=lambda batch: not batch.counts):
        count = min(served.get(batch.cls, 0), len(batch.pods))
        served[batch.cls] = served.get(batch.cls, 0) - count
        promised += [(batch.cls, pod, batch.counts) for pod in batch.pods[:count]]
    place_of = {pod.key: at for at, pod in enumerate(pod for batch in placer.queue for pod in batch.pods)}
    promised.sort(key=lambda entry: place_of[entry[1].key])
    if len(promised) <= _SINGLES:
        return [PodBatch(cls, (pod,), counts) for cls, pod, counts in promised]
    return [
        PodBatch(cls, tuple(pod for _, pod, _ in run), counts)
        for (cls, counts), run in groupby(promised, key=lambda entry: (entry[0], entry[2]))
    ]


def _buy_overlooked_node(placer: FinalPlacer) -> bool:
    """Buy one more node for pods that were refused although it would take them, if the expander takes it and placing
    all pods in queue order then succeeds better. Returns whether it was bought."""
    search, simulated = placer.search, placer.simulated
    for group, classes in _overlooked_groups(placer):
        stop, requested = search.stops.get(group), Counter[str]()
        if stop is not None and stop.code is ReasonCode.TIME_BUDGET:
            continue
        for cls in classes:
            requested.update(simulated.classes[cls].requests)
        option = Option(group, 1, dict.fromkeys(classes, 1), search.candidates.shapes[group].template.node, requested)
        if choose_option([option], search.state.options.expander, search.context)[0] is None:
            continue
        standing, groups, worth = simulated.standing(), placer.groups(), placer.pods_by_priority()
        search.add(group, 1)
        placer.place_in_queue_order()
        if placer.pods_by_priority() > worth and not placer.has_empty_node():
            return True
        search.undo_scale_up(group, 1)
        placer.restore(groups, standing)
    return False


def _note_refusals(placer: FinalPlacer) -> None:
    """Retry the unplaced pods, and record which of the rest are refused because of the scheduler's order, not because
    of the choice of a group."""
    placer.place_unplaced()
    for _, classes in _overlooked_groups(placer):
        placer.refused_by_order.update(classes)


def _overlooked_groups(placer: FinalPlacer) -> list[tuple[str, list[int]]]:
    """Return groups that may scale up, with the refused classes that one more node would take."""
    search, simulated = placer.search, placer.simulated
    candidates, overlooked = search.candidates, []
    refused = dict.fromkeys(batch.cls for batch in placer.placement().unplaced if candidates.fits(batch.cls).any())
    groups: list[str] | None = None
    for row, group in enumerate(candidates.groups):
        fitting = [cls for cls in refused if candidates.fits(cls)[row] and not candidates.against(cls, row)]
        if not fitting or placer.out_of_time() or search.allowance(group).nodes <= 0:
            continue
        if groups is None:
            groups, standing = placer.groups(), simulated.standing()
        search.put_nodes(group.id, search.grown.get(group.id, 0), 1)
        classes = [cls for cls in fitting if simulated.quota(cls)[0][-1] > 0]
        placer.restore(groups, standing)
        if classes:
            overlooked.append((group.id, classes))
    return overlooked
