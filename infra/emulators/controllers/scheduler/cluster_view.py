"""The cluster at one moment: nodes, the pods on them, and what else pods refer to.

Why a class that changes: a scheduler places one pod after another, and each must see the room the last one took.
`generation` grows with every placement, so an answer can be reused exactly as long as nothing was placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from infra.emulators.controllers.scheduler.pod_and_node_info import NodeView, PodView, read_node, read_pod

Json = Mapping[str, Any]


class Surroundings(msgspec.Struct, frozen=True):
    """Everything but nodes and pods that a predicate looks at, as the API has it."""

    claims: tuple[Json, ...] = ()  # core/v1 PersistentVolumeClaim
    volumes: tuple[Json, ...] = ()  # core/v1 PersistentVolume
    storage_classes: tuple[Json, ...] = ()  # storage.k8s.io/v1 StorageClass
    csi_nodes: tuple[Json, ...] = ()  # storage.k8s.io/v1 CSINode
    namespaces: tuple[Json, ...] = ()  # core/v1 Namespace
    csi_drivers: tuple[Json, ...] = ()  # storage.k8s.io/v1 CSIDriver
    capacities: tuple[Json, ...] = ()  # storage.k8s.io/v1 CSIStorageCapacity


class ClusterView:
    """Nodes with the pods that occupy them. Pods on nodes that do not exist occupy nothing, as in the real one."""

    def __init__(self, nodes: Iterable[NodeView], pods: Iterable[PodView], around: Surroundings | None = None) -> None:
        around = around or Surroundings()
        self.generation = 0
        self.nodes = {node.name: node for node in nodes}
        self._pods: dict[str, list[PodView]] = {name: [] for name in self.nodes}
        self._used: dict[str, Counter[str]] = {name: Counter() for name in self.nodes}
        self.claims = {(c["metadata"].get("namespace", "default"), c["metadata"]["name"]): c for c in around.claims}
        self.volumes = {v["metadata"]["name"]: v for v in around.volumes}
        self.storage_classes = {c["metadata"]["name"]: c for c in around.storage_classes}
        self.csi_nodes = {n["metadata"]["name"]: n for n in around.csi_nodes}
        self.csi_drivers = {d["metadata"]["name"]: d for d in around.csi_drivers}
        self.capacities = around.capacities
        self._namespaces = {n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in around.namespaces}
        for pod in pods:
            if pod.node and not pod.finished:
                self._occupy(pod, pod.node)

    @classmethod
    def of(cls, nodes: Iterable[Json], pods: Iterable[Json], around: Surroundings | None = None) -> ClusterView:
        """From plain API objects."""
        return cls(map(read_node, nodes), map(read_pod, pods), around)

    def join(self, node: NodeView) -> None:
        """One more node, empty: what a scale-up promises."""
        self.nodes[node.name] = node
        self._pods.setdefault(node.name, [])
        self._used.setdefault(node.name, Counter())
        self.generation += 1

    def _occupy(self, pod: PodView, node: str) -> None:
        if node in self.nodes:
            self._pods[node].append(pod)
            self._used[node].update(pod.requests)

    def place(self, pod: PodView, node: str) -> list[tuple[str, str]]:
        """Bind a pod: from now on it takes room, counts for every later pod, and has the free volumes that its claims
        found there. Returns these claims and volumes by name."""
        from infra.emulators.controllers.scheduler.binding import assume

        self._occupy(msgspec.structs.replace(pod, node=node), node)
        self.generation += 1
        return assume(pod, self.nodes[node], self) if pod.claims and node in self.nodes else []

    def leave(self, node: str) -> None:
        """Take a node away again, with what is on it; its claims stay as they are."""
        del self.nodes[node], self._pods[node], self._used[node]
        self.generation += 1

    def pods_on(self, node: str) -> list[PodView]:
        """The pods that occupy a node, terminating ones included."""
        return self._pods[node]

    def used(self, node: str) -> Counter[str]:
        """What they ask, summed per resource."""
        return self._used[node]

    def placed(self) -> Iterable[tuple[NodeView, PodView]]:
        """Every pod with its node."""
        for name, pods in self._pods.items():
            node = self.nodes[name]
            for pod in pods:
                yield node, pod

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """A namespace nobody listed has the one label that every namespace has."""
        return self._namespaces.get(name) or {"kubernetes.io/metadata.name": name}
