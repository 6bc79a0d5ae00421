"""Simulated new nodes of one template, with equal nodes stored as one bin and a multiplicity.

Placing n pods of a class where k fit per node is arithmetic over all bins at once and splits at most one bin.
"""

from __future__ import annotations

import numpy as np

from chalicelib.plan.tables.array_types import Ints
from chalicelib.plan.tables.node_table import least_fit


class Bins:
    """free: (bins, columns) room on each node of a bin; mult: nodes per bin; pods: (tracked classes, bins) pods on each
    node. Earlier bins are earlier nodes."""

    def __init__(self, columns: int, tracked: int) -> None:
        self.free: Ints = np.zeros((0, columns), dtype=np.int64)
        self.mult: Ints = np.zeros(0, dtype=np.int64)
        self.pods: Ints = np.zeros((tracked, 0), dtype=np.int64)

    def room(self, asked: Ints, need: Ints) -> Ints:
        """Return how many more pods with these requests each node of every bin takes."""
        return np.maximum(least_fit(self.free, asked, need), 0)

    def add(self, empty: Ints, count: int) -> None:
        """Append `count` empty nodes."""
        self.free = np.concatenate([self.free, empty[None, :]])
        self.mult = np.append(self.mult, count)
        self.pods = np.concatenate([self.pods, np.zeros((len(self.pods), 1), dtype=np.int64)], axis=1)

    def fill(self, track: int, need: Ints, quota: Ints, count: int) -> int:
        """Place up to `count` pods, at most `quota` on each node of a bin, first fit. Returns how many were placed.

        track: the row of the class in `pods`, -1 for a class that is not counted.
        """
        holds = quota * self.mult
        total = np.cumsum(holds)
        if not len(total) or not total[-1]:
            return 0
        whole = len(quota)
        if total[-1] > count:
            whole = int(np.searchsorted(total, count, side="right"))
        full = quota[:whole]
        if full.any():
            self.free[:whole] -= full[:, None] * need
            if track >= 0:
                self.pods[track, :whole] += full
        done = int(total[whole - 1]) if whole else 0
        if whole < len(quota) and count > done:
            self._split(whole, track, need, int(quota[whole]), count - done)
            done = count
        return done

    def _split(self, at: int, track: int, need: Ints, each: int, count: int) -> None:
        """Put `each` pods on some nodes of a bin and possibly fewer on one node; the remaining nodes get none. The bin
        becomes up to three bins."""
        full, part = divmod(count, each)
        pieces = [(full, each), (1 if part else 0, part), (int(self.mult[at]) - full - (1 if part else 0), 0)]
        pieces = [piece for piece in pieces if piece[0]]
        where = np.concatenate([np.arange(at), np.full(len(pieces), at), np.arange(at + 1, len(self.mult))])
        self.free, self.mult, self.pods = self.free[where], self.mult[where], self.pods[:, where]
        for offset, (nodes, pods) in enumerate(pieces):
            self.mult[at + offset] = nodes
            self.free[at + offset] -= pods * need
            if track >= 0:
                self.pods[track, at + offset] += pods
