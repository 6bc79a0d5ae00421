"""Indexes which pods are on which node, once per pass and as arrays: a Python loop over 170,000 pods is too slow to run
more than once."""

from __future__ import annotations

from operator import attrgetter

import numpy as np

from chalicelib.model.pod import Pod
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.tables.array_types import Bools, Ints


class _Index(dict[str, int]):
    """Returns -1 for an unknown node name, without a Python call for known names."""

    def __missing__(self, name: str) -> int:
        return -1


class Occupancy:
    """where: per pod the index of its node in snapshot.nodes, -1 for none; cls: its class; dying: being deleted."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._pods = snapshot.pods
        self.index = {node.name: at for at, node in enumerate(snapshot.nodes)}
        at, count = _Index(self.index), len(snapshot.pods)
        nodes = map(attrgetter("node"), snapshot.pods)
        self.where: Ints = np.fromiter(map(at.__getitem__, nodes), dtype=np.int64, count=count)
        self.cls: Ints = np.fromiter(map(attrgetter("cls"), snapshot.pods), dtype=np.int64, count=count)
        deleted = np.fromiter(map(attrgetter("deleted"), snapshot.pods), dtype=np.float64, count=count)
        self.dying: Bools = deleted > 0
        self._order: Ints | None = None
        self._starts: Ints | None = None

    def on(self, node: str) -> list[Pod]:
        """Return the pods of a node, in the order of the snapshot."""
        at = self.index.get(node)
        if at is None:
            return []
        if self._order is None or self._starts is None:
            self._order = np.argsort(self.where, kind="stable")
            self._starts = np.searchsorted(self.where[self._order], np.arange(len(self.index) + 1))
        return [self._pods[pod] for pod in self._order[self._starts[at] : self._starts[at + 1]]]

    def waiting(self) -> list[Pod]:
        """Return the pods without a node."""
        return [pod for at in np.flatnonzero(self.where < 0) if not (pod := self._pods[at]).node]

    def pods(self, which: Bools) -> list[tuple[int, Pod]]:
        """Return (index, pod) for a mask over all pods."""
        return [(int(at), self._pods[at]) for at in np.flatnonzero(which)]
