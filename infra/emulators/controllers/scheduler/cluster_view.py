"""The cluster at one moment: nodes, their pods, and other objects that pods refer to.

It is mutable because a scheduler places one pod after another, and each must see the resources that earlier pods took.
`generation` grows with every placement, so a cached result is valid while nothing was placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from infra.emulators.controllers.scheduler.binding import assume
from infra.emulators.controllers.scheduler.pod_and_node_info import NodeView, PodView, read_node, read_pod

Json = Mapping[str, Any]


class Surroundings(msgspec.Struct, frozen=True):
    """All API objects that a predicate reads, except nodes and pods."""

    claims: tuple[Json, ...] = ()  # core/v1 PersistentVolumeClaim
    volumes: tuple[Json, ...] = ()  # core/v1 PersistentVolume
    storage_classes: tuple[Json, ...] = ()  # storage.k8s.io/v1 StorageClass
    csi_nodes: tuple[Json, ...] = ()  # storage.k8s.io/v1 CSINode
    namespaces: tuple[Json, ...] = ()  # core/v1 Namespace
    csi_drivers: tuple[Json, ...] = ()  # storage.k8s.io/v1 CSIDriver
    capacities: tuple[Json, ...] = ()  # storage.k8s.io/v1 CSIStorageCapacity


class ClusterView:
    """Nodes with the pods that occupy them. Pods on nodes that do not exist are ignored, as in the real scheduler."""

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
        """Build a view from plain API objects."""
        return cls(map(read_node, nodes), map(read_pod, pods), around)

    def join(self, node: NodeView) -> None:
        """Add an empty node, e.g. one that a scale-up promises."""
        self.nodes[node.name] = node
        self._pods.setdefault(node.name, [])
        self._used.setdefault(node.name, Counter())
        self.generation += 1

    def _occupy(self, pod: PodView, node: str) -> None:
        if node in self.nodes:
            self._pods[node].append(pod)
            self._used[node].update(pod.requests)

    def place(self, pod: PodView, node: str) -> list[tuple[str, str]]:
        """Bind a pod. From now on it uses resources, counts for later pods, and has the free volumes that its claims
        found on the node. Returns these claims and volumes by name."""
        self._occupy(msgspec.structs.replace(pod, node=node), node)
        self.generation += 1
        return assume(pod, self.nodes[node], self) if pod.claims and node in self.nodes else []

    def leave(self, node: str) -> None:
        """Remove a node with its pods. Claims stay as they are."""
        del self.nodes[node], self._pods[node], self._used[node]
        self.generation += 1

    def pods_on(self, node: str) -> list[PodView]:
        """Return the pods that occupy a node, including terminating ones."""
        return self._pods[node]

    def used(self, node: str) -> Counter[str]:
        """Return their summed requests per resource."""
        return self._used[node]

    def placed(self) -> Iterable[tuple[NodeView, PodView]]:
        """Return every pod with its node."""
        for name, pods in self._pods.items():
            node = self.nodes[name]
            for pod in pods:
                yield node, pod

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return a namespace's labels. An unlisted namespace has the one label that every namespace has."""
        return self._namespaces.get(name) or {"kubernetes.io/metadata.name": name}
