"""Predicates about volumes: claims, bindings, zones, exclusive use, attach limits (scale-up.md §5.5).

Not simulated, on purpose: CSIStorageCapacity, and disks shared by in-tree plugins that no longer exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from chalicelib.model.quantity import parse_quantity
from infra.local.controllers.scheduler.node_local import NodeCheck, Nowhere
from infra.local.controllers.scheduler.selectors import any_term, read_node_terms
from infra.local.controllers.scheduler.views import NodeView, PodView
from infra.local.controllers.scheduler.world import World

Json = Mapping[str, Any]

UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
NODE_CONFLICT = "node(s) had volume node affinity conflict"
NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
NO_ZONE = "node(s) had no available volume zone"
EXCLUSIVE = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
TOO_MANY_VOLUMES = "node(s) exceed max volume count"

_SELECTED_NODE = "volume.kubernetes.io/selected-node"
# Each topology label with its older or newer name.
_TOPOLOGY = {
    "topology.kubernetes.io/zone": "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region": "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}


def _claims(pod: PodView, world: World) -> Iterator[Json]:
    for name in pod.claims:
        claim = world.claims.get((pod.namespace, name))
        if claim is not None:
            yield claim


def _class_of(claim: Json, world: World) -> Json | None:
    return world.storage_classes.get(claim["spec"].get("storageClassName") or "")


def _waits(claim: Json, world: World) -> bool:
    chosen = _class_of(claim, world)
    return chosen is not None and chosen.get("volumeBindingMode") == "WaitForFirstConsumer"


def _bound_volumes(pod: PodView, world: World) -> list[Json]:
    names = (claim["spec"].get("volumeName") or "" for claim in _claims(pod, world))
    return [world.volumes[name] for name in names if name in world.volumes]


def _matches_volume(volume: Json, node: NodeView) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return any_term(read_node_terms(required), node.labels, node.name)


def _nowhere(pod: PodView, world: World) -> Nowhere | None:
    """A claim that is missing, going, or neither bound nor waiting for its first consumer."""
    for name in pod.claims:
        claim = world.claims.get((pod.namespace, name))
        if claim is None:
            return Nowhere(f'persistentvolumeclaim "{name}" not found')
        if claim["metadata"].get("deletionTimestamp"):
            return Nowhere(f'persistentvolumeclaim "{name}" is being deleted')
    unbound = any(not claim["spec"].get("volumeName") and not _waits(claim, world) for claim in _claims(pod, world))
    return Nowhere(UNBOUND_IMMEDIATE) if unbound else None


def _storage(raw: Json | None) -> int:
    return parse_quantity(str((raw or {}).get("storage", "0")))


def _free_volumes(claim: Json, node: NodeView, world: World) -> Iterator[str]:
    """Unclaimed volumes of the claim's class on this node that are big enough and can be used as asked."""
    spec = claim["spec"]
    asked, modes = _storage((spec.get("resources") or {}).get("requests")), set(spec.get("accessModes") or ())
    for name, volume in world.volumes.items():
        offer = volume["spec"]
        if (not offer.get("claimRef") and offer.get("storageClassName", "") == spec.get("storageClassName", "")
                and _storage(offer.get("capacity")) >= asked and modes <= set(offer.get("accessModes") or ())
                and _matches_volume(volume, node)):
            yield name


def _can_provision(claim: Json, node: NodeView, world: World) -> bool:
    chosen = _class_of(claim, world) or {}
    if chosen.get("provisioner") in {None, "", "kubernetes.io/no-provisioner"}:
        return False
    allowed = chosen.get("allowedTopologies") or ()
    return not allowed or any(
        all(node.labels.get(e["key"]) in e["values"] for e in term.get("matchLabelExpressions") or ())
        for term in allowed)


def _can_bind(claims: list[Json], node: NodeView, world: World) -> bool:
    """Each claim gets a free volume of its own, or can have one made there."""
    taken: set[str] = set()
    for claim in claims:
        selected = (claim["metadata"].get("annotations") or {}).get(_SELECTED_NODE)
        if selected is not None and selected != node.name:
            return False
        free = next((name for name in _free_volumes(claim, node, world) if name not in taken), None)
        if free is not None:
            taken.add(free)
        elif not _can_provision(claim, node, world):
            return False
    return True


def volume_binding(pod: PodView, world: World) -> NodeCheck | Nowhere | None:
    """Bound volumes must match the node, waiting claims must find or get one there."""
    nowhere = _nowhere(pod, world)
    if nowhere is not None or not pod.claims:
        return nowhere
    bound = _bound_volumes(pod, world)
    waiting = [claim for claim in _claims(pod, world) if not claim["spec"].get("volumeName")]

    def check(node: NodeView) -> list[str]:
        reasons = [] if all(_matches_volume(volume, node) for volume in bound) else [NODE_CONFLICT]
        return reasons if _can_bind(waiting, node, world) else [*reasons, NOTHING_TO_BIND]
    return check


def volume_zone(pod: PodView, world: World) -> NodeCheck | None:
    """A bound volume's zone and region labels (a `__`-joined set) must name the node's; a node without any passes."""
    wanted = [(key, set(value.split("__"))) for volume in _bound_volumes(pod, world)
              for key, value in (volume["metadata"].get("labels") or {}).items() if key in _TOPOLOGY]
    if not wanted:
        return None

    def check(node: NodeView) -> list[str]:
        if not any(key in node.labels for key in _TOPOLOGY):
            return []
        ok = all(node.labels.get(key, node.labels.get(_TOPOLOGY[key], "")) in values for key, values in wanted)
        return [] if ok else [NO_ZONE]
    return check


def volume_restrictions(pod: PodView, world: World) -> NodeCheck | None:
    """A ReadWriteOncePod claim that a placed pod already uses."""
    exclusive = {c["metadata"]["name"] for c in _claims(pod, world)
                 if "ReadWriteOncePod" in (c["spec"].get("accessModes") or ())}
    if not any(other.namespace == pod.namespace and exclusive & set(other.claims) for _, other in world.placed()):
        return None

    def check(_node: NodeView) -> list[str]:
        return [EXCLUSIVE]
    return check


class _Attached(msgspec.Struct, frozen=True):
    driver: str
    handle: str


def _attachments(pod: PodView, world: World) -> set[_Attached]:
    """CSI volumes of a pod, bound or to be made."""
    found = set()
    for claim in _claims(pod, world):
        meta = claim["metadata"]
        volume = world.volumes.get(claim["spec"].get("volumeName") or "")
        csi = volume["spec"].get("csi") if volume else None
        if csi:
            found.add(_Attached(csi["driver"], csi.get("volumeHandle", "")))
        elif volume is None:
            driver = (_class_of(claim, world) or {}).get("provisioner", "")
            found.add(_Attached(driver, f"{pod.namespace}/{meta['name']}"))
    return found


def node_volume_limits(pod: PodView, world: World) -> NodeCheck | None:
    """Per CSI driver, the node's volumes and the pod's new ones within CSINode's limit; no limit known passes."""
    mine = _attachments(pod, world)
    if not mine:
        return None

    def check(node: NodeView) -> list[str]:
        drivers = ((world.csi_nodes.get(node.name) or {}).get("spec") or {}).get("drivers") or ()
        limits = {d["name"]: (d.get("allocatable") or {}).get("count") for d in drivers}
        there = set().union(*(_attachments(other, world) for other in world.pods_on(node.name)))
        for driver in {volume.driver for volume in mine - there}:
            limit = limits.get(driver)
            if limit is not None and sum(volume.driver == driver for volume in mine | there) > limit:
                return [TOO_MANY_VOLUMES]
        return []
    return check
