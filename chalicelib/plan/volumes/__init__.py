"""VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone: the volume filters of kube-scheduler.

Here: one object per snapshot, asked per class, because claims and volumes do not change while a plan is made. Not here:
the attach limits of new nodes (simulation/volume_limits.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
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
from chalicelib.plan.volumes.requirements import CONFLICTING, HARMLESS, Attachment, Needs, Stock, Waiting, needs


class Volumes:
    """The four volume predicates over one snapshot. Classes are identified by their index in the snapshot."""

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
        self._running = Running(snapshot, self._concerned, self._stock)

    def concerns(self, cls: int) -> bool:
        """Return whether a class has a volume that any of the predicates checks."""
        return cls in self._concerned

    def nowhere(self, cls: int, *, moving: bool = False) -> Reason | None:
        """Return why pods of a class fit no node at all, if they do not: a claim that is missing, being deleted or
        unexpectedly unbound, or a ReadWriteOncePod claim in use.

        moving: the pod is a running pod of the class, which releases its own use of the claim.
        """
        wants = self._of(cls)
        if wants.nowhere is not None:
            return wants.nowhere
        taken = self._taken(cls, moving=moving)
        return Reason.of(ReasonCode.EXCLUSIVE_CLAIM, claim=taken) if taken else None

    def mask(self, cls: int, table: NodeTable) -> Bools:
        """Return the rows on which the class's volumes are available: no disk conflicts, claims bound or bindable
        there, matching zones. Attach limits are computed from `attaches` and `limits` and are not included; volumes
        taken by pods placed in this pass are not included either."""
        wants = self._of(cls)
        if wants.nowhere is not None:
            return np.zeros(len(table), dtype=np.bool_)
        allowed = disk_mask(wants.disks, self._running.disks, table)
        for _, places in wants.bound:
            allowed &= topology.rows(places, table)
        if wants.zones:
            allowed &= topology.zone_mask(wants.zones, table)
        if wants.waiting:
            allowed &= binding.mask(wants.waiting, self._stock, table, allowed)
        return allowed

    def waits(self, cls: int) -> bool:
        """Return whether a class has a claim that is not bound yet."""
        return self.concerns(cls) and bool(self._of(cls).waiting)

    def counting(self, cls: int) -> tuple[Waiting, ...]:
        """Return the claims of a class that depend on free volumes; most classes with volumes have none."""
        found = self._counting.get(cls)
        if found is None:
            found = self._counting[cls] = binding.counting(self._of(cls).waiting)
        return found

    def one_by_one(self, cls: int, claimed: ClaimedVolumes) -> bool:
        """Return whether a pod of a class takes a volume that affects the next pod, so that pods must be placed one at
        a time."""
        wants = [
            want for want in self.counting(cls) if want.claim.namespace or not binding.made_anywhere(want, self._stock)
        ]
        return bool(wants) and claimed.unsettled(wants)

    def left(self, cls: int, table: NodeTable, claimed: ClaimedVolumes) -> Bools:
        """Return the rows on which the claims of a class can be bound after these volumes were taken."""
        everywhere: Bools = np.ones(len(table), dtype=np.bool_)
        allowed = binding.mask(self._of(cls).waiting, self._stock, table, everywhere, claimed)
        zones = topology.zones_of(self._given(cls, claimed))
        return allowed & topology.zone_mask(zones, table) if zones else allowed

    def _given(self, cls: int, claimed: ClaimedVolumes) -> list[PersistentVolume]:
        """Return the volumes that claims of a class have already taken."""
        return [volume for want in self._of(cls).waiting if (volume := claimed.given(want)) is not None]

    def bindable(self, cls: int, node: Node, claimed: ClaimedVolumes) -> bool:
        """Return whether the claims can be bound on one node, which need not exist yet."""
        given = self._given(cls, claimed)
        reached = all(topology.one_matches(volume.node_terms, node) for volume in given)
        return (
            reached
            and not topology.wrong_zone(topology.zones_of(given), node.labels)
            and (not binding.reasons(self._of(cls).waiting, self._stock, node, claimed))
        )

    def reasons(
        self, cls: int, table: NodeTable, row: int, claimed: ClaimedVolumes | None = None
    ) -> tuple[Reason, ...]:
        """Return why a row fails: all reasons of the first failing predicate, () where `mask` and `left` are true."""
        wants, node = self._of(cls), table.nodes[row]
        if wants.nowhere is not None:
            return (wants.nowhere,)
        if disks_conflict(wants.disks, self._running.disks.get(node.name, ())):
            return (Reason.of(ReasonCode.DISK_CONFLICT),)
        given = self._given(cls, claimed) if claimed else []
        found = [
            Reason.of(ReasonCode.VOLUME_NODE_AFFINITY, volume=volume.name)
            for volume in (*(volume for volume, _ in wants.bound), *given)
            if not topology.one_matches(volume.node_terms, node)
        ][:1]
        found += binding.reasons(wants.waiting, self._stock, node, claimed)
        if not found:
            zone = topology.wrong_zone((*wants.zones, *topology.zones_of(given)), node.labels)
            found = [Reason.of(ReasonCode.VOLUME_ZONE, volume=zone)] if zone else []
        return tuple(found)

    def most(self, cls: int) -> int | None:
        """Return the maximum number of pods of a class in the whole cluster: 1 with a ReadWriteOncePod claim, None: no
        limit."""
        return 1 if self._of(cls).exclusive else None

    def per_node(self, cls: int) -> int | None:
        """Return the maximum number of pods of a class on one node: 1 if they would conflict over a disk, None: no
        limit."""
        return 1 if disks_conflict(self._of(cls).disks, self._of(cls).disks) else None

    def attaches(self, cls: int) -> dict[str, tuple[int, int]]:
        """Return CSI driver -> (volumes that each pod of a class brings, volumes that all its pods share)."""
        wants = self._of(cls)
        own, shared = Counter(wants.own), Counter(driver for driver, _ in wants.shared)
        return {driver: (own[driver], shared[driver]) for driver in sorted(own.keys() | shared.keys())}

    def limits(self, node_name: str) -> dict[str, int]:
        """Return the attach limits of a node's CSI drivers; a missing driver has no limit."""
        return self._limits.get(node_name, {})

    def attached(self) -> dict[tuple[str, str], int]:
        """Return (node, CSI driver) -> the volumes that running pods use there, each counted once."""
        return self._running.counts

    def shared(self, cls: int) -> frozenset[Attachment]:
        """Return the volumes that all pods of a class share, by driver and name."""
        return self._of(cls).shared

    def in_use(self, node_name: str) -> Collection[Attachment]:
        """Return the volumes that running pods use on a node."""
        return self._running.volumes.get(node_name, ())

    def exclusive(self, cls: int) -> tuple[str, ...]:
        """Return the ReadWriteOncePod claims of a class, namespace/name: once a pod uses one, no other pod can."""
        return self._of(cls).exclusive

    def clash(self, one: int, other: int) -> bool:
        """Return whether pods of two classes cannot share a node because they conflict over a disk."""
        return (
            self.concerns(one) and self.concerns(other) and disks_conflict(self._of(one).disks, self._of(other).disks)
        )

    def _of(self, cls: int) -> Needs:
        found = self._needs.get(cls)
        if found is None:
            found = self._needs[cls] = needs(self._snapshot.classes[cls], self._stock)
        return found

    def _taken(self, cls: int, *, moving: bool) -> str:
        """Return the first ReadWriteOncePod claim of a class that a running pod uses, "" if there is none."""
        users = self._running.users
        mine = (key for key in self._of(cls).exclusive if users.get(key, frozenset()) - ({cls} if moving else set()))
        return next((key.partition("/")[2] for key in mine), "")


