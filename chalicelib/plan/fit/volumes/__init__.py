"""VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone: where volumes let a pod run (scale-up.md §5.5).

One object per snapshot, asked per class, because all of it hangs on claims and volumes that do not change while a plan
is made: nothing here binds anything, as nothing does when the scheduler only filters. Most pods have no such volume;
`concerns` says so first, and nothing else is asked then.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from chalicelib.model.reason import Code, Reason
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.arrays import Bools
from chalicelib.plan.fit.volumes import attached, binding, disks, labels
from chalicelib.plan.fit.volumes.needs import HARMLESS, Needs, Stock, needs
from chalicelib.plan.table import NodeTable


class Volumes:
    """The four predicates over one snapshot. Knows the snapshot's classes by their index."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._stock = Stock(snapshot.storage)
        self._concerned = frozenset(at for at, cls in enumerate(snapshot.classes)
                                    if cls.volumes and any(volume.kind not in HARMLESS for volume in cls.volumes))
        self._needs: dict[int, Needs] = {}
        self._limits = {node.name: node.limits for node in snapshot.storage.csi_nodes}
        self._running = attached.Running(snapshot, self._concerned, self._stock)

    def concerns(self, cls: int) -> bool:
        """Whether a class has a volume that any of the predicates looks at."""
        return cls in self._concerned

    def nowhere(self, cls: int, *, moving: bool = False) -> Reason | None:
        """Why pods of a class fit no node whatever, if they do not: a claim that is missing, being deleted or not bound
        though it should be, or a ReadWriteOncePod claim in use.

        moving: a running pod of the class is looked at, which takes its own use of the claim along.
        """
        wants = self._of(cls)
        if wants.nowhere is not None:
            return wants.nowhere
        taken = self._taken(cls, moving=moving)
        return Reason.of(Code.EXCLUSIVE_CLAIM, claim=taken) if taken else None

    def mask(self, cls: int, table: NodeTable) -> Bools:
        """The rows on which the class's volumes can be had: disks free of conflict, claims bound or to be bound there,
        zones. Attach limits are arithmetic over `attaches` and `limits`, and not in here."""
        wants = self._of(cls)
        if wants.nowhere is not None:
            return np.zeros(len(table), dtype=np.bool_)
        allowed = disks.mask(wants.disks, self._running.disks, table)
        for _, places in wants.bound:
            allowed &= labels.rows(places, table)
        if wants.zones:
            allowed &= labels.zones(wants.zones, table)
        if wants.waiting:
            allowed &= binding.mask(wants.waiting, self._stock, table, allowed)
        return allowed

    def reasons(self, cls: int, table: NodeTable, row: int) -> tuple[Reason, ...]:
        """Why a row does not pass: all that the first failing filter has to say, () where `mask` holds."""
        wants, node = self._of(cls), table.nodes[row]
        if wants.nowhere is not None:
            return (wants.nowhere,)
        if disks.conflict(wants.disks, self._running.disks.get(node.name, ())):
            return (Reason.of(Code.DISK_CONFLICT),)
        found = [Reason.of(Code.VOLUME_NODE_AFFINITY, volume=volume.name) for volume, _ in wants.bound
                 if not labels.one_matches(volume.node_terms, node)][:1]
        found += binding.reasons(wants.waiting, self._stock, node)
        if not found:
            zone = labels.wrong_zone(wants.zones, node.labels)
            found = [Reason.of(Code.VOLUME_ZONE, volume=zone)] if zone else []
        return tuple(found)

    def most(self, cls: int) -> int | None:
        """The most pods of a class in the whole cluster: 1 with a ReadWriteOncePod claim, None: no limit."""
        return 1 if self._of(cls).exclusive else None

    def per_node(self, cls: int) -> int | None:
        """The most pods of a class on one node: 1 where they would use the same disk in conflict, None: no limit."""
        return 1 if disks.conflict(self._of(cls).disks, self._of(cls).disks) else None

    def attaches(self, cls: int) -> dict[str, tuple[int, int]]:
        """CSI driver -> (volumes that each pod of a class brings along, volumes that all its pods share)."""
        wants = self._of(cls)
        own, shared = Counter(wants.own), Counter(driver for driver, _ in wants.shared)
        return {driver: (own[driver], shared[driver]) for driver in sorted(own.keys() | shared.keys())}

    def limits(self, node_name: str) -> dict[str, int]:
        """The attach limits of a node's CSI drivers; a driver that is not in here has none."""
        return self._limits.get(node_name, {})

    def attached(self) -> dict[tuple[str, str], int]:
        """(node, CSI driver) -> the volumes that running pods use there, each counted once."""
        return self._running.counts

    def already(self, cls: int, node_name: str) -> dict[str, int]:
        """CSI driver -> how many of the volumes that pods of a class share are in use on a node already."""
        here = self._of(cls).shared.intersection(self._running.volumes.get(node_name, ()))
        return dict(sorted(Counter(driver for driver, _ in here).items()))

    def exclusive(self, cls: int) -> tuple[str, ...]:
        """The ReadWriteOncePod claims of a class, namespace/name: once a pod of any class has one, no other gets it."""
        return self._of(cls).exclusive

    def clash(self, one: int, other: int) -> bool:
        """Whether pods of two classes cannot be on one node, because they use the same disk in conflict."""
        return self.concerns(one) and self.concerns(other) and disks.conflict(
            self._of(one).disks, self._of(other).disks)

    def _of(self, cls: int) -> Needs:
        found = self._needs.get(cls)
        if found is None:
            found = self._needs[cls] = needs(self._snapshot.classes[cls], self._stock)
        return found

    def _taken(self, cls: int, *, moving: bool) -> str:
        """The first ReadWriteOncePod claim of a class that a running pod has; empty if there is none."""
        users = self._running.users
        mine = (key for key in self._of(cls).exclusive if users.get(key, frozenset()) - ({cls} if moving else set()))
        return next((key.partition("/")[2] for key in mine), "")
