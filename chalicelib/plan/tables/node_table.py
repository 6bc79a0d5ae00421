"""Nodes as a table: one row per node, one column per resource and per label key; free room as whole numbers.

This makes the planner fast: a predicate runs once per pod class for all rows, and placing k pods of a class is
arithmetic over a column. Real nodes, upcoming nodes and the templates of groups are all rows, so there is one set of
predicates. The table is a private copy of the pass and changes only through its own methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from chalicelib.model.node import HOSTNAME_LABEL, Node, Taint
from chalicelib.model.pod import HostPort, PodClass
from chalicelib.model.resources import PODS
from chalicelib.plan.tables.array_types import LARGEST, MOST_PODS, OVERFULL, Bools, Ints
from chalicelib.plan.tables.host_ports import HeldPorts

_MISSING = -1
_FEW_ROWS = 500  # up to here one operation on all asked columns is faster than one operation per column


class ResourceColumns:
    """Maps resources to columns; fixed when the pass begins. `pods` is always column 0."""

    def __init__(self, nodes: Iterable[Node], classes: Sequence[PodClass]) -> None:
        """nodes: of the pass. Resources that no class requests get no column."""
        del nodes
        names = {name for cls in classes for name in cls.requests}
        names.discard(PODS)
        self.names: tuple[str, ...] = (PODS, *sorted(names))
        self._index = {name: at for at, name in enumerate(self.names)}
        self._vectors: dict[int, Ints] = {}
        self._asked: dict[int, tuple[Ints, Ints]] = {}
        self._classes = classes

    def vector(self, amounts: Mapping[str, int]) -> Ints:
        """Return amounts as a row; unknown names are left out (no node offers them, no class requests them)."""
        row = np.zeros(len(self.names), dtype=np.int64)
        for name, amount in amounts.items():
            at = self._index.get(name)
            if at is not None:
                row[at] = max(-LARGEST, min(amount, LARGEST))
        row[0] = min(row[0], MOST_PODS)
        return row

    def need(self, cls: int) -> Ints:
        """Return the requests of one pod of a class, including 1 of `pods`. Cached; do not modify it."""
        row = self._vectors.get(cls)
        if row is None:
            row = self.vector(self._classes[cls].requests)
            row[0] = 1
            self._vectors[cls] = row
        return row

    def asked(self, cls: int) -> tuple[Ints, Ints]:
        """Return the columns that a class requests, and the amounts; a request of 0 is not checked."""
        found = self._asked.get(cls)
        if found is None:
            need = self.need(cls)
            columns = np.flatnonzero(need)
            found = self._asked[cls] = (columns, need[columns])
        return found

    def at(self, name: str) -> int | None:
        """Return the column of a resource."""
        return self._index.get(name)


class NodeTable:
    """Rows of nodes with their allocatable and free resources."""

    def __init__(self, nodes: Sequence[Node], columns: ResourceColumns) -> None:
        self.nodes = list(nodes)
        self.columns = columns
        self.index = {node.name: row for row, node in enumerate(self.nodes)}
        self.allocatable: Ints = np.array([columns.vector(node.allocatable) for node in self.nodes], dtype=np.int64)
        if not self.nodes:
            self.allocatable = np.zeros((0, len(columns.names)), dtype=np.int64)
        self.free: Ints = self.allocatable.copy()
        self.overfull: frozenset[int] = frozenset()  # rows whose pods request more than can be counted
        self.ports: dict[int, HeldPorts] = {}
        self._labels: dict[str, tuple[Ints, dict[str, int]]] = {}
        self._taints: tuple[Ints, dict[tuple[Taint, ...], int]] | None = None
        self.cordoned: Bools = np.fromiter(
            (node.unschedulable for node in self.nodes), dtype=np.bool_, count=len(self.nodes)
        )

    def __len__(self) -> int:
        return len(self.nodes)

    def label(self, key: str) -> tuple[Ints, dict[str, int]]:
        """Return the values of a label as codes per row (-1: missing) and the code of each value."""
        found = self._labels.get(key)
        if found is None:
            codes: dict[str, int] = {}
            column = np.fromiter(
                (
                    _MISSING if (value := node.labels.get(key)) is None else codes.setdefault(value, len(codes))
                    for node in self.nodes
                ),
                dtype=np.int64,
                count=len(self.nodes),
            )
            found = self._labels[key] = (column, codes)
        return found

    def taint_sets(self) -> tuple[Ints, tuple[tuple[Taint, ...], ...]]:
        """Return which of the distinct taint sets each row has."""
        if self._taints is None:
            sets: dict[tuple[Taint, ...], int] = {}
            ids = np.fromiter(
                (sets.setdefault(node.taints, len(sets)) for node in self.nodes), dtype=np.int64, count=len(self.nodes)
            )
            self._taints = (ids, sets)
        return self._taints[0], tuple(self._taints[1])

    def extend(self, nodes: Sequence[Node], free: Ints) -> None:
        """Append rows that differ only in their names: all labels and taints are those of the first, except host names.
        free: room of each, (rows, columns)."""
        model, count = nodes[0], len(nodes)
        at = len(self.nodes)
        self.index.update((node.name, at + offset) for offset, node in enumerate(nodes))
        self.nodes.extend(nodes)
        offers = np.repeat(self.columns.vector(model.allocatable)[None, :], count, axis=0)
        self.allocatable = np.concatenate([self.allocatable, offers])
        self.free = np.concatenate([self.free, free])
        self.cordoned = np.concatenate([self.cordoned, np.full(count, model.unschedulable)])
        for key, (column, codes) in self._labels.items():
            values = [node.labels.get(key) for node in nodes] if key == HOSTNAME_LABEL else [model.labels.get(key)]
            more = [_MISSING if value is None else codes.setdefault(value, len(codes)) for value in values]
            self._labels[key] = (np.concatenate([column, np.resize(np.array(more, dtype=np.int64), count)]), codes)
        if self._taints is not None:
            ids, sets = self._taints
            code = sets.setdefault(model.taints, len(sets))
            self._taints = (np.concatenate([ids, np.full(count, code, dtype=np.int64)]), sets)

    def truncate(self, count: int) -> None:
        """Keep only the first rows."""
        for node in self.nodes[count:]:
            del self.index[node.name]
        del self.nodes[count:]
        self.allocatable, self.free, self.cordoned = (
            self.allocatable[:count],
            self.free[:count],
            self.cordoned[:count],
        )
        self.ports = {row: held for row, held in self.ports.items() if row < count}
        self._labels = {key: (column[:count], codes) for key, (column, codes) in self._labels.items()}
        if self._taints is not None:
            self._taints = (self._taints[0][:count], self._taints[1])

    def put(self, cls: int, rows: Ints, counts: Ints, ports: Sequence[HostPort] = ()) -> None:
        """Occupy rows (each named once) with pods of a class; negative counts free them. Never refuses, because real
        nodes may be overcommitted."""
        asked, need = self.columns.asked(cls)
        if len(rows) == 1:  # the most frequent case: basic indexing costs a fraction of a gather and a scatter
            self.free[rows[0]][asked] -= counts[0] * need
        else:
            for column, amount in zip(asked, need, strict=True):
                self.free[rows, column] -= counts * amount
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True) if ports else ():
            held = self.ports.setdefault(row, HeldPorts())
            if count > 0:
                held.add(ports, count)
            else:
                held.remove(ports, -count)
            if not held:
                del self.ports[row]

    def occupy(self, rows: Ints, classes: Ints, ports: Sequence[tuple[HostPort, ...]]) -> None:
        """Take room for many pods at once: row and class of each; ports: the host ports of every class."""
        if not len(rows):
            return
        present, which = np.unique(classes, return_inverse=True)
        needs = np.array([self.columns.need(int(cls)) for cls in present], dtype=np.int64)
        for column in range(len(self.columns.names)):
            asked = needs[:, column]
            if asked.any():
                used = np.bincount(rows, weights=asked[which].astype(np.float64), minlength=len(self.nodes))
                self.overfull |= frozenset(np.flatnonzero(used >= OVERFULL).tolist())
                self.free[:, column] -= np.minimum(used, OVERFULL).astype(np.int64)
        holding = np.array([bool(ports[int(cls)]) for cls in present])
        if holding.any():
            for at in np.flatnonzero(holding[which]):
                self.hold(int(rows[at]), ports[int(classes[at])])

    def hold(self, row: int, ports: Sequence[HostPort]) -> None:
        """Add the host ports of a pod to a row."""
        self.ports.setdefault(row, HeldPorts()).add(ports)

    def port_clash(self, row: int, wanted: Sequence[HostPort]) -> HostPort | None:
        """Return the first requested host port that is in use on a row."""
        held = self.ports.get(row)
        return held.clash(wanted) if held is not None else None

    def room(self, cls: int, *, single: bool) -> Ints:
        """Return how many more pods of a class each row takes by its resources; at most 1 if the class uses host
        ports."""
        asked, need = self.columns.asked(cls)
        counts: Ints = np.maximum(least_fit(self.free, asked, need), 0)
        return np.minimum(counts, 1) if single else counts

    def fitting(self, cls: int) -> Bools:
        """Return which rows take one more pod of a class by their resources."""
        asked, need = self.columns.asked(cls)
        mask: Bools = np.all(self.free[:, asked] >= need, axis=1)
        return mask


def least_fit(free: Ints, asked: Ints, need: Ints) -> Ints:
    """Return how often `need` of the requested columns fits into each row; negative if a row is overcommitted."""
    if len(free) <= _FEW_ROWS:
        few: Ints = np.minimum.reduce(free.T[asked] // need[:, None])
        return few
    counts: Ints = free[:, asked[0]] // need[0]
    for column, amount in zip(asked[1:], need[1:], strict=True):
        counts = np.minimum(counts, free[:, column] // amount)
    return counts
