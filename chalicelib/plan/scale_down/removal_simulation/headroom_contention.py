"""Resolves contention of several kinds of headroom for rows that more than one of them may use.

What each kind finds on rows of its own is counted separately; only the remainder of two or more kinds is handled here.
It is placed first fit, kind after kind; with ample room, a sum answers the question before that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster, first_fit
from chalicelib.plan.tables import Bools, Ints, least_fit


class HeadroomContention:
    """usable: rows by kind; shared: rows that more than one kind may use."""

    def __init__(self, simulated: SimulatedCluster, classes: Sequence[int], usable: Bools, shared: Ints) -> None:
        self._simulated, self._usable = simulated, usable
        self._shared: list[Ints] = [shared[each[shared]] for each in usable]
        self._asked = [simulated.table.columns.asked(cls) for cls in classes]
        self._need: Ints = np.array([simulated.table.columns.need(cls) for cls in classes], dtype=np.int64)
        self._order: Ints = np.concatenate([np.setdiff1d(np.arange(simulated.real), shared), shared])
        # Maximum number of virtual pods of a kind (column) that lose their room to one of another kind (row).
        whole = np.maximum(self._need, 1)
        each = np.where(self._need[None, :] > 0, -(-self._need[:, None] // whole[None, :]), 0).max(axis=2)
        meet = usable.astype(np.float64) @ usable.T.astype(np.float64) > 0
        self._takes: Ints = np.triu(np.where(meet, each, 0), 1)

    def first_short(self, rivals: Ints, total: Ints, need: Ints, left: Ints, free: Ints) -> int | None:
        """Return the first of these kinds that finds no room after the earlier ones. total: what all rows take; need:
        how many are required; left: those that find no room on rows of their own; free: what is free on each row."""
        displaced = left[rivals] @ self._takes[np.ix_(rivals, rivals)]
        if np.all(total[rivals] - displaced >= need[rivals]):
            return None
        is_open, room = self._simulated.open, free.copy()
        for kind in rivals.tolist():
            rows = self._shared[kind]
            counts = np.where(is_open[rows], self._capacity(kind, room[rows]), 0)
            if counts.sum() < left[kind]:
                return int(kind)
            where, here = first_fit(counts, int(left[kind]))
            room[rows[where]] -= here[:, None] * self._need[kind]
        return None

    def laid_out(self, free: Ints, pods: Ints) -> Ints:
        """Return how many of each kind find room, in order, each first fit, shared rows last."""
        room, is_open = free[self._order], self._simulated.open[self._order]
        found = []
        for kind, count in enumerate(pods.tolist()):
            counts = np.where(self._usable[kind, self._order] & is_open, self._capacity(kind, room), 0)
            where, here = first_fit(counts, count)
            room[where] -= here[:, None] * self._need[kind]
            found.append(int(here.sum()))
        return np.array(found, dtype=np.int64)

    def _capacity(self, kind: int, room: Ints) -> Ints:
        counts: Ints = np.maximum(least_fit(room, *self._asked[kind]), 0)
        return counts
