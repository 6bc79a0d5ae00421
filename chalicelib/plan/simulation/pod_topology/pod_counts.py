"""How many pods of a set of classes are on each row, kept while pods are placed.

All rules between pods need this one thing. A counter is made when a rule first asks for it, from the pods sorted by
class, and follows every placement from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from chalicelib.plan.simulation.pod_topology.selector_index import Members
from chalicelib.plan.tables.array_types import Bools, Ints

_MANY = 32  # members from which on all pods are looked through once


class PodCounter:
    """rows: pods of the members on each row. settled: terminating pods are left out."""

    def __init__(self, members: Members, rows: Ints, *, settled: bool) -> None:
        self.members, self.rows, self.settled = members, rows, settled


class Counting:
    """All counters of a pass."""

    def __init__(self, rows: Ints, classes: Ints, dying: Bools, count: int) -> None:
        """The pods that are there: row and class of each, which of them are terminating; count: how many rows."""
        order = np.argsort(classes, kind="stable")
        self._rows, self._classes, self._dying = rows[order], classes[order], dying[order]
        self._count = count
        self._log: dict[int, list[tuple[Ints, Ints]]] = {}
        self._moved: dict[int, dict[int, int]] = {}  # class -> row -> pods, of those counted one row at a time
        self._counters: dict[tuple[Members, bool], PodCounter] = {}
        self._of: dict[int, list[PodCounter]] = {}

    def counter(self, members: Members, *, settled: bool = False) -> PodCounter:
        """The counter of a set of classes."""
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
        """The rows of the members' pods that were there at first. Many members are found in one go: a search for each
        of thousands of classes, for each of thousands of rules, takes minutes."""
        if len(members) > _MANY:
            here = np.isin(self._classes, np.fromiter(members, dtype=np.int64, count=len(members)))
            yield self._rows[here & ~self._dying] if settled else self._rows[here]
            return
        for cls in members:
            start, end = np.searchsorted(self._classes, (cls, cls + 1))
            rows = self._rows[start:end]
            yield rows[~self._dying[start:end]] if settled else rows

    def add(self, rows: Ints, cls: int, counts: Ints) -> bool:
        """Pods placed on rows (each named once), or taken off (negative counts); they count as not terminating. Returns
        whether any counter counts them, so that what was made of it must be made anew."""
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
        """The same for one row: removals that are tried and taken back ask it by the thousand."""
        moved = self._moved.setdefault(cls, {})
        moved[row] = moved.get(row, 0) + count
        counters = self._of.get(cls, ())
        for counter in counters:
            counter.rows[row] += count
        return bool(counters)

    def followers(self, cls: int) -> Sequence[PodCounter]:
        """The counters that count a class."""
        return self._of.get(cls, ())

    def extend(self, count: int) -> None:
        """So many more rows, without pods."""
        self._count += count
        for counter in self._counters.values():
            counter.rows = np.concatenate([counter.rows, np.zeros(count, dtype=np.int64)])

    def reset(self, count: int) -> None:
        """Only the first rows again; everything placed on others must have been taken off."""
        self._count = count
        self._log = {cls: [entry for entry in entries if entry[0].max() < count] for cls, entries in self._log.items()}
        self._moved = {
            cls: {row: pods for row, pods in moved.items() if row < count} for cls, moved in self._moved.items()
        }
        for counter in self._counters.values():
            counter.rows = counter.rows[:count]
