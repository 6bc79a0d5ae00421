"""Plans the scale-up: which groups grow and for which pods, the expected place of each pod, and why other pods get no
node."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np

from chalicelib.model.plan import Contest, GroupVerdict, PodPlacement, ScaleUp, UnschedulablePods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_up.candidate_groups import Candidates
from chalicelib.plan.scale_up.expander_context import expander_context
from chalicelib.plan.scale_up.expanders.least_waste import waste
from chalicelib.plan.scale_up.final_placement import FinalPlacer
from chalicelib.plan.scale_up.finalization import finalize_placement
from chalicelib.plan.scale_up.headroom import HeadroomDemand, HeadroomResult, plan_headroom
from chalicelib.plan.scale_up.limits import ResourceLimiter
from chalicelib.plan.scale_up.min_size import enforce_min_size
from chalicelib.plan.scale_up.placement_result import FinalPlacement
from chalicelib.plan.scale_up.placement_variants import WAYS, Way, sparing
from chalicelib.plan.scale_up.scaling_rules import RuleResults, plan_rules
from chalicelib.plan.scale_up.search import ScaleUpSearch
from chalicelib.plan.scale_up.worst_case import keep_worst_case
from chalicelib.plan.simulation.placement import place
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
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
    virtual: HeadroomDemand,
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
    return _Report(search, settled, acted, plan_headroom(search, virtual)).growth()


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


def _finished(settling: FinalPlacer) -> _Tried:
    finalize_placement(settling)
    return _Tried(settling.search, settling, settling.settled())


def _best(
    state: ClusterState,
    simulated: SimulatedCluster,
    pending: PendingPods,
    seed: int,
    budget: TimeBudget,
    removable: Callable[[ClusterState, SimulatedCluster], frozenset[int]],
) -> _Tried:
    """Return the plan that places the most pods, over several ways to place them on existing nodes
    (plan/scale_up/placement_variants.py)."""
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
    best: _Tried,
    removable: Callable[[ClusterState, SimulatedCluster], frozenset[int]],
) -> _Tried:
    """Place the pods on nodes that stay in any case, as far as those take them: a node that pods are expected on is not
    removed, and pods of draining nodes would otherwise block one removable node after another."""
    may_go = removable(state, simulated) if best.settled.expected else frozenset[int]()
    if not may_go & best.settled.expected.keys():
        return best
    found = _planned(state, simulated, pending, seed, budget, sparing(may_go))
    held = len(may_go & found.settled.expected.keys()), len(may_go & best.settled.expected.keys())
    same = found.settled.worth == best.settled.worth and found.search.grown == best.search.grown
    if same and held[0] < held[1] and _in_order(found, simulated, pending):
        return _planned(state, simulated, pending, seed, budget, sparing(may_go))
    return _planned(state, simulated, pending, seed, budget, None)


def _in_order(found: _Tried, simulated: SimulatedCluster, pending: PendingPods) -> bool:
    """Return whether all placed pods also get a place in the scheduler's own order, first fit by row. It clears the
    simulated cluster."""
    search, settled = found.search, found.settled
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


def _better(found: _Tried, best: _Tried) -> bool:
    """Return whether a plan places more pods of the highest priority in which the numbers differ, or as many pods with
    no more nodes in any group."""
    if found.settled.worth != best.settled.worth:
        return found.settled.worth > best.settled.worth
    ours, theirs = found.search.grown, best.search.grown
    return sum(ours.values()) < sum(theirs.values()) and all(
        nodes <= theirs.get(group, 0) for group, nodes in ours.items()
    )


class _Report:
    def __init__(
        self, search: ScaleUpSearch, settled: FinalPlacement, acted: RuleResults, spare: HeadroomResult
    ) -> None:
        self.search, self.settled, self.acted, self.spare = search, settled, acted, spare
        self.state, self.simulated = search.state, search.simulated
        self.candidates: Candidates = search.candidates
        self.ledger: ResourceLimiter = search.ledger
        self.contest = _contests(settled)

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

    def _verdict(self, demand: PodBatch) -> UnschedulablePods:
        """Return why pods of a class get no node, group by group, and the reasons of existing nodes."""
        nowhere = self.simulated.nowhere(demand.cls)
        if self.simulated.late():
            return self._unlooked(demand, nowhere)
        why: dict[str, tuple[Reason, ...]] = {}
        for row, facts in enumerate(self.candidates.able):
            why[facts.id] = self.candidates.against(demand.cls, row) or (self._stop(demand.cls, facts),)
        for name, reason in self.candidates.skipped.items():
            why[name] = (reason, *nowhere)
        real = np.arange(len(self.simulated.table)) < self.simulated.real
        return UnschedulablePods(
            pods=tuple(sorted(pod.key for pod in demand.pods)),
            reasons=dict(sorted(why.items())),
            nodes=self.simulated.real,
            against=self.simulated.tally(demand.cls, real),
            one_place_among=self.contest.get(demand.cls),
        )

    def _unlooked(self, demand: PodBatch, nowhere: tuple[Reason, ...]) -> UnschedulablePods:
        """Return a short verdict where there is no time to check every group and node."""
        stop = Reason.of(ReasonCode.TIME_BUDGET, seconds=self.state.options.max_binpacking_time)
        why = {
            **{facts.id: nowhere or (stop,) for facts in self.candidates.able},
            **{name: (reason, *nowhere) for name, reason in self.candidates.skipped.items()},
        }
        return UnschedulablePods(
            pods=tuple(sorted(pod.key for pod in demand.pods)),
            reasons=dict(sorted(why.items())),
            nodes=self.simulated.real,
            against=tuple((reason, self.simulated.real) for reason in nowhere),
        )

    def _stop(self, cls: int, facts: NodeGroupState) -> Reason:
        """Return what kept a group that would take the pods from growing (further)."""
        allowance = self.ledger.allowance(facts, self.search.grown.get(facts.id, 0))
        if allowance.nodes <= 0:
            return allowance.stop
        stop = self.search.stops.get(facts.id)
        if stop is not None and stop.code is ReasonCode.TIME_BUDGET:
            return stop
        for note in self.search.notes.values():
            if note.code is ReasonCode.NO_PRICE and note.params.get("group") == facts.id:
                return note
        if cls in self.settled.lost:
            return Reason.of(ReasonCode.NOT_PROMISED)
        return Reason.of(ReasonCode.NOT_CHOSEN, chosen=f"expander {', '.join(self.state.options.expander)}")

    def _group(self, facts: NodeGroupState) -> GroupVerdict:
        """Return what a group could have done in this pass, or why it was skipped."""
        option, skipped = self.search.first.get(facts.id), self.candidates.skipped.get(facts.id)
        late = len(facts.long_unregistered)
        return GroupVerdict(
            group=facts.id,
            provider=facts.group.provider,
            min=facts.group.min,
            max=facts.group.max,
            target=facts.target,
            ready=facts.counts[Bucket.READY],
            upcoming=facts.upcoming,
            option_nodes=option.nodes if option else 0,
            option_pods=option.pod_count if option else 0,
            waste=waste(option) if option else None,
            skipped=skipped,
            healthy=facts.healthy,
            counts={kind.value: count for kind, count in facts.counts.items() if count},
            unregistered=len(facts.unregistered) - late,
            long_unregistered=late,
            in_progress=facts.upcoming > 0 and (facts.growing or facts.memory.request is not None),
            backoff=_backoff(facts),
        )


def _backoff(facts: NodeGroupState) -> Reason | None:
    """Return until when a group is backed off and why; None if it is not."""
    failed = facts.memory.backoff
    if failed is None or not facts.backed_off:
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


def _contests(settled: FinalPlacement) -> dict[int, Contest]:
    """Return class -> the pods with which its pods compete."""
    pods: dict[int, list[str]] = {}
    for cls, here in (
        *((cls, here) for _, cls, here in settled.places),
        *((demand.cls, demand.pods) for demand in settled.left),
    ):
        pods.setdefault(cls, []).extend(pod.key for pod in here)
    return {
        cls: contest
        for found in settled.contests
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
