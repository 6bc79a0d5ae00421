"""Checks drainability: applies the drain rules to a node's pods, without simulating placements.

Most pods of a class get the same answer: unless a pod is being deleted, has ended or is young in kube-system, every
rule but the last depends only on its class. The rules are therefore evaluated once per class, and only the
PodDisruptionBudgets, which a plan uses up as it goes, are checked in the removal simulation.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.plan import NodeVerdict
from chalicelib.model.pod import Pod
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_down.drain_rules import BEFORE_BUDGETS
from chalicelib.plan.scale_down.drain_rules.verdict import MOVABLE, Action, DrainContext, Verdict
from chalicelib.plan.scale_down.pdb_tracker import PdbTracker
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pending_pods import is_expendable

_ALIVE = frozenset({"", "Pending", "Running", "Unknown"})


class PodsToMove(msgspec.Struct, frozen=True):
    """What removing a node requires. asked: pods whose budgets must allow one more disruption, with the budgets' names;
    used: budget -> the disruptions that moving all pods uses."""

    node: Node
    group: str
    pods: tuple[Pod, ...]
    asked: tuple[tuple[Pod, tuple[str, ...]], ...] = ()
    used: dict[str, int] = {}
    waits_for: str = ""


class DrainabilityChecker:
    """The drain rules of one pass."""

    def __init__(self, state: ClusterState, pdbs: PdbTracker) -> None:
        snapshot = state.snapshot
        self._state, self._classes, self._budgets = state, snapshot.classes, pdbs
        self._context = DrainContext(
            now=state.now,
            options=state.options,
            budgets=pdbs,
            controllers={(c.kind, c.namespace, c.name): c for c in snapshot.controllers},
            controller_kinds=frozenset(snapshot.controller_kinds),
        )
        self._expendable = [is_expendable(cls, state.options) for cls in snapshot.classes]
        self._known: dict[int, tuple[Verdict | None, tuple[str, ...]]] = {}
        self._unknown = {gap.node: gap for gap in snapshot.gaps if gap.node}

    def of(self, node: Node) -> PodsToMove | NodeVerdict:
        """Return the pods that must move, or the pod that blocks the node whatever the budgets allow."""
        gap = self._unknown.get(node.name)
        if gap is not None:
            what = f"pod {gap.name} could not be read" if gap.kind == "Pod" else "the Node could not be read"
            return NodeVerdict(node.name, Reason.of(ReasonCode.UNEXPECTED, detail=what), gap.name)
        moving: list[Pod] = []
        asked: list[tuple[Pod, tuple[str, ...]]] = []
        used: dict[str, int] = {}
        waits_for = ""
        for pod in self._state.occupancy.on(node.name):
            if self._expendable[pod.cls]:
                continue  # it dies with its node
            verdict, names = self._verdict(pod)
            if verdict is not None and verdict is not MOVABLE:
                if verdict.reason is not None:
                    return self._spent(node, asked) or blocked(node, pod, verdict.reason)
                if verdict.action is Action.WAIT:
                    waits_for = pod.key
                continue
            moving.append(pod)
            if not names:
                continue
            if verdict is None:
                asked.append((pod, names))
            for name in names:
                used[name] = used.get(name, 0) + 1
        return PodsToMove(node, self._state.group_of[node.name], tuple(moving), tuple(asked), used, waits_for)

    def _spent(self, node: Node, asked: list[tuple[Pod, tuple[str, ...]]]) -> NodeVerdict | None:
        """Return the blocking verdict of a pod whose budget has no disruptions from the beginning. As in Cluster
        Autoscaler, the first pod that blocks a node gives the reason."""
        return next(
            (
                blocked(node, pod, Reason.of(ReasonCode.NOT_ENOUGH_PDB, budget=name))
                for pod, names in asked
                for name in names
                if self._budgets.left(name) < 1
            ),
            None,
        )

    def _verdict(self, pod: Pod) -> tuple[Verdict | None, tuple[str, ...]]:
        """Return the verdict of the rules before the budgets (None: the budgets decide), and the budgets that moving
        the pod uses."""
        if pod.deleted or pod.unready or pod.phase not in _ALIVE or pod.namespace == "kube-system":
            return self._ask(pod), self._budgets.spent_by(pod)
        found = self._known.get(pod.cls)
        if found is None:
            found = self._known[pod.cls] = (self._ask(pod), self._budgets.of(pod.cls))
        return found

    def _ask(self, pod: Pod) -> Verdict | None:
        cls = self._classes[pod.cls]
        answers = (rule(pod, cls, self._context) for _, rule in BEFORE_BUDGETS)
        return next((verdict for verdict in answers if verdict is not None), None)


def blocked(node: Node, pod: Pod, reason: Reason) -> NodeVerdict:
    """Return the verdict of a node that a pod blocks, with the rule's own numbers."""
    return NodeVerdict(
        node.name,
        Reason(ReasonCode.BLOCKED_BY_POD, {"pod": pod.key, "rule": reason.code.value, **reason.params}),
        pod.key,
    )
