"""Resolves the volumes of a class to bound volumes, unbound claims, disks, and attachments.

References are followed once per class, from the pod's volumes through claims to volumes and storage
classes, so that the predicates only handle objects that exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from chalicelib.model.pod import PodClass, Volume
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.storage import Claim, PersistentVolume, Storage, StorageCapacity, StorageClass
from chalicelib.plan.volumes.topology import Places, Zone, places, zones_of

# Volumes that no predicate checks; csi is an inline CSI volume, which no limit counts.
HARMLESS = frozenset({
    "emptyDir", "emptyDirMemory", "hostPath", "configMap", "secret", "downwardAPI", "projected",
    "image", "gitRepo", "nfs", "cephfs", "glusterfs", "flexVolume", "fc", "azureFile", "flocker",
    "quobyte", "scaleIO", "storageos", "photonPersistentDisk", "csi",
})  # fmt: skip
# In-tree disks that VolumeRestrictions checks.
CONFLICTING = frozenset({"awsElasticBlockStore", "gcePersistentDisk", "iscsi", "rbd"})
_KNOWN = (
    HARMLESS
    | CONFLICTING
    | {
        "persistentVolumeClaim",
        "ephemeral",
        "azureDisk",
        "cinder",
        "vsphereVolume",
        "portworxVolume",
    }
)
_NO_PROVISIONER = frozenset({"", "kubernetes.io/no-provisioner"})
_ONE_POD = "ReadWriteOncePod"

Attachment = tuple[str, str]  # CSI driver, and the volume's name in it


class Stock:
    """A snapshot's storage by name. Built once; empty and free of cost if the cluster has none."""

    def __init__(self, storage: Storage) -> None:
        self.claims = {claim.key: claim for claim in storage.claims}
        self.volumes = {volume.name: volume for volume in storage.volumes}
        self.classes = {cls.name: cls for cls in storage.classes}
        self.publishing = frozenset(storage.publishing)
        self.capacities: dict[str, list[StorageCapacity]] = {}
        for capacity in storage.capacities:
            self.capacities.setdefault(capacity.storage_class, []).append(capacity)
        # Smallest first, in the order of assignment.
        self._by_class: dict[str, list[PersistentVolume]] = {}
        self._reserved: dict[str, list[PersistentVolume]] = {}
        for volume in sorted(storage.volumes, key=lambda v: (v.capacity, v.name)):
            if volume.claim:
                self._reserved.setdefault(volume.claim, []).append(volume)
            else:
                self._by_class.setdefault(volume.storage_class, []).append(volume)
        self._free: dict[Claim, Free] = {}
        defaults = [cls for cls in storage.classes if cls.is_default]
        defaults.sort(key=lambda cls: (-cls.created, cls.name))
        self.default = defaults[0].name if defaults else ""

    def free(self, claim: Claim) -> Free:
        """Return the unclaimed volumes that suit a claim; claims with equal
        requirements share the answer."""
        shape = msgspec.structs.replace(claim, namespace="", name="", selected_node="")
        if shape not in self._free:
            volumes = self._by_class.get(claim.storage_class, ())
            suitable = tuple(volume for volume in volumes if _is_free_for(claim, volume))
            where = places(volume.node_terms for volume in suitable)
            self._free[shape] = Free(suitable, where)
        return self._free[shape]

    def reserved(self, claim: Claim) -> tuple[PersistentVolume, ...]:
        """Return the volumes of its class that are pre-bound to a claim by name, before it is
        bound to the first of them."""
        if not claim.namespace:
            return ()
        reserved = []
        for volume in self._reserved.get(claim.key, ()):
            if volume.storage_class != claim.storage_class:
                continue
            if volume.phase not in {"Released", "Failed"} and _holds(claim, volume):
                reserved.append(volume)
        return tuple(sorted(reserved, key=lambda volume: volume.name))

    def attachment(self, claim: Claim) -> Attachment | None:
        """Return what is attached for a claim: the volume it is bound to, or the one that
        will be provisioned for it."""
        volume = self.volumes.get(claim.volume)
        if volume is not None:
            return (volume.driver, volume.handle) if volume.driver and volume.handle else None
        cls = self.classes.get(claim.storage_class)
        if cls is None or not cls.provisioner:
            return None
        return cls.provisioner, claim.key

    def attachments(self, namespace: str, volume: Volume, claim: str) -> Attachment | None:
        """Return what is attached for a pod's volume whose claim has this name; nothing if
        the claim does not exist."""
        if claim:
            existing = self.claims.get(f"{namespace}/{claim}")
            return self.attachment(existing) if existing else None
        return (volume.driver, volume.disk) if volume.driver and volume.disk else None


class Free(msgspec.Struct, frozen=True):
    """Volumes that suit a claim, smallest first, and where at least one of them can be used."""

    volumes: tuple[PersistentVolume, ...]
    places: Places


