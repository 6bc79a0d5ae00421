"""Which nodes consolidation may look at, by what is known before anything is simulated.

    named groups ► price ► replacement under way ► age ► quiet time ►
    do-not-disrupt ► moves of the day

A node that is not eligible still takes the pods of others.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from operator import attrgetter

import numpy as np

from chalicelib.model.errors import BadInput
from chalicelib.model.memory import NodeMemory
from chalicelib.model.node import Node
from chalicelib.model.pod import Pod
from chalicelib.model.quantity import parse_duration
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal.candidates import Candidate, Usage, blocked
from chalicelib.plan.removal.consolidation.costs import Costs
from chalicelib.plan.removal.consolidation.move_limits import OwnerMoves
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.node_age import NodeBirths
from chalicelib.plan.state.pools import PoolNames
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.state.spot_market import is_fallback
from chalicelib.plan.tables import Floats, Ints

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"


def named_groups(state: ClusterState) -> frozenset[str]:
    """Return the ids of the groups that consolidation may use: all of them, or
    those of the named pools."""
    names = state.policy.consolidation.groups
    if not names:
        return frozenset(state.groups)
    pools = PoolNames(state)
    return frozenset(
        group for name in names if (pool := pools.find(name)) is not None for group in pool.groups
    )


class QuietTimes:
    """Since when the pods of every node are the same. DaemonSet and mirror pods do not count."""

    def __init__(self, state: ClusterState) -> None:
        pods, classes, occupancy = state.snapshot.pods, state.snapshot.classes, state.occupancy
        nodes = len(state.snapshot.nodes)
        counted_class = np.array(
            [*(not (cls.is_daemonset or cls.mirror) for cls in classes), False], dtype=np.bool_
        )
        counted = (occupancy.where >= 0) & counted_class[occupancy.cls]
        where = occupancy.where[counted]
        chosen = [pods[at] for at in np.flatnonzero(counted).tolist()]
        checks = np.fromiter(
            (zlib.crc32(pod.uid.encode()) + 1 for pod in chosen),
            dtype=np.float64,
            count=len(chosen),
        )
        created: Floats = np.fromiter(
            map(attrgetter("created"), chosen), dtype=np.float64, count=len(chosen)
        )
        self._sums: Ints = np.bincount(where, weights=checks, minlength=nodes).astype(np.int64)
        newest: Floats = np.zeros(nodes)
        np.maximum.at(newest, where, created)
        self._newest, self._state = newest, state

    def memory_of(self, node: Node) -> tuple[int, float]:
        """Return the checksum of a node's pods, and since when it has exactly these."""
        at, now = self._state.occupancy.index[node.name], self._state.now
        before = self._state.memory.nodes.get(node.name, NodeMemory())
        checksum, newest = int(self._sums[at]), min(now, float(self._newest[at]))
        if before.pods == checksum and before.pods_since:
            return checksum, min(now, max(before.pods_since, newest))
        seen_before = bool(before.pods_since)
        return checksum, now if seen_before else (newest or min(now, node.created))


class Eligibility:
    """The checks of one pass."""

    def __init__(
        self, state: ClusterState, costs: Costs, quiet: QuietTimes, rows: Mapping[str, Reason]
    ) -> None:
        """rows: node -> why a replacement has it, or must not have it again yet."""
        self._state, self._costs, self._quiet, self._rows = state, costs, quiet, rows
        self._settings, self.named = state.policy.consolidation, named_groups(state)
        self._births = NodeBirths()

    def ineligible(
        self, node: Node, group: NodeGroupState, state: ClusterState, usage: Usage
    ) -> Reason | None:
        """Return why a node is not looked at, None if it is: a filter of find_candidates."""
        del usage
        if (off := self._excluded(node, group)) is not None:
            return off
        if node.name in self._rows:
            return self._rows[node.name]
        if node.name not in self._costs.nodes:
            return Reason.of(
                ReasonCode.NO_PRICE, group=group.id, detail=self._costs.unpriced.get(node.name, "")
            )
        # A node that was bought because spot groups were not to be had goes as soon as one is.
        age = 0.0 if is_fallback(node, group, state) else self._settings.min_node_age
        for code, until in (
            (ReasonCode.NODE_TOO_YOUNG, self._births.of(node, group) + age),
            (ReasonCode.NOT_QUIET, self._quiet.memory_of(node)[1] + self._settings.quiet_time),
        ):
            if until > state.now:
                return Reason.of(code, until=until)
        return protection(node, state)

    def _excluded(self, node: Node, group: NodeGroupState) -> Reason | None:
        """Return why consolidation does not apply to a node at all."""
        checks = (
            (group.id not in self.named, "consolidation.groups does not name its group"),
            (group.group.options.zero_or_max, "its group goes as a whole or not at all"),
            (self._state.buckets[node.name] is not Bucket.READY, "it is not ready"),
        )
        detail = next((detail for fails, detail in checks if fails), None)
        return None if detail is None else Reason.of(ReasonCode.CONSOLIDATION_OFF, detail=detail)

    def blocked_candidate(self, candidate: Candidate, moves: OwnerMoves) -> Reason | None:
        """Return why a candidate's pods keep it whatever else goes: one of them is under two
        PodDisruptionBudgets, or an owner's pods were moved often enough today."""
        for pod, names in candidate.limited:
            if len(names) > 1:
                refusal = Reason.of(ReasonCode.NOT_ENOUGH_PDB, budget=", ".join(names))
                return blocked(candidate.node, pod, refusal).reason
        for owner, pods in moves.of(candidate).items():
            left = moves.left(owner)
            if left is not None and pods > left:
                return moves.reason(owner)
        return None


def protection(node: Node, state: ClusterState) -> Reason | None:
    """Return which annotation keeps a node, None also where nodeLifecycle.annotations is false. On
    nodes only "true" counts."""
    lifecycle = state.policy.node_lifecycle
    if lifecycle is not None and not lifecycle.annotations:
        return None
    if node.annotations.get(DO_NOT_DISRUPT) == "true":
        return Reason.of(ReasonCode.DO_NOT_DISRUPT)
    for pod in state.occupancy.on(node.name):
        text = state.snapshot.classes[pod.cls].do_not_disrupt
        if text and not pod.deleted and (reason := _protection(pod, text, state.now)) is not None:
            return reason
    return None


def protected_time(text: str) -> float | None:
    """Return for how many seconds from its start an annotation protects a pod: infinity for "true",
    else a duration; None for a value that is neither."""
    if text == "true":
        return math.inf
    try:
        return parse_duration(text)
    except BadInput:
        return None


def _protection(pod: Pod, text: str, now: float) -> Reason | None:
    """Return why a pod's annotation keeps its node. A pod that has not started
    keeps it for any duration."""
    duration = protected_time(text)
    if duration is None:
        return None
    if duration == math.inf or not pod.started:
        return Reason.of(ReasonCode.DO_NOT_DISRUPT, pod=pod.key)
    until = pod.started + duration
    return Reason.of(ReasonCode.DO_NOT_DISRUPT, pod=pod.key, until=until) if until > now else None
