"""Which nodes may be removed at all, before any simulation: utilization, eligibility,
and what blocks a drain.

Utilization is requests divided by allocatable, the larger of cpu and memory; on a GPU node only the
GPU counts. DaemonSet and mirror pods may be excluded from both sides; a pod that has been
terminating for long is excluded from the requests. It is computed for all nodes at once, from the
pass's index of pods by node.

The eligibility rules are in Cluster Autoscaler's order, the inexpensive ones first.

The drain rules give most pods of a class the same answer: unless a pod is being deleted, has ended
or is young in kube-system, every rule but the last depends only on its class. The rules are
therefore evaluated once per class, and only the PodDisruptionBudgets, which a plan uses up as it
goes, are checked in the removal simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Container

import msgspec
import numpy as np

from chalicelib.model.memory import NodeMemory
from chalicelib.model.node import SCALE_DOWN_DISABLED, Node
from chalicelib.model.plan import NodeVerdict
from chalicelib.model.pod import Pod
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, GPU_RESOURCES, MEMORY
from chalicelib.plan.demand.pending_pods import is_expendable
from chalicelib.plan.removal.drain_rules import (
    BEFORE_BUDGETS,
    MOVABLE,
    Action,
    DrainContext,
    Verdict,
    first_verdict,
    is_long_terminating,
)
from chalicelib.plan.removal.pod_disruption_budgets import PodDisruptionBudgets
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.interruptions import at_risk_reason
from chalicelib.plan.state.pools import at_minimum, spares
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.tables import OVERFULL, Bools, Ints

_NAMES = (CPU, MEMORY, *GPU_RESOURCES)
_DAEMON, _MIRROR = 1, 2  # kinds of pods as bit flags; 0: neither
_KINDS = 4
_ALIVE = frozenset({"", "Pending", "Running", "Unknown"})


class Utilization(msgspec.Struct, frozen=True):
    """The deciding resource and its share; gpu: whether the GPU threshold applies."""

    resource: str
    share: float
    gpu: bool = False


class Usage:
    """The requests of the pods of every node, by kind of pod; expendable pods are not counted."""

    def __init__(self, state: ClusterState) -> None:
        options, occupancy, classes = state.options, state.occupancy, state.snapshot.classes
        self._options, self._index, self._lacking = options, occupancy.index, state.lacking
        requests = np.array(
            [
                *([cls.requests.get(name, 0) for name in _NAMES] for cls in classes),
                [0] * len(_NAMES),
            ],
            dtype=np.float64,
        )
        kinds = np.array(
            [*(_DAEMON * cls.is_daemonset + _MIRROR * cls.mirror for cls in classes), 0],
            dtype=np.int64,
        )
        expendable = np.array(
            [*(is_expendable(cls, options) for cls in classes), False], dtype=np.bool_
        )
        counted: Bools = (occupancy.where >= 0) & ~expendable[occupancy.cls]
        terminating: Bools = np.zeros(len(counted), dtype=np.bool_)
        for at, pod in occupancy.pods(counted & occupancy.dying):
            terminating[at] = is_long_terminating(pod, state.now)

        def sums(which: Bools) -> Ints:
            place = occupancy.where[which] * _KINDS + kinds[occupancy.cls[which]]
            size = len(occupancy.index) * _KINDS
            amounts = np.array(
                [
                    np.bincount(place, weights=requests[occupancy.cls[which], name], minlength=size)
                    for name in range(len(_NAMES))
                ]
            )
            whole: Ints = (
                np.minimum(amounts, OVERFULL).astype(np.int64).reshape(len(_NAMES), -1, _KINDS)
            )
            return whole

        self._all = sums(counted)
        self._live = self._all - sums(terminating) if terminating.any() else self._all

    def of(self, node: Node, *, ignore_daemonsets: bool) -> Utilization | None:
        """Return a node's utilization, None if it has no allocatable cpu or memory."""
        gpu = next((name for name in GPU_RESOURCES if node.allocatable.get(name)), None)
        if gpu is None and node.name in self._lacking:
            return Utilization(GPU_RESOURCES[0], 0.0, gpu=True)
        at = self._index[node.name]
        mirrors = _MIRROR if self._options.ignore_mirror_pods_utilization else 0
        skipped = (_DAEMON if ignore_daemonsets else 0) | mirrors
        shares = []
        for name in (gpu,) if gpu else (CPU, MEMORY):
            row = _NAMES.index(name)
            used = excluded = 0
            for kind in range(_KINDS):
                if kind & skipped:
                    excluded += int(self._all[row, at, kind])
                else:
                    used += int(self._live[row, at, kind])
            room = node.allocatable.get(name, 0) - excluded
            if room <= 0:
                return None
            shares.append((used / room, name))
        share, name = max(shares, key=lambda pair: pair[0])
        return Utilization(name, share, gpu=gpu is not None)

    def share(self, node: Node) -> float:
        """Return how full a node is by the requests of all its pods: the largest share of cpu,
        memory or GPUs; 1 if unknown."""
        requests = self._all[:, self._index[node.name]].sum(axis=1)
        shares = [
            float(requests[row]) / room
            for row, name in enumerate(_NAMES)
            if (room := node.allocatable.get(name))
        ]
        return max(shares, default=1.0)


