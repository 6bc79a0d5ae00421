"""Plans the scale-up: which groups grow and for which pods, the expected place of each pod, and
why other pods get no node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from chalicelib.model.memory import Backoff
from chalicelib.model.plan import Contest, GroupVerdict, PodPlacement, ScaleUp, UnschedulablePods
from chalicelib.model.pod import Pod
from chalicelib.model.purchases import coming_for
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.demand.headroom import HeadroomDemand
from chalicelib.plan.demand.pending_pods import PendingPods
from chalicelib.plan.scale_up.candidate_groups import Candidates, relies
from chalicelib.plan.scale_up.expanders import expander_context, waste
from chalicelib.plan.scale_up.expected_prices import expected_prices
from chalicelib.plan.scale_up.headroom_purchases import HeadroomResult, plan_headroom
from chalicelib.plan.scale_up.placement.attempts import best_attempt
from chalicelib.plan.scale_up.placement.every_order import placement_in_every_order
from chalicelib.plan.scale_up.placement.planned_nodes import FinalPlacement
from chalicelib.plan.scale_up.refused_pods import RefusedPods
from chalicelib.plan.scale_up.rule_purchases import RuleResults, plan_rules
from chalicelib.plan.scale_up.scale_up_search import ScaleUpSearch
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.managed_groups import is_candidate
from chalicelib.plan.state.pass_time import PassTime
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.state.spot_market import avoided_until, spot_groups

_MOST_NOTES = 10


class ScaleUpPlan(msgspec.Struct, frozen=True):
    """The plan of the growth. fits: pods with a place on existing or upcoming nodes. fallback:
    groups that are bought on demand for pods that a spot group would take which is backed off or
    avoided now. for_zones: group in several zones -> zone -> new nodes that were bought for it.
    for_storage: group -> the storage classes for which a new node
    was bought to find out what it offers. on_upcoming: group -> class -> pods, one entry per
    upcoming node in order, if nodes are bought besides."""

    scale_ups: tuple[ScaleUp, ...]
    fits: tuple[str, ...]
    promises: tuple[PodPlacement, ...]
    unschedulable: tuple[UnschedulablePods, ...]
    groups: tuple[GroupVerdict, ...]
    notes: tuple[Reason, ...]
    rule_results: RuleResults = RuleResults()
    headroom: HeadroomResult = HeadroomResult()
    fallback: frozenset[str] = frozenset()
    for_zones: dict[str, dict[str, int]] = {}
    for_storage: dict[str, tuple[str, ...]] = {}
    on_upcoming: dict[str, tuple[Mapping[int, int], ...]] = {}


def plan_scale_up(
    state: ClusterState,
    simulated: SimulatedCluster,
    pending: PendingPods,
    demand: HeadroomDemand,
    seed: int,
    pass_time: PassTime,
    removable: Callable[[ClusterState, SimulatedCluster], frozenset[int]],
) -> ScaleUpPlan:
    """Plan for pending pods, then for rules, then for headroom. The simulated
    cluster keeps what was placed.

    removable: rows of the nodes that scale-down could remove, by what is known before
    any removal is simulated.
    """
    attempt = best_attempt(state, simulated, pending, seed, pass_time, removable)
    placement, search = placement_in_every_order(attempt), attempt.planned.search
    rule_results = plan_rules(search, served=placement.buys_for_pods)
    headroom_result = plan_headroom(search, demand)
    simulated.promise(placement.pod_on_row)
    return _Report(search, placement, rule_results, headroom_result).plan()


def unplanned_scale_up(
    state: ClusterState,
    simulated: SimulatedCluster,
    pending: PendingPods,
    seed: int,
    pass_time: PassTime,
) -> ScaleUpPlan:
    """Return the plan of a pass whose time was over before growth was planned: nothing grows, every
    pod reports that, and rules stay as they were. simulated: may be in any state."""
    simulated.record_lateness()
    search = ScaleUpSearch(state, simulated, expander_context(state, seed), pass_time)
    stop = Reason.of(ReasonCode.TIME_BUDGET, seconds=state.options.max_binpacking_time)
    search.notes[stop.key] = stop
    placement = FinalPlacement((), tuple(batch for batch in pending.queue if batch.counts), {})
    rules = RuleResults(memory=state.memory.rules, objects=state.memory.rule_objects)
    return _Report(search, placement, rules, HeadroomResult()).plan()


class _Report:
    """Renders the results of the stages as a plan with all reasons."""

    def __init__(
        self,
        search: ScaleUpSearch,
        placement: FinalPlacement,
        rule_results: RuleResults,
        headroom: HeadroomResult,
    ) -> None:
        self.search = search
        self.placement = placement
        self.rule_results = rule_results
        self.headroom = headroom
        self.state = search.state
        self.simulated = search.simulated
        self.candidates = search.candidates
        pods: dict[int, list[str]] = {}
        for _, cls, placed in placement.places:
            pods.setdefault(cls, []).extend(pod.key for pod in placed)
        for batch in placement.unplaced:
            pods.setdefault(batch.cls, []).extend(pod.key for pod in batch.pods)
        self.expected_prices = expected_prices(search.state)
        self.contest_of: dict[int, Contest] = {}  # class -> the pods with which its pods compete
        for competing in placement.contests:
            keys = sorted(key for cls in competing.classes for key in pods[cls])
            contest = Contest(competing.places, tuple(keys))
            self.contest_of.update(dict.fromkeys(competing.classes, contest))

    def plan(self) -> ScaleUpPlan:
        pods: dict[str, list[str]] = {}
        fits: list[str] = []
        promises: list[PodPlacement] = []
        bought: dict[str, set[int]] = {}  # group -> classes of the pods on its new nodes
        unsure_rows = self._unsure_rows()
        for row, cls, placed in self.placement.places:
            promise = self._promise(row, cls, placed, unsure_rows)
            promises.append(promise)
            if row in self.placement.new_nodes:
                pods.setdefault(promise.group, []).extend(promise.pods)
                bought.setdefault(promise.group, set()).add(cls)
            else:
                fits += promise.pods
        groups = sorted(self.state.groups.items())
        return ScaleUpPlan(
            scale_ups=self._scale_ups(pods),
            fits=tuple(fits),
            promises=_merged(promises),
            unschedulable=self._unschedulable(),
            groups=tuple(
                self._group_verdict(group) for _, group in groups if not is_candidate(group.group)
            ),
            notes=(*self.search.notes.values(), *self._zone_notes(), *self.rule_results.notes),
            rule_results=self.rule_results,
            headroom=self.headroom,
            fallback=self._fallback(bought),
            for_zones=self.search.bought_for_zones(),
            for_storage=self.search.bought_for_storage(),
            on_upcoming=self._on_upcoming() if bought else {},
        )

    def _promise(
        self, row: int, cls: int, placed: Iterable[Pod], unsure_rows: set[int]
    ) -> PodPlacement:
        """Return the place of these pods, and whether it is guaranteed."""
        keys = tuple(pod.key for pod in placed)
        node = self.simulated.table.nodes[row]
        name, group, number = node.name, "", 0
        if row in self.placement.new_nodes:
            name = ""
            group, number = self.placement.new_nodes[row]
        contest = self.contest_of.get(cls)
        is_sure = row not in unsure_rows
        if row >= self.simulated.real:  # of a node that exists, the labels are known
            unsure_labels = self.state.node_labels.uncertain_keys
            is_sure = is_sure and not relies(cls, unsure_labels, node, self.simulated)
        lacks = () if group else self.simulated.unfinished.missing(cls, row)
        promised = is_sure and contest is None and not lacks
        return PodPlacement(keys, name, group, number, promised, contest, lacks)

    def _on_upcoming(self) -> dict[str, tuple[Mapping[int, int], ...]]:
        """Return group -> class -> pods that are planned on each of its upcoming nodes."""
        on_row: dict[int, Counter[int]] = {}
        for row, cls, placed in self.placement.places:
            on_row.setdefault(row, Counter())[cls] += len(placed)
        return {
            name: tuple(on_row.get(row, Counter()) for row in rows)
            for name, rows in self.simulated.coming.items()
        }

    def _zone_notes(self) -> Iterator[Reason]:
        """Return a note per group in several zones of which nodes are bought for one of them, or
        for which pods wait that need one."""
        in_zones = [name for name, group in self.state.groups.items() if group.zones]
        noted = set(self.search.bought_for_zones())
        for batch in self.placement.unplaced:
            noted.update(name for name in in_zones if self._waits_for_zone(batch.cls, name))
        for name in sorted(noted)[:_MOST_NOTES]:
            zones = ", ".join(zone or "others" for zone in self.state.groups[name].zones)
            yield Reason.of(ReasonCode.GROUP_IN_ZONES, group=name, zones=zones)

    def _waits_for_zone(self, cls: int, group: str) -> bool:
        zones = self.simulated.zones
        return bool(zones.fitting_zones(cls, group)) and not zones.fits_anywhere(cls, group)

    def _unsure_rows(self) -> set[int]:
        """Return the nodes that may come in another zone than the plan needs."""
        variants = self.candidates.variants
        unsure_nodes = set(self.simulated.unsure_nodes)
        unsure_nodes.update(
            name for name, group in self.search.group_of.items() if group in variants
        )
        nodes = enumerate(self.simulated.table.nodes)
        return {row for row, node in nodes if node.name in unsure_nodes}

    def _fallback(self, bought: Mapping[str, Collection[int]]) -> frozenset[str]:
        """Return which groups are bought as a fallback. A pod counts if an empty
        node of a spot group would take it, and that group is backed off, or is
        avoided and is not bought either."""
        if not bought:
            return frozenset()
        spot = spot_groups(self.state)
        groups = [self.state.groups[name] for name in sorted(spot - bought.keys())]
        unavailable = [group for group in groups if self._is_unavailable(group)]
        if not unavailable or self.simulated.late():
            return frozenset()
        candidates = Candidates.of(unavailable, self.simulated)
        on_demand = {group: sorted(bought[group]) for group in bought if group not in spot}
        return frozenset(
            group
            for group, classes in on_demand.items()
            if any(candidates.fits(cls).any() for cls in classes)
        )

    def _is_unavailable(self, group: NodeGroupState) -> bool:
        """Return whether a group that could be bought of is backed off or avoided."""
        if group.template is None:
            return False
        return group.backed_off or bool(avoided_until(group, self.state))

    def _scale_ups(self, pods: dict[str, list[str]]) -> tuple[ScaleUp, ...]:
        grown: dict[str, int] = {}
        for name, nodes in self.search.grown.items():
            own = self.search.own(name)
            grown[own] = grown.get(own, 0) + nodes
        return tuple(
            msgspec.structs.replace(
                self.state.scale_up(name, nodes),
                pods=tuple(sorted(pods.get(name, ()))),
                rules=self.rule_results.by_group.get(name, ()),
                headroom=self.headroom.by_group.get(name, ()),
            )
            for name, nodes in sorted(grown.items())
            if nodes > 0
        )

    def _unschedulable(self) -> tuple[UnschedulablePods, ...]:
        overestimated = self.placement.overestimated
        refused = RefusedPods(self.search, overestimated, self.contest_of)
        return tuple(map(refused.verdict, self.placement.unplaced))

    def _group_verdict(self, group: NodeGroupState) -> GroupVerdict:
        """Return what a group could have done in this pass, or why it was skipped."""
        option = self.search.first.get(group.id)
        late = len(group.long_unregistered)
        failed = group.memory.backoff if group.backed_off else None
        price = self.expected_prices.get(group.id)
        skipped = self.candidates.skipped.get(group.id)
        if skipped is None and option is None:
            skipped = self.search.passed_over.get(group.id)
        is_growing = group.growing or group.memory.request is not None
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
            in_progress=group.upcoming > 0 and is_growing,
            backoff=_backoff_reason(failed) if failed is not None else None,
            price=price.price if price is not None else 0,
            expected_price=price.amount if price is not None else 0,
            coming_for=coming_for(group.memory.request) if group.upcoming else (),
        )


def _backoff_reason(backoff: Backoff) -> Reason:
    """Return until when a group is backed off and why."""
    values: dict[str, str | int | float] = {
        "until": backoff.until,
        "error": backoff.message or backoff.cls,
        "code": backoff.code or backoff.cls,
        "class": backoff.cls,
    }
    return Reason(ReasonCode.GROUP_BACKOFF, values)


def _merged(promises: list[PodPlacement]) -> tuple[PodPlacement, ...]:
    """Return per place one entry for pods with a guaranteed place, and one for those that compete
    with the same others or wait for the same parts of the node."""
    pods: dict[tuple[str, str, int, bool, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    contests: dict[tuple[str, ...], Contest | None] = {}
    for promise in promises:
        contest = promise.one_place_among
        among = contest.among if contest is not None else ()
        contests[among] = contest
        place = (promise.node, promise.group, promise.number)
        key = (*place, not promise.promised, among, promise.lacks)
        pods.setdefault(key, []).extend(promise.pods)
    merged: list[PodPlacement] = []
    for (node, group, number, unsure, among, lacks), keys in sorted(pods.items()):
        names, contest = tuple(sorted(keys)), contests[among]
        merged.append(PodPlacement(names, node, group, number, not unsure, contest, lacks))
    return tuple(merged)
