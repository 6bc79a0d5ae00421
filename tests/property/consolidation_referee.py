"""A scheduler in plain Python that judges plans of consolidation. It shares
no code with the planner.

It knows resources, the number of pods, node selectors, taints, required anti-affinity between pods
(of both sides), and topology spread. A node that is drained has the autoscaler's taint and takes no
pods, but is still a domain, until it is deleted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chalicelib.model.node import HOSTNAME_LABEL, Node, Taint
from chalicelib.model.plan import Plan
from chalicelib.model.pod import Pod, PodAffinityTerm, PodClass, SpreadConstraint
from chalicelib.model.snapshot import Snapshot

DRAINED = Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule")


class Bound(msgspec.Struct, frozen=True):
    """A pod with its class."""

    pod: Pod
    cls: PodClass


class RefereeNode:
    """A node with its pods."""

    def __init__(self, name: str, node: Node) -> None:
        self.name, self.taints = name, list(node.taints)
        self.labels = {**node.labels, HOSTNAME_LABEL: name}
        self.room = dict(node.allocatable)
        self.offers = dict(node.allocatable)
        self.pods: list[Bound] = []

    def put(self, bound: Bound) -> None:
        """Bind a pod."""
        self.pods.append(bound)
        self._take(bound.cls, 1)

    def take_off(self, bound: Bound) -> None:
        """Remove a pod."""
        self.pods.remove(bound)
        self._take(bound.cls, -1)

    def _take(self, cls: PodClass, times: int) -> None:
        self.room["pods"] -= times
        for name, amount in cls.requests.items():
            self.room[name] = self.room.get(name, 0) - times * amount

    def has_room(self, cls: PodClass) -> bool:
        """Whether the requests of one more pod fit."""
        return self.room["pods"] >= 1 and all(
            self.room.get(name, 0) >= amount for name, amount in cls.requests.items()
        )

    def emptiness(self, cls: PodClass) -> float:
        """The free share of cpu and memory together, with one more pod."""
        return sum(
            (self.room[name] - cls.requests.get(name, 0)) / self.offers[name]
            for name in ("cpu", "memory")
        )


Choose = Callable[[Sequence[RefereeNode], PodClass], RefereeNode]
"""Chooses among the nodes that take a pod, which are sorted by name."""


class RefereeCluster:
    """The nodes and pods at one instant."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = {node.name: RefereeNode(node.name, node) for node in snapshot.nodes}
        for pod in snapshot.pods:
            if pod.node in self.nodes:
                self.nodes[pod.node].put(Bound(pod, snapshot.classes[pod.cls]))

    def bind(self, pod: Pod, cls: PodClass, choose: Choose) -> str | None:
        """Bind a pod to one of the nodes that take it; None if there is none."""
        places = [node for _, node in sorted(self.nodes.items()) if self._takes(node, cls)]
        if not places:
            return None
        chosen = choose(places, cls)
        chosen.put(Bound(pod, cls))
        return chosen.name

    def _takes(self, node: RefereeNode, cls: PodClass) -> bool:
        return (
            node.has_room(cls)
            and _matches(cls.node_selector, node.labels)
            and all(
                _tolerates(cls, taint)
                for taint in node.taints
                if taint.effect in {"NoSchedule", "NoExecute"}
            )
            and self._is_apart(node, cls)
            and all(self._is_even(node, cls, constraint) for constraint in cls.spread)
        )

    def _is_apart(self, node: RefereeNode, cls: PodClass) -> bool:
        """Whether neither the pod's own anti-affinity nor that of the others bars the node."""
        for other in self.nodes.values():
            for bound in other.pods:
                mine = any(
                    _bars(term, bound.cls, cls.namespace, node, other)
                    for term in cls.pod_anti_affinity
                )
                theirs = any(
                    _bars(term, cls, bound.cls.namespace, node, other)
                    for term in bound.cls.pod_anti_affinity
                )
                if mine or theirs:
                    return False
        return True

    def _is_even(self, node: RefereeNode, cls: PodClass, constraint: SpreadConstraint) -> bool:
        key = constraint.topology_key
        if key not in node.labels:
            return False
        counts: dict[str, int] = {}
        for other in self.nodes.values():
            if key in other.labels and _matches(cls.node_selector, other.labels):
                own = sum(
                    _selects(constraint.selector, bound.cls, cls.namespace) for bound in other.pods
                )
                counts[other.labels[key]] = counts.get(other.labels[key], 0) + own
        least = min(counts.values()) if len(counts) >= constraint.min_domains else 0
        itself = int(_selects(constraint.selector, cls, cls.namespace))
        return counts[node.labels[key]] + itself - least <= constraint.max_skew


def emptiest(places: Sequence[RefereeNode], cls: PodClass) -> RefereeNode:
    """The scheduler's score LeastAllocated."""
    return max(places, key=lambda node: node.emptiness(cls))


def fullest(places: Sequence[RefereeNode], cls: PodClass) -> RefereeNode:
    """The scheduler's score MostAllocated."""
    return min(places, key=lambda node: node.emptiness(cls))


