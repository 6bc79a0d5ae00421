"""Headroom: spare capacity, modelled as virtual pods that are placed after all real pods
and displace none of them.

    headroom_demand  ► a class per entry of spec.headroom, and its number of pods
    plan_headroom    ► room on existing nodes, upcoming nodes or nodes planned for other
                     pods; for the rest, new nodes
                       by the same search as for pods
    (removal/headroom_reserve.py ► nodes that stay must offer the headroom that existing
                       nodes offer)

Virtual pods are never in the simulated cluster while anything is decided for real pods. Real pods
come first and use that room as if there were no headroom; then headroom is refilled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from chalicelib.model.plan import HeadroomVerdict
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.demand.headroom import HeadroomDemand, VirtualPods
from chalicelib.plan.scale_up.estimator import PodRequest
from chalicelib.plan.scale_up.scale_up_search import ScaleUpSearch
from chalicelib.plan.simulation.simulated_cluster import Spare


class HeadroomResult(msgspec.Struct, frozen=True):
    """The result of headroom planning. by_group: group -> names of the headroom
    for which nodes are added."""

    verdicts: tuple[HeadroomVerdict, ...] = ()
    by_group: dict[str, tuple[str, ...]] = {}


def plan_headroom(search: ScaleUpSearch, demand: HeadroomDemand) -> HeadroomResult:
    """Place the virtual pods in the simulated cluster, and add nodes for those without room.
    Afterwards they are removed again, and its `spare` says what existing nodes offer. Nothing is
    added while the cluster is unhealthy."""
    if not demand.pods:
        return HeadroomResult()
    simulated = search.simulated
    mark = simulated.checkpoint()
    by_group: dict[str, tuple[str, ...]] = {}
    stops: dict[str, dict[str, Reason]] = {}  # entry -> group -> what kept it from growing further
    for pods in demand.pods:
        simulated.confine(pods.cls, _is_node_of(search, pods.groups))
        search.candidates.confine(pods.cls, pods.groups)
    unplaced = {pods.cls: pods.count - _fill(search, pods.cls, pods.count) for pods in demand.pods}
    for pods in demand.pods:
        rest = unplaced[pods.cls]
        if rest and search.grown:  # nodes planned for other demand may have room by now
            rest -= _fill(search, pods.cls, rest)
        if rest and pods.verdict is None:
            groups, stops[pods.name] = _grow(search, pods, rest)
            for group in groups:
                by_group[group] = tuple(sorted({*by_group.get(group, ()), pods.name}))
    standing = simulated.standing()
    nothing = np.zeros(0, dtype=np.int64)
    verdicts: list[HeadroomVerdict] = []
    spare: list[Spare] = []
    for pods in demand.pods:
        rows, counts = standing.get(pods.cls, (nothing, nothing))
        present = int(counts[rows < simulated.base].sum())
        added = int(counts[rows >= simulated.base].sum())
        reasons: dict[str, Reason] = {}
        if present + added < pods.count:
            reasons = _reasons(search, pods, stops.get(pods.name, {}))
        verdict = HeadroomVerdict(
            pods.name, wanted=pods.count, held=present, added=added, reasons=reasons
        )
        verdicts.append(verdict)
        on_existing = int(counts[rows < simulated.real].sum())
        if on_existing:
            spare.append(Spare(pods.name, pods.cls, on_existing))
    simulated.rollback(mark)
    simulated.reserve(tuple(spare))
    simulated.record_lateness()  # the use of existing nodes is not fully known
    verdicts.sort(key=lambda verdict: verdict.name)
    return HeadroomResult(tuple(verdicts), dict(sorted(by_group.items())))


def _fill(search: ScaleUpSearch, cls: int, count: int) -> int:
    if count <= 0:
        return 0
    placed = search.simulated.place_first_fit(cls, count)
    return sum(pods for _, pods in placed)


def _grow(
    search: ScaleUpSearch, pods: VirtualPods, count: int
) -> tuple[list[str], dict[str, Reason]]:
    """Add new nodes by the chain of expanders without least-cost; returns the groups that have
    grown, and what kept groups from growing further. The search's first, stops and notes are
    restored because they belong to the report on real pods."""
    before = dict(search.grown)
    first, stops, notes = dict(search.first), search.stops, dict(search.notes)
    search.stops = {}
    search.search([PodRequest(pods.cls, count, pods.owner)], least_cost=False)
    new_stops = search.stops
    search.first, search.stops, search.notes = first, stops, notes
    after = sorted(search.grown.items())
    grown = [group for group, nodes in after if nodes > before.get(group, 0)]
    return grown, new_stops


def _reasons(
    search: ScaleUpSearch, pods: VirtualPods, stops: Mapping[str, Reason]
) -> dict[str, Reason]:
    """Return per group why there is not more headroom; for an unknown group name, that reason."""
    candidates = search.candidates
    reasons = {name: reason for name, reason in pods.blocked if name}
    if not pods.groups:
        unknown = Reason.of(ReasonCode.GROUP_UNREADABLE, detail="there is no such node group")
        reasons[""] = unknown
    expanders = ", ".join(search.state.options.expander)
    not_chosen = Reason.of(ReasonCode.NOT_CHOSEN, chosen=f"expander {expanders}")
    rows = {group.id: row for row, group in enumerate(candidates.groups)}
    for group in sorted(pods.groups - reasons.keys()):
        reason = pods.verdict or candidates.skipped.get(group)
        if reason is None and group in rows:
            allowance = search.allowance(search.state.groups[group])
            against = candidates.against(pods.cls, rows[group])
            if against:
                reason = against[0]
            elif allowance.nodes <= 0:
                reason = allowance.stop
            else:
                reason = stops.get(group)
        reasons[group] = reason or not_chosen
    return dict(sorted(reasons.items()))


def _is_node_of(search: ScaleUpSearch, groups: frozenset[str]) -> Callable[[int], bool]:
    """Return a function that tells whether a row of the simulated cluster is a
    node of one of these groups."""
    nodes, real = search.simulated.table.nodes, search.simulated.real

    def is_node(row: int) -> bool:
        name = nodes[row].name
        if row < real:
            return search.state.group_of.get(name, "") in groups
        # The group of an upcoming node comes from its name (cluster_builder.py).
        return search.group_of.get(name) in groups or name.partition("-for-")[2] in groups

    return is_node