_FINISHED = frozenset({"Succeeded", "Failed"})


class Running:
    """What running pods use: attached volumes and disks per node, and ReadWriteOncePod claims. Built on first use, at
    no cost for a cluster whose pending pods have no volumes."""

    def __init__(self, snapshot: Snapshot, concerned: frozenset[int], stock: Stock) -> None:
        self._snapshot, self._concerned, self._stock = snapshot, concerned, stock

    @cached_property
    def volumes(self) -> dict[str, set[Attachment]]:
        """Node -> attached volumes."""
        found: dict[str, set[Attachment]] = {}
        for pod, volume in self._held:
            claim = f"{pod.name}-{volume.name}" if volume.kind == "ephemeral" else volume.claim
            attachment = self._stock.attachments(pod.namespace, volume, claim)
            if attachment is not None:
                found.setdefault(pod.node, set()).add(attachment)
        return found

    @cached_property
    def counts(self) -> dict[tuple[str, str], int]:
        """(node, CSI driver) -> number of volumes."""
        return dict(Counter((node, driver) for node, held in self.volumes.items() for driver, _ in held))

    @cached_property
    def disks(self) -> dict[str, list[Volume]]:
        """Node -> the disks that its pods name directly."""
        found: dict[str, list[Volume]] = {}
        for pod, volume in self._held:
            if volume.kind in CONFLICTING:
                found.setdefault(pod.node, []).append(volume)
        return found

    @cached_property
    def users(self) -> dict[str, set[int]]:
        """Claim, as namespace/name -> the classes of the pods that use it."""
        found: dict[str, set[int]] = {}
        for pod, volume in self._held:
            if volume.kind == "persistentVolumeClaim":
                found.setdefault(f"{pod.namespace}/{volume.claim}", set()).add(pod.cls)
        return found

    @property
    def _held(self) -> Iterator[tuple[Pod, Volume]]:
        nodes = {node.name for node in self._snapshot.nodes} if self._concerned else set()
        for pod in self._snapshot.pods if nodes else ():
            if pod.cls in self._concerned and pod.node in nodes and pod.phase not in _FINISHED:
                for volume in self._snapshot.classes[pod.cls].volumes:
                    yield pod, volume


def disks_conflict(wanted: Collection[Volume], held: Collection[Volume]) -> bool:
    """Return whether a pod with `disks` conflicts with pods on the same node that use these other disks."""
    return any(_is_conflict(one, other) for one in wanted for other in held)


def _is_conflict(volume: Volume, other_volume: Volume) -> bool:
    """Return whether two disks conflict. An EBS volume is exclusive to one pod, even for reading; other disks may be
    shared for reading. RBD images are equal only if they have a monitor in common."""
    if (volume.kind, volume.disk) != (other_volume.kind, other_volume.disk):
        return False
    if volume.kind == "rbd" and not set(volume.monitors) & set(other_volume.monitors):
        return False
    return volume.kind == "awsElasticBlockStore" or not (volume.read_only and other_volume.read_only)


def disk_mask(wanted: Collection[Volume], held: Mapping[str, Collection[Volume]], table: NodeTable) -> Bools:
    """Return the rows without a conflict with the pods that run there. held: node -> the disks of its pods."""
    allowed: Bools = np.ones(len(table), dtype=np.bool_)
    for node, disks in held.items() if wanted else ():
        row = table.index.get(node)
        if row is not None and disks_conflict(wanted, disks):
            allowed[row] = False
    return allowed
