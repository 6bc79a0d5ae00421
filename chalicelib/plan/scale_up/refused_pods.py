"""Why pods get no node: group by group, those groups first in whose way the least stands.

What a pod needs of an empty node of a group is judged before the group's maximum, back-off and
pause. A pod that fits no machine of a group is therefore never told that the group has reached
its maximum: raising that would change nothing.

Of the groups of a managed pool that could be opened, of which there may be thousands, the nearest
few are named and the others are counted.

Here: what stands in the way, once for each class. Not here: the order of groups, and the words
(reasons/no_place.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property

import msgspec
import numpy as np

from chalicelib.model.plan import Contest, UnschedulablePods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.demand.pending_pods import PodBatch
from chalicelib.plan.scale_up.candidate_groups import Candidates
from chalicelib.plan.scale_up.scale_up_search import ScaleUpSearch
from chalicelib.plan.state.cluster_state import NodeGroupState
from chalicelib.plan.state.managed_groups import declaration_of, is_candidate
from chalicelib.reasons.no_place import Nearness, is_lasting, nearest_first, nearness

MOST_NAMED = 3
"""Groups of a managed pool that could be opened, named for each class of pods."""


class _Refusal(msgspec.Struct, frozen=True):
    """Why a group gives a class no node. candidates, row: where everything in the way can be asked
    for; None where `reasons` has all of it."""

    reasons: tuple[Reason, ...]
    near: Nearness
    candidates: Candidates | None = None
    row: int = 0


class RefusedPods:
    """The verdicts of a pass on pods without a place."""

    def __init__(
        self,
        search: ScaleUpSearch,
        overestimated: Collection[int],
        contest_of: Mapping[int, Contest],
    ) -> None:
        """overestimated: classes of which the estimator placed more pods than the scheduler will.
        contest_of: class -> the pods with which its pods compete."""
        self._search = search
        self._simulated = search.simulated
        self._candidates = search.candidates
        self._overestimated = overestimated
        self._contest_of = contest_of
        self._of_class: dict[int, UnschedulablePods] = {}
        self._stopped: dict[str, Reason | None] = {}
        self._stops: dict[str, _Refusal] = {}

    def verdict(self, batch: PodBatch) -> UnschedulablePods:
        """Return why pods of a class get no node, group by group, and the reasons of existing
        nodes. Where there is no time to check every group and node, the verdict is short."""
        cls = batch.cls
        if cls not in self._of_class:
            is_late = self._simulated.late()
            self._of_class[cls] = self._short(cls) if is_late else self._judged(cls)
        pods = tuple(sorted(pod.key for pod in batch.pods))
        return msgspec.structs.replace(self._of_class[cls], pods=pods)

    def _short(self, cls: int) -> UnschedulablePods:
        nowhere = self._simulated.nowhere(cls)
        seconds = self._search.state.options.max_binpacking_time
        stop = Reason.of(ReasonCode.TIME_BUDGET, seconds=seconds)
        names, more = self._shown(self._names())
        reasons = dict.fromkeys(names, nowhere or (stop,))
        nodes = self._simulated.real
        against = tuple((reason, nodes) for reason in nowhere)
        return UnschedulablePods((), reasons, nodes, against, nearest=len(names), more=more)

    def _judged(self, cls: int) -> UnschedulablePods:
        nodes = self._simulated.real
        is_real = np.arange(len(self._simulated.table)) < nodes
        against = self._simulated.tally(cls, is_real)
        reasons, nearest, more = self._reasons(cls)
        return UnschedulablePods(
            (), reasons, nodes, against, self._contest_of.get(cls), nearest, more
        )

    def _names(self) -> list[str]:
        """Return the groups, without the variants of those in several zones."""
        candidates = self._candidates
        names = [group.id for group in candidates.groups if group.id not in candidates.variants]
        return sorted([*names, *candidates.skipped])

    def _shown(self, names: Iterable[str]) -> tuple[list[str], dict[str, int]]:
        """Return the groups without most of those that could be opened, and by declaration how
        many are left out. names: of groups, the nearest first."""
        named: Counter[str] = Counter()
        more: Counter[str] = Counter()
        shown: list[str] = []
        for name in names:
            group = self._search.groups[name].group
            declaration = declaration_of(group) if is_candidate(group) else ""
            if declaration and named[declaration] >= MOST_NAMED:
                more[declaration] += 1
                continue
            named[declaration] += 1
            shown.append(name)
        return shown, dict(sorted(more.items()))

    def _price(self, name: str) -> float:
        """Return the price of a node of a group that could be opened, 0.0 for other groups: of
        those that are equally near, the cheapest are named."""
        group = self._search.groups[name].group
        return group.price if is_candidate(group) else 0.0

    def _reasons(self, cls: int) -> tuple[dict[str, tuple[Reason, ...]], int, dict[str, int]]:
        """Return why each group gives a class no node, the nearest first, how many of them are
        equally near, and how many are left out. Of the nearest, everything in the way is named, of
        the others the first."""
        nowhere = self._simulated.nowhere(cls)
        if nowhere:
            names, more = self._shown(self._names())
            return dict.fromkeys(names, nowhere), len(names), more
        every_refusal = dict(self._refusals(cls))
        names, more = self._shown(
            sorted(every_refusal, key=lambda name: (every_refusal[name].near, self._price(name)))
        )
        refusals = {name: every_refusal[name] for name in sorted(names)}
        reasons = {name: refusal.reasons for name, refusal in refusals.items()}
        near_of = {name: refusal.near for name, refusal in refusals.items()}
        least = min(near_of.values(), default=None)
        for name, refusal in refusals.items():
            if refusal.near == least and refusal.candidates is not None:
                reasons[name] = refusal.candidates.all_against(cls, refusal.row)
        groups, nearest = nearest_first(reasons, near_of)
        return {name: reasons[name] for name in groups}, nearest, more

    def _refusals(self, cls: int) -> Iterator[tuple[str, _Refusal]]:
        candidates = self._candidates
        yield from self._refusals_of(cls, candidates)
        if self._skipped_candidates is not None:
            yield from self._refusals_of(cls, self._skipped_candidates)
        for name, reason in candidates.skipped.items():
            if self._search.groups[name].template is None:
                yield name, _Refusal((reason,), nearness((reason,), 1, 0))

    @cached_property
    def _skipped_candidates(self) -> Candidates | None:
        """The skipped groups of which it is known what their nodes are."""
        names = sorted(self._candidates.skipped)
        groups = [self._search.groups[name] for name in names]
        known = [group for group in groups if group.template is not None]
        return Candidates.of(known, self._simulated) if known else None

    def _refusals_of(self, cls: int, candidates: Candidates) -> Iterator[tuple[str, _Refusal]]:
        for row, against, obstacles in candidates.refusals(cls):
            group = candidates.groups[row]
            if not against:
                yield group.id, self._stop_of(cls, group)
            elif any(map(is_lasting, against)):
                passing = int(self._stopped_by(group) is not None)
                near = nearness(against, max(obstacles, 1), passing)
                yield group.id, _Refusal(against, near, candidates, row)
            else:  # its next attempt may help
                yield group.id, _Refusal(against, nearness(against, 0, 1))

    def _stop_of(self, cls: int, group: NodeGroupState) -> _Refusal:
        """Return why a group that would take the pods does not grow."""
        stopped = self._stopped_by(group)
        if stopped is None:
            stop = self._stop(cls, group)
            return _Refusal((stop,), nearness((stop,), 0, 1))
        if group.id not in self._stops:
            self._stops[group.id] = _Refusal((stopped,), nearness((stopped,), 0, 1))
        return self._stops[group.id]

    def _stopped_by(self, group: NodeGroupState) -> Reason | None:
        """Return why a group takes no more nodes in this pass, whoever needs them; None if it
        does."""
        name = group.id
        if name not in self._stopped:
            stop = self._candidates.skipped.get(name)
            if stop is None:
                allowance = self._search.allowance(group)
                stop = allowance.stop if allowance.nodes <= 0 else None
            self._stopped[name] = stop
        return self._stopped[name]

    def _stop(self, cls: int, group: NodeGroupState) -> Reason:
        """Return what kept a group from growing (further) that would take the pods and could."""
        search = self._search
        stop = search.stops.get(group.id)
        if stop is not None and stop.code is ReasonCode.TIME_BUDGET:
            return stop
        for note in search.notes.values():
            if note.code is ReasonCode.NO_PRICE and note.params.get("group") == group.id:
                return note
        if cls in self._overestimated:
            return Reason.of(ReasonCode.NOT_PROMISED)
        expanders = ", ".join(search.state.options.expander)
        return Reason.of(ReasonCode.NOT_CHOSEN, chosen=f"expander {expanders}")
