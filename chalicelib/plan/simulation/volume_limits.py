"""Tracks what pods placed in this pass do to volumes: attach limits of CSI drivers
(NodeVolumeLimits), disk conflicts, ReadWriteOncePod claims, and free volumes that are taken.

An attached volume counts once per node, however many pods use it. Only nodes whose
drivers publish a limit count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.tables import Bools, Ints, NodeTable
from chalicelib.plan.volumes import Volumes
from chalicelib.plan.volumes.binding import ClaimedVolumes
from chalicelib.plan.volumes.requirements import Attachment

UNLIMITED = 2**31


class Attached:
    """Volumes on rows of the simulated cluster. Rows get their names when they are added; new nodes
    use the limits of their template."""

    def __init__(
        self, volumes: Volumes, table: NodeTable, limits: Sequence[Mapping[str, int]]
    ) -> None:
        self._volumes, self._table = volumes, table
        self.held = ClaimedVolumes()
        self._bindable: dict[int, tuple[tuple[int, int], Bools]] = {}  # class -> generation, rows
        self._names: list[str] = []
        self._limits: dict[str, Ints] = {}
        self._used: dict[str, Ints] = {}
        self._pods_on: dict[tuple[int, int], int] = {}  # (row, class) -> pods placed in this pass
        # (row, volume shared by several pods) -> pods placed with it
        self._common: dict[tuple[int, Attachment], int] = {}
        self._start = volumes.attached()
        self._claims: dict[str, int] = {}  # ReadWriteOncePod claim -> pods placed with it
        self.extend([node.name for node in table.nodes], limits)

    def extend(self, names: Sequence[str], limits: Sequence[Mapping[str, int]]) -> None:
        """Add rows with the limits of their drivers."""
        before = len(self._names)
        self._names += names
        for driver in {name for limit in limits for name in limit} | self._limits.keys():
            old = self._limits.get(driver)
            counted = names if old is not None else self._names
            attached = [self._start.get((name, driver), 0) for name in counted]
            used: Ints = np.array(attached, dtype=np.int64)
            if old is None:
                old = np.full(before, UNLIMITED, dtype=np.int64)
                self._used[driver] = used
            else:
                self._used[driver] = np.concatenate([self._used[driver], used])
            more = [limit.get(driver, UNLIMITED) for limit in limits]
            self._limits[driver] = np.concatenate([old, np.array(more, dtype=np.int64)])

    def truncate(self, count: int) -> None:
        """Keep only the first rows."""
        del self._names[count:]
        for vectors in (self._limits, self._used):
            for driver in vectors:
                vectors[driver] = vectors[driver][:count]

    def narrowed(self, cls: int, counts: Ints) -> Ints:
        """Reduce `counts`, the pods of a class that each row takes by all other rules, to what
        volumes allow. The masks of the simulated cluster already cover running pods' disks and the
        volumes that were free at the start."""
        if self.exclusive(cls):
            return np.zeros_like(counts)
        for row in self.conflicts(cls):
            counts[row] = 0
        attachable = self.most(cls)
        if attachable is not None:
            counts = np.minimum(counts, attachable)
        per_node = self._volumes.per_node(cls)
        if per_node is not None:
            counts = np.minimum(counts, per_node)
        if self.held:
            counts = np.where(self.bindable(cls), counts, 0)
        return counts

    def bindable(self, cls: int) -> Bools:
        """Return the rows on which the claims of a class still find volumes."""
        if not self.held or not self._volumes.waits(cls):
            return np.ones(len(self._table), dtype=np.bool_)
        now = self.held.generation, len(self._table)
        if cls in self._bindable:
            generation, rows = self._bindable[cls]
            if generation == now:
                return rows
        rows = self._volumes.left(cls, self._table, self.held)
        self._bindable[cls] = now, rows
        return rows

    def at_once(self, cls: int, count: int) -> int:
        """Return how many of `count` pods of a class may be placed before the rows are
        checked again: 1 if each pod takes a free volume that the next pod would have counted on."""
        if count > 1 and self._volumes.concerns(cls) and self._volumes.one_by_one(cls, self.held):
            return 1
        return count

    def one_of(self, cls: int, counts: Ints) -> Ints:
        """Return which of the pods for several rows may be placed at once: all of
        them, or only the first."""
        total = int(counts.sum())
        if self.at_once(cls, total) == total:
            return counts
        first: Ints = np.zeros_like(counts)
        first[int(np.flatnonzero(counts)[0])] = 1
        return first

    def unbound(self, cls: int, row: int, table: NodeTable | None = None) -> tuple[Reason, ...]:
        """Return why the volumes of a class are not available on a row (of `table`
        if given), () if they are."""
        return self._volumes.reasons(cls, self._table if table is None else table, row, self.held)

    def most(self, cls: int) -> Ints | None:
        """Return how many more pods of a class each row takes, None if there is no limit."""
        per_driver = [
            self._more_pods(cls, driver, own)
            for driver, (own, _) in self._volumes.attaches(cls).items()
            if driver in self._limits
        ]
        return np.minimum.reduce(per_driver) if per_driver else None

    def _more_pods(self, cls: int, driver: str, own: int) -> Ints:
        """Return per row for how many more pods of a class one driver attaches volumes. own:
        volumes that each pod brings."""
        shared = [volume for volume in self._volumes.shared(cls) if volume[0] == driver]
        # of these: still to attach
        missing: Ints = np.full(len(self._names), len(shared), dtype=np.int64)
        for row, name in enumerate(self._names) if shared else ():
            running = self._volumes.in_use(name)
            not_running = [volume for volume in shared if volume not in running]
            missing[row] = sum(not self._common.get((row, volume)) for volume in not_running)
        free = self._limits[driver] - self._used[driver] - missing
        # A row may already exceed its limit: the scheduler checks the limit only where a pod
        # would attach a new volume.
        is_full = (free < 0) & (missing + own > 0)
        by_room = free // own if own else UNLIMITED
        pods: Ints = np.where(is_full, 0, by_room)
        return pods

    def full(self, cls: int, row: int) -> tuple[Reason, ...]:
        """Return a reason if a driver of the row cannot attach another volume of the class."""
        for driver, (own, _) in self._volumes.attaches(cls).items():
            if driver in self._limits and self._more_pods(cls, driver, own)[row] <= 0:
                limit = int(self._limits[driver][row])
                return (Reason.of(ReasonCode.VOLUME_COUNT, driver=driver, max=limit),)
        return ()

    def exclusive(self, cls: int) -> str:
        """Return the ReadWriteOncePod claim of the class that a pod placed in this pass has
        taken, "" if there is none."""
        for claim in self._volumes.exclusive(cls):
            if self._claims.get(claim, 0) > 0:
                return claim
        return ""

    def expect(self, row: int | None, cls: int) -> None:
        """Record a pod that is nominated to a node; None stands for a node
        that is not among the rows."""
        if row is None:
            self.take_claims(cls, 1)
        else:
            self.add(row, cls, 1)

    def take_claims(self, cls: int, count: int) -> None:
        """Count `count` more pods as users of the ReadWriteOncePod claims of a class."""
        for claim in self._volumes.exclusive(cls):
            self._claims[claim] = self._claims.get(claim, 0) + count

    def conflicts(self, cls: int) -> list[int]:
        """Return the rows on which a pod placed in this pass uses a disk that a pod
        of the class cannot share."""
        return [
            row
            for (row, other), count in self._pods_on.items()
            if count and self._volumes.clash(cls, other)
        ]

    def add(self, row: int, cls: int, count: int) -> None:
        """Add pods to a row, or remove them with a negative count."""
        self._pods_on[(row, cls)] = self._pods_on.get((row, cls), 0) + count
        self.take_claims(cls, count)
        counting = self._volumes.counting(cls)
        if counting:
            self.held.add(cls, counting, (row, self._table.nodes[row]), count)
        for driver, (own, _) in self._volumes.attaches(cls).items():
            if driver in self._used:
                self._used[driver][row] += own * count
        for volume in self._volumes.shared(cls):
            driver = volume[0]
            before = self._common.get((row, volume), 0)
            after = before + count
            self._common[(row, volume)] = after
            if driver in self._used and volume not in self._volumes.in_use(self._names[row]):
                self._used[driver][row] += int(after > 0) - int(before > 0)
