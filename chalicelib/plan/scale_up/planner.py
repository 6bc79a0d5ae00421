"""Plans the scale-up: which groups grow and for which pods, the expected place of each pod, and why other pods get no
node."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np

from chalicelib.model.plan import Contest, GroupVerdict, PodPlacement, ScaleUp, UnschedulablePods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_up.attempts import WAYS, Way, sparing
from chalicelib.plan.scale_up.candidate_groups import Candidates
from chalicelib.plan.scale_up.expanders import expander_context, waste
from chalicelib.plan.scale_up.final_placement import FinalPlacement, FinalPlacer
from chalicelib.plan.scale_up.headroom import HeadroomDemand, HeadroomResult, plan_headroom
from chalicelib.plan.scale_up.limits import ResourceLimiter, enforce_min_size
from chalicelib.plan.scale_up.redundant_nodes import finalize_placement
from chalicelib.plan.scale_up.scaling_rules import RuleResults, plan_rules
from chalicelib.plan.scale_up.search import ScaleUpSearch
from chalicelib.plan.scale_up.worst_case import keep_worst_case
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster, place
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.pending_pods import PendingPods, PodBatch
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.state.time_budget import TimeBudget

_TRYING = 2.0  # seconds for trying alternatives, where there is a clock
_SERVED = 4  # alternatives that are tried only to save nodes, when all pods have a place


class ScaleUpPlan(msgspec.Struct, frozen=True):
    """fits: pods with a place on existing or upcoming nodes. acted: the results of scaling rules; spare: headroom."""

    scale_ups: tuple[ScaleUp, ...]
    fits: tuple[str, ...]
    promises: tuple[PodPlacement, ...]
    unschedulable: tuple[UnschedulablePods, ...]
    groups: tuple[GroupVerdict, ...]
    notes: tuple[Reason, ...]
    rule_results: RuleResults = RuleResults()
    headroom: HeadroomResult = HeadroomResult()


class _Tried(NamedTuple):
    """One plan for the pending pods, as in the simulated cluster until the next plan is tried."""

    search: ScaleUpSearch
    settling: FinalPlacer
    settled: FinalPlacement


def plan_scale_up(
    state: ClusterState,
    simulated: SimulatedCluster,
    pending: PendingPods,
    demand: HeadroomDemand,
    seed: int,
    budget: TimeBudget,
    removable: Callable[[ClusterState, SimulatedCluster], frozenset[int]],
) -> ScaleUpPlan:
    """Plan for pending pods, then for rules, then for headroom.

    The simulated cluster keeps what was placed and planned.

    removable: rows of the nodes that scale-down could remove, by what is known before any removal is simulated.
    """
    search, settling, _ = _best(state, simulated, pending, seed, budget, removable)
    settled = keep_worst_case(settling)
    acted = plan_rules(search, served=any(row in settled.new for row, _, _ in settled.places))
    return _Report(search, settled, acted, plan_headroom(search, demand)).growth()


def unplanned_scale_up(
    state: ClusterState, simulated: SimulatedCluster, pending: PendingPods, seed: int, budget: TimeBudget
) -> ScaleUpPlan:
    """Return the plan of a pass whose time was over before growth was planned: nothing grows, every pod reports that,
    and rules stay as they were. simulated: may be in any state."""
    simulated.unsettled = True
    search = ScaleUpSearch(state, simulated, expander_context(state, seed), budget)
    stop = Reason.of(ReasonCode.TIME_BUDGET, seconds=state.options.max_binpacking_time)
    search.notes[stop.key] = stop
    left = FinalPlacement((), tuple(demand for demand in pending.queue if demand.counts), {})
    rules = RuleResults(memory=state.memory.rules, objects=state.memory.rule_objects)
    return _Report(search, left, rules, HeadroomResult()).growth()


def _planned(
    state: ClusterState,
    simulated: SimulatedCluster,
    pending: PendingPods,
    seed: int,
    budget: TimeBudget,
    way: Way | None,
) -> _Tried:
    """Return a whole plan for the pending pods; the simulated cluster keeps it."""
    return _finished(_begun(state, simulated, pending, seed, budget, way))


def _begun(
    state: ClusterState,
    simulated: SimulatedCluster,
    pending: PendingPods,
    seed: int,
    budget: TimeBudget,
    way: Way | None,
) -> FinalPlacer:
    """Return a plan before any node is bought: pods are placed on existing or upcoming nodes."""
    simulated.reset()
    search = ScaleUpSearch(state, simulated, expander_context(state, seed), budget)
    kept = {
        group: nodes for group, nodes in enforce_min_size(state, search.ledger, {}) if group in search.candidates.shapes
    }
    return FinalPlacer(search, pending.queue, kept, way)


def _finished(placer: FinalPlacer) -> _Tried:
    finalize_placement(placer)
    return _Tried(placer.search, placer, placer.settled())


def _best(
    state: ClusterState,
    simulated: SimulatedCluster,
    pending: PendingPods,
    seed: int,
    budget: TimeBudget,
    removable: Callable[[ClusterState, SimulatedCluster], frozenset[int]],
) -> _Tried:
    """Return the plan that places the most pods, over several ways to place them on existing nodes
    (plan/scale_up/attempts.py)."""
    best, chosen = _planned(state, simulated, pending, seed, budget, None), None
    if not best.settled.small:
        return best
    if not best.settled.choice:
        return _sparing(state, simulated, pending, seed, budget, best, removable)
    started, seen = budget.spent(), {best.settling.early}
    for number, way in enumerate(WAYS):
        if budget.over(started + _TRYING) or (number >= _SERVED and not best.settled.left):
            break
        settling = _begun(state, simulated, pending, seed, budget, way)
        if settling.early in seen:  # the rest of the plan would also be the same
            continue
        seen.add(settling.early)
        found = _finished(settling)
        if not _better(found, best):
            continue
        # Nodes are saved only if the scheduler's own order also works without them, or did not work before either.
        if (
            found.settled.worth > best.settled.worth
            or _in_order(found, simulated, pending)
            or not _in_order(best, simulated, pending)
        ):
            best, chosen = found, way
    return _planned(state, simulated, pending, seed, budget, chosen)


def _sparing(
    state: ClusterState,
    simulated: SimulatedCluster,
    pending: PendingPods,
    seed: int,
    budget: TimeBudget,
    best_try: _Tried,
    removable: Callable[[ClusterState, SimulatedCluster], frozenset[int]],
) -> _Tried:
    """Place the pods on nodes that stay in any case, as far as those take them: a node that pods are expected on is not
    removed, and pods of draining nodes would otherwise block one removable node after another."""
    may_go = removable(state, simulated) if best_try.settled.expected else frozenset[int]()
    if not may_go & best_try.settled.expected.keys():
        return best_try
    found = _planned(state, simulated, pending, seed, budget, sparing(may_go))
    held = len(may_go & found.settled.expected.keys()), len(may_go & best_try.settled.expected.keys())
    same = found.settled.worth == best_try.settled.worth and found.search.grown == best_try.search.grown
    if same and held[0] < held[1] and _in_order(found, simulated, pending):
        return _planned(state, simulated, pending, seed, budget, sparing(may_go))
    return _planned(state, simulated, pending, seed, budget, None)


def _in_order(tried: _Tried, simulated: SimulatedCluster, pending: PendingPods) -> bool:
    """Return whether all placed pods also get a place in the scheduler's own order, first fit by row. It clears the
    simulated cluster."""
    search, settled = tried.search, tried.settled
    left = {pod.key for demand in settled.left for pod in demand.pods}
    served = [
        PodBatch(demand.cls, tuple(pod for pod in demand.pods if pod.key not in left), demand.counts)
        for demand in pending.queue
    ]
    simulated.reset()
    rest = place(simulated, served)
    for group, nodes in sorted(search.grown.items()):
        if nodes:
            search.put_nodes(group, 0, nodes)
    return not any(demand.counts for demand in place(simulated, rest))


def _better(tried: _Tried, best_try: _Tried) -> bool:
    """Return whether a plan places more pods of the highest priority in which the numbers differ, or as many pods with
    no more nodes in any group."""
    if tried.settled.worth != best_try.settled.worth:
        return tried.settled.worth > best_try.settled.worth
    ours, theirs = tried.search.grown, best_try.search.grown
    return sum(ours.values()) < sum(theirs.values()) and all(
        nodes <= theirs.get(group, 0) for group, nodes in ours.items()
    )


class _Report:
    def __init__(
        self, search: ScaleUpSearch, placement: FinalPlacement, results: RuleResults, result: HeadroomResult
    ) -> None:
        self.search, self.settled, self.acted, self.spare = search, placement, results, result
        self.state, self.simulated = search.state, search.simulated
        self.candidates: Candidates = search.candidates
        self.ledger: ResourceLimiter = search.ledger
        self.contest = _contests(placement)

    def growth(self) -> ScaleUpPlan:
        pods: dict[str, list[str]] = {}
        fits: list[str] = []
        promises = []
        for row, cls, here in self.settled.places:
            keys, contest = tuple(pod.key for pod in here), self.contest.get(cls)
            sure = contest is None
            planned = self.settled.new.get(row)
            if planned is not None:
                pods.setdefault(planned[0], []).extend(keys)
                promises.append(
                    PodPlacement(keys, group=planned[0], number=planned[1], promised=sure, one_place_among=contest)
                )
            else:
                name = self.simulated.table.nodes[row].name
                fits += keys
                promises.append(PodPlacement(keys, node=name, promised=sure, one_place_among=contest))
        self.simulated.promised.update(
            (self.simulated.table.nodes[row].name, key) for row, key in self.settled.expected.items()
        )
        return ScaleUpPlan(
            scale_ups=self._scale_ups(pods),
            fits=tuple(fits),
            promises=_merged(promises),
            unschedulable=tuple(self._verdict(demand) for demand in self.settled.left),
            groups=tuple(self._group(facts) for _, facts in sorted(self.state.groups.items())),
            notes=(*self.search.notes.values(), *self.acted.notes),
            rule_results=self.acted,
            headroom=self.spare,
        )

    def _scale_ups(self, pods: dict[str, list[str]]) -> tuple[ScaleUp, ...]:
        groups = self.state.groups
        return tuple(
            ScaleUp(
                group=name,
                provider=groups[name].group.provider,
                from_size=groups[name].target,
                to_size=groups[name].target + nodes,
                max=groups[name].group.max,
                pods=tuple(sorted(pods.get(name, ()))),
                rules=self.acted.by_group.get(name, ()),
                headroom=self.spare.by_group.get(name, ()),
            )
            for name, nodes in sorted(self.search.grown.items())
            if nodes > 0
        )

    def _verdict(self, batch: PodBatch) -> UnschedulablePods:
        """Return why pods of a class get no node, group by group, and the reasons of existing nodes."""
        nowhere = self.simulated.nowhere(batch.cls)
        if self.simulated.late():
            return self._unlooked(batch, nowhere)
        why: dict[str, tuple[Reason, ...]] = {}
        for row, facts in enumerate(self.candidates.able):
            why[facts.id] = self.candidates.against(batch.cls, row) or (self._stop(batch.cls, facts),)
        for name, reason in self.candidates.skipped.items():
            why[name] = (reason, *nowhere)
        real = np.arange(len(self.simulated.table)) < self.simulated.real
        return UnschedulablePods(
            pods=tuple(sorted(pod.key for pod in batch.pods)),
            reasons=dict(sorted(why.items())),
            nodes=self.simulated.real,
            against=self.simulated.tally(batch.cls, real),
            one_place_among=self.contest.get(batch.cls),
        )

    def _unlooked(self, batch: PodBatch, nowhere: tuple[Reason, ...]) -> UnschedulablePods:
        """Return a short verdict where there is no time to check every group and node."""
        stop = Reason.of(ReasonCode.TIME_BUDGET, seconds=self.state.options.max_binpacking_time)
        why = {
            **{facts.id: nowhere or (stop,) for facts in self.candidates.able},
            **{name: (reason, *nowhere) for name, reason in self.candidates.skipped.items()},
        }
        return UnschedulablePods(
            pods=tuple(sorted(pod.key for pod in batch.pods)),
            reasons=dict(sorted(why.items())),
            nodes=self.simulated.real,
            against=tuple((reason, self.simulated.real) for reason in nowhere),
        )

    def _stop(self, cls: int, group: NodeGroupState) -> Reason:
        """Return what kept a group that would take the pods from growing (further)."""
        allowance = self.ledger.allowance(group, self.search.grown.get(group.id, 0))
        if allowance.nodes <= 0:
            return allowance.stop
        stop = self.search.stops.get(group.id)
        if stop is not None and stop.code is ReasonCode.TIME_BUDGET:
            return stop
        for note in self.search.notes.values():
            if note.code is ReasonCode.NO_PRICE and note.params.get("group") == group.id:
                return note
        if cls in self.settled.lost:
            return Reason.of(ReasonCode.NOT_PROMISED)
        return Reason.of(ReasonCode.NOT_CHOSEN, chosen=f"expander {', '.join(self.state.options.expander)}")

    def _group(self, group: NodeGroupState) -> GroupVerdict:
        """Return what a group could have done in this pass, or why it was skipped."""
        option, skipped = self.search.first.get(group.id), self.candidates.skipped.get(group.id)
        late = len(group.long_unregistered)
        return GroupVerdict(
            group=group.id,
            provider=group.group.provider,
            min=group.group.min,
            max=group.group.max,
            target=group.target,
            ready=group.counts[Bucket.READY],
            upcoming=group.upcoming,
            option_nodes=option.nodes if option else 0,
            option_pods=option.pod_count if option else 0,
            waste=waste(option) if option else None,
            skipped=skipped,
            healthy=group.healthy,
            counts={kind.value: count for kind, count in group.counts.items() if count},
            unregistered=len(group.unregistered) - late,
            long_unregistered=late,
            in_progress=group.upcoming > 0 and (group.growing or group.memory.request is not None),
            backoff=_backoff(group),
        )


def _backoff(group: NodeGroupState) -> Reason | None:
    """Return until when a group is backed off and why; None if it is not."""
    failed = group.memory.backoff
    if failed is None or not group.backed_off:
        return None
    return Reason(
        ReasonCode.GROUP_BACKOFF,
        {
            "until": failed.until,
            "error": failed.message or failed.cls,
            "code": failed.code or failed.cls,
            "class": failed.cls,
        },
    )


def _contests(placement: FinalPlacement) -> dict[int, Contest]:
    """Return class -> the pods with which its pods compete."""
    pods: dict[int, list[str]] = {}
    for cls, here in (
        *((cls, here) for _, cls, here in placement.places),
        *((demand.cls, demand.pods) for demand in placement.left),
    ):
        pods.setdefault(cls, []).extend(pod.key for pod in here)
    return {
        cls: contest
        for found in placement.contests
        for contest in [Contest(found.places, tuple(sorted(key for cls in found.classes for key in pods[cls])))]
        for cls in found.classes
    }


def _merged(promises: list[PodPlacement]) -> tuple[PodPlacement, ...]:
    """Return per place one entry for pods with a guaranteed place and one for those that compete with the same
    others."""
    pods: dict[tuple[str, str, int, bool, tuple[str, ...]], list[str]] = {}
    contests: dict[tuple[str, ...], Contest | None] = {}
    for each in promises:
        among = each.one_place_among.among if each.one_place_among is not None else ()
        contests[among] = each.one_place_among
        pods.setdefault((each.node, each.group, each.number, not each.promised, among), []).extend(each.pods)
    return tuple(
        PodPlacement(tuple(sorted(keys)), node, group, number, not unsure, contests[among])
        for (node, group, number, unsure, among), keys in sorted(pods.items())
    )
