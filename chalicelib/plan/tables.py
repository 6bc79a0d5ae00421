"""Nodes as a table: one row per node, one column per resource and per label key;
free room as whole numbers.

This makes the planner fast: a predicate runs once per pod class for all rows, and placing k pods of
a class is arithmetic over a column. Real nodes, upcoming nodes and the templates of groups are all
rows, so there is one set of predicates. The table is a private copy of the pass and changes only
through its own methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from chalicelib.model.node import Node, Taint
from chalicelib.model.pod import ANY_ADDRESS, HostPort, PodClass
from chalicelib.model.resources import PODS
from chalicelib.model.selector import Requirement

# Importing numpy.typing takes longer at a cold start than a planner module, and it
# has no effect at run time.
if TYPE_CHECKING:
    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]
    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]
else:
    Bools = Ints = Floats = np.ndarray

# Amounts are capped so that sums of many of them fit into 64 bits.
LARGEST = 2**56
# Upper bound of pods per node, whatever the node reports, so that products of counts
# fit into 64 bits as well.
MOST_PODS = 2**20
# Upper bound of the counted pod requests of one node. A node at this bound is blocked
# because its sums are not exact.
OVERFULL = 2**61


def integers(values: Sequence[object]) -> Ints:
    """Return numbers, or rows of them, as an array of 64-bit integers."""
    return np.array(values, dtype=np.int64)


_MISSING = -1
# up to here one operation on all asked columns is faster than one operation per column
_FEW_ROWS = 500


class HeldPorts:
    """A multiset of the host ports in use on one node, indexed by port and protocol: the same port
    may occur twice, on an overcommitted node.

    A pod may name hundreds of ports, and a node may run hundreds of pods. Comparing
    every pair would let one tenant make a pass arbitrarily slow; here a check costs one
    look-up per requested port.
    """

    def __init__(self, ports: Iterable[HostPort] = ()) -> None:
        self._addresses: dict[tuple[int, str], dict[str, int]] = {}
        self.add(ports)

    def __bool__(self) -> bool:
        return bool(self._addresses)

    def add(self, ports: Iterable[HostPort], count: int = 1) -> None:
        """Add the ports of `count` pods."""
        for port in ports:
            addresses = self._addresses.setdefault((port.port, port.protocol), {})
            addresses[port.address] = addresses.get(port.address, 0) + count

    def remove(self, ports: Iterable[HostPort], count: int = 1) -> None:
        """Remove the ports of `count` pods that were added before."""
        for port in ports:
            addresses = self._addresses[(port.port, port.protocol)]
            addresses[port.address] -= count
            if addresses[port.address] <= 0:
                del addresses[port.address]
            if not addresses:
                del self._addresses[(port.port, port.protocol)]

    def clash(self, requested: Sequence[HostPort]) -> HostPort | None:
        """Return the first requested port in use: same port and protocol, and the same address or
        one of the two covers all addresses."""
        for port in requested:
            addresses = self._addresses.get((port.port, port.protocol))
            if addresses and (
                port.address == ANY_ADDRESS or port.address in addresses or ANY_ADDRESS in addresses
            ):
                return port
        return None


class PortRivals:
    """Finds the classes that request a port that a class requests, computed
    once per class and pass."""

    def __init__(self, ports: Sequence[Sequence[HostPort]]) -> None:
        """ports: the host ports of every class."""
        self._ports = ports
        self._by_port: dict[tuple[int, str], list[tuple[int, str]]] | None = None
        self._rivals: dict[int, frozenset[int]] = {}

    def of(self, cls: int) -> frozenset[int]:
        """Return the classes, including this one, whose pods cannot share a node
        with a pod of this class."""
        if self._by_port is None:
            self._by_port = {}
            for other, ports in enumerate(self._ports):
                for port in ports:
                    self._by_port.setdefault((port.port, port.protocol), []).append(
                        (other, port.address)
                    )
        if cls not in self._rivals:
            self._rivals[cls] = frozenset(
                other
                for port in self._ports[cls]
                for other, address in self._by_port[(port.port, port.protocol)]
                if port.address == address or ANY_ADDRESS in (port.address, address)
            )
        return self._rivals[cls]


class ResourceColumns:
    """Maps resources to columns; fixed when the pass begins. `pods` is always column 0; resources
    that no class requests have no column."""

    def __init__(self, classes: Sequence[PodClass]) -> None:
        self.names: tuple[str, ...] = (
            PODS,
            *sorted({name for cls in classes for name in cls.requests} - {PODS}),
        )
        self._index = {name: at for at, name in enumerate(self.names)}
        self._vectors: dict[int, Ints] = {}
        self._asked: dict[int, tuple[Ints, Ints]] = {}
        self._classes = classes

    def vector(self, amounts: Mapping[str, int]) -> Ints:
        """Return amounts as a row; unknown names are ignored (no node offers them,
        no class requests them)."""
        row = np.zeros(len(self.names), dtype=np.int64)
        for name, amount in amounts.items():
            at = self._index.get(name)
            if at is not None:
                row[at] = max(-LARGEST, min(amount, LARGEST))
        row[0] = min(row[0], MOST_PODS)
        return row

    def need(self, cls: int) -> Ints:
        """Return the requests of one pod of a class, including 1 of `pods`.
        Cached; do not modify it."""
        row = self._vectors.get(cls)
        if row is None:
            row = self.vector(self._classes[cls].requests)
            row[0] = 1
            self._vectors[cls] = row
        return row

    def asked(self, cls: int) -> tuple[Ints, Ints]:
        """Return the columns that a class requests, and the amounts; a
        request of 0 is not checked."""
        asked = self._asked.get(cls)
        if asked is None:
            need = self.need(cls)
            columns = np.flatnonzero(need)
            asked = self._asked[cls] = (columns, need[columns])
        return asked

    def at(self, name: str) -> int | None:
        """Return the column of a resource, None if no class requests it."""
        return self._index.get(name)


class NodeTable:
    """Rows of nodes with their allocatable and free resources.

    index: name -> its first row. A cluster may have a node that is named like a simulated one,
    and its row comes first.
    """

    def __init__(self, nodes: Sequence[Node], columns: ResourceColumns) -> None:
        self.nodes = list(nodes)
        self.columns = columns
        self.index = {node.name: row for row, node in reversed(tuple(enumerate(self.nodes)))}
        self.allocatable: Ints = np.array(
            [columns.vector(node.allocatable) for node in self.nodes], dtype=np.int64
        )
        if not self.nodes:
            self.allocatable = np.zeros((0, len(columns.names)), dtype=np.int64)
        self.free: Ints = self.allocatable.copy()
        # rows whose pods request more than can be counted
        self.overfull: frozenset[int] = frozenset()
        self.ports: dict[int, HeldPorts] = {}
        self._labels: dict[str, tuple[Ints, dict[str, int]]] = {}
        self._taints: tuple[Ints, dict[tuple[Taint, ...], int]] | None = None
        self.cordoned: Bools = np.fromiter(
            (node.unschedulable for node in self.nodes), dtype=np.bool_, count=len(self.nodes)
        )

    def __len__(self) -> int:
        return len(self.nodes)

    def label(self, key: str) -> tuple[Ints, dict[str, int]]:
        """Return the values of a label as codes per row (-1: missing) and the code of each
        value."""
        label = self._labels.get(key)
        if label is None:
            codes: dict[str, int] = {}
            column = np.fromiter(
                (
                    _MISSING
                    if (value := node.labels.get(key)) is None
                    else codes.setdefault(value, len(codes))
                    for node in self.nodes
                ),
                dtype=np.int64,
                count=len(self.nodes),
            )
            label = self._labels[key] = (column, codes)
        return label

    def having(self, key: str, values: Iterable[str]) -> Bools:
        """Return the rows with one of these values of a label. Thousands of volumes ask this: one
        value costs one comparison, however many values the column has."""
        codes, code_of = self.label(key)
        codes_of_values = [code_of[value] for value in values if value in code_of]
        # the last entry is for code -1: the label is missing
        verdicts = np.zeros(len(code_of) + 1, dtype=np.bool_)
        verdicts[codes_of_values] = True
        rows: Bools = codes == codes_of_values[0] if len(codes_of_values) == 1 else verdicts[codes]
        return rows

    def matching(self, requirement: Requirement) -> Bools:
        """Return the rows whose label meets a requirement."""
        if requirement.operator == "In":
            return self.having(requirement.key, requirement.values)
        codes, code_of = self.label(requirement.key)
        # in the order of their codes
        verdicts = [requirement.matches({requirement.key: value}) for value in code_of]
        verdicts.append(requirement.matches({}))  # code -1: the label is missing
        rows: Bools = np.array(verdicts, dtype=np.bool_)[codes]
        return rows

    def matching_fields(self, fields: Iterable[Requirement]) -> Bools:
        """Return the rows that meet all of these field requirements; `metadata.name` is
        the only field there is."""
        rows: Bools = np.ones(len(self.nodes), dtype=np.bool_)
        for field in fields:
            named = (
                field.key == "metadata.name" and field.matches({"metadata.name": n.name})
                for n in self.nodes
            )
            rows &= np.fromiter(named, dtype=np.bool_, count=len(self.nodes))
        return rows

    def taint_sets(self) -> tuple[Ints, tuple[tuple[Taint, ...], ...]]:
        """Return which of the distinct taint sets each row has."""
        if self._taints is None:
            sets: dict[tuple[Taint, ...], int] = {}
            ids = np.fromiter(
                (sets.setdefault(node.taints, len(sets)) for node in self.nodes),
                dtype=np.int64,
                count=len(self.nodes),
            )
            self._taints = (ids, sets)
        return self._taints[0], tuple(self._taints[1])

    def extend(self, nodes: Sequence[Node], free: Ints) -> None:
        """Append rows that differ only in their names and in the labels of one node. free: room
        of each, (rows, columns)."""
        model, count = nodes[0], len(nodes)
        at = len(self.nodes)
        for row, node in enumerate(nodes, at):
            self.index.setdefault(node.name, row)
        self.nodes.extend(nodes)
        offers = np.repeat(self.columns.vector(model.allocatable)[None, :], count, axis=0)
        self.allocatable = np.concatenate([self.allocatable, offers])
        self.free = np.concatenate([self.free, free])
        self.cordoned = np.concatenate([self.cordoned, np.full(count, model.unschedulable)])
        for key, (column, codes) in self._labels.items():
            differs = model.labels.get(key) != nodes[-1].labels.get(key)
            values = [node.labels.get(key) for node in (nodes if differs else nodes[:1])]
            more = [
                _MISSING if value is None else codes.setdefault(value, len(codes))
                for value in values
            ]
            self._labels[key] = (
                np.concatenate([column, np.resize(np.array(more, dtype=np.int64), count)]),
                codes,
            )
        if self._taints is not None:
            ids, sets = self._taints
            code = sets.setdefault(model.taints, len(sets))
            self._taints = (np.concatenate([ids, np.full(count, code, dtype=np.int64)]), sets)

    def truncate(self, count: int) -> None:
        """Keep only the first rows."""
        for row, node in enumerate(self.nodes[count:], count):
            if self.index.get(node.name) == row:
                del self.index[node.name]
        del self.nodes[count:]
        self.allocatable, self.free, self.cordoned = (
            self.allocatable[:count],
            self.free[:count],
            self.cordoned[:count],
        )
        self.ports = {row: ports for row, ports in self.ports.items() if row < count}
        self._labels = {
            key: (column[:count], codes) for key, (column, codes) in self._labels.items()
        }
        if self._taints is not None:
            self._taints = (self._taints[0][:count], self._taints[1])

    def put(self, cls: int, rows: Ints, counts: Ints, ports: Sequence[HostPort] = ()) -> None:
        """Occupy rows (each named once) with pods of a class; negative counts free them. Never
        refuses, because real nodes may be overcommitted."""
        columns, need = self.columns.asked(cls)
        # the most frequent case: basic indexing costs a fraction of a gather and a scatter
        if len(rows) == 1:
            self.free[rows[0]][columns] -= counts[0] * need
        else:
            for column, amount in zip(columns, need, strict=True):
                self.free[rows, column] -= counts * amount
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True) if ports else ():
            in_use = self.ports.setdefault(row, HeldPorts())
            if count > 0:
                in_use.add(ports, count)
            else:
                in_use.remove(ports, -count)
            if not in_use:
                del self.ports[row]

    def occupy(self, rows: Ints, classes: Ints, ports: Sequence[tuple[HostPort, ...]]) -> None:
        """Take room for many pods at once: row and class of each; ports: the
        host ports of every class."""
        if not len(rows):
            return
        present, which = np.unique(classes, return_inverse=True)
        needs = np.array([self.columns.need(int(cls)) for cls in present], dtype=np.int64)
        for column in range(len(self.columns.names)):
            amounts = needs[:, column]
            if amounts.any():
                used = np.bincount(
                    rows, weights=amounts[which].astype(np.float64), minlength=len(self.nodes)
                )
                self.overfull |= frozenset(np.flatnonzero(used >= OVERFULL).tolist())
                self.free[:, column] -= np.minimum(used, OVERFULL).astype(np.int64)
        holding = np.array([bool(ports[int(cls)]) for cls in present])
        if holding.any():
            for at in np.flatnonzero(holding[which]):
                self.hold(int(rows[at]), ports[int(classes[at])])

    def hold(self, row: int, ports: Sequence[HostPort]) -> None:
        """Add the host ports of a pod to a row."""
        self.ports.setdefault(row, HeldPorts()).add(ports)

    def port_clash(self, row: int, requested: Sequence[HostPort]) -> HostPort | None:
        """Return the first requested host port that is in use on a row."""
        return self.ports[row].clash(requested) if row in self.ports else None

    def room(self, cls: int, *, single: bool) -> Ints:
        """Return how many more pods of a class each row takes by its resources; at most 1 if
        the class uses host ports."""
        columns, need = self.columns.asked(cls)
        counts: Ints = np.maximum(least_fit(self.free, columns, need), 0)
        return np.minimum(counts, 1) if single else counts

    def fitting(self, cls: int) -> Bools:
        """Return which rows take one more pod of a class by their resources."""
        columns, need = self.columns.asked(cls)
        mask: Bools = np.all(self.free[:, columns] >= need, axis=1)
        return mask


def least_fit(free: Ints, columns: Ints, need: Ints) -> Ints:
    """Return how often `need` of the requested columns fits into each row; negative
    if a row is overcommitted."""
    if len(free) <= _FEW_ROWS:
        few: Ints = np.minimum.reduce(free.T[columns] // need[:, None])
        return few
    counts: Ints = free[:, columns[0]] // need[0]
    for column, amount in zip(columns[1:], need[1:], strict=True):
        counts = np.minimum(counts, free[:, column] // amount)
    return counts


def first_fit(quota: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the first rows that take `count` pods in total under these quotas, and how many each
    takes."""
    rows = quota.nonzero()[0]
    total = np.cumsum(quota[rows])
    if not len(rows) or total[-1] <= count:
        return rows, quota[rows]
    last = int(np.searchsorted(total, count))
    pods = quota[rows[: last + 1]].copy()
    pods[last] -= total[last] - count
    return rows[: last + 1], pods
