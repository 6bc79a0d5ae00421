"""Counts how many pods of a set of classes are on each row, updated as pods are placed.

All rules between pods need these counts. A counter is created when a rule first needs it, from the pods sorted by
class, and follows every placement from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from chalicelib.plan.simulation.pod_topology.selector_index import Members
from chalicelib.plan.tables.array_types import Bools, Ints

_MANY = 32  # number of members from which all pods are scanned once


class PodCounter:
    """rows: pods of the members on each row. settled: terminating pods are left out."""

    def __init__(self, members: Members, rows: Ints, *, settled: bool) -> None:
        self.members, self.rows, self.settled = members, rows, settled


class Counting:
    """All counters of a pass."""

    def __init__(self, rows: Ints, classes: Ints, dying: Bools, count: int) -> None:
        """The existing pods: row and class of each, which of them are terminating; count: number of rows."""
        order = np.argsort(classes, kind="stable")
        self._rows, self._classes, self._dying = rows[order], classes[order], dying[order]
        self._count = count
        self._log: dict[int, list[tuple[Ints, Ints]]] = {}
        self._moved: dict[int, dict[int, int]] = {}  # class -> row -> pods, for placements counted one row at a time
        self._counters: dict[tuple[Members, bool], PodCounter] = {}
        self._of: dict[int, list[PodCounter]] = {}

    def counter(self, members: Members, *, settled: bool = False) -> PodCounter:
        """Return the counter of a set of classes."""
        key = (members, settled)
        found = self._counters.get(key)
        if found is None:
            found = self._counters[key] = PodCounter(members, self._counted(members, settled=settled), settled=settled)
            for cls in members:
                self._of.setdefault(cls, []).append(found)
        return found

    def _counted(self, members: Members, *, settled: bool) -> Ints:
        vector: Ints = np.zeros(self._count, dtype=np.int64)
        for rows in self._there(members, settled=settled):
            np.add.at(vector, rows, 1)
        for cls in members & self._log.keys():
            for where, counts in self._log[cls]:
                vector[where] += counts
        for cls in members & self._moved.keys():
            for row, count in self._moved[cls].items():
                vector[row] += count
        return vector

    def _there(self, members: Members, *, settled: bool) -> Iterator[Ints]:
        """Return the rows of the members' existing pods. Many members are found in one scan: a search for each of
        thousands of classes, for each of thousands of rules, takes minutes."""
        if len(members) > _MANY:
            here = np.isin(self._classes, np.fromiter(members, dtype=np.int64, count=len(members)))
            yield self._rows[here & ~self._dying] if settled else self._rows[here]
            return
        for cls in members:
            start, end = np.searchsorted(self._classes, (cls, cls + 1))
            rows = self._rows[start:end]
            yield rows[~self._dying[start:end]] if settled else rows

    def add(self, rows: Ints, cls: int, counts: Ints) -> bool:
        """Add pods to rows (each named once), or remove them with negative counts; they count as not terminating.
        Returns whether any counter counts them, so that results derived from it must be recomputed."""
        entries = self._log.setdefault(cls, [])
        if entries and entries[-1][0] is rows and np.array_equal(entries[-1][1], -counts):
            entries.pop()  # a rewind: without this the log would keep every attempt of the search
        else:
            entries.append((rows, counts))
        counters = self._of.get(cls, ())
        for counter in counters:
            counter.rows[rows] += counts
        return bool(counters)

    def add_one(self, row: int, cls: int, count: int) -> bool:
        """Add pods to one row, as `add` does: the removal simulation calls this thousands of times."""
        moved = self._moved.setdefault(cls, {})
        moved[row] = moved.get(row, 0) + count
        counters = self._of.get(cls, ())
        for counter in counters:
            counter.rows[row] += count
        return bool(counters)

    def followers(self, cls: int) -> Sequence[PodCounter]:
        """Return the counters that count a class."""
        return self._of.get(cls, ())

    def extend(self, count: int) -> None:
        """Append rows without pods."""
        self._count += count
        for counter in self._counters.values():
            counter.rows = np.concatenate([counter.rows, np.zeros(count, dtype=np.int64)])

    def reset(self, count: int) -> None:
        """Keep only the first rows; everything placed on others must have been removed before."""
        self._count = count
        self._log = {cls: [entry for entry in entries if entry[0].max() < count] for cls, entries in self._log.items()}
        self._moved = {
            cls: {row: pods for row, pods in moved.items() if row < count} for cls, moved in self._moved.items()
        }
        for counter in self._counters.values():
            counter.rows = counter.rows[:count]
