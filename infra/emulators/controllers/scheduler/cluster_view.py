"""The cluster at one moment: nodes, their pods, and other objects that pods refer to.

It is mutable because a scheduler places one pod after another, and each must see the resources
that earlier pods took. `generation` grows with every placement, so a cached result is valid
while nothing was placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from chalicelib.model.quantity import parse_quantity
from infra.emulators.controllers.scheduler.pod_and_node_info import (
    NodeView,
    PodView,
    read_node,
    read_pod,
)
from infra.emulators.controllers.scheduler.selectors import (
    any_term,
    read_node_terms,
    read_selector,
    selects,
)

Json = Mapping[str, Any]

NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"


class VolumeView(Protocol):
    """The storage objects of a ClusterView, by name; claims by namespace and name."""

    claims: dict[tuple[str, str], Json]
    volumes: dict[str, Json]
    storage_classes: dict[str, Json]
    csi_drivers: dict[str, Json]
    capacities: tuple[Json, ...]


def _notes(thing: Json) -> Json:
    return thing["metadata"].get("annotations") or {}


def _namespace(thing: Json) -> str:
    return str(thing["metadata"].get("namespace", "default"))


def _class_name(thing: Json) -> str:
    return str(_notes(thing).get(_OLD_CLASS, thing["spec"].get("storageClassName") or ""))


def class_of(claim: Json, world: VolumeView) -> Json | None:
    return world.storage_classes.get(_class_name(claim))


def waits(claim: Json, world: VolumeView) -> bool:
    """Return whether the claim is bound only after a pod that uses it is placed."""
    return (class_of(claim, world) or {}).get("volumeBindingMode") == "WaitForFirstConsumer"


def is_bound(claim: Json) -> bool:
    """Return whether the claim names a volume and the volume controller has finished. A claim
    without any status counts as finished."""
    if not claim["spec"].get("volumeName"):
        return False
    phase = (claim.get("status") or {}).get("phase")
    return "pv.kubernetes.io/bind-completed" in _notes(claim) or phase in {None, "Bound", "Lost"}


def matches_volume(volume: Json, node: NodeView) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return any_term(read_node_terms(required), node.labels, node.name)


def _bytes(raw: Any) -> int:
    return parse_quantity(str(raw))


def _asked(claim: Json) -> int:
    return _bytes(((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", 0))


def _size(volume: Json) -> int:
    return _bytes((volume["spec"].get("capacity") or {}).get("storage", 0))


def _mode(thing: Json) -> str:
    return str(thing["spec"].get("volumeMode") or "Filesystem")


def _free_volume(claim: Json, node: NodeView, world: VolumeView, taken: set[str]) -> str | None:
    """Return the volume that the claim would take on this node: the one reserved for it, otherwise
    the smallest that is sufficient."""
    meta = claim["metadata"]
    best: tuple[int, str] | None = None
    for name, volume in sorted(world.volumes.items()):
        spec = volume["spec"]
        holder, phase = (
            spec.get("claimRef"),
            (volume.get("status") or {}).get("phase") or "Available",
        )
        kept = (
            holder is not None
            and phase not in {"Released", "Failed"}
            and (holder.get("namespace"), holder.get("name"))
            == (meta.get("namespace", "default"), meta["name"])
        )
        if (
            name in taken
            or (holder is not None and not kept)
            or volume["metadata"].get("deletionTimestamp")
        ):
            continue
        if (_class_name(volume), _mode(volume)) != (_class_name(claim), _mode(claim)) or _size(
            volume
        ) < _asked(claim):
            continue
        here = matches_volume(volume, node)
        if kept:
            return name if here else None
        chosen = claim["spec"].get("selector")
        usable = set(claim["spec"].get("accessModes") or ()) <= set(spec.get("accessModes") or ())
        if (
            phase == "Available"
            and here
            and usable
            and (
                chosen is None
                or selects(read_selector(chosen), volume["metadata"].get("labels") or {})
            )
        ):
            best = min(best or (_size(volume), name), (_size(volume), name))
    return best[1] if best else None


def _cannot_make(claim: Json, node: NodeView, world: VolumeView) -> str:
    """Return why no volume can be provisioned for the claim on this node, "" if one can."""
    made_by = class_of(claim, world) or {}
    provisioner = made_by.get("provisioner")
    if provisioner in {None, "", "kubernetes.io/no-provisioner"}:
        return NOTHING_TO_BIND
    terms = [
        term.get("matchLabelExpressions") or () for term in made_by.get("allowedTopologies") or ()
    ]
    if terms and not any(
        term and all(node.labels.get(e["key"]) in e["values"] for e in term) for term in terms
    ):
        return NOTHING_TO_BIND
    driver = world.csi_drivers.get(provisioner) or {}
    if not (driver.get("spec") or {}).get("storageCapacity") or not _asked(claim):
        return ""
    for left in world.capacities:
        largest = left.get("maximumVolumeSize", left.get("capacity"))
        reached = left.get("nodeTopology") is not None and selects(
            read_selector(left["nodeTopology"]), node.labels
        )
        if (
            left.get("storageClassName") == made_by["metadata"]["name"]
            and reached
            and largest is not None
            and (_bytes(largest) >= _asked(claim))
        ):
            return ""
    return NO_SPACE


def bind(claims: Sequence[Json], node: NodeView, world: VolumeView) -> str:
    """Find a separate free volume for each claim, or check that one can be provisioned. Returns the
    reason if that fails, otherwise "".

    The smallest claim chooses first. The volume of a claim with a selected node is
    provisioned on that node only.
    """
    to_make: list[Json] = []
    choosing: list[Json] = []
    for claim in sorted(claims, key=_asked):
        selected = _notes(claim).get(_SELECTED_NODE)
        if selected is not None and selected != node.name:
            return NOTHING_TO_BIND
        (choosing if selected is None else to_make).append(claim)
    taken: set[str] = set()
    for claim in choosing:
        found = _free_volume(claim, node, world, taken)
        if found is None:
            to_make.append(claim)
        else:
            taken.add(found)
    return next(
        (problem for problem in (_cannot_make(claim, node, world) for claim in to_make) if problem),
        "",
    )


def assume(pod: PodView, node: NodeView, world: VolumeView) -> list[tuple[str, str]]:
    """Bind the claims of a placed pod to free volumes, in the cluster view only. Returns (claim,
    volume) of its namespace. Claims whose volumes are to be provisioned stay unchanged."""
    named = [
        (name, claim)
        for name in pod.claims
        if (claim := world.claims.get((pod.namespace, name))) is not None
    ]
    found: list[tuple[str, str]] = []
    for name, claim in sorted(named, key=lambda each: _asked(each[1])):
        if (
            is_bound(claim)
            or claim["spec"].get("volumeName")
            or not waits(claim, world)
            or (_SELECTED_NODE in _notes(claim))
        ):
            continue
        chosen = _free_volume(claim, node, world, set())
        if chosen is None:
            continue
        volume = world.volumes[chosen]
        world.claims[pod.namespace, name] = {
            **claim,
            "spec": {**claim["spec"], "volumeName": chosen},
            "status": {"phase": "Bound"},
        }
        holder = {"namespace": pod.namespace, "name": name}
        world.volumes[chosen] = {
            **volume,
            "spec": {**volume["spec"], "claimRef": holder},
            "status": {"phase": "Bound"},
        }
        found.append((name, chosen))
    return found


class Surroundings(msgspec.Struct, frozen=True):
    """All API objects that a predicate or a score reads, except nodes and pods."""

    claims: tuple[Json, ...] = ()  # core/v1 PersistentVolumeClaim
    volumes: tuple[Json, ...] = ()  # core/v1 PersistentVolume
    storage_classes: tuple[Json, ...] = ()  # storage.k8s.io/v1 StorageClass
    csi_nodes: tuple[Json, ...] = ()  # storage.k8s.io/v1 CSINode
    namespaces: tuple[Json, ...] = ()  # core/v1 Namespace
    csi_drivers: tuple[Json, ...] = ()  # storage.k8s.io/v1 CSIDriver
    capacities: tuple[Json, ...] = ()  # storage.k8s.io/v1 CSIStorageCapacity
    services: tuple[Json, ...] = ()  # core/v1 Service
    replica_sets: tuple[Json, ...] = ()  # apps/v1 ReplicaSet


class ClusterView:
    """Nodes with the pods that occupy them. Pods on nodes that do not exist are ignored,
    as in the real scheduler."""

    def __init__(
        self, nodes: Iterable[NodeView], pods: Iterable[PodView], around: Surroundings | None = None
    ) -> None:
        around = around or Surroundings()
        self.generation = 0
        self.nodes = {node.name: node for node in nodes}
        self._pods: dict[str, list[PodView]] = {name: [] for name in self.nodes}
        self._used: dict[str, Counter[str]] = {name: Counter() for name in self.nodes}
        self._counted: dict[str, Counter[str]] = {name: Counter() for name in self.nodes}
        self.claims = {(_namespace(c), c["metadata"]["name"]): c for c in around.claims}
        self.volumes = {v["metadata"]["name"]: v for v in around.volumes}
        self.storage_classes = {c["metadata"]["name"]: c for c in around.storage_classes}
        self.csi_nodes = {n["metadata"]["name"]: n for n in around.csi_nodes}
        self.csi_drivers = {d["metadata"]["name"]: d for d in around.csi_drivers}
        self.capacities = around.capacities
        self._namespaces = {
            n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in around.namespaces
        }
        self.services = around.services
        self.owner_selectors = {
            ("ReplicaSet", _namespace(owner), owner["metadata"]["name"]): read_selector(
                owner["spec"].get("selector")
            )
            for owner in around.replica_sets
        }
        for pod in pods:
            if pod.node and not pod.finished:
                self._occupy(pod, pod.node)

    @classmethod
    def of(
        cls, nodes: Iterable[Json], pods: Iterable[Json], around: Surroundings | None = None
    ) -> ClusterView:
        return cls(map(read_node, nodes), map(read_pod, pods), around)

    def join(self, node: NodeView) -> None:
        self.nodes[node.name] = node
        self._pods.setdefault(node.name, [])
        self._used.setdefault(node.name, Counter())
        self._counted.setdefault(node.name, Counter())
        self.generation += 1

    def _occupy(self, pod: PodView, node: str) -> None:
        if node in self.nodes:
            self._pods[node].append(pod)
            self._used[node].update(pod.requests)
            self._counted[node].update(pod.counted_requests)

    def place(self, pod: PodView, node: str) -> list[tuple[str, str]]:
        """Bind a pod. From now on it uses resources, counts for later pods, and has the free
        volumes that its claims found on the node. Returns these claims and volumes by name."""
        self._occupy(msgspec.structs.replace(pod, node=node), node)
        self.generation += 1
        return assume(pod, self.nodes[node], self) if pod.claims and node in self.nodes else []

    def leave(self, node: str) -> None:
        del self.nodes[node], self._pods[node], self._used[node], self._counted[node]
        self.generation += 1

    def pods_on(self, node: str) -> list[PodView]:
        return self._pods[node]

    def used(self, node: str) -> Counter[str]:
        return self._used[node]

    def counted(self, node: str) -> Counter[str]:
        """Return the requests on a node as the score of NodeResourcesFit counts them."""
        return self._counted[node]

    def placed(self) -> Iterable[tuple[NodeView, PodView]]:
        for name, pods in self._pods.items():
            node = self.nodes[name]
            for pod in pods:
                yield node, pod

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return a namespace's labels. An unlisted namespace has the one label
        that every namespace has."""
        return self._namespaces.get(name) or {"kubernetes.io/metadata.name": name}
