"""Headroom: spare capacity, modelled as virtual pods that are placed after all real pods and displace none of them.

    headroom_demand  ► a class per entry of spec.headroom, and its number of pods
    plan_headroom    ► room on existing nodes, upcoming nodes or nodes planned for other pods; for the rest, new nodes
    by
                       the same search as for pods
    (removal_simulation/headroom_reserve.py ► nodes that stay must offer the headroom that existing nodes offer)

Virtual pods are never in the simulated cluster while anything is decided for real pods. Real pods come first and use
that room as if there were no headroom; then headroom is refilled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from chalicelib.model.group import NodeGroup
from chalicelib.model.plan import HeadroomVerdict
from chalicelib.model.pod import PodClass, Toleration
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.model.scaling_rules import Headroom
from chalicelib.plan.scale_up.estimator import PodRequest
from chalicelib.plan.scale_up.limits import blocking_reason
from chalicelib.plan.scale_up.search import ScaleUpSearch
from chalicelib.plan.simulation.simulated_cluster import Spare
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pending_pods import is_expendable
from chalicelib.plan.state.pools import PoolNames

_CORE = 1000  # maximum millicores of a virtual pod of a percentage
_MEMORY = 4 * 2**30  # bytes, where the pods request no cpu at all
_NAMESPACE = "(headroom)"  # not a valid namespace name, so no pod's rules about other pods select virtual ones


class VirtualPods(msgspec.Struct, frozen=True):
    """Virtual pods of one entry. groups: ids of the groups that may run them. held: why none is added in this pass, and
    because of which group."""

    name: str
    cls: int
    count: int
    groups: frozenset[str] = frozenset()
    held: tuple[tuple[str, Reason], ...] = ()


class HeadroomDemand(msgspec.Struct, frozen=True):
    """The virtual pods of a pass, in placement order."""

    pods: tuple[VirtualPods, ...] = ()


class HeadroomResult(msgspec.Struct, frozen=True):
    """The result of headroom planning. by_group: group -> names of the headroom for which nodes are added."""

    verdicts: tuple[HeadroomVerdict, ...] = ()
    by_group: dict[str, tuple[str, ...]] = {}


class _Scope(msgspec.Struct, frozen=True):
    groups: frozenset[str]
    held: tuple[tuple[str, Reason], ...]


def headroom_demand(state: ClusterState) -> tuple[ClusterState, HeadroomDemand]:
    """Return the cluster state with the classes of the virtual pods appended to the snapshot's classes, and the
    headroom demand.

    Entries that the fewest groups may run come first, then the largest. An entry with groups tolerates every taint; an
    entry for the whole cluster tolerates none. A percentage refers to the requests of the pods in scope, without pods
    that come with their node (DaemonSets, static pods) and expendable pods.
    """
    if not state.policy.headroom:
        return state, HeadroomDemand()
    found: list[tuple[tuple[int, int, int, str], Headroom, _Scope, dict[str, int], int]] = []
    asked, names = None, PoolNames(state)
    for entry in state.policy.headroom:
        scope = _scope(entry, state, names)
        each, count = {CPU: entry.cpu, MEMORY: entry.memory}, entry.pods
        if entry.percent:
            asked = asked or _Asked(state)
            each, count = _cut(asked.by(scope.groups), entry.percent, _empty(scope.groups, state))
        order = (len(scope.groups), -each[CPU], -each[MEMORY], entry.name)
        found.append((order, entry, scope, {name: amount for name, amount in each.items() if amount > 0}, count))
    classes, pods = list(state.snapshot.classes), []
    for _, entry, scope, requests, count in sorted(found, key=lambda one: one[0]):
        pods.append(VirtualPods(entry.name, len(classes), count if requests else 0, scope.groups, scope.held))
        classes.append(
            PodClass(
                namespace=_NAMESPACE,
                labels={},
                requests=requests,
                tolerations=(Toleration(operator="Exists"),) if entry.groups else (),
            )
        )
    snapshot = msgspec.structs.replace(state.snapshot, classes=tuple(classes))
    return msgspec.structs.replace(state, snapshot=snapshot), HeadroomDemand(tuple(pods))


def _scope(headroom: Headroom, state: ClusterState, names: PoolNames) -> _Scope:
    """Return which groups may run an entry. A group that cannot be read may run it too, so nothing is added while that
    is unknown."""
    unread = [gap.detail for gap in state.snapshot.gaps if gap.kind.startswith("provider/")]
    groups: set[str] = set()
    held: dict[str, Reason] = {}
    for name in headroom.groups:
        pool = names.find(name)
        if pool is not None:
            groups.update(pool.groups)
        elif unread:
            held[name] = Reason.of(ReasonCode.GROUP_UNREADABLE, detail=unread[0])
    if not headroom.groups:
        groups.update(state.groups)
        if unread:
            held[""] = Reason.of(ReasonCode.GROUP_UNREADABLE, detail=unread[0])
    for group in sorted(groups):
        if state.groups[group].group.error:
            held[group] = _unreadable(state.groups[group].group)
    return _Scope(frozenset(groups), tuple(sorted(held.items(), key=lambda one: one[0])))


def _unreadable(group: NodeGroup) -> Reason:
    return Reason.of(ReasonCode.GROUP_UNREADABLE, detail=group.error)


class _Asked:
    """The requests of pods by the group of their node, computed in one scan over all pods for all entries."""

    def __init__(self, state: ClusterState) -> None:
        snapshot, occupancy = state.snapshot, state.occupancy
        self._classes = snapshot.classes
        self._ids = {name: at for at, name in enumerate(sorted(state.groups))}
        group_of = state.group_of
        nodes = np.array(
            [*(self._ids.get(group_of.get(node.name, ""), -1) for node in snapshot.nodes), -1], dtype=np.int64
        )
        groups = nodes[occupancy.where]
        counted = np.array(
            [not (cls.is_daemonset or cls.mirror or is_expendable(cls, state.options)) for cls in snapshot.classes]
            or [False],
            dtype=np.bool_,
        )
        keep = (groups >= 0) & counted[occupancy.cls] if len(groups) else np.zeros(0, dtype=np.bool_)
        self._groups, self._cls = groups[keep], occupancy.cls[keep]

    def by(self, groups: Iterable[str]) -> tuple[int, int]:
        """Return cpu (millicores) and memory (bytes) requested by the pods on nodes of these groups."""
        inside = np.zeros(len(self._ids) + 1, dtype=np.bool_)
        inside[[self._ids[group] for group in groups]] = True
        counts = np.bincount(self._cls[inside[self._groups]], minlength=len(self._classes)).tolist()
        asked = [(count, cls.requests) for count, cls in zip(counts, self._classes, strict=True) if count]
        return (
            sum(count * requests.get(CPU, 0) for count, requests in asked),
            sum(count * requests.get(MEMORY, 0) for count, requests in asked),
        )


def _empty(groups: Iterable[str], state: ClusterState) -> list[tuple[int, int]]:
    """Return cpu and memory of an empty new node of every group with a template, less its DaemonSets' requests."""
    found = []
    for group in sorted(groups):
        template = state.groups[group].template
        if template is not None:
            daemons = [state.snapshot.classes[cls].requests for cls in template.daemons]
            cpu, memory = (
                template.node.allocatable.get(name, 0) - sum(each.get(name, 0) for each in daemons)
                for name in (CPU, MEMORY)
            )
            found.append((cpu, memory))
    return found