Filter = Callable[[Node, NodeGroupState, ClusterState, Usage], Reason | None]
"""Returns why a method does not consider a node that is otherwise eligible, None if it does."""


def ineligibility_reason(  # noqa: PLR0911 - one rule after the other
    node: Node,
    state: ClusterState,
    usage: Usage,
    method_filter: Filter,
    *,
    may_buy: bool = False,
    keeps_size: bool = False,
    unready: bool = False,
) -> Reason | None:
    """Return why a node is not a candidate of a method, None if it is one. may_buy: the method may
    buy nodes first, so neither the minimum of a pool nor a failed simulation without purchases
    excludes a node. keeps_size: it may buy another node of the same group, so the group's minimum
    does not, either. unready: it takes nodes that are not ready, whatever scaleDownUnreadyEnabled
    says."""
    options, bucket = state.options, state.buckets[node.name]
    node_memory = state.memory.nodes.get(node.name, NodeMemory())
    group = state.groups.get(state.group_of.get(node.name, ""))
    if node.name in state.contested:
        return state.contested[node.name]
    if group is not None and group.frozen is not None and node.name not in state.leaving:
        return group.frozen
    if node.name in state.at_risk:
        return at_risk_reason(state.announced[node.name], state.now)
    if node.name in state.leaving or bucket is Bucket.DELETED:
        return Reason.of(ReasonCode.BEING_DELETED)
    if (
        not may_buy
        and state.now
        < node_memory.unremovable_until
        <= state.now + options.unremovable_node_recheck_timeout
    ):
        why = node_memory.why  # the verdict still names the cause that an earlier pass recorded
        was = {"was": why.code.value, **why.params} if why is not None else {}
        return Reason(
            ReasonCode.RECENTLY_UNREMOVABLE, {"until": node_memory.unremovable_until, **was}
        )
    if node.annotations.get(SCALE_DOWN_DISABLED) == "true":
        return Reason.of(ReasonCode.SCALE_DOWN_DISABLED_ANNOTATION)
    if group is None:
        return Reason.of(ReasonCode.NOT_AUTOSCALED)
    if bucket is Bucket.STARTING:
        return Reason.of(ReasonCode.NOT_STARTED)
    if bucket is not Bucket.READY and not (unready or options.scale_down_unready_enabled):
        return Reason.of(ReasonCode.SCALE_DOWN_UNREADY_DISABLED)
    if problem := group.group.error or group.group.scale_down_held or group.held_back(node):
        return Reason.of(ReasonCode.UNEXPECTED, detail=problem)
    minimum = None if keeps_size else _minimum_reason(group, state, pools=not may_buy)
    return minimum or method_filter(node, group, state, usage)


