"""VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone: the volume
filters of kube-scheduler.

Here: one object per snapshot, asked per class, because claims and volumes do not change while a
plan is made. Not here: the attach limits of new nodes (simulation/volume_limits.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from functools import cached_property

import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.pod import Pod, Volume
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.storage import PersistentVolume
from chalicelib.plan.tables import Bools, NodeTable
from chalicelib.plan.volumes import binding, topology
from chalicelib.plan.volumes.binding import ClaimedVolumes
from chalicelib.plan.volumes.requirements import (
    CONFLICTING,
    HARMLESS,
    Attachment,
    Needs,
    Stock,
    Waiting,
    needs,
)

_FINISHED = frozenset({"Succeeded", "Failed"})


class Volumes:
    """The four volume predicates over one snapshot. Classes are identified by
    their index in the snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._stock = Stock(snapshot.storage)
        self._concerned = frozenset(
            at
            for at, cls in enumerate(snapshot.classes)
            if cls.volumes and any(volume.kind not in HARMLESS for volume in cls.volumes)
        )
        self._needs: dict[int, Needs] = {}
        self._counting: dict[int, tuple[Waiting, ...]] = {}
        self._limits = {node.name: node.limits for node in snapshot.storage.csi_nodes}
        self._running = _RunningPods(snapshot, self._concerned, self._stock)

    def concerns(self, cls: int) -> bool:
        """Return whether a class has a volume that any of the predicates checks."""
        return cls in self._concerned

    def _needs_of(self, cls: int) -> Needs:
        if cls not in self._needs:
            self._needs[cls] = needs(self._snapshot.classes[cls], self._stock)
        return self._needs[cls]

    def nowhere(self, cls: int, *, moving: bool = False) -> Reason | None:
        """Return why pods of a class fit no node at all, if they do not: a claim that is missing,
        being deleted or unexpectedly unbound, or a ReadWriteOncePod claim in use.

        moving: the pod is a running pod of the class, which releases its own use of the claim.
        """
        needs_of_class = self._needs_of(cls)
        if needs_of_class.nowhere is not None:
            return needs_of_class.nowhere
        users = self._running.users
        moving_classes = {cls} if moving else set[int]()
        for claim in needs_of_class.exclusive:
            if users.get(claim, frozenset()) - moving_classes:
                return Reason.of(ReasonCode.EXCLUSIVE_CLAIM, claim=claim.partition("/")[2])
        return None

    def mask(self, cls: int, table: NodeTable) -> Bools:
        """Return the rows on which the class's volumes are available: no disk conflicts, claims
        bound or bindable there, matching zones. Attach limits are computed from `attaches` and
        `limits` and are not included; volumes taken by pods placed in this pass are not included
        either."""
        needs_of_class = self._needs_of(cls)
        if needs_of_class.nowhere is not None:
            return np.zeros(len(table), dtype=np.bool_)
        allowed: Bools = np.ones(len(table), dtype=np.bool_)
        if needs_of_class.disks:
            for node, disks in self._running.disks.items():
                if node in table.index and disks_conflict(needs_of_class.disks, disks):
                    allowed[table.index[node]] = False
        for _, places in needs_of_class.bound:
            allowed &= topology.rows(places, table)
        if needs_of_class.zones:
            allowed &= topology.zone_mask(needs_of_class.zones, table)
        if needs_of_class.waiting:
            allowed &= binding.mask(needs_of_class.waiting, self._stock, table, allowed)
        return allowed

    def waits(self, cls: int) -> bool:
        """Return whether a class has a claim that is not bound yet."""
        return self.concerns(cls) and bool(self._needs_of(cls).waiting)

    def storage_classes(self, cls: int) -> tuple[str, ...]:
        """Return the storage classes of the claims of a class that are not bound yet."""
        return tuple(sorted({waiting.cls.name for waiting in self._needs_of(cls).waiting}))

    def counting(self, cls: int) -> tuple[Waiting, ...]:
        """Return the claims of a class that depend on free volumes; most
        classes with volumes have none."""
        if cls not in self._counting:
            self._counting[cls] = binding.counting(self._needs_of(cls).waiting)
        return self._counting[cls]

    def one_by_one(self, cls: int, claimed: ClaimedVolumes) -> bool:
        """Return whether a pod of a class takes a volume that the next such pod would also have
        counted on, so that pods must be placed one at a time."""
        for waiting in self.counting(cls):
            if not waiting.claim.namespace and binding.made_anywhere(waiting, self._stock):
                continue
            if not claimed.has_claim(waiting):
                return True
        return False

    def left(self, cls: int, table: NodeTable, claimed: ClaimedVolumes) -> Bools:
        """Return the rows on which the claims of a class can be bound after
        these volumes were taken."""
        everywhere: Bools = np.ones(len(table), dtype=np.bool_)
        allowed = binding.mask(self._needs_of(cls).waiting, self._stock, table, everywhere, claimed)
        zones = topology.zones_of(self._already_taken(cls, claimed))
        return allowed & topology.zone_mask(zones, table) if zones else allowed

    def _already_taken(self, cls: int, claimed: ClaimedVolumes) -> list[PersistentVolume]:
        """Return the volumes that claims of a class have already taken."""
        volumes = map(claimed.volume_of, self._needs_of(cls).waiting)
        return [volume for volume in volumes if volume is not None]

    def bindable(self, cls: int, node: Node, claimed: ClaimedVolumes) -> bool:
        """Return whether the claims can be bound on one node, which need not exist yet."""
        taken = self._already_taken(cls, claimed)
        if not all(topology.one_matches(volume.node_terms, node) for volume in taken):
            return False
        if topology.wrong_zone(topology.zones_of(taken), node.labels):
            return False
        return binding.reason(self._needs_of(cls).waiting, self._stock, node, claimed) is None

    def reasons(
        self, cls: int, table: NodeTable, row: int, claimed: ClaimedVolumes | None = None
    ) -> tuple[Reason, ...]:
        """Return why a row fails: all reasons of the first failing predicate, () where
        `mask` and `left` are true."""
        needs_of_class, node = self._needs_of(cls), table.nodes[row]
        if needs_of_class.nowhere is not None:
            return (needs_of_class.nowhere,)
        if disks_conflict(needs_of_class.disks, self._running.disks.get(node.name, ())):
            return (Reason.of(ReasonCode.DISK_CONFLICT),)
        taken = self._already_taken(cls, claimed) if claimed else []
        reasons = []
        for volume in (*(volume for volume, _ in needs_of_class.bound), *taken):
            if not topology.one_matches(volume.node_terms, node):
                reasons.append(Reason.of(ReasonCode.VOLUME_NODE_AFFINITY, volume=volume.name))
                break
        unbound = binding.reason(needs_of_class.waiting, self._stock, node, claimed)
        if unbound is not None:
            reasons.append(unbound)
        if reasons:
            return tuple(reasons)
        zones = (*needs_of_class.zones, *topology.zones_of(taken))
        elsewhere = topology.wrong_zone(zones, node.labels)
        return (Reason.of(ReasonCode.VOLUME_ZONE, volume=elsewhere),) if elsewhere else ()

    def most(self, cls: int) -> int | None:
        """Return the maximum number of pods of a class in the whole cluster: 1 with a
        ReadWriteOncePod claim, None: no limit."""
        return 1 if self._needs_of(cls).exclusive else None

    def per_node(self, cls: int) -> int | None:
        """Return the maximum number of pods of a class on one node: 1 if they would conflict
        over a disk, None: no limit."""
        return 1 if disks_conflict(self._needs_of(cls).disks, self._needs_of(cls).disks) else None

    def attaches(self, cls: int) -> dict[str, tuple[int, int]]:
        """Return CSI driver -> (volumes that each pod of a class brings, volumes
        that all its pods share)."""
        needs_of_class = self._needs_of(cls)
        own = Counter(needs_of_class.own)
        shared = Counter(driver for driver, _ in needs_of_class.shared)
        drivers = sorted(own.keys() | shared.keys())
        return {driver: (own[driver], shared[driver]) for driver in drivers}

    def limits(self, node_name: str) -> dict[str, int]:
        """Return the attach limits of a node's CSI drivers; a missing driver has no limit."""
        return self._limits.get(node_name, {})

    def attached(self) -> dict[tuple[str, str], int]:
        """Return (node, CSI driver) -> the volumes that running pods use
        there, each counted once."""
        counts: Counter[tuple[str, str]] = Counter()
        for node, used in self._running.volumes.items():
            counts.update((node, driver) for driver, _ in used)
        return dict(counts)

    def shared(self, cls: int) -> frozenset[Attachment]:
        """Return the volumes that all pods of a class share, by driver and name."""
        return self._needs_of(cls).shared

    def in_use(self, node_name: str) -> Collection[Attachment]:
        """Return the volumes that running pods use on a node."""
        return self._running.volumes.get(node_name, ())

    def exclusive(self, cls: int) -> tuple[str, ...]:
        """Return the ReadWriteOncePod claims of a class, namespace/name: once a pod
        uses one, no other pod can."""
        return self._needs_of(cls).exclusive

    def clash(self, cls: int, other: int) -> bool:
        """Return whether pods of two classes cannot share a node because
        they conflict over a disk."""
        if not self.concerns(cls) or not self.concerns(other):
            return False
        return disks_conflict(self._needs_of(cls).disks, self._needs_of(other).disks)


