"""Why a plan buys: for each purchase its pods, what they ask for, and the room that there was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from chalicelib.model.node import HOSTNAME_LABEL, Node, mark_level
from chalicelib.model.plan import Plan, ScaleUp
from chalicelib.model.pod import PodClass
from chalicelib.model.snapshot import Snapshot
from tests.benchmarks.consolidation_clusters import GIB, ZONE_LABEL

SHOWN = 3
"""The largest rooms that are printed."""
Amounts = Mapping[str, int]


class Room(msgspec.Struct, frozen=True):
    """What is free on a node. own: pods of the owner that are there."""

    node: Node
    cpu: int
    memory: int
    own: int

    def share(self, needs: Amounts) -> float:
        """How much of a pod would fit: 1 or more if it does."""
        return min(self.cpu / needs["cpu"], self.memory / needs["memory"])

    def __str__(self) -> str:
        marks = f", {mark_level(self.node)} marks" if mark_level(self.node) else ""
        zone = self.node.labels[ZONE_LABEL]
        return f"{self.node.name} ({zone}, {self.own} own{marks}) {_amounts(self.cpu, self.memory)}"


def explain(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """A line for each class of pods of each purchase. snapshot: what the plan was made of."""
    classes = {pod.key: pod.cls for pod in snapshot.pods}
    for scale_up in plan.scale_ups:
        if scale_up.replacement:
            yield f"  {_purchase(scale_up)}: a replacement"
        for cls, count in Counter(classes[key] for key in scale_up.pods).items():
            pods = f"{count} x {_described(snapshot.classes[cls])}"
            yield f"  {_purchase(scale_up)}: {pods}; {_reason(snapshot, cls)}"


def _purchase(scale_up: ScaleUp) -> str:
    return f"{scale_up.group} +{scale_up.to_size - scale_up.from_size}"


def _described(cls: PodClass) -> str:
    host = [term for term in cls.pod_anti_affinity if term.topology_key == HOSTNAME_LABEL]
    rules = [f"max skew {rule.max_skew} of {rule.topology_key}" for rule in cls.spread]
    rules += ["one per host"] if host else []
    name = cls.owner.name if cls.owner else ""
    needs = _amounts(cls.requests["cpu"], cls.requests["memory"])
    return f"{name} [{needs}{''.join(f', {rule}' for rule in rules)}]"


def _reason(snapshot: Snapshot, cls: int) -> str:
    """What the pods lack, with the rooms of the nodes that their node selector allows."""
    pod_class = snapshot.classes[cls]
    needs, rooms = pod_class.requests, _rooms(snapshot, pod_class)
    cpu = sum(room.cpu >= needs["cpu"] for room in rooms)
    memory = sum(room.memory >= needs["memory"] for room in rooms)
    both = sum(room.share(needs) >= 1 for room in rooms)
    waiting = [
        snapshot.classes[pod.cls].requests
        for pod in snapshot.pods
        if not pod.node and snapshot.classes[pod.cls].node_selector == pod_class.node_selector
    ]
    asked = _amounts(sum(w["cpu"] for w in waiting), sum(w["memory"] for w in waiting))
    free = _amounts(sum(room.cpu for room in rooms), sum(room.memory for room in rooms))
    offered = _amounts(
        sum(room.node.allocatable["cpu"] for room in rooms),
        sum(room.node.allocatable["memory"] for room in rooms),
    )
    lacks = "by its rule" if both else "no node with both" if cpu and memory else ""
    lacks = lacks or ("cpu" if not cpu else "memory")
    largest = sorted(rooms, key=lambda room: -room.share(needs))[:SHOWN]
    return (
        f"lacks: {lacks}; waiting {asked}, free {free} of {offered}; "
        f"of {len(rooms)} nodes {cpu} have the cpu, {memory} the memory, {both} both; "
        f"largest: {'; '.join(map(str, largest))}"
    )


def _rooms(snapshot: Snapshot, pod_class: PodClass) -> list[Room]:
    used: dict[str, Counter[str]] = {node.name: Counter() for node in snapshot.nodes}
    for pod in snapshot.pods:
        if pod.node in used:
            other = snapshot.classes[pod.cls]
            used[pod.node].update(other.requests)
            used[pod.node]["own"] += other.owner == pod_class.owner
    return [
        Room(
            node,
            node.allocatable["cpu"] - used[node.name]["cpu"],
            node.allocatable["memory"] - used[node.name]["memory"],
            used[node.name]["own"],
        )
        for node in snapshot.nodes
        if all(node.labels.get(key) == value for key, value in pod_class.node_selector.items())
    ]


def _amounts(cpu: int, memory: int) -> str:
    return f"{cpu / 1000:.2f} cores {memory / GIB:.2f} GiB"