def _minimum_reason(
    group_state: NodeGroupState, state: ClusterState, *, pools: bool
) -> Reason | None:
    """Return which minimum keeps a group from losing a node. pools: whether the
    minimum of its pool counts."""
    group, size = group_state.group, group_state.target - group_state.leaving
    if size <= group.min:
        return Reason.of(ReasonCode.GROUP_MIN_SIZE, min=group.min, target=size)
    if not pools or group.pool is None or group.pool.min <= 0:
        return None
    groups_of_pool = {
        other.id: other
        for other in state.groups.values()
        if other.group.pool is not None and other.group.pool.id == group.pool.id
    }
    return at_minimum(group, spares(groups_of_pool, lambda other: other.target - other.leaving))


def utilization_reason(
    node: Node, group_state: NodeGroupState, state: ClusterState, usage: Usage
) -> Reason | None:
    """Return why a node is used too much, by the thresholds of its group and of the cluster."""
    own, options = group_state.group.options, state.options
    ignore = own.ignore_daemonsets_utilization
    used = usage.of(
        node, ignore_daemonsets=options.ignore_daemonsets_utilization if ignore is None else ignore
    )
    if used is None:
        return Reason.of(ReasonCode.UNEXPECTED, detail="node has no allocatable cpu or memory")
    threshold, default = (
        (own.scale_down_gpu_utilization_threshold, options.scale_down_gpu_utilization_threshold)
        if used.gpu
        else (own.scale_down_utilization_threshold, options.scale_down_utilization_threshold)
    )
    threshold = default if threshold is None else threshold
    if used.share <= threshold:
        return None
    return Reason.of(
        ReasonCode.NOT_UNDERUTILIZED,
        resource=used.resource,
        utilization=round(used.share, 4),
        threshold=threshold,
    )


class Candidate(msgspec.Struct, frozen=True):
    """A node that may go, and what that requires. pods: those that must move. limited: pods whose
    budgets must allow one more disruption, with the budgets' names; used: budget -> the disruptions
    that moving all pods uses. waits_for: a pod that must complete first. share: how full the node
    is."""

    node: Node
    group: str
    pods: tuple[Pod, ...]
    limited: tuple[tuple[Pod, tuple[str, ...]], ...] = ()
    used: dict[str, int] = {}
    waits_for: str = ""
    share: float = 0.0


class DrainabilityChecker:
    """The drain rules of one pass. dead: names of nodes that are repaired because their kubelets do
    not answer. A pod that is being deleted there is only waited for, so no rule holds it and it
    uses no budget. One of a StatefulSet still needs a place, because its successor comes when it
    has gone; of the others the successors exist already."""

    def __init__(
        self, state: ClusterState, pdbs: PodDisruptionBudgets, dead: Container[str] = ()
    ) -> None:
        snapshot = state.snapshot
        self._state, self._classes, self._pdbs, self._dead = state, snapshot.classes, pdbs, dead
        self._context = DrainContext.of(snapshot, state.options, state.now, pdbs)
        self._expendable = [is_expendable(cls, state.options) for cls in snapshot.classes]
        self._by_class: dict[int, tuple[Verdict | None, tuple[str, ...]]] = {}
        self._unreadable = {gap.node: gap for gap in snapshot.gaps if gap.node}

    def of(self, node: Node, share: float = 0.0) -> Candidate | NodeVerdict:
        """Return the candidate, or the pod that blocks the node whatever the budgets allow."""
        gap = self._unreadable.get(node.name)
        if gap is not None:
            what = (
                f"pod {gap.name} could not be read"
                if gap.kind == "Pod"
                else "the Node could not be read"
            )
            return NodeVerdict(node.name, Reason.of(ReasonCode.UNEXPECTED, detail=what), gap.name)
        moving: list[Pod] = []
        limited: list[tuple[Pod, tuple[str, ...]]] = []
        used: dict[str, int] = {}
        waits_for = ""
        for pod in self._state.occupancy.on(node.name):
            if self._expendable[pod.cls]:
                continue  # it dies with its node
            if pod.deleted and node.name in self._dead:
                owner = self._classes[pod.cls].owner
                moving += [pod] if owner is not None and owner.kind == "StatefulSet" else []
                continue
            verdict, names = self._verdict(pod)
            if verdict is not None and verdict is not MOVABLE:
                if verdict.reason is not None:
                    # As in Cluster Autoscaler, the first pod that blocks a node gives the reason,
                    # also one whose budget has no disruptions from the beginning.
                    exhausted = self._pdbs.exhausted(limited)
                    if exhausted is not None:
                        holder, budget = exhausted
                        return blocked(node, holder, self._pdbs.refusal(budget))
                    return blocked(node, pod, verdict.reason)
                if verdict.action is Action.WAIT:
                    waits_for = pod.key
                continue
            moving.append(pod)
            if not names:
                continue
            if verdict is None:
                limited.append((pod, names))
            for name in names:
                used[name] = used.get(name, 0) + 1
        group = self._state.group_of[node.name]
        return Candidate(node, group, tuple(moving), tuple(limited), used, waits_for, share)

    def _verdict(self, pod: Pod) -> tuple[Verdict | None, tuple[str, ...]]:
        """Return the verdict of the rules before the budgets (None: the budgets decide), and the
        budgets that moving the pod uses."""
        pod_class = self._classes[pod.cls]
        if pod.deleted or pod.unready or pod.phase not in _ALIVE or pod.namespace == "kube-system":
            return first_verdict(
                pod, pod_class, self._context, BEFORE_BUDGETS
            ), self._pdbs.spent_by(pod)
        answer = self._by_class.get(pod.cls)
        if answer is None:
            verdict = first_verdict(pod, pod_class, self._context, BEFORE_BUDGETS)
            answer = self._by_class[pod.cls] = (verdict, self._pdbs.of(pod.cls))
        return answer


