"""Nodes as a table: a row per node, a column per resource and per label key; free room as whole numbers.

This is where the speed comes from (architecture §4): a predicate is asked once per pod class for all rows, and placing
k pods of a class is arithmetic over a column. Real nodes, upcoming nodes and the templates of groups are all rows, so
there is one set of predicates. The table is a private copy of the pass: `take` and `give` change it, nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from chalicelib.model.node import Node, Taint
from chalicelib.model.pod import ANY_ADDRESS, HostPort, PodClass
from chalicelib.model.resources import PODS
from chalicelib.plan.arrays import LARGEST, Bools, Ints

_MISSING = -1


class Columns:
    """Which resource is which column; fixed when the pass begins. `pods` is always column 0."""

    def __init__(self, nodes: Iterable[Node], classes: Sequence[PodClass]) -> None:
        names = {name for node in nodes for name in node.allocatable}
        names.update(name for cls in classes for name in cls.requests)
        names.discard(PODS)
        self.names: tuple[str, ...] = (PODS, *sorted(names))
        self._index = {name: at for at, name in enumerate(self.names)}
        self._vectors: dict[int, Ints] = {}
        self._classes = classes

    def vector(self, amounts: Mapping[str, int]) -> Ints:
        """Amounts as a row; names no column knows are left out (no node offers them, no class asks them)."""
        row = np.zeros(len(self.names), dtype=np.int64)
        for name, amount in amounts.items():
            at = self._index.get(name)
            if at is not None:
                row[at] = max(-LARGEST, min(amount, LARGEST))
        return row

    def need(self, cls: int) -> Ints:
        """What one pod of a class takes, itself included as 1 of `pods`. Remembered; do not write into it."""
        row = self._vectors.get(cls)
        if row is None:
            row = self.vector(self._classes[cls].requests)
            row[0] = 1
            self._vectors[cls] = row
        return row

    def at(self, name: str) -> int | None:
        """The column of a resource."""
        return self._index.get(name)


class NodeTable:
    """Rows of nodes with what is allocatable and what is free."""

    def __init__(self, nodes: Sequence[Node], columns: Columns) -> None:
        self.nodes = tuple(nodes)
        self.columns = columns
        self.index = {node.name: row for row, node in enumerate(self.nodes)}
        self.allocatable: Ints = np.array([columns.vector(node.allocatable) for node in self.nodes], dtype=np.int64)
        if not self.nodes:
            self.allocatable = np.zeros((0, len(columns.names)), dtype=np.int64)
        self.free: Ints = self.allocatable.copy()
        self.ports: dict[int, list[HostPort]] = {}
        self._labels: dict[str, tuple[Ints, dict[str, int]]] = {}
        self._taints: tuple[Ints, tuple[tuple[Taint, ...], ...]] | None = None

    def __len__(self) -> int:
        return len(self.nodes)

    def label(self, key: str) -> tuple[Ints, dict[str, int]]:
        """The values of a label as codes per row (-1: missing) and the code of each value."""
        found = self._labels.get(key)
        if found is None:
            codes: dict[str, int] = {}
            column = np.fromiter(
                (_MISSING if (value := node.labels.get(key)) is None else codes.setdefault(value, len(codes))
                 for node in self.nodes), dtype=np.int64, count=len(self.nodes))
            found = self._labels[key] = (column, codes)
        return found

    def taint_sets(self) -> tuple[Ints, tuple[tuple[Taint, ...], ...]]:
        """Which of the distinct taint sets each row has."""
        if self._taints is None:
            sets: dict[tuple[Taint, ...], int] = {}
            ids = np.fromiter((sets.setdefault(node.taints, len(sets)) for node in self.nodes), dtype=np.int64,
                              count=len(self.nodes))
            self._taints = (ids, tuple(sets))
        return self._taints

    def take(self, row: int, cls: int, count: int, ports: Sequence[HostPort] = ()) -> None:
        """Occupy a row with `count` pods of a class. Never refuses: real nodes may be overcommitted."""
        self.free[row] -= count * self.columns.need(cls)
        if ports:
            self.ports.setdefault(row, []).extend(ports)

    def occupy(self, pods: Sequence[tuple[int, int]], ports: Mapping[int, tuple[HostPort, ...]]) -> None:
        """Take room for many pods at once, each (row, class); ports: the host ports of each class."""
        if not pods:
            return
        pairs = np.array(pods, dtype=np.int64)
        classes, which = np.unique(pairs[:, 1], return_inverse=True)
        needs = np.array([self.columns.need(int(cls)) for cls in classes], dtype=np.int64)
        np.subtract.at(self.free, pairs[:, 0], needs[which])
        for row, cls in pods:
            if ports[cls]:
                self.ports.setdefault(row, []).extend(ports[cls])

    def give(self, row: int, cls: int, count: int, ports: Sequence[HostPort] = ()) -> None:
        """Undo a take."""
        self.free[row] += count * self.columns.need(cls)
        for port in ports:
            self.ports[row].remove(port)

    def port_clash(self, row: int, wanted: Sequence[HostPort]) -> HostPort | None:
        """The first wanted port that is taken on a row (scale-up.md §5.1 NodePorts)."""
        return next((port for port in wanted for held in self.ports.get(row, ()) if clash(port, held)), None)

    def room(self, cls: int, *, single: bool) -> Ints:
        """How many more pods of a class each row holds by its resources; at most 1 if the class takes host ports."""
        need = self.columns.need(cls)
        asked = np.flatnonzero(need)
        counts: Ints = (self.free[:, asked] // need[asked]).min(axis=1)
        np.clip(counts, 0, 1 if single else None, out=counts)
        return counts

    def fitting(self, cls: int) -> Bools:
        """Which rows hold one more pod of a class by their resources."""
        need = self.columns.need(cls)
        asked = np.flatnonzero(need)
        mask: Bools = np.all(self.free[:, asked] >= need[asked], axis=1)
        return mask


def clash(one: HostPort, other: HostPort) -> bool:
    """Same protocol and port, and the same address or either of them every address."""
    return (one.port == other.port and one.protocol == other.protocol
            and (one.address == other.address or ANY_ADDRESS in (one.address, other.address)))
