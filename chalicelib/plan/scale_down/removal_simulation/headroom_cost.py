"""Computes how much headroom moved pods may take, wherever the scheduler puts them.

A plan says where the pods of a drained node find room, but the scheduler decides, and it prefers empty nodes, which
provide headroom. If headroom existed only where the plan left it, a drain could cause a purchase and the purchase the
next drain, and pods would be evicted for nothing all day. A drain is therefore costed by the worst places that its pods
could take.

There are three upper bounds, and the lowest one counts. Each row on which a pod is placed may lose one virtual pod more
than the amounts alone imply, because of fragmentation. See docs/reference/headroom.md "Headroom and drains".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.tables import Bools, Ints

_FINE = 1000  # virtual pods are counted in thousandths where amounts are divided
_MOST = 2**44  # cap of an amount
_SUM = 2**52  # cap of a sum


class HeadroomCost:
    """Costs of classes of pods in virtual pods of every kind. The rows that a pod could use are those of the beginning,
    because removals only reduce what is free.

    A cost is a row of numbers per kind: the pods' requests column by column (for pods: their number); thousandths of
    virtual pods by the dominant request; whole virtual pods, pod by pod.
    """

    def __init__(self, simulated: SimulatedCluster, kinds: Sequence[int], room: Ints) -> None:
        """kinds: the class of each; room: virtual pods of each kind that each row takes, (kinds, rows)."""
        self._simulated, self._free = simulated, simulated.table.free[: simulated.real].copy()
        self._need: Ints = np.array([simulated.table.columns.need(cls) for cls in kinds], dtype=np.int64)
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
        self._learn(classes)
        total: Ints = self._prices[classes].sum(axis=0)
        return total

    def whole(self, classes: list[int]) -> int:
        """Return the maximum number of whole virtual pods, of any kind, that these pods cost."""
        self._learn(classes)
        return sum([self._wholes[cls] for cls in classes])

    def _learn(self, classes: list[int]) -> None:
        for cls in classes:
            if cls not in self._wholes:
                self._prices[cls] = price = self._price(cls)
                self._wholes[cls] = int(price[:, -1].max())

    def loss(self, price: Ints, rows: Ints) -> Ints:
        """Return the maximum number of virtual pods of every kind that are lost. rows: those that take any, per
        kind."""
        asked, shares, whole = np.minimum(price[:, :-2], _SUM), price[:, -2], price[:, -1]
        hit = np.minimum(asked[:, 0], rows)
        tight = self._asks & (asked > self._over)
        by_column = np.where(tight, -(-asked * _FINE // self._whole), 0).sum(axis=1)
        by_column = np.where(tight.any(axis=1), _broken(by_column, hit), 0)
        by_share = _broken(shares, hit) + np.maximum(0, asked[:, 0] - self._over[:, 0])
        lost: Ints = np.minimum(whole, np.minimum(by_column, by_share))
        return lost

    def _price(self, cls: int) -> Ints:
        """Return the cost of one pod, 0 for a kind if the pod fits on none of its rows."""
        simulated, found = self._simulated, np.zeros(self.shape, dtype=np.int64)
        columns, need = simulated.table.columns.asked(cls)
        able = simulated.static(cls)[: simulated.real] & np.all(self._free[:, columns] >= need, axis=1)
        most = np.zeros(len(found), dtype=np.int64)
        if len(self._present):
            most[self._present] = np.maximum.reduceat(np.where(able[self._rows], self._room, 0), self._starts)
        asked = np.minimum(simulated.table.columns.need(cls), _MOST)
        each = np.where(self._asks, -(-asked * _FINE // self._whole), 0)
        found[:, :-2], found[:, -2] = asked, each[:, 1:].max(axis=1, initial=0)
        found[:, -1] = np.minimum(-(-each.max(axis=1) // _FINE), most)
        for at, objectors in enumerate(self._objectors):
            if cls in objectors:  # its anti-affinity may exclude all virtual pods, maybe in a whole zone
                found[at] = _MOST
                found[at, -1] = self._total[at]
        found[most == 0] = 0
        return found


def _broken(thousandths: Ints, rows: Ints) -> Ints:
    """Return the maximum number of whole virtual pods from these thousandths on this many rows, each row rounded up."""
    whole: Ints = (thousandths + rows * _FINE - 1) // _FINE
    return np.maximum(0, whole)


def _objectors(simulated: SimulatedCluster, kind: int) -> frozenset[int]:
    """Return the classes that no virtual pod of a kind may share a domain with."""
    needs = simulated.needs(kind)
    return frozenset(cls for each in (needs.repulsions if needs else ()) for cls in each.counter.members)
