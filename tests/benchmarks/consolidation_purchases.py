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
    rules = [f"max skew {rule.max_skew} of {rule.topology_key}" for rule in cls.spread]
    rules += ["one per host"] if _one_per_host(cls) else []
    name = cls.owner.name if cls.owner else ""
    needs = _amounts(cls.requests["cpu"], cls.requests["memory"])
    return f"{name} ({', '.join([needs, *rules])})"


def _reason(snapshot: Snapshot, cls: int) -> str:
    """What the pods lack, with the rooms of the nodes that their node selector allows."""
    pod_class = snapshot.classes[cls]
    needs, rooms = pod_class.requests, _rooms(snapshot, pod_class)
    allowed = [room for room in rooms if room.own == 0] if _one_per_host(pod_class) else rooms
    zones = Counter({room.node.labels[ZONE_LABEL]: 0 for room in rooms})
    for room in rooms:
        zones[room.node.labels[ZONE_LABEL]] += room.own
    for rule in pod_class.spread:
        most = min(zones.values()) + rule.max_skew
        allowed = [room for room in allowed if zones[room.node.labels[ZONE_LABEL]] < most]
    cpu = sum(room.cpu >= needs["cpu"] for room in allowed)
    memory = sum(room.memory >= needs["memory"] for room in allowed)
    both = sum(room.share(needs) >= 1 for room in allowed)
    by_zone = ", ".join(f"{zone} {own}" for zone, own in sorted(zones.items()))
    free = _amounts(sum(room.cpu for room in rooms), sum(room.memory for room in rooms))
    largest = sorted(allowed, key=lambda room: -room.share(needs))[:SHOWN]
    return (
        f"waiting in the pool: {_waiting(snapshot, pod_class)}; free on its {len(rooms)} nodes: "
        f"{free}; own by zone: {by_zone}; "
        f"the rule allows {len(allowed)} nodes, of which {cpu} have the cpu, {memory} the memory, "
        f"{both} both; largest of them: {'; '.join(map(str, largest)) or 'none'}"
    )


def _one_per_host(cls: PodClass) -> bool:
    return any(term.topology_key == HOSTNAME_LABEL for term in cls.pod_anti_affinity)


def _waiting(snapshot: Snapshot, like: PodClass) -> str:
    """What the pending pods of a pool ask for. like: one of their classes."""
    classes = [snapshot.classes[pod.cls] for pod in snapshot.pods if not pod.node]
    requests = [cls.requests for cls in classes if cls.node_selector == like.node_selector]
    cpu, memory = (sum(request[name] for request in requests) for name in ("cpu", "memory"))
    return _amounts(cpu, memory)


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
