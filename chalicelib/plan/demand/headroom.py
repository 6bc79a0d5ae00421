"""Headroom: spare capacity, modelled as virtual pods that are placed after all real pods
and displace none of them.

A class per entry of spec.headroom, and its number of pods.
plan/scale_up/headroom_purchases.py places them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from chalicelib.model.pod import PodClass, Toleration
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.model.scaling_rules import Headroom
from chalicelib.plan.demand import Demand, blocking_reason
from chalicelib.plan.demand.pending_pods import is_expendable
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pools import PoolNames

_CORE = 1000  # maximum millicores of a virtual pod of a percentage
_MEMORY = 4 * 2**30  # bytes, where the pods request no cpu at all
# not a valid namespace name, so no pod's rules about other pods select virtual ones
_NAMESPACE = "(headroom)"


class VirtualPods(Demand, frozen=True):
    """Virtual pods of one entry. groups: ids of the groups that may run them. blocked: groups that
    cannot be read, with the reason; then none is added in this pass."""

    name: str
    cls: int
    count: int
    groups: frozenset[str] = frozenset()
    blocked: tuple[tuple[str, Reason], ...] = ()

    @property
    def owner(self) -> str:
        """The entry."""
        return self.name


class HeadroomDemand(msgspec.Struct, frozen=True):
    """The virtual pods of a pass, in placement order."""

    pods: tuple[VirtualPods, ...] = ()


def headroom_demand(state: ClusterState) -> tuple[ClusterState, HeadroomDemand]:
    """Return the cluster state with the classes of the virtual pods appended to the snapshot's
    classes, and the headroom demand.

    Entries that the fewest groups may run come first, then the largest. An entry with groups
    tolerates every taint; an entry for the whole cluster tolerates none. A percentage refers to the
    requests of the pods in scope, without pods that come with their node (DaemonSets, static pods)
    and expendable pods.
    """
    if not state.policy.headroom:
        return state, HeadroomDemand()
    entries: list[tuple[tuple[int, int, int, str], VirtualPods, PodClass]] = []
    group_requests, names, unhealthy = None, PoolNames(state), blocking_reason(state)
    for headroom in state.policy.headroom:
        groups, blocked = _scope(headroom, state, names)
        verdict = unhealthy or next((reason for _, reason in blocked), None)
        size, count = {CPU: headroom.cpu, MEMORY: headroom.memory}, headroom.pods
        if headroom.percent:
            group_requests = group_requests or _GroupRequests(state)
            total = tuple(
                -(-amount * headroom.percent // 100) for amount in group_requests.of(groups)
            )
            size, count = _divided(total[0], total[1], _empty_nodes(groups, state))
        requests = {name: amount for name, amount in size.items() if amount > 0}
        tolerations = (Toleration(operator="Exists"),) if headroom.groups else ()
        entries.append(
            (
                (len(groups), -size[CPU], -size[MEMORY], headroom.name),
                VirtualPods(
                    headroom.name, 0, count if requests else 0, groups, blocked, verdict=verdict
                ),
                PodClass(
                    namespace=_NAMESPACE, labels={}, requests=requests, tolerations=tolerations
                ),
            )
        )
    entries.sort(key=lambda entry: entry[0])
    first = len(state.snapshot.classes)
    pods = tuple(
        msgspec.structs.replace(pods, cls=first + at) for at, (_, pods, _) in enumerate(entries)
    )
    classes = (*state.snapshot.classes, *(cls for _, _, cls in entries))
    snapshot = msgspec.structs.replace(state.snapshot, classes=classes)
    return msgspec.structs.replace(state, snapshot=snapshot), HeadroomDemand(pods)


def _scope(
    headroom: Headroom, state: ClusterState, names: PoolNames
) -> tuple[frozenset[str], tuple[tuple[str, Reason], ...]]:
    """Return which groups may run an entry, and what blocks it: a group that cannot be read may run
    it too, so nothing is added while that is unknown."""
    unread = [gap.detail for gap in state.snapshot.gaps if gap.kind.startswith("provider/")]
    groups: set[str] = set() if headroom.groups else set(state.groups)
    blocked: dict[str, str] = {"": unread[0]} if unread and not headroom.groups else {}
    for name in headroom.groups:
        pool = names.find(name)
        if pool is not None:
            groups.update(pool.groups)
        elif unread:
            blocked[name] = unread[0]
    blocked.update((group, error) for group in groups if (error := state.groups[group].group.error))
    return frozenset(groups), tuple(
        (name, Reason.of(ReasonCode.GROUP_UNREADABLE, detail=detail))
        for name, detail in sorted(blocked.items())
    )


class _GroupRequests:
    """The requests of pods by the group of their node, computed in one scan over
    all pods for all entries."""

    def __init__(self, state: ClusterState) -> None:
        snapshot, occupancy = state.snapshot, state.occupancy
        self._classes = snapshot.classes
        self._ids = {name: at for at, name in enumerate(sorted(state.groups))}
        group_of = state.group_of
        nodes = np.array(
            [*(self._ids.get(group_of.get(node.name, ""), -1) for node in snapshot.nodes), -1],
            dtype=np.int64,
        )
        groups = nodes[occupancy.where]
        counted = np.array(
            [
                not (cls.is_daemonset or cls.mirror or is_expendable(cls, state.options))
                for cls in snapshot.classes
            ]
            or [False],
            dtype=np.bool_,
        )
        keep = (
            (groups >= 0) & counted[occupancy.cls] if len(groups) else np.zeros(0, dtype=np.bool_)
        )
        self._groups, self._cls = groups[keep], occupancy.cls[keep]

    def of(self, groups: Iterable[str]) -> tuple[int, int]:
        """Return cpu (millicores) and memory (bytes) requested by the pods
        on nodes of these groups."""
        inside = np.zeros(len(self._ids) + 1, dtype=np.bool_)
        inside[[self._ids[group] for group in groups]] = True
        counts = np.bincount(self._cls[inside[self._groups]], minlength=len(self._classes)).tolist()
        requests = [
            (count, cls.requests) for count, cls in zip(counts, self._classes, strict=True) if count
        ]
        return (
            sum(count * amounts.get(CPU, 0) for count, amounts in requests),
            sum(count * amounts.get(MEMORY, 0) for count, amounts in requests),
        )


def _empty_nodes(groups: Iterable[str], state: ClusterState) -> list[tuple[int, int]]:
    """Return cpu and memory of an empty new node of every group with a template, less
    its DaemonSets' requests."""
    classes, nodes = state.snapshot.classes, []
    for group in sorted(groups):
        if (template := state.groups[group].template) is not None:
            cpu, memory = (
                template.node.allocatable.get(name, 0)
                - sum(classes[cls].requests.get(name, 0) for cls in template.daemons)
                for name in (CPU, MEMORY)
            )
            nodes.append((cpu, memory))
    return nodes


def _divided(cpu: int, memory: int, nodes: Sequence[tuple[int, int]]) -> tuple[dict[str, int], int]:
    """Divide amounts into equal pods: at most one core each, and no larger than the largest of
    these empty nodes takes. Returns the amounts of each pod, and the number of pods."""
    if cpu <= 0 and memory <= 0:
        return {CPU: 0, MEMORY: 0}, 0
    count = -(-cpu // _CORE) if cpu > 0 else -(-memory // _MEMORY)
    fewest = []  # per node, the smallest number of equal pods such that one fits it
    for node in nodes:
        pairs = [
            (amount, offers)
            for amount, offers in zip((cpu, memory), node, strict=True)
            if amount > 0
        ]
        if all(offers > 0 for _, offers in pairs):
            fewest.append(max(-(-amount // offers) for amount, offers in pairs))
    count = max(count, min(fewest, default=0))
    return {CPU: -(-cpu // count), MEMORY: -(-memory // count)}, count