def _cut(asked: tuple[int, int], percent: int, nodes: Sequence[tuple[int, int]]) -> tuple[dict[str, int], int]:
    """Divide a percentage of the requests into equal pods: at most one core each, and no larger than the largest empty
    node in scope takes."""
    cpu, memory = (-(-amount * percent // 100) for amount in asked)
    if cpu <= 0 and memory <= 0:
        return {CPU: 0, MEMORY: 0}, 0
    count = -(-cpu // _CORE) if cpu > 0 else -(-memory // _MEMORY)
    count = max(count, min((most for node in nodes if (most := _fewest((cpu, memory), node))), default=0))
    return {CPU: -(-cpu // count), MEMORY: -(-memory // count)}, count


def _fewest(amounts: tuple[int, int], node: tuple[int, int]) -> int:
    """Return the smallest number of equal pods such that one fits an empty node; 0: there is none."""
    pairs = [(amount, offers) for amount, offers in zip(amounts, node, strict=True) if amount > 0]
    if any(offers <= 0 for _, offers in pairs):
        return 0
    return max(-(-amount // offers) for amount, offers in pairs)


def plan_headroom(search: ScaleUpSearch, demand: HeadroomDemand) -> HeadroomResult:
    """Place the virtual pods in the simulated cluster, and add nodes for those without room. Afterwards they are
    removed again, and its `spare` says what existing nodes offer. Nothing is added while the cluster is unhealthy."""
    return _Keeping(search, demand).kept() if demand.pods else HeadroomResult()


class _Keeping:
    def __init__(self, search: ScaleUpSearch, demand: HeadroomDemand) -> None:
        self.search, self.simulated, self.state, self.pods = search, search.simulated, search.state, demand.pods
        self.by_group: dict[str, tuple[str, ...]] = {}
        self.stops: dict[str, dict[str, Reason]] = {}  # entry -> group -> what kept it from growing further

    def kept(self) -> HeadroomResult:
        """Place the virtual pods, add nodes, count, and remove the virtual pods."""
        mark = self.simulated.checkpoint()
        for each in self.pods:
            self.simulated.confine(each.cls, _Inside(self.search, each.groups))
            self.search.candidates.confine(each.cls, each.groups)
        left = {each.cls: each.count - self._fill(each, each.count) for each in self.pods}
        shut = blocking_reason(self.state)
        for each in self.pods:
            rest = left[each.cls]
            if rest and self.search.grown:  # nodes planned for other demand may have room by now
                rest -= self._fill(each, rest)
            if rest and shut is None and not each.held:
                self._grow(each, rest)
        standing = self.simulated.standing()
        verdicts, spare = [], []
        for each in self.pods:
            rows, counts = standing.get(each.cls, (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)))
            held, added = int(counts[rows < self.simulated.base].sum()), int(counts[rows >= self.simulated.base].sum())
            short = held + added < each.count
            verdicts.append(
                HeadroomVerdict(
                    each.name,
                    wanted=each.count,
                    held=held,
                    added=added,
                    reasons=self._reasons(each, shut) if short else {},
                )
            )
            here = int(counts[rows < self.simulated.real].sum())
            if here:
                spare.append(Spare(each.name, each.cls, here))
        self.simulated.rollback(mark)
        self.simulated.spare = tuple(spare)
        self.simulated.unsettled |= self.simulated.late()  # its use of existing nodes is not fully known
        return HeadroomResult(tuple(sorted(verdicts, key=lambda one: one.name)), dict(sorted(self.by_group.items())))

    def _fill(self, virtual_pods: VirtualPods, count: int) -> int:
        return sum(here for _, here in self.simulated.place_first_fit(virtual_pods.cls, count)) if count > 0 else 0

    def _grow(self, virtual_pods: VirtualPods, count: int) -> None:
        """Add new nodes by the chain of expanders without least-cost. The search's first, stops and notes are restored
        because they belong to the report on real pods."""
        search = self.search
        before, first, stops, notes = dict(search.grown), dict(search.first), search.stops, dict(search.notes)
        search.stops = {}
        search.search([PodRequest(virtual_pods.cls, count, virtual_pods.name)], mixed=False)
        self.stops[virtual_pods.name] = search.stops
        search.first, search.stops, search.notes = first, stops, notes
        for group, nodes in sorted(search.grown.items()):
            if nodes > before.get(group, 0):
                self.by_group[group] = tuple(sorted({*self.by_group.get(group, ()), virtual_pods.name}))

    def _reasons(self, virtual_pods: VirtualPods, shut: Reason | None) -> dict[str, Reason]:
        """Return per group why there is not more headroom; for an unknown group name, that reason."""
        search, candidates = self.search, self.search.candidates
        reasons = {name: reason for name, reason in virtual_pods.held if name}
        if not virtual_pods.groups:
            reasons.setdefault("", Reason.of(ReasonCode.GROUP_UNREADABLE, detail="there is no such node group"))
        held = shut or next((reason for _, reason in virtual_pods.held), None)
        rows = {facts.id: row for row, facts in enumerate(candidates.able)}
        for group in sorted(virtual_pods.groups - reasons.keys()):
            reason = held or candidates.skipped.get(group)
            if reason is None and group in rows:
                facts = self.state.groups[group]
                allowance = search.ledger.allowance(facts, search.grown.get(group, 0))
                against = candidates.against(virtual_pods.cls, rows[group])
                stop = self.stops.get(virtual_pods.name, {}).get(group)
                reason = against[0] if against else allowance.stop if allowance.nodes <= 0 else stop
            reasons[group] = reason or Reason.of(
                ReasonCode.NOT_CHOSEN, chosen=f"expander {', '.join(self.state.options.expander)}"
            )
        return dict(sorted(reasons.items()))


class _Inside:
    """Tells whether a row of the simulated cluster is a node of one of these groups."""

    def __init__(self, search: ScaleUpSearch, groups: frozenset[str]) -> None:
        self._nodes, self._real, self._groups = search.simulated.table.nodes, search.simulated.real, groups
        self._group_of, self._planned = search.state.group_of, search.group_of

    def __call__(self, row: int) -> bool:
        name = self._nodes[row].name
        if row < self._real:
            return self._group_of.get(name, "") in self._groups
        # The group of an upcoming node comes from its name (cluster_builder.py).
        return self._planned.get(name) in self._groups or name.partition("-for-")[2] in self._groups
