"""A scheduler in plain Python that judges plans of consolidation. It shares no code with the planner.

It knows resources, the number of pods, node selectors, taints, required anti-affinity between pods (of both sides), and
topology spread. A node that is drained has the autoscaler's taint and takes no pods, but is still a domain, until it is
deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
        return self.room["pods"] >= 1 and all(self.room.get(name, 0) >= amount for name, amount in cls.requests.items())

    @property
    def emptiness(self) -> float:
        """The free share of cpu and memory together."""
        return sum(self.room[name] / self.offers[name] for name in ("cpu", "memory"))


Choose = Callable[[Sequence[str]], str]
"""Chooses among the nodes that take a pod, by name."""


class RefereeCluster:
    """The nodes and pods at one instant."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = {node.name: RefereeNode(node.name, node) for node in snapshot.nodes}
        for pod in snapshot.pods:
            if pod.node in self.nodes:
                self.nodes[pod.node].put(Bound(pod, snapshot.classes[pod.cls]))

    def bind(self, pod: Pod, cls: PodClass, choose: Choose) -> str | None:
        """Bind a pod to one of the nodes that take it; None if there is none."""
        places = [name for name, node in sorted(self.nodes.items()) if self._takes(node, cls)]
        if not places:
            return None
        chosen = choose(places)
        self.nodes[chosen].put(Bound(pod, cls))
        return chosen

    def emptiest(self, places: Sequence[str]) -> str:
        """LeastAllocated."""
        return min(places, key=lambda name: (-self.nodes[name].emptiness, name))

    def fullest(self, places: Sequence[str]) -> str:
        """MostAllocated."""
        return min(places, key=lambda name: (self.nodes[name].emptiness, name))

    def _takes(self, node: RefereeNode, cls: PodClass) -> bool:
        return (
            node.has_room(cls)
            and _matches(cls.node_selector, node.labels)
            and all(_tolerates(cls, taint) for taint in node.taints if taint.effect in {"NoSchedule", "NoExecute"})
            and self._is_apart(node, cls)
            and all(self._is_even(node, cls, constraint) for constraint in cls.spread)
        )

    def _is_apart(self, node: RefereeNode, cls: PodClass) -> bool:
        """Whether neither the pod's own anti-affinity nor that of the others bars the node."""
        for other in self.nodes.values():
            for bound in other.pods:
                mine = any(_bars(term, bound.cls, cls.namespace, node, other) for term in cls.pod_anti_affinity)
                theirs = any(
                    _bars(term, cls, bound.cls.namespace, node, other) for term in bound.cls.pod_anti_affinity
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
                own = sum(_selects(constraint.selector, bound.cls, cls.namespace) for bound in other.pods)
                counts[other.labels[key]] = counts.get(other.labels[key], 0) + own
        least = min(counts.values()) if len(counts) >= constraint.min_domains else 0
        itself = int(_selects(constraint.selector, cls, cls.namespace))
        return counts[node.labels[key]] + itself - least <= constraint.max_skew


def _matches(wanted: dict[str, str], labels: dict[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def _tolerates(cls: PodClass, taint: Taint) -> bool:
    return any(
        toleration.effect in {"", taint.effect}
        and (
            (toleration.operator == "Exists" and toleration.key in {"", taint.key})
            or (toleration.operator == "Equal" and (toleration.key, toleration.value) == (taint.key, taint.value))
        )
        for toleration in cls.tolerations
    )


def _selects(selector: Any, cls: PodClass, namespace: str) -> bool:
    """Whether a selector of equalities matches a pod of a namespace."""
    if selector is None or cls.namespace != namespace:
        return False
    return all(cls.labels.get(wanted.key) in wanted.values for wanted in selector.requirements)


def _bars(term: PodAffinityTerm, cls: PodClass, namespace: str, node: RefereeNode, other: RefereeNode) -> bool:
    key = term.topology_key
    same = key in node.labels and node.labels[key] == other.labels.get(key)
    return same and _selects(term.selector, cls, namespace)


class Draw(msgspec.Struct, frozen=True):
    """One way in which the cluster may behave. mixed: all nodes of a move are drained at once, otherwise one by one.
    pods: sorts the pods that are pending at the same time."""

    name: str
    emptiest: bool
    mixed: bool
    pods: Callable[[list[Bound]], list[Bound]]
    moves: Callable[[list[Any]], list[Any]]


def homeless(snapshot: Snapshot, plan: Plan, draw: Draw) -> list[str]:
    """Carry out all moves of a plan; returns the pods that have no place in the end."""
    assert plan.consolidation is not None
    referee = RefereeCluster(snapshot)
    templates = {group.id: group.template for group in snapshot.groups}
    daemons = [snapshot.classes[daemonset.cls] for daemonset in snapshot.daemonsets]
    number = 0
    for move in plan.consolidation.moves:
        for purchase in move.purchases:
            template = templates[purchase.group]
            assert template is not None
            for _ in range(purchase.nodes):
                node = RefereeNode(f"bought-{number}", template)
                for at, cls in enumerate(daemons):
                    if _matches(cls.node_selector, node.labels) and node.has_room(cls):
                        node.put(Bound(Pod("kube-system", f"ds-{number}-{at}", f"ds-{number}-{at}", -1), cls))
                referee.nodes[node.name] = node
                number += 1
    pending: list[Bound] = []
    for move in draw.moves(list(plan.consolidation.moves)):
        steps = [move.nodes] if draw.mixed else [(name,) for name in move.nodes]
        for names in steps:
            pending = _drained(referee, names, draw, pending)
    return sorted(bound.pod.key for bound in pending)


def _drained(referee: RefereeCluster, names: Sequence[str], draw: Draw, pending: list[Bound]) -> list[Bound]:
    """Drain nodes and delete them; returns the pods that are pending afterwards."""
    evicted: list[Bound] = []
    for name in names:
        node = referee.nodes[name]
        node.taints.append(DRAINED)
        evicted += [bound for bound in node.pods if not bound.cls.is_daemonset]
    waiting = [*pending, *draw.pods(evicted)]
    for bound in evicted:
        node = next(referee.nodes[name] for name in names if bound in referee.nodes[name].pods)
        node.take_off(bound)
    waiting = _scheduled(referee, waiting, draw)
    for name in names:
        del referee.nodes[name]
    return _scheduled(referee, waiting, draw)


def _scheduled(referee: RefereeCluster, waiting: list[Bound], draw: Draw) -> list[Bound]:
    """Bind what can be bound, as often as something changes; returns the rest."""
    choose = referee.emptiest if draw.emptiest else referee.fullest
    before = -1
    while len(waiting) != before:
        before = len(waiting)
        waiting = [bound for bound in waiting if referee.bind(bound.pod, bound.cls, choose) is None]
    return waiting


def size_of(bound: Bound) -> tuple[float, str]:
    """Sort key: how large a pod is."""
    return max(bound.cls.requests.get("cpu", 0) / 4000, bound.cls.requests.get("memory", 0) / 2**34), bound.pod.key


def draws(shuffle: Callable[[list[Any]], list[Any]], number: int) -> Iterator[Draw]:
    """The four orders of the planner's trial, then so many in which pods and moves are shuffled."""
    for emptiest in (True, False):
        for mixed in (True, False):
            yield Draw("largest", emptiest, mixed, lambda pods: sorted(pods, key=size_of, reverse=True), list)
            yield Draw("smallest", emptiest, mixed, lambda pods: sorted(pods, key=size_of), list)
    for at in range(number):
        yield Draw(f"shuffled {at}", at % 2 == 0, at % 4 < 2, shuffle, shuffle)
