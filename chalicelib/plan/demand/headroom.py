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
from chalicelib.model.reason import Reason
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.demand import Demand, blocking_reason
from chalicelib.plan.demand.pending_pods import is_expendable
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pools import PoolNames
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.headroom import Headroom

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
    group_requests = None
    names = PoolNames(state)
    unhealthy = blocking_reason(state)
    for headroom in state.policy.headroom:
        groups, blocked = _scope(headroom, state, names)
        verdict = unhealthy or next((reason for _, reason in blocked), None)
        size = {CPU: headroom.cpu, MEMORY: headroom.memory}
        count = headroom.pods
        if headroom.percent:
            group_requests = group_requests or _GroupRequests(state)
            cpu, memory = group_requests.share(groups, headroom.percent)
            size, count = _divided(cpu, memory, _empty_nodes(groups, state))
        requests = {name: amount for name, amount in size.items() if amount > 0}
        if not requests:
            count = 0
        rank = (len(groups), -size[CPU], -size[MEMORY], headroom.name)
        pods = VirtualPods(headroom.name, 0, count, groups, blocked, verdict=verdict)
        tolerations = (Toleration(operator="Exists"),) if headroom.groups else ()
        pod_class = PodClass(
            namespace=_NAMESPACE, labels={}, requests=requests, tolerations=tolerations
        )
        entries.append((rank, pods, pod_class))
    entries.sort(key=lambda entry: entry[0])
    classes = list(state.snapshot.classes)
    demand = []
    for _, pods, pod_class in entries:
        demand.append(msgspec.structs.replace(pods, cls=len(classes)))
        classes.append(pod_class)
    snapshot = msgspec.structs.replace(state.snapshot, classes=tuple(classes))
    return msgspec.structs.replace(state, snapshot=snapshot), HeadroomDemand(tuple(demand))


def _scope(
    headroom: Headroom, state: ClusterState, names: PoolNames
) -> tuple[frozenset[str], tuple[tuple[str, Reason], ...]]:
    """Return which groups may run an entry, and what blocks it: a group that cannot be read may run
    it too, so nothing is added while that is unknown."""
    unread = state.unread_provider
    groups: set[str] = set()
    blocked: dict[str, Reason] = {}
    if not headroom.groups:
        groups.update(state.groups)
        if unread is not None:
            blocked[""] = unread
    for name in headroom.groups:
        pool = names.find(name)
        if pool is not None:
            groups.update(pool.groups)
        elif unread is not None:
            blocked[name] = unread
    for group in groups:
        reason = state.groups[group].unreadable
        if reason is not None:
            blocked[group] = reason
    return frozenset(groups), tuple((name, blocked[name]) for name in sorted(blocked))


class _GroupRequests:
    """The requests of pods by the group of their node, computed in one scan over
    all pods for all entries."""

    def __init__(self, state: ClusterState) -> None:
        snapshot, occupancy = state.snapshot, state.occupancy
        self._classes = snapshot.classes
        self._ids = {name: at for at, name in enumerate(sorted(state.groups))}
        names = (state.group_of.get(node.name, "") for node in snapshot.nodes)
        # the last: pods without a node
        group_of_node = np.array([*(self._ids.get(name, -1) for name in names), -1], dtype=np.int64)
        groups = group_of_node[occupancy.where]
        is_counted = [_is_counted(pod_class, state.options) for pod_class in snapshot.classes]
        counted = np.array(is_counted or [False], dtype=np.bool_)
        no_pods = np.zeros(0, dtype=np.bool_)
        keep = (groups >= 0) & counted[occupancy.cls] if len(groups) else no_pods
        self._groups = groups[keep]
        self._cls = occupancy.cls[keep]

    def share(self, groups: Iterable[str], percent: int) -> tuple[int, int]:
        """Return a percentage of cpu (millicores) and memory (bytes) requested by the pods on nodes
        of these groups."""
        inside = np.zeros(len(self._ids) + 1, dtype=np.bool_)
        inside[[self._ids[group] for group in groups]] = True
        classes = self._cls[inside[self._groups]]
        counts = np.bincount(classes, minlength=len(self._classes)).tolist()
        cpu = memory = 0
        for count, pod_class in zip(counts, self._classes, strict=True):
            if count:
                cpu += count * pod_class.requests.get(CPU, 0)
                memory += count * pod_class.requests.get(MEMORY, 0)
        return -(-cpu * percent // 100), -(-memory * percent // 100)


def _is_counted(pod_class: PodClass, options: Options) -> bool:
    if pod_class.is_daemonset or pod_class.mirror:
        return False
    return not is_expendable(pod_class, options)


def _empty_nodes(groups: Iterable[str], state: ClusterState) -> list[tuple[int, int]]:
    """Return cpu and memory of an empty new node of every group with a template, less
    its DaemonSets' requests."""
    nodes = []
    for group in sorted(groups):
        template = state.groups[group].template
        if template is None:
            continue
        cpu = template.node.allocatable.get(CPU, 0)
        memory = template.node.allocatable.get(MEMORY, 0)
        for cls in template.daemons:
            requests = state.snapshot.classes[cls].requests
            cpu -= requests.get(CPU, 0)
            memory -= requests.get(MEMORY, 0)
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
        amounts = zip((cpu, memory), node, strict=True)
        pairs = [(amount, offers) for amount, offers in amounts if amount > 0]
        if all(offers > 0 for _, offers in pairs):
            fewest.append(max(-(-amount // offers) for amount, offers in pairs))
    count = max(count, min(fewest, default=0))
    return {CPU: -(-cpu // count), MEMORY: -(-memory // count)}, count
