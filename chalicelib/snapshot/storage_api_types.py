"""API types of volumes, claims, storage classes and CSI objects: the fields that decide where a pod may run.

These are separate from api_types.py because only pods with claims need them. All other fields of these objects (mount
options, secrets, parameters) are skipped without being decoded.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.api_integers import Int32
from chalicelib.snapshot.api_types import LabelSelector, NodeSelector, Quantity


class Notes(
    msgspec.Struct,
    gc=False,
    frozen=True,
    rename={
        "selected_node": "volume.kubernetes.io/selected-node",
        "bind_completed": "pv.kubernetes.io/bind-completed",
        "old_class": "volume.beta.kubernetes.io/storage-class",
        "is_default": "storageclass.kubernetes.io/is-default-class",
        "was_default": "storageclass.beta.kubernetes.io/is-default-class",
    },
):
    """The annotations that are used: of a claim the first three, of a volume the third, of a class the rest."""

    selected_node: str = ""
    bind_completed: str | None = None
    old_class: str | None = None
    is_default: str = ""
    was_default: str = ""


class StorageMeta(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """metadata of a storage object."""

    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: Notes | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Amounts(msgspec.Struct, gc=False, frozen=True):
    """An amount of storage, as in requests and capacity."""

    storage: Quantity | None = None


class ClaimResources(msgspec.Struct, gc=False, frozen=True):
    """resources of a claim."""

    requests: Amounts | None = None


class ClaimSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """spec of a PersistentVolumeClaim, or of its template."""

    access_modes: list[str] | None = None
    resources: ClaimResources | None = None
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str = ""
    selector: LabelSelector | None = None


class Phase(msgspec.Struct, gc=False, frozen=True):
    """status of a claim or a volume."""

    phase: str = ""


class ApiClaim(msgspec.Struct, gc=False, frozen=True):
    """A PersistentVolumeClaim of the API."""

    metadata: StorageMeta
    spec: ClaimSpec
    status: Phase = Phase()
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")


class ClaimTemplate(msgspec.Struct, gc=False, frozen=True):
    """ephemeral.volumeClaimTemplate."""

    spec: ClaimSpec = ClaimSpec()


class Ephemeral(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """A generic ephemeral volume of a pod."""

    volume_claim_template: ClaimTemplate = ClaimTemplate()


class Reference(msgspec.Struct, gc=False, frozen=True):
    """spec.claimRef."""

    name: str = ""
    namespace: str = ""


class VolumeNodeAffinity(msgspec.Struct, gc=False, frozen=True):
    """spec.nodeAffinity of a volume."""

    required: NodeSelector | None = None


class CsiSource(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """spec.csi of a volume."""

    driver: str = ""
    volume_handle: str = ""


class DiskSource(
    msgspec.Struct,
    gc=False,
    frozen=True,
    rename={"volume_id": "volumeID", "pd_name": "pdName", "disk_uri": "diskURI", "volume_path": "volumePath"},
):
    """A disk of an in-tree plugin that a CSI driver has replaced; each vendor identifies it by a different field."""

    volume_id: str = ""
    pd_name: str = ""
    disk_uri: str = ""
    volume_path: str = ""

    @property
    def name(self) -> str:
        """Return the identifier of the disk."""
        return self.volume_id or self.pd_name or self.disk_uri or self.volume_path


class VolumeSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """spec of a PersistentVolume."""

    capacity: Amounts | None = None
    access_modes: list[str] | None = None
    storage_class_name: str = ""
    volume_mode: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: Reference | None = None
    csi: CsiSource | None = None
    aws_elastic_block_store: DiskSource | None = None
    gce_persistent_disk: DiskSource | None = None
    azure_disk: DiskSource | None = None
    cinder: DiskSource | None = None
    vsphere_volume: DiskSource | None = None
    portworx_volume: DiskSource | None = None


class ApiVolume(msgspec.Struct, gc=False, frozen=True):
    """A PersistentVolume of the API."""

    metadata: StorageMeta
    spec: VolumeSpec
    status: Phase = Phase()
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")


class TopologyExpression(msgspec.Struct, gc=False, frozen=True):
    """key in values."""

    key: str
    values: list[str] | None = None


class TopologyTerm(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """allowedTopologies[]."""

    match_label_expressions: list[TopologyExpression] | None = None


class ApiStorageClass(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """A StorageClass of the API."""

    metadata: StorageMeta
    provisioner: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: list[TopologyTerm] | None = None
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")


class Count(msgspec.Struct, gc=False, frozen=True):
    """allocatable of a driver on a node."""

    count: Int32 | None = None


class NodeDriver(msgspec.Struct, gc=False, frozen=True):
    """spec.drivers[] of a CSINode."""

    name: str
    allocatable: Count | None = None


class NodeDrivers(msgspec.Struct, gc=False, frozen=True):
    """spec of a CSINode."""

    drivers: list[NodeDriver] | None = None


class ApiCsiNode(msgspec.Struct, gc=False, frozen=True):
    """A CSINode of the API."""

    metadata: StorageMeta
    spec: NodeDrivers = NodeDrivers()
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")


class DriverSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """spec of a CSIDriver."""

    storage_capacity: bool | None = None


class ApiCsiDriver(msgspec.Struct, gc=False, frozen=True):
    """A CSIDriver of the API."""

    metadata: StorageMeta
    spec: DriverSpec = DriverSpec()
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")


class ApiStorageCapacity(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """A CSIStorageCapacity of the API."""

    metadata: StorageMeta
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")


class Priorities(msgspec.Struct, gc=False, frozen=True):
    """data of the priority expander's ConfigMap."""

    priorities: str | None = None


class ApiConfigMap(msgspec.Struct, gc=False, frozen=True):
    """A ConfigMap of the API; other keys are ignored."""

    metadata: StorageMeta
    data: msgspec.Raw = msgspec.Raw(b"")
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
