"""Two final checks of a small plan: every new node is needed, and no pod is refused that one more node would take.

They are needed because the scheduler takes pods one at a time, while the estimator and `place` move runs of equal pods
at once. A node that no promised pod needs is removed from the plan. For a refused pod that one more node would take,
this node is added if the scheduler's order then places more pods; otherwise its refusal says so. Both checks stop when
the estimator's time is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from chalicelib.model.pod import Pod
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.scale_up.expanders import Option, choose_option
from chalicelib.plan.scale_up.final_placement import FinalPlacer
from chalicelib.plan.simulation.simulated_cluster import place
from chalicelib.plan.state.pending_pods import PodBatch

if TYPE_CHECKING:
    from chalicelib.plan.scale_up.final_placement import FinalPlacer

_ROUNDS = 3  # maximum number of purchases for refused pods
_SINGLES = 200  # up to this many promised pods are placed one at a time, more as runs of equal pods


def refine(placer: FinalPlacer) -> None:
    """Remove unneeded nodes, and buy nodes that the search missed. A large plan is not changed."""
    if not placer.small:
        return
    for bought in range(_ROUNDS + 1):
        placer.top_up()
        _Spare(placer).drop()
        if bought == _ROUNDS or not _Refused(placer).buy():
            break
    placer.top_up()
    _Refused(placer).note()


def tidy(placer: FinalPlacer) -> None:
    """Remove unneeded nodes without buying, after nodes were removed for another reason."""
    placer.top_up()
    _Spare(placer).drop()
    placer.top_up()
    _Refused(placer).note()


class Saved:
    """A saved state of nodes and places, including pods on existing nodes; the planned nodes are removed."""

    def __init__(self, placer: FinalPlacer) -> None:
        self._settling, simulated = placer, placer.simulated
        self._grown, self._groups, self._standing = placer.state()
        self._rest = placer.rest
        simulated.reset(placer.mark)
        self._early = simulated.standing()

    def restore(self) -> None:
        """Restore the saved state."""
        settling, simulated, search = self._settling, self._settling.simulated, self._settling.search
        for group, nodes in list(search.grown.items()):
            search.undo_scale_up(group, nodes - self._grown.get(group, 0))
        simulated.reset()
        simulated.put_all(self._early)
        settling.mark, settling.rest = simulated.checkpoint(), self._rest
        settling.lay(self._groups)
        simulated.put_all(self._standing)


class _Spare:
    """New nodes without which the promised pods still find places, checked one by one in the order of the queue."""

    def __init__(self, placer: FinalPlacer) -> None:
        self.settling, self.simulated, self.search = placer, placer.simulated, placer.search

    def drop(self) -> None:
        """Remove them, group by group."""
        for group in sorted(self.search.grown, reverse=True):
            while self.settling.spare(group) > 0 and not self.settling.atomic(group) and not self.settling.late():
                if not self._drop_one(group):
                    break

    def _drop_one(self, group: str) -> bool:
        settling, simulated = self.settling, self.simulated
        queue, before = self._promised(), Saved(settling)
        simulated.reset()
        waiting = place(simulated, queue)
        settling.begin_at(simulated.checkpoint())
        self.search.undo_scale_up(group, 1)
        settling.lay_all()
        if not place(simulated, waiting):
            settling.drop_empty()
            return True
        before.restore()
        return False

    def _promised(self) -> list[PodBatch]:
        """Return placed pods and uncounted pods that take room, in the order of the queue."""
        served = {cls: int(counts.sum()) for cls, (_, counts) in self.simulated.standing().items()}
        kept: list[tuple[int, Pod, bool]] = []
        for demand in sorted(self.settling.queue, key=lambda demand: not demand.counts):
            here = min(served.get(demand.cls, 0), len(demand.pods))
            served[demand.cls] = served.get(demand.cls, 0) - here
            kept += [(demand.cls, pod, demand.counts) for pod in demand.pods[:here]]
        place_of = {pod.key: at for at, pod in enumerate(pod for demand in self.settling.queue for pod in demand.pods)}
        kept.sort(key=lambda each: place_of[each[1].key])
        if len(kept) <= _SINGLES:
            return [PodBatch(cls, (pod,), counts) for cls, pod, counts in kept]
        return [
            PodBatch(cls, tuple(pod for _, pod, _ in run), counts)
            for (cls, counts), run in groupby(kept, key=lambda each: (each[0], each[2]))
        ]


class _Refused:
    """Pods that were refused although one more node of a group that may scale up would take them."""

    def __init__(self, placer: FinalPlacer) -> None:
        self.settling, self.simulated, self.search = placer, placer.simulated, placer.search

    def buy(self) -> bool:
        """Buy one more node for such a pod if placing all pods in queue order then succeeds better. Returns whether it
        was bought."""
        settling, search = self.settling, self.search
        for group, classes in self._overlooked():
            if not self._chosen(group, classes):
                continue
            standing, groups, count = self.simulated.standing(), settling.groups(), settling.worth()
            search.add(group, 1)
            settling.in_queue_order()
            if settling.worth() > count and not settling.idle():
                return True
            search.undo_scale_up(group, 1)
            settling.restore(groups, standing)
        return False

    def _chosen(self, group: str, classes: Sequence[int]) -> bool:
        """Return whether the group was asked in time and the expander takes one node of it for these pods."""
        search, requested = self.search, Counter[str]()
        stop = search.stops.get(group)
        if stop is not None and stop.code is ReasonCode.TIME_BUDGET:
            return False
        for cls in classes:
            requested.update(self.simulated.classes[cls].requests)
        option = Option(group, 1, dict.fromkeys(classes, 1), search.candidates.shapes[group].template.node, requested)
        return choose_option([option], search.state.options.expander, search.situation)[0] is not None

    def note(self) -> None:
        """Record that the remaining pods are refused because of the scheduler's order, not because of the choice of a
        group."""
        for _, classes in self._overlooked():
            self.settling.doubtful.update(classes)

    def _overlooked(self) -> list[tuple[str, list[int]]]:
        """Return groups that may scale up, with the refused classes that one more node would take."""
        settling, search, simulated = self.settling, self.search, self.simulated
        candidates, found = search.candidates, []
        left = dict.fromkeys(demand.cls for demand in settling.settled().left if candidates.fits(demand.cls).any())
        groups: list[str] | None = None
        for row, facts in enumerate(candidates.able):
            asked = [cls for cls in left if candidates.fits(cls)[row] and not candidates.against(cls, row)]
            if (
                not asked
                or settling.late()
                or (search.ledger.allowance(facts, search.grown.get(facts.id, 0)).nodes <= 0)
            ):
                continue
            if groups is None:
                groups, standing = settling.groups(), simulated.standing()
            search.put_nodes(facts.id, search.grown.get(facts.id, 0), 1)
            taken = [cls for cls in asked if simulated.quota(cls)[0][-1] > 0]
            settling.restore(groups, standing)
            if taken:
                found.append((facts.id, taken))
        return found


# DOC chalicelib/plan/scale_up/finalization.py: Runs the final placement: scales up, places all pods and removes nodes that are not needed.
_TRIES = 3  # maximum number of plans for pods that lost their place


def finalize_placement(placer: FinalPlacer) -> None:
    """Scale up for the queue and place all pods; plan/scale_up/worst_case.py determines which places may be
    promised."""
    search = placer.search
    left: Sequence[PodBatch] = placer.left
    for _ in range(_TRIES):
        before = dict(search.grown)
        placer.grow(left)
        if search.grown == before:
            break
        placer.arrange()
        for group in sorted(search.grown, reverse=True):
            placer.drop_needless(group)
        left = placer.top_up()
        if not left:
            break
    refine(placer)