class Waiting(msgspec.Struct, frozen=True):
    """A claim that is bound once its pod has a node, with its storage class and
    the suitable free volumes.

    reserved: volumes pre-bound to this claim; only the first is used, and if it cannot be
    used, one is provisioned.
    """

    claim: Claim
    cls: StorageClass
    free: Free
    reserved: tuple[PersistentVolume, ...] = ()

    @property
    def provisions(self) -> bool:
        """Return whether a volume can be provisioned for it at all."""
        return self.cls.provisioner not in _NO_PROVISIONER


class Needs(msgspec.Struct, frozen=True):
    """The volume requirements of one class. shared: attached once for all its pods on a node; own:
    the drivers of the volumes that each pod brings."""

    nowhere: Reason | None = None
    bound: tuple[tuple[PersistentVolume, Places], ...] = ()
    waiting: tuple[Waiting, ...] = ()
    zones: tuple[Zone, ...] = ()
    exclusive: tuple[str, ...] = ()
    disks: tuple[Volume, ...] = ()
    shared: frozenset[Attachment] = frozenset()
    own: tuple[str, ...] = ()


def needs(pod_class: PodClass, stock: Stock) -> Needs:
    """Return the volume requirements of a class."""
    if any(volume.kind not in _KNOWN for volume in pod_class.volumes):
        return Needs(nowhere=Reason.of(ReasonCode.NOT_SIMULATED, what="volumes"))
    with_claim = [
        (volume, _claim(volume, pod_class.namespace, stock))
        for volume in pod_class.volumes
        if volume.claim or volume.template is not None
    ]
    existing = [(volume, claim) for volume, claim in with_claim if claim is not None]
    claims = [claim for _, claim in existing]
    named = [claim for volume, claim in existing if volume.kind == "persistentVolumeClaim"]
    exclusive = {claim.key for claim in named if _ONE_POD in claim.access_modes}
    attachments = [stock.attachments(pod_class.namespace, v, v.claim) for v in pod_class.volumes]
    own = [stock.attachment(claim) for volume, claim in existing if not volume.claim]
    return Needs(
        nowhere=_nowhere(with_claim, stock),
        bound=tuple((v, places([v.node_terms])) for v in _bound(claims, stock)),
        waiting=_waiting(claims, stock),
        zones=zones_of(_bound(named, stock)),
        exclusive=tuple(sorted(exclusive)),
        disks=tuple(v for v in pod_class.volumes if v.kind in CONFLICTING),
        shared=frozenset(attachment for attachment in attachments if attachment is not None),
        own=tuple(attachment[0] for attachment in own if attachment is not None),
    )


def _bound(claims: Iterable[Claim], stock: Stock) -> list[PersistentVolume]:
    """Return the existing volumes that claims are bound to."""
    return [stock.volumes[claim.volume] for claim in claims if claim.volume in stock.volumes]


def _waiting(claims: Iterable[Claim], stock: Stock) -> tuple[Waiting, ...]:
    """Return the claims without a volume; the smallest chooses first."""
    unbound = [claim for claim in claims if not claim.volume]
    unbound.sort(key=lambda claim: claim.request)
    waiting = []
    for claim in unbound:
        cls = stock.classes.get(claim.storage_class)
        if cls is not None:
            waiting.append(Waiting(claim, cls, stock.free(claim), stock.reserved(claim)))
    return tuple(waiting)


def _claim(volume: Volume, namespace: str, stock: Stock) -> Claim | None:
    """Return the claim behind a volume, or the future claim of each pod, named after the
    volume; None: it is missing."""
    template = volume.template
    if volume.claim or template is None:
        return stock.claims.get(f"{namespace}/{volume.claim}")
    storage_class = stock.default if template.any_class else template.storage_class
    return msgspec.structs.replace(
        template, name=volume.name, any_class=False, storage_class=storage_class
    )


def _nowhere(with_claim: Sequence[tuple[Volume, Claim | None]], stock: Stock) -> Reason | None:
    """Return why no node fits, in the scheduler's order: claims that are missing or being deleted,
    in the pod's order; then claims that should already be bound; then missing volumes."""
    claims = []
    for volume, claim in with_claim:
        if claim is None:
            return Reason.of(ReasonCode.CLAIM_NOT_FOUND, claim=volume.claim)
        if claim.deleted:
            return Reason.of(ReasonCode.CLAIM_BEING_DELETED, claim=claim.name)
        claims.append(claim)
    for claim in claims:
        cls = stock.classes.get(claim.storage_class)
        waits = cls is not None and cls.waits
        if claim.unsettled or (not claim.volume and not waits):
            return Reason.of(ReasonCode.UNBOUND_IMMEDIATE, claim=claim.name)
    for claim in claims:
        if claim.volume and claim.volume not in stock.volumes:
            return Reason.of(ReasonCode.VOLUME_NOT_FOUND, volume=claim.volume)
    return None


def _is_free_for(claim: Claim, volume: PersistentVolume) -> bool:
    if not _holds(claim, volume) or volume.phase not in {"", "Available"}:
        return False
    if claim.selector is not None and not claim.selector.matches(volume.labels):
        return False
    return set(claim.access_modes) <= set(volume.access_modes)


def _holds(claim: Claim, volume: PersistentVolume) -> bool:
    if volume.capacity < claim.request or volume.deleted:
        return False
    return volume.volume_mode == claim.volume_mode
