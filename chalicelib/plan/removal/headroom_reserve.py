"""Reserves headroom while removals are simulated: the nodes that stay must offer the headroom
that existing nodes offer.

Its virtual pods are not placed anywhere. They would tie down the nodes on which they happened to be
placed, and keep real pods from the only nodes that these may use. Instead, the number that the open
rows could take is counted, which is the same for equal pods. Two counts must suffice:

    planned ► with all moving pods where the plan puts them: all unneeded nodes can be removed
    sure    ► with the pods of as many drains as may run at once wherever they do most
            harm (HeadroomCost): a drain
              never causes a purchase, so nothing is drained and bought in turn

A row is counted again only when something on it changes, and only for the kinds that may use it.
Rules of real pods about others are evaluated once, at the beginning: a node whose pod excludes all
others provides no headroom.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from chalicelib.model.pod import Pod
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster, first_fit
from chalicelib.plan.tables import Bools, Ints, least_fit

_FINE = 1000  # virtual pods are counted in thousandths where amounts are divided
_MOST = 2**44  # cap of an amount
_SUM = 2**52  # cap of a sum


class _Ledger:
    """Room of every kind on every row. room: (kinds, rows); total, own, rows: per
    kind, virtual pods that fit, those on rows that no other kind may use, and the
    number of rows that take any."""

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
    """All headroom in the current state of the simulated cluster. drains: how many
    nodes may be drained at once."""

    def __init__(self, simulated: SimulatedCluster, drains: int) -> None:
        self._simulated, self._names = simulated, [spare.name for spare in simulated.spare]
        if not self._names:
            return
        classes = [spare.cls for spare in simulated.spare]
        barred = [(simulated.capacity(cls) > 0) & (simulated.quota(cls)[0] == 0) for cls in classes]
        usable = np.array(
            [
                (simulated.static(cls) & ~bars)[: simulated.real]
                for cls, bars in zip(classes, barred, strict=True)
            ]
        )
        shared: Bools = usable.sum(axis=0) > 1
        self._alone: list[bool] = (~shared).tolist()
        self._free: Ints = simulated.table.free[: simulated.real].copy()
        fits = [
            np.maximum(least_fit(self._free, *simulated.table.columns.asked(cls)), 0)
            for cls in classes
        ]
        room: Ints = np.where(usable & simulated.open[: simulated.real], np.array(fits), 0)
        self._start = _Ledger(room, ~shared)
        self._pairs = [
            tuple(
                zip(
                    *(column.tolist() for column in simulated.table.columns.asked(cls)), strict=True
                )
            )
            for cls in classes
        ]
        self._kinds_on: list[list[int]] = [[] for _ in range(simulated.real)]
        for kind, row in zip(*(axis.tolist() for axis in np.nonzero(room)), strict=True):
            self._kinds_on[row].append(kind)  # a row that takes none at the beginning never will
        self._rivals = HeadroomContention(simulated, classes, usable, np.flatnonzero(shared))
        # Fewer virtual pods may fit here than were planned, because the rules differ; those that
        # never fit are not required.
        self._pods: Ints = self._rivals.laid_out(
            self._free, np.array([spare.pods for spare in simulated.spare])
        )
        self._prices, self._drains = HeadroomCost(simulated, classes, room), max(1, drains)
        self.again()

    def again(self) -> None:
        """Start counting again."""
        if self._names:
            self._planned = _Ledger(self._start.room, np.array(self._alone))
            self._sure = _Ledger(self._start.room, np.array(self._alone))
            # Per column of a cost, the highest values of as many nodes as may be drained at
            # once, in ascending order.
            self._highest: Ints = np.zeros((self._drains, *self._prices.shape), dtype=np.int64)
            self._sum: Ints = self._highest.sum(axis=0)
            self._wholes = [0] * self._drains
            # classes of moving pods that are not in the costs yet, per node
            self._kept: list[list[int]] = []
            self._moving: list[int] = []

    def unsure(self, row: int | None, pods: Iterable[Pod]) -> str:
        """Return the name of headroom that might find no room once a row is closed and its pods are
        anywhere, "" if all of it finds room in any case. Called before the pods are placed."""
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
        if row is not None:
            gone = ledger.room[:, row]
            own = own - gone if self._alone[row] else own
        need = self._pods + self._prices.loss(price, ledger.rows - (gone > 0))
        return self._short(ledger.total - gone, own, need, self._free)

    def _is_ample(self, row: int | None) -> bool:
        """Return whether the check can be skipped: there is room even if every moving pod costs
        whole virtual pods of every kind."""
        ledger, need = self._sure, sum(self._wholes) - self._wholes[0]
        need += max(self._wholes[0], self._prices.whole(self._moving))
        if row is not None:
            need += max([ledger.room.item(kind, row) for kind in self._kinds_on[row]], default=0)
        if int((ledger.total - self._pods).min()) < need:
            return False
        return len(self._names) < 2 or int(np.partition(ledger.own - self._pods, 1)[1]) >= need

    def lacking(self, row: int | None, rows: Iterable[int]) -> str:
        """Return the name of headroom that finds no room after a row was closed and its pods were
        placed on others; "" if all of it does, and then the new state is kept. Called after
        `unsure` for the same node."""
        if not self._names:
            return ""
        ledger, before = self._planned, []
        changed = set(rows) if row is None else {row, *rows}
        for at in changed:
            for kind in self._kinds_on[at]:
                room = self._takes(kind, at)
                if room != (was := ledger.room.item(kind, at)):
                    before.append((kind, at, was))
                    ledger.set(kind, at, room, alone=self._alone[at])
        name = (
            self._short(
                ledger.total,
                ledger.own,
                self._pods,
                self._simulated.table.free[: self._simulated.real],
            )
            if before
            else ""
        )
        if name:
            for kind, at, was in before:
                ledger.set(kind, at, was, alone=self._alone[at])
            return name
        if row is not None:
            for kind in self._kinds_on[row]:
                self._sure.set(kind, row, 0, alone=self._alone[row])
        if self._moving:
            self._kept.append(self._moving)
            self._wholes = sorted((*self._wholes, self._prices.whole(self._moving)))[1:]
        return ""

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


class HeadroomContention:
    """Several kinds of headroom on rows that more than one of them may use. What each kind finds on
    rows of its own is counted separately; the rest is placed first fit, kind after kind, unless a
    sum shows that there is ample room.

    usable: rows by kind; shared: rows that more than one kind may use.
    """

    def __init__(
        self, simulated: SimulatedCluster, classes: Sequence[int], usable: Bools, shared: Ints
    ) -> None:
        self._simulated, self._usable = simulated, usable
        self._shared: list[Ints] = [shared[rows[shared]] for rows in usable]
        self._asked = [simulated.table.columns.asked(cls) for cls in classes]
        self._need: Ints = np.array(
            [simulated.table.columns.need(cls) for cls in classes], dtype=np.int64
        )
        self._order: Ints = np.concatenate(
            [np.setdiff1d(np.arange(simulated.real), shared), shared]
        )
        # Maximum number of virtual pods of a kind (column) that lose their room to
        # one of another kind (row).
        whole = np.maximum(self._need, 1)
        lost = np.where(self._need[None, :] > 0, -(-self._need[:, None] // whole[None, :]), 0).max(
            axis=2
        )
        meet = usable.astype(np.float64) @ usable.T.astype(np.float64) > 0
        self._takes: Ints = np.triu(np.where(meet, lost, 0), 1)

    def first_short(
        self, rivals: Ints, total: Ints, need: Ints, left: Ints, free: Ints
    ) -> int | None:
        """Return the first of these kinds that finds no room after the earlier ones. total: what
        all rows take; need: how many are required; left: those that find no room on rows of their
        own; free: what is free on each row."""
        displaced = left[rivals] @ self._takes[np.ix_(rivals, rivals)]
        if np.all(total[rivals] - displaced >= need[rivals]):
            return None
        is_open, room = self._simulated.open, free.copy()
        for kind in rivals.tolist():
            rows = self._shared[kind]
            counts = np.where(is_open[rows], self._capacity(kind, room[rows]), 0)
            if counts.sum() < left[kind]:
                return int(kind)
            where, pods = first_fit(counts, int(left[kind]))
            room[rows[where]] -= pods[:, None] * self._need[kind]
        return None

    def laid_out(self, free: Ints, pods: Ints) -> Ints:
        """Return how many of each kind find room, in order, each first fit, shared rows last."""
        room, is_open = free[self._order], self._simulated.open[self._order]
        placed = []
        for kind, count in enumerate(pods.tolist()):
            counts = np.where(
                self._usable[kind, self._order] & is_open, self._capacity(kind, room), 0
            )
            where, taken = first_fit(counts, count)
            room[where] -= taken[:, None] * self._need[kind]
            placed.append(int(taken.sum()))
        return np.array(placed, dtype=np.int64)

    def _capacity(self, kind: int, room: Ints) -> Ints:
        counts: Ints = np.maximum(least_fit(room, *self._asked[kind]), 0)
        return counts


class HeadroomCost:
    """How much headroom moved pods may take, wherever the scheduler puts them: costs of classes of
    pods in virtual pods of every kind. The rows that a pod could use are those of the beginning,
    because removals only reduce what is free.

    A plan says where the pods of a drained node find room, but the scheduler decides, and it
    prefers empty nodes, which provide headroom. If headroom existed only where the plan left it, a
    drain could cause a purchase and the purchase the next drain, and pods would be evicted for
    nothing all day. A drain is therefore costed by the worst places that its pods could take.

    There are three upper bounds, and the lowest one counts. Each row on which a pod is placed may
    lose one virtual pod more than the amounts alone imply, because of fragmentation. See
    docs/reference/headroom.md "Headroom and drains".

    A cost is a row of numbers per kind: the pods' requests column by column (for pods: their
    number); thousandths of virtual pods by the dominant request; whole virtual pods, pod by pod.
    """

    def __init__(self, simulated: SimulatedCluster, kinds: Sequence[int], room: Ints) -> None:
        """kinds: the class of each; room: virtual pods of each kind that each
        row takes, (kinds, rows)."""
        self._simulated, self._free = simulated, simulated.table.free[: simulated.real].copy()
        self._need: Ints = np.array(
            [simulated.table.columns.need(cls) for cls in kinds], dtype=np.int64
        )
        self._asks: Bools = self._need > 0
        self._whole: Ints = np.maximum(self._need, 1)
        count, columns = self._need.shape
        self.shape = (count, columns + 2)
        self._prices: Ints = np.empty((len(simulated.classes), *self.shape), dtype=np.int64)
        self._wholes: dict[int, int] = {}
        self._kinds, self._rows = np.nonzero(room)
        self._room: Ints = room[self._kinds, self._rows]
        self._present, self._starts = np.unique(self._kinds, return_index=True)
        self._total: Ints = room.sum(axis=1)
        # For every column, the minimum over all rows of what is left after the row's virtual pods.
        self._over: Ints = np.full((count, columns), _MOST, dtype=np.int64)
        if len(self._present):
            over = self._free[self._rows] - self._room[:, None] * self._need[self._kinds]
            self._over[self._present] = np.minimum.reduceat(over, self._starts, axis=0)
        self._objectors = [_objectors(simulated, cls) for cls in kinds]

    def of(self, classes: list[int]) -> Ints:
        """Return the cost of pods of these classes together."""
        for cls in classes:
            self._whole_cost(cls)
        total: Ints = self._prices[classes].sum(axis=0)
        return total

    def whole(self, classes: list[int]) -> int:
        """Return the maximum number of whole virtual pods, of any kind, that these pods cost."""
        return sum([self._whole_cost(cls) for cls in classes])

    def _whole_cost(self, cls: int) -> int:
        cost = self._wholes.get(cls)
        if cost is None:
            self._prices[cls] = price = self._price(cls)
            cost = self._wholes[cls] = int(price[:, -1].max())
        return cost

    def loss(self, price: Ints, rows: Ints) -> Ints:
        """Return the maximum number of virtual pods of every kind that are lost. rows: those
        that take any, per kind."""
        amounts, shares, whole = np.minimum(price[:, :-2], _SUM), price[:, -2], price[:, -1]
        hit = np.minimum(amounts[:, 0], rows)
        tight = self._asks & (amounts > self._over)
        by_column = np.where(tight, -(-amounts * _FINE // self._whole), 0).sum(axis=1)
        by_column = np.where(tight.any(axis=1), _broken(by_column, hit), 0)
        by_share = _broken(shares, hit) + np.maximum(0, amounts[:, 0] - self._over[:, 0])
        lost: Ints = np.minimum(whole, np.minimum(by_column, by_share))
        return lost

    def _price(self, cls: int) -> Ints:
        """Return the cost of one pod, 0 for a kind if the pod fits on none of its rows."""
        simulated, price = self._simulated, np.zeros(self.shape, dtype=np.int64)
        columns, need = simulated.table.columns.asked(cls)
        fits = simulated.static(cls)[: simulated.real] & np.all(
            self._free[:, columns] >= need, axis=1
        )
        most = np.zeros(len(price), dtype=np.int64)
        if len(self._present):
            most[self._present] = np.maximum.reduceat(
                np.where(fits[self._rows], self._room, 0), self._starts
            )
        amounts = np.minimum(simulated.table.columns.need(cls), _MOST)
        shares = np.where(self._asks, -(-amounts * _FINE // self._whole), 0)
        price[:, :-2], price[:, -2] = amounts, shares[:, 1:].max(axis=1, initial=0)
        price[:, -1] = np.minimum(-(-shares.max(axis=1) // _FINE), most)
        for kind, objectors in enumerate(self._objectors):
            # its anti-affinity may exclude all virtual pods, maybe in a whole zone
            if cls in objectors:
                price[kind] = _MOST
                price[kind, -1] = self._total[kind]
        price[most == 0] = 0
        return price


def _broken(thousandths: Ints, rows: Ints) -> Ints:
    """Return the maximum number of whole virtual pods from these thousandths on this many
    rows, each row rounded up."""
    whole: Ints = (thousandths + rows * _FINE - 1) // _FINE
    return np.maximum(0, whole)


def _objectors(simulated: SimulatedCluster, kind: int) -> frozenset[int]:
    """Return the classes that no virtual pod of a kind may share a domain with."""
    needs = simulated.needs(kind)
    return frozenset(
        cls for term in (needs.repulsions if needs else ()) for cls in term.counter.members
    )
