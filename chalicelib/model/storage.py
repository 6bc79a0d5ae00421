"""Storage objects behind pods' volumes, as far as they decide where a pod may run."""

from __future__ import annotations

import msgspec

from chalicelib.model.selector import NodeTerm, Selector


class Claim(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A PersistentVolumeClaim. volume: the PersistentVolume it is bound to (or, if unsettled,
    requests); request: bytes; selected_node: the annotation `volume.kubernetes.io/selected-node`.

    unsettled: it names a volume, but the two are not bound yet, and only the volume controller may
    bind them. any_class: it names no class at all, so that it gets the default one when it is
    created (of templates only).
    """

    namespace: str
    name: str
    storage_class: str = ""
    volume: str = ""
    access_modes: tuple[str, ...] = ()
    request: int = 0
    volume_mode: str = "Filesystem"
    selector: Selector | None = None
    selected_node: str = ""
    deleted: bool = False
    unsettled: bool = False
    any_class: bool = False

    @property
    def key(self) -> str:
        """Return namespace/name, as a PersistentVolume refers to it."""
        return f"{self.namespace}/{self.name}"


class PersistentVolume(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A PersistentVolume. claim: namespace/name of spec.claimRef, empty for a free one; driver and
    handle of its CSI source, or of the CSI driver that has replaced its in-tree plugin; node_terms:
    spec.nodeAffinity.required, None if there is none; zones are among its labels; capacity:
    bytes."""

    name: str
    labels: dict[str, str] = {}
    storage_class: str = ""
    capacity: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    node_terms: tuple[NodeTerm, ...] | None = None
    claim: str = ""
    phase: str = ""
    driver: str = ""
    handle: str = ""
    deleted: bool = False


class StorageClass(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A StorageClass. waits: volumeBindingMode is WaitForFirstConsumer; topologies:
    allowedTopologies as node terms, None if there are none; is_default: annotated as the cluster's
    default class (the newest of several counts)."""

    name: str
    provisioner: str = ""
    waits: bool = False
    topologies: tuple[NodeTerm, ...] | None = None
    is_default: bool = False
    created: float = 0.0


class CSINode(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A node's CSI drivers. limits: driver -> most volumes; a driver without a limit is missing.
    topology: driver -> the keys of the labels that say where the node reaches its volumes; a driver
    without such keys is missing."""

    name: str
    limits: dict[str, int] = {}
    topology: dict[str, tuple[str, ...]] = {}


class StorageCapacity(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A CSIStorageCapacity: bytes that a class can still provision where node_topology
    matches a node's labels. largest: maximumVolumeSize, None if the driver does not report
    it; then capacity counts."""

    storage_class: str
    node_topology: Selector | None
    capacity: int | None = None
    largest: int | None = None


class Storage(msgspec.Struct, frozen=True, omit_defaults=True):
    """All storage objects. publishing: CSI drivers whose CSIDriver has storageCapacity: true."""

    claims: tuple[Claim, ...] = ()
    volumes: tuple[PersistentVolume, ...] = ()
    classes: tuple[StorageClass, ...] = ()
    csi_nodes: tuple[CSINode, ...] = ()
    capacities: tuple[StorageCapacity, ...] = ()
    publishing: tuple[str, ...] = ()