class _RunningPods:
    """What running pods use: attached volumes and disks per node, and ReadWriteOncePod claims.
    Built on first use, at no cost for a cluster whose pending pods have no volumes."""

    def __init__(self, snapshot: Snapshot, concerned: frozenset[int], stock: Stock) -> None:
        self._snapshot = snapshot
        self._concerned = concerned
        self._stock = stock

    @cached_property
    def volumes(self) -> dict[str, set[Attachment]]:
        """Node -> attached volumes."""
        volumes: dict[str, set[Attachment]] = {}
        for pod, volume in self._pods_and_volumes():
            claim = f"{pod.name}-{volume.name}" if volume.kind == "ephemeral" else volume.claim
            attachment = self._stock.attachments(pod.namespace, volume, claim)
            if attachment is not None:
                volumes.setdefault(pod.node, set()).add(attachment)
        return volumes

    @cached_property
    def disks(self) -> dict[str, list[Volume]]:
        """Node -> the disks that its pods name directly."""
        disks: dict[str, list[Volume]] = {}
        for pod, volume in self._pods_and_volumes():
            if volume.kind in CONFLICTING:
                disks.setdefault(pod.node, []).append(volume)
        return disks

    @cached_property
    def users(self) -> dict[str, set[int]]:
        """Claim, as namespace/name -> the classes of the pods that use it."""
        users: dict[str, set[int]] = {}
        for pod, volume in self._pods_and_volumes():
            if volume.kind == "persistentVolumeClaim":
                users.setdefault(f"{pod.namespace}/{volume.claim}", set()).add(pod.cls)
        return users

    def _pods_and_volumes(self) -> Iterator[tuple[Pod, Volume]]:
        if not self._concerned:
            return
        nodes = {node.name for node in self._snapshot.nodes}
        for pod in self._snapshot.pods:
            if pod.cls not in self._concerned or pod.node not in nodes:
                continue
            if pod.phase not in _FINISHED:
                for volume in self._snapshot.classes[pod.cls].volumes:
                    yield pod, volume


def disks_conflict(disks: Collection[Volume], other_disks: Collection[Volume]) -> bool:
    """Return whether a pod with disks that it names directly conflicts with pods on the same node
    that use these other disks: one disk, one writer per node. An EBS volume is exclusive to one
    pod, even for reading; other disks may be shared for reading. RBD images are equal only if they
    have a monitor in common."""
    return any(_conflict(disk, other) for disk in disks for other in other_disks)


def _conflict(volume: Volume, other_volume: Volume) -> bool:
    if volume.kind != other_volume.kind or volume.disk != other_volume.disk:
        return False
    if volume.kind == "rbd" and set(volume.monitors).isdisjoint(other_volume.monitors):
        return False
    if volume.kind == "awsElasticBlockStore":
        return True
    return not (volume.read_only and other_volume.read_only)
