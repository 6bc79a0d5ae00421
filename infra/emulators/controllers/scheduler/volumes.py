"""Predicates about volumes: claims, zones, exclusive use, disks, attach limits.

Claims that wait for their first consumer are in binding.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from infra.emulators.controllers.scheduler.binding import bind, class_of, is_bound, matches_volume, waits
from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.node_local import NodeCheck, Nowhere
from infra.emulators.controllers.scheduler.pod_and_node_info import NodeView, PodView

Json = Mapping[str, Any]

UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
NODE_CONFLICT = "node(s) had volume node affinity conflict"
NO_ZONE = "node(s) had no available volume zone"
EXCLUSIVE = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
DISK_IN_USE = "node(s) had no available disk"
TOO_MANY_VOLUMES = "node(s) exceed max volume count"

# Each topology label with its older or newer name.
_TOPOLOGY = {
    "topology.kubernetes.io/zone": "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region": "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
# In-tree disks that were migrated to CSI drivers: key of the source, field that names the disk, driver, old
# provisioner.
_MIGRATED = (
    ("awsElasticBlockStore", "volumeID", "ebs.csi.aws.com", "kubernetes.io/aws-ebs"),
    ("gcePersistentDisk", "pdName", "pd.csi.storage.gke.io", "kubernetes.io/gce-pd"),
    ("azureDisk", "diskURI", "disk.csi.azure.com", "kubernetes.io/azure-disk"),
    ("cinder", "volumeID", "cinder.csi.openstack.org", "kubernetes.io/cinder"),
    ("vsphereVolume", "volumePath", "csi.vsphere.vmware.com", "kubernetes.io/vsphere-volume"),
    ("portworxVolume", "volumeID", "pxd.portworx.com", "kubernetes.io/portworx-volume"),
)


def _claims(pod: PodView, world: ClusterView) -> Iterator[Json]:
    for name in pod.claims:
        claim = world.claims.get((pod.namespace, name))
        if claim is not None:
            yield claim


def _by_name(pod: PodView, world: ClusterView) -> Iterator[Json]:
    """Return the claims that the pod names. Some rules exclude those of generic ephemeral volumes."""
    for volume in pod.raw["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            claim = world.claims.get((pod.namespace, volume["persistentVolumeClaim"]["claimName"]))
            if claim is not None:
                yield claim


def _volume_of(claim: Json, world: ClusterView) -> Json | None:
    return world.volumes.get(claim["spec"].get("volumeName") or "")


def _nowhere(pod: PodView, world: ClusterView) -> Nowhere | None:
    """Return whether a claim fits no node: it is missing, being deleted, bound to a missing volume, or unbound without
    waiting for its first consumer."""
    for name in pod.claims:
        claim = world.claims.get((pod.namespace, name))
        if claim is None:
            return Nowhere(f'persistentvolumeclaim "{name}" not found')
        if claim["metadata"].get("deletionTimestamp"):
            return Nowhere(f'persistentvolumeclaim "{name}" is being deleted')
    for claim in _claims(pod, world):
        if not is_bound(claim) and (claim["spec"].get("volumeName") or not waits(claim, world)):
            return Nowhere(UNBOUND_IMMEDIATE)
    for claim in _claims(pod, world):
        if is_bound(claim) and _volume_of(claim, world) is None:
            return Nowhere(f'persistentvolume "{claim["spec"]["volumeName"]}" not found')
    return None


def volume_binding(pod: PodView, world: ClusterView) -> NodeCheck | Nowhere | None:
    """Check that bound volumes match the node and that waiting claims find or get a volume there."""
    nowhere = _nowhere(pod, world)
    if nowhere is not None or not pod.claims:
        return nowhere
    bound = [
        volume
        for claim in _claims(pod, world)
        if is_bound(claim)
        for volume in (_volume_of(claim, world),)
        if volume is not None
    ]
    waiting = [claim for claim in _claims(pod, world) if not is_bound(claim)]

    def check(node: NodeView) -> list[str]:
        reasons = [] if all(matches_volume(volume, node) for volume in bound) else [NODE_CONFLICT]
        problem = bind(waiting, node, world)
        return [*reasons, problem] if problem else reasons

    return check


def volume_zone(pod: PodView, world: ClusterView) -> NodeCheck | None:
    """Check a bound volume's zone and region labels (a `__`-joined set) against the node's. A node without such labels
    fits."""
    bound = [
        volume
        for claim in _by_name(pod, world)
        if is_bound(claim)
        for volume in (_volume_of(claim, world),)
        if volume is not None
    ]
    labelled = [
        (key, [part.strip() for part in value.split("__")])
        for volume in bound
        for key, value in (volume["metadata"].get("labels") or {}).items()
        if key in _TOPOLOGY
    ]
    wanted = [(key, values) for key, values in labelled if "" not in values]  # a malformed label is ignored
    if not wanted:
        return None

    def check(node: NodeView) -> list[str]:
        if not any(key in node.labels for key in _TOPOLOGY):
            return []
        ok = all(node.labels.get(key, node.labels.get(_TOPOLOGY[key])) in values for key, values in wanted)
        return [] if ok else [NO_ZONE]

    return check


def volume_restrictions(pod: PodView, world: ClusterView) -> NodeCheck | None:
    """Check for a disk that a pod on the node uses in conflict, and for a ReadWriteOncePod claim that a placed pod
    uses."""
    exclusive = {
        c["metadata"]["name"]
        for c in _by_name(pod, world)
        if "ReadWriteOncePod" in (c["spec"].get("accessModes") or ())
    }
    in_use = bool(exclusive) and any(
        other.namespace == pod.namespace and exclusive & {c["metadata"]["name"] for c in _by_name(other, world)}
        for _, other in world.placed()
    )
    mine = [volume for volume in pod.raw["spec"].get("volumes") or () if _SAME.keys() & volume.keys()]
    if not mine and not in_use:
        return None

    def check(node: NodeView) -> list[str]:
        for other in world.pods_on(node.name) if mine else ():
            if any(_conflict(one, held) for one in mine for held in other.raw["spec"].get("volumes") or ()):
                return [DISK_IN_USE]
        return [EXCLUSIVE] if in_use else []

    return check


def _same_image(one: Json, other: Json) -> bool:
    shared = set(one["monitors"]) & set(other["monitors"])
    return bool(shared) and (one.get("pool", "rbd"), one["image"]) == (other.get("pool", "rbd"), other["image"])


# Disks that pods name directly, and when two of a kind are the same.
_SAME: Mapping[str, Callable[[Json, Json], bool]] = {
    "awsElasticBlockStore": lambda one, other: one["volumeID"] == other["volumeID"],
    "gcePersistentDisk": lambda one, other: one["pdName"] == other["pdName"],
    "iscsi": lambda one, other: one["iqn"] == other["iqn"],
    "rbd": _same_image,
}


def _conflict(one: Json, other: Json) -> bool:
    """Return whether two mounts of one disk on a node conflict. Only read-only mounts may share a disk, and on EBS not
    even these."""
    for kind, same in _SAME.items():
        mine, held = one.get(kind), other.get(kind)
        readers = kind != "awsElasticBlockStore" and mine and held and mine.get("readOnly") and held.get("readOnly")
        if mine and held and same(mine, held) and not readers:
            return True
    return False


class _Attached(msgspec.Struct, frozen=True):
    driver: str
    handle: str


def _source(spec: Json) -> _Attached | None:
    """Return the disk of a source in a volume or a PersistentVolume."""
    for kind, field, driver, _ in _MIGRATED:
        if spec.get(kind):
            return _Attached(driver, spec[kind].get(field, ""))
    csi = spec.get("csi")
    return _Attached(csi["driver"], csi.get("volumeHandle", "")) if csi else None


def _attachments(pod: PodView, world: ClusterView) -> set[_Attached]:
    """Return CSI volumes of a pod, bound or to be provisioned. Inline CSI volumes do not count."""
    found = {_source(volume) for volume in pod.raw["spec"].get("volumes") or () if "csi" not in volume}
    for claim in _claims(pod, world):
        volume = _volume_of(claim, world)
        if volume is not None:
            found.add(_source(volume["spec"]))
        else:
            provisioner = (class_of(claim, world) or {}).get("provisioner", "")
            driver = next((driver for *_, driver, old in _MIGRATED if old == provisioner), provisioner)
            found.add(_Attached(driver, f"{pod.namespace}/{claim['metadata']['name']}"))
    return {each for each in found if each is not None and each.driver and each.handle}


def node_volume_limits(pod: PodView, world: ClusterView) -> NodeCheck | None:
    """Check per CSI driver that the node's volumes and the pod's new ones are within CSINode's limit. Without a known
    limit the node fits."""
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