def blocked(node: Node, pod: Pod, reason: Reason) -> NodeVerdict:
    """Return the verdict of a node that a pod blocks, with the rule's own numbers."""
    params = {"pod": pod.key, "rule": reason.code.value, **reason.params}
    return NodeVerdict(node.name, Reason(ReasonCode.BLOCKED_BY_POD, params), pod.key)


def find_candidates(
    state: ClusterState,
    simulated: SimulatedCluster,
    pdbs: PodDisruptionBudgets,
    method_filter: Filter,
    *,
    may_buy: bool = False,
) -> tuple[list[Candidate], dict[str, NodeVerdict]]:
    """Return the nodes that a method may try to remove, and the verdicts on all other nodes.
    may_buy: as for ineligibility_reason."""
    usage, checker = Usage(state), DrainabilityChecker(state, pdbs)
    candidates: list[Candidate] = []
    verdicts: dict[str, NodeVerdict] = {}
    for node in state.snapshot.nodes:
        simulated.check()
        reason = ineligibility_reason(node, state, usage, method_filter, may_buy=may_buy)
        if reason is None and node.name in simulated.promised:
            reason = Reason.of(ReasonCode.PROMISED, pod=simulated.promised[node.name])
        if reason is None and node.name in simulated.held:
            reason = Reason.of(ReasonCode.UNEXPECTED, detail=simulated.held[node.name])
        if reason is not None:
            verdicts[node.name] = NodeVerdict(node.name, reason, str(reason.params.get("pod", "")))
            continue
        result = checker.of(node, usage.share(node))
        if isinstance(result, Candidate):
            candidates.append(result)
        else:
            verdicts[node.name] = result
    return candidates, verdicts


def removable_rows(state: ClusterState, simulated: SimulatedCluster) -> frozenset[int]:
    """Return the rows of the nodes with little use whose pods may all be moved, for scale-up to
    prefer the nodes that stay. No removal is simulated."""
    usage = Usage(state)
    checker = DrainabilityChecker(
        state, PodDisruptionBudgets(state.snapshot.budgets, state.snapshot.classes)
    )
    return frozenset(
        simulated.table.index[node.name]
        for node in state.snapshot.nodes
        if node.name in simulated.table.index
        and ineligibility_reason(node, state, usage, utilization_reason) is None
        and isinstance(checker.of(node), Candidate)
    )
