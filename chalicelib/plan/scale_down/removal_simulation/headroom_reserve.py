"""Reserves headroom while removals are simulated: the nodes that stay must offer the headroom that existing nodes
offer.

Its virtual pods are not placed anywhere. They would tie down the nodes on which they happened to be placed, and keep
real pods from the only nodes that these may use. Instead, the number that the open rows could take is counted, which is
the same for equal pods. Two counts must suffice:

    planned ► with all moving pods where the plan puts them: all unneeded nodes can be removed
    sure    ► with the pods of as many drains as may run at once wherever they do most harm (headroom_cost.py): a drain
              never causes a purchase, so nothing is drained and bought in turn

A row is counted again only when something on it changes, and only for the kinds that may use it. Rules of real pods
about others are evaluated once, at the beginning: a node whose pod excludes all others provides no headroom.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from chalicelib.model.pod import Pod
from chalicelib.plan.scale_down.removal_simulation.headroom_contention import HeadroomContention
from chalicelib.plan.scale_down.removal_simulation.headroom_cost import HeadroomCost
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.tables import Bools, Ints, least_fit


class _Ledger:
    """Room of every kind on every row. room: (kinds, rows); total, own, rows: per kind, virtual pods that fit, those on
    rows that no other kind may use, and the number of rows that take any."""

    def __init__(self, room: Ints, alone: Bools) -> None:
        self.room = room.copy()
        self.total: Ints = room.sum(axis=1)
        self.own: Ints = room[:, alone].sum(axis=1)
        self.rows: Ints = np.count_nonzero(room, axis=1)

    def set(self, kind: int, row: int, room: int, *, alone: bool) -> None:
        """Set how many virtual pods of a kind a row takes now."""
        before = self.room.item(kind, row)
        self.room[kind, row] = room
        self.total[kind] += room - before
        self.own[kind] += room - before if alone else 0
        self.rows[kind] += (room > 0) - (before > 0)


class HeadroomReserve:
    """All headroom in the current state of the simulated cluster. drains: how many nodes may be drained at once."""

    def __init__(self, simulated: SimulatedCluster, drains: int) -> None:
        self._simulated, self._names = simulated, [spare.name for spare in simulated.spare]
        if not self._names:
            return
        classes = [spare.cls for spare in simulated.spare]
        usable = np.array([_usable(simulated, cls) for cls in classes])
        shared: Bools = usable.sum(axis=0) > 1
        self._alone: list[bool] = (~shared).tolist()
        self._free: Ints = simulated.table.free[: simulated.real].copy()
        room = np.where(
            usable & simulated.open[: simulated.real], np.array([_takes(simulated, cls) for cls in classes]), 0
        )
        self._start = _Ledger(room, ~shared)
        self._pairs = [
            tuple(zip(*(each.tolist() for each in simulated.table.columns.asked(cls)), strict=True)) for cls in classes
        ]
        self._kinds_on: list[list[int]] = [[] for _ in range(simulated.real)]
        for kind, row in zip(*(each.tolist() for each in np.nonzero(room)), strict=True):
            self._kinds_on[row].append(kind)  # a row that takes none at the beginning never will
        self._rivals = HeadroomContention(simulated, classes, usable, np.flatnonzero(shared))
        # Fewer virtual pods may fit here than were planned, because the rules differ; those that never fit are not
        # required.
        self._pods: Ints = self._rivals.laid_out(self._free, np.array([spare.pods for spare in simulated.spare]))
        self._prices, self._drains = HeadroomCost(simulated, classes, room), max(1, drains)
        self.again()

    def again(self) -> None:
        """Start counting again."""
        if self._names:
            self._planned = _Ledger(self._start.room, np.array(self._alone))
            self._sure = _Ledger(self._start.room, np.array(self._alone))
            # Per column of a cost, the highest values of as many nodes as may be drained at once, in ascending order.
            self._highest: Ints = np.zeros((self._drains, *self._prices.shape), dtype=np.int64)
            self._sum: Ints = self._highest.sum(axis=0)
            self._wholes = [0] * self._drains
            self._kept: list[list[int]] = []  # classes of moving pods that are not in the costs yet, per node
            self._moving: list[int] = []

    def unsure(self, row: int | None, pods: Iterable[Pod]) -> str:
        """Return the name of headroom that might find no room once a row is closed and its pods are anywhere, "" if all
        of it finds room in any case. Called before the pods are placed."""
        if not self._names:
            return ""
        ledger, self._moving = self._sure, [pod.cls for pod in pods]
        if self._is_ample(row):
            return ""
        while self._kept:
            self._insert(self._prices.of(self._kept.pop()))
        price, least = self._prices.of(self._moving), self._highest[0]
        price = self._sum - least + np.maximum(price, least)
        gone: Ints = np.zeros(len(self._names), dtype=np.int64)
        own = ledger.own
        if row is not None and row < self._simulated.real:
            gone = ledger.room[:, row]
            own = own - gone if self._alone[row] else own
        need = self._pods + self._prices.loss(price, ledger.rows - (gone > 0))
        return self._short(ledger.total - gone, own, need, self._free)

    def _is_ample(self, row: int | None) -> bool:
        """Return whether the check can be skipped: there is room even if every moving pod costs whole virtual pods of
        every kind."""
        ledger, need = self._sure, sum(self._wholes) - self._wholes[0]
        need += max(self._wholes[0], self._prices.whole(self._moving))
        if row is not None and row < self._simulated.real:
            need += max([ledger.room.item(kind, row) for kind in self._kinds_on[row]], default=0)
        if int((ledger.total - self._pods).min()) < need:
            return False
        return len(self._names) < 2 or int(np.partition(ledger.own - self._pods, 1)[1]) >= need

    def lacking(self, row: int | None, rows: Iterable[int]) -> str:
        """Return the name of headroom that finds no room after a row was closed and its pods were placed on others; ""
        if all of it does, and then the new state is kept. Called after `unsure` for the same node."""
        if not self._names:
            return ""
        ledger, before = self._planned, []
        changed = set(rows) | ({row} if row is not None and row < self._simulated.real else set())
        for at in changed:
            for kind in self._kinds_on[at]:
                room = self._takes(kind, at)
                if room != (was := ledger.room.item(kind, at)):
                    before.append((kind, at, was))
                    ledger.set(kind, at, room, alone=self._alone[at])
        name = (
            self._short(ledger.total, ledger.own, self._pods, self._simulated.table.free[: self._simulated.real])
            if before
            else ""
        )
        if name:
            for kind, at, was in before:
                ledger.set(kind, at, was, alone=self._alone[at])
        else:
            self._keep(row)
        return name

    def _keep(self, row: int | None) -> None:
        """Record that the node is removed."""
        if row is not None and row < self._simulated.real:
            for kind in self._kinds_on[row]:
                self._sure.set(kind, row, 0, alone=self._alone[row])
        if self._moving:
            self._kept.append(self._moving)
            self._wholes = sorted((*self._wholes, self._prices.whole(self._moving)))[1:]

    def _insert(self, price: Ints) -> None:
        """Insert a cost into the highest costs, column by column."""
        self._sum += np.maximum(price, self._highest[0]) - self._highest[0]
        highest = np.maximum(self._highest, price)
        highest[:-1] = np.minimum(highest[:-1], self._highest[1:])
        self._highest = highest

    def _short(self, total: Ints, own: Ints, need: Ints, free: Ints) -> str:
        """Return the first kind that finds less room than it needs."""
        lacks = total < need
        if lacks.any():
            return self._names[int(lacks.argmax())]
        rivals = np.flatnonzero(own < need)
        if len(rivals) < 2:
            return ""
        kind = self._rivals.first_short(rivals, total, need, need - own, free)
        return "" if kind is None else self._names[kind]

    def _takes(self, kind: int, row: int) -> int:
        """Return how many virtual pods of a kind one row takes now."""
        free = self._simulated.table.free
        if not self._simulated.open[row]:
            return 0
        least: int = min([free.item(row, column) // amount for column, amount in self._pairs[kind]])
        return max(0, least)


def _usable(simulated: SimulatedCluster, cls: int) -> Bools:
    barred = (simulated.capacity(cls) > 0) & (simulated.quota(cls)[0] == 0)
    usable: Bools = (simulated.static(cls) & ~barred)[: simulated.real]
    return usable


def _takes(simulated: SimulatedCluster, cls: int) -> Ints:
    counts: Ints = np.maximum(least_fit(simulated.table.free[: simulated.real], *simulated.table.columns.asked(cls)), 0)
    return counts
