"""Converts volumes, claims and related objects to model/storage.py, and reads the
priority expander's ConfigMap.

Storage kinds have their own rules about what counts as bound, and which CSI driver replaces an
in-tree plugin. The planner determines whether a pod fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from chalicelib.cluster import api_types as wire
from chalicelib.cluster.api_types import bounded_selector, node_terms
from chalicelib.model.pod import Pod, PodClass, Volume
from chalicelib.model.quantity import parse_amount, quantity_text
from chalicelib.model.selector import NodeTerm, Requirement
from chalicelib.model.snapshot import PriorityConfig
from chalicelib.model.storage import (
    Claim,
    CSINode,
    PersistentVolume,
    Storage,
    StorageCapacity,
    StorageClass,
)
from chalicelib.model.timestamps import parse_time
from chalicelib.policy import priority_configmap

PRIORITIES = priority_configmap.CONFIG_MAP
NAMESPACE = "kube-system"
CLAIMS = "PersistentVolumeClaim"
_PRIORITIES = msgspec.json.Decoder(wire.Priorities | None)
_NO_NOTES = wire.StorageAnnotations()
_MOST_TOPOLOGY_KEYS = 20  # of one driver; real ones have up to five
# In-tree plugin -> (its key in a pod's or a volume's spec, the CSI driver that has replaced it).
_REPLACED = {
    "kubernetes.io/aws-ebs": ("awsElasticBlockStore", "ebs.csi.aws.com"),
    "kubernetes.io/gce-pd": ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    "kubernetes.io/azure-disk": ("azureDisk", "disk.csi.azure.com"),
    "kubernetes.io/cinder": ("cinder", "cinder.csi.openstack.org"),
    "kubernetes.io/vsphere-volume": ("vsphereVolume", "csi.vsphere.vmware.com"),
    "kubernetes.io/portworx-volume": ("portworxVolume", "pxd.portworx.com"),
}
_DRIVER_OF_KIND = dict(_REPLACED.values())
_DRIVER_OF_PLUGIN = {plugin: driver for plugin, (_, driver) in _REPLACED.items()}


def storage_of(objects: Mapping[str, Mapping[str, Any]]) -> Storage:
    """Return all storage objects, sorted by name. objects: what is kept of them, by kind and
    key."""

    def of(kind: str) -> tuple[Any, ...]:
        return tuple(value for _, value in sorted(objects[kind].items()))

    return Storage(
        claims=of(CLAIMS),
        volumes=of("PersistentVolume"),
        classes=of("StorageClass"),
        csi_nodes=of("CSINode"),
        capacities=of("CSIStorageCapacity"),
        publishing=tuple(name for name in of("CSIDriver") if name),
    )


def own_claims(pod: Pod, pod_class: PodClass, claims: Mapping[str, Claim]) -> PodClass:
    """Return the class of a pending pod with ephemeral volumes, once the state of their claims is
    known. claims: by namespace and name.

    A claim that was created from the template and is still unbound is the same for all siblings, so
    they stay one class. A claim that is bound, assigned to a node, being deleted or missing is
    specific to the pod: its volume then names it (`<pod>-<volume>`).
    """

    def with_claim(volume: Volume) -> Volume:
        if volume.template is None:
            return volume
        name = f"{pod.name}-{volume.name}"
        claim = claims.get(f"{pod.namespace}\0{name}")
        if claim is not None and _is_like_its_template(claim):
            return volume
        return msgspec.structs.replace(volume, claim=name)

    volumes = tuple(with_claim(volume) for volume in pod_class.volumes)
    return msgspec.structs.replace(pod_class, volumes=volumes)


def _is_like_its_template(claim: Claim) -> bool:
    """Return whether nothing has happened to a claim since it was created."""
    is_bound = claim.volume or claim.unsettled
    return not (is_bound or claim.deleted or claim.selected_node)


def _bytes(raw: wire.Quantity | None) -> int | None:
    return None if raw is None else parse_amount("storage", quantity_text(raw))


def _class_name(name: str | None, notes: wire.StorageAnnotations | None) -> str:
    """Return the storage class name; the deprecated annotation takes
    precedence if it is present."""
    old = (notes or _NO_NOTES).old_class
    return (name or "") if old is None else old


def _claim(item: wire.ApiClaim) -> Claim:
    meta = item.metadata
    spec = item.spec
    notes = meta.annotations or _NO_NOTES
    names_volume = bool(spec.volume_name)
    # A claim that names a volume is bound once the volume controller reports it; a manually saved
    # claim may have no status.
    has_bound_phase = item.status.phase in {"Bound", "Lost", ""}
    is_bound = notes.bind_completed is not None or has_bound_phase
    return msgspec.structs.replace(
        claim_from_spec(spec),
        namespace=meta.namespace or "default",
        name=meta.name,
        storage_class=_class_name(spec.storage_class_name, notes),
        volume=spec.volume_name,
        selected_node=notes.selected_node,
        deleted=bool(meta.deletion_timestamp),
        unsettled=names_volume and not is_bound,
        any_class=False,
    )


def claim_from_spec(spec: wire.ClaimSpec) -> Claim:
    """Return a nameless, unbound claim as a template describes it; raises BadInput
    for a malformed quantity."""
    request = None
    if spec.resources and spec.resources.requests:
        request = spec.resources.requests.storage
    access_modes = tuple(sorted(spec.access_modes or ()))
    return Claim(
        namespace="",
        name="",
        storage_class=spec.storage_class_name or "",
        any_class=spec.storage_class_name is None,
        access_modes=access_modes,
        request=_bytes(request) or 0,
        volume_mode=spec.volume_mode or "Filesystem",
        selector=bounded_selector(spec.selector),
    )


def _volume(item: wire.ApiVolume) -> PersistentVolume:
    meta = item.metadata
    spec = item.spec
    required = spec.node_affinity.required if spec.node_affinity else None
    terms = node_terms(required)
    driver, handle = _attached_by(spec)
    storage_class = _class_name(spec.storage_class_name, meta.annotations)
    capacity = _bytes(spec.capacity.storage) if spec.capacity else None
    access_modes = tuple(sorted(spec.access_modes or ()))
    claim = spec.claim_ref
    return PersistentVolume(
        name=meta.name,
        labels=meta.labels or {},
        storage_class=storage_class,
        capacity=capacity or 0,
        access_modes=access_modes,
        volume_mode=spec.volume_mode or "Filesystem",
        node_terms=terms,
        claim=f"{claim.namespace}/{claim.name}" if claim else "",
        phase=item.status.phase,
        driver=driver,
        handle=handle,
        deleted=bool(meta.deletion_timestamp),
    )


def _attached_by(spec: wire.VolumeSpec) -> tuple[str, str]:
    """Return the CSI driver that attaches a volume, and the volume's name in it;
    empty if nothing is attached."""
    if spec.csi is not None:
        return spec.csi.driver, spec.csi.volume_handle
    cloud_disks = (spec.aws_elastic_block_store, spec.gce_persistent_disk, spec.azure_disk)
    # in the order of _REPLACED
    sources = (*cloud_disks, spec.cinder, spec.vsphere_volume, spec.portworx_volume)
    for driver, source in zip(_DRIVER_OF_KIND.values(), sources, strict=True):
        if source is not None:
            return driver, source.name
    return "", ""


def _class(item: wire.ApiStorageClass) -> StorageClass:
    meta = item.metadata
    notes = meta.annotations or _NO_NOTES
    topologies: list[NodeTerm] = []
    for term in item.allowed_topologies or ():
        expressions = term.match_label_expressions or ()
        rules = [Requirement(rule.key, "In", tuple(rule.values or ())) for rule in expressions]
        topologies.append(NodeTerm(tuple(rules)))
    created = parse_time(meta.creation_timestamp) if meta.creation_timestamp else 0.0
    return StorageClass(
        name=meta.name,
        provisioner=_DRIVER_OF_PLUGIN.get(item.provisioner, item.provisioner),
        waits=item.volume_binding_mode == "WaitForFirstConsumer",
        topologies=tuple(topologies) or None,
        is_default="true" in {notes.is_default, notes.was_default},
        created=created,
    )


def _csi_node(item: wire.ApiCsiNode) -> CSINode:
    limits: dict[str, int] = {}
    topology_keys: dict[str, tuple[str, ...]] = {}
    for driver in item.spec.drivers or ():
        limit = driver.allocatable.count if driver.allocatable is not None else None
        if limit is not None:
            limits[driver.name] = limit
        if driver.topology_keys:
            topology_keys[driver.name] = tuple(driver.topology_keys[:_MOST_TOPOLOGY_KEYS])
    return CSINode(item.metadata.name, limits, topology_keys)


def _capacity(item: wire.ApiStorageCapacity) -> StorageCapacity:
    return StorageCapacity(
        item.storage_class_name,
        bounded_selector(item.node_topology),
        _bytes(item.capacity),
        _bytes(item.maximum_volume_size),
    )


def _priorities(item: wire.ApiConfigMap) -> PriorityConfig:
    data = _PRIORITIES.decode(item.data) if item.data else None
    text = data.priorities if data else None
    return priority_configmap.read(None if text is None else {priority_configmap.KEY: text})


# kind -> (its API type, what is kept of it)
FOLDS: dict[str, tuple[type[Any], Callable[[Any], Any]]] = {
    CLAIMS: (wire.ApiClaim, _claim),
    "PersistentVolume": (wire.ApiVolume, _volume),
    "StorageClass": (wire.ApiStorageClass, _class),
    "CSINode": (wire.ApiCsiNode, _csi_node),
    "CSIStorageCapacity": (wire.ApiStorageCapacity, _capacity),
    # A driver's name, if it publishes its capacity.
    "CSIDriver": (
        wire.ApiCsiDriver,
        lambda item: item.metadata.name if item.spec.storage_capacity else "",
    ),
    "ConfigMap": (wire.ApiConfigMap, _priorities),
}


# Fields that identify the disk of an in-tree volume: the keys of its source, each with the API
# server's default after `=`.
_DISKS = {
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "iscsi": ("iqn",),
    "rbd": ("pool=rbd", "image"),
    "azureDisk": ("diskURI",),
    "cinder": ("volumeID",),
    "vsphereVolume": ("volumePath",),
    "portworxVolume": ("volumeID",),
}
VOLUME_FIELDS = frozenset(
    {"claimName", "driver", "medium", "monitors", "readOnly"}
    | {key.partition("=")[0] for keys in _DISKS.values() for key in keys}
)
"""Fields of a volume's source that pod_volume reads, in addition to the
template of an ephemeral claim."""


def pod_volume(raw: Mapping[str, Any]) -> Volume:
    """Convert spec.volumes[] of a pod; raises BadInput or msgspec.ValidationError for a
    malformed claim template."""
    kinds = (key for key in sorted(raw) if key != "name")
    kind = next(kinds, "")
    source = raw.get(kind)
    details: Mapping[str, Any] = source if isinstance(source, dict) else {}
    name = str(raw.get("name", ""))
    if kind == "persistentVolumeClaim":
        claim = str(details.get("claimName", ""))
        return Volume(name, kind, claim)
    if kind == "ephemeral":
        template = msgspec.convert(details, wire.Ephemeral).volume_claim_template.spec
        return Volume(name, kind, template=claim_from_spec(template))
    if kind == "csi":
        driver = str(details.get("driver", ""))
        return Volume(name, kind, driver=driver)
    if kind in _DISKS:
        return _disk_volume(name, kind, details)
    if kind == "emptyDir" and details.get("medium") == "Memory":
        return Volume(name, "emptyDirMemory")
    return Volume(name, kind)


def _disk_volume(name: str, kind: str, details: Mapping[str, Any]) -> Volume:
    """Return a volume that is a disk in itself, without a claim."""
    fields = (field.partition("=") for field in _DISKS[kind])
    identity = [str(details.get(key) or default) for key, _, default in fields]
    monitors = details.get("monitors") or ()
    return Volume(
        name,
        kind,
        disk="/".join(identity),
        read_only=bool(details.get("readOnly")),
        monitors=tuple(sorted(map(str, monitors))),
        driver=_DRIVER_OF_KIND.get(kind, ""),
    )