def _matches(wanted: dict[str, str], labels: dict[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def _tolerates(cls: PodClass, taint: Taint) -> bool:
    return any(
        toleration.effect in {"", taint.effect}
        and (
            (toleration.operator == "Exists" and toleration.key in {"", taint.key})
            or (
                toleration.operator == "Equal"
                and (toleration.key, toleration.value) == (taint.key, taint.value)
            )
        )
        for toleration in cls.tolerations
    )


def _selects(selector: Any, cls: PodClass, namespace: str) -> bool:
    """Whether a selector of equalities matches a pod of a namespace."""
    if selector is None or cls.namespace != namespace:
        return False
    return all(cls.labels.get(wanted.key) in wanted.values for wanted in selector.requirements)


def _bars(
    term: PodAffinityTerm, cls: PodClass, namespace: str, node: RefereeNode, other: RefereeNode
) -> bool:
    key = term.topology_key
    same = key in node.labels and node.labels[key] == other.labels.get(key)
    return same and _selects(term.selector, cls, namespace)


class Draw(msgspec.Struct, frozen=True):
    """One way in which the cluster may behave. together: all nodes are drained at once, otherwise
    one by one. nodes, pods: sort the nodes, and the pods that are evicted at the same time."""

    name: str
    emptiest: bool
    together: bool
    nodes: Callable[[list[str]], list[str]]
    pods: Callable[[list[Bound]], list[Bound]]


class RefereeOutcome(msgspec.Struct, frozen=True):
    """homeless: pods without a place in the end; late: pods that were pending until a
    drained node was deleted."""

    homeless: tuple[str, ...]
    late: tuple[str, ...]


def carried_out(snapshot: Snapshot, plan: Plan, draw: Draw) -> RefereeOutcome:
    """Carry out all moves of a plan: buy, then drain and delete."""
    assert plan.consolidation is not None
    referee = RefereeCluster(snapshot)
    _buy(referee, snapshot, plan)
    names = [name for move in plan.consolidation.moves for name in move.nodes]
    pending: list[Bound] = []
    late: list[str] = []
    for step in [names] if draw.together else [[name] for name in draw.nodes(names)]:
        evicted = draw.pods(_evicted(referee, step))
        pending = _scheduled(referee, [*pending, *evicted], draw)
        late += [bound.pod.key for bound in pending]
        for name in step:
            del referee.nodes[name]
        pending = _scheduled(referee, pending, draw)
    return RefereeOutcome(tuple(sorted(bound.pod.key for bound in pending)), tuple(late))


def _buy(referee: RefereeCluster, snapshot: Snapshot, plan: Plan) -> None:
    """Add the nodes of all purchases, with their DaemonSet pods."""
    templates = {group.id: group.template for group in snapshot.groups}
    daemons = [snapshot.classes[daemonset.cls] for daemonset in snapshot.daemonsets]
    assert plan.consolidation is not None
    bought = [
        purchase.group
        for move in plan.consolidation.moves
        for purchase in move.purchases
        for _ in range(purchase.nodes)
    ]
    for number, group in enumerate(bought):
        template = templates[group]
        assert template is not None
        node = RefereeNode(f"replacement-{number}", template)
        for at, cls in enumerate(daemons):
            node.put(
                Bound(Pod("kube-system", f"agent-{number}-{at}", f"agent-{number}-{at}", -1), cls)
            )
        referee.nodes[node.name] = node


def _evicted(referee: RefereeCluster, names: Sequence[str]) -> list[Bound]:
    """Taint nodes and evict their pods, except those of DaemonSets."""
    evicted: list[Bound] = []
    for name in names:
        node = referee.nodes[name]
        node.taints.append(DRAINED)
        own = [bound for bound in node.pods if not bound.cls.is_daemonset]
        for bound in own:
            node.take_off(bound)
        evicted += own
    return evicted


def _scheduled(referee: RefereeCluster, waiting: list[Bound], draw: Draw) -> list[Bound]:
    """Bind what can be bound, as often as something changes; returns the rest."""
    choose = emptiest if draw.emptiest else fullest
    before = -1
    while len(waiting) != before:
        before = len(waiting)
        waiting = [bound for bound in waiting if referee.bind(bound.pod, bound.cls, choose) is None]
    return waiting


def planned_draws(snapshot: Snapshot) -> list[Draw]:
    """The orders of the planner's trial: all nodes at once, largest or smallest pods
    first, to either kind of node."""
    means = {
        name: max(
            1.0, sum(node.allocatable.get(name, 0) for node in snapshot.nodes) / len(snapshot.nodes)
        )
        for name in ("cpu", "memory")
    }

    def sort(sign: int) -> Callable[[list[Bound]], list[Bound]]:
        def key(bound: Bound) -> tuple[float, int]:
            size = max(bound.cls.requests.get(name, 0) / mean for name, mean in means.items())
            return sign * size, sign * bound.pod.cls

        return lambda pods: sorted(pods, key=key)

    return [
        Draw(f"{name} first", emptiest, True, list, sort(sign))
        for name, sign in (("largest", -1), ("smallest", 1))
        for emptiest in (True, False)
    ]


def random_draws(chance: random.Random, number: int) -> list[Draw]:
    """So many orders in which nodes and pods come as drawn, all at once or node by node."""

    def shuffled(items: list[Any]) -> list[Any]:
        return chance.sample(items, len(items))

    return [
        Draw(f"drawn {at}", at % 2 == 0, at % 4 < 2, shuffled, shuffled) for at in range(number)
    ]
