"""Finds another place, among existing nodes, for a pod that must move.

Nodes that stay are tried before nodes that may be removed too, because a pod placed on the latter would have to move
once more. Within each kind, a small cluster is filled first fit; a large one in turn, starting where the last pod was
placed, as Cluster Autoscaler does, so that few rows are checked in vain. Room only shrinks while removals are tried, so
a class that found no place among the nodes of one kind is not tried there again, unless an attempt is rolled back.

The simulated cluster checks pods with volumes or host ports.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chalicelib.plan.scale_down.removal_simulation.pod_topology import IncrementalPodTopology
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.tables import Bools, Ints

_IN_TURN = 400  # number of rows from which a cluster is filled in turn
_PEEKS = 6  # rows checked one by one before all of them are checked at once


class Checkpoint(NamedTuple):
    """The length of each log."""

    taken: int
    lifted: int
    odd: int
    full: int
    simulated: int


class _Kind:
    """Rows of nodes of one kind, in order of preference. at: where the last pod was placed."""

    def __init__(self, rows: Ints, *, in_turn: bool) -> None:
        self.rows, self.in_turn, self.at = rows, in_turn, 0
        self.listed: list[int] = rows.tolist()
        self.full: set[int] = set()  # classes that found no place here


class _Request(NamedTuple):
    """Cached data of a class: rows that pass the constant predicates, the amount that a pod takes of each column, and
    whether there are rules between it and other pods."""

    allowed: Bools
    needs: tuple[tuple[int, int], ...]
    ruled: bool


class PodDestinations:
    """Room in the simulated cluster, with a log of what was taken. staying, going: rows of existing nodes, best place
    first."""

    def __init__(self, simulated: SimulatedCluster, staying: Ints, going: Ints) -> None:
        self._simulated = simulated
        in_turn = len(staying) + len(going) > _IN_TURN
        self._kinds = tuple(_Kind(rows, in_turn=in_turn) for rows in (staying, going) if len(rows))
        self._preferred = np.concatenate([staying, going])
        self._requests: dict[int, _Request | None] = {}
        # Row and class of plain pods placed and removed (the simulated cluster logs the others), and classes that
        # found a kind full.
        self._taken: list[tuple[int, int]] = []
        self._lifted: list[tuple[int, int]] = []
        self._odd: list[tuple[int, int, int]] = []
        self._full: list[tuple[_Kind, int]] = []
        self._counts = simulated.constraints.matters
        self.neighbours = IncrementalPodTopology(simulated)

    def put(self, cls: int) -> int | None:
        """Place a pod of a class on the best row that takes it; None: no row does."""
        request = self._request(cls)
        if request is None:
            return self._put_by_quota(cls)
        for kind in self._kinds:
            if cls in kind.full:
                continue
            row = self._find_by_rules(kind, request, cls) if request.ruled else self._find(kind, request)
            if row is not None:
                self._change(row, cls, request, -1)
                self._taken.append((row, cls))
                return row
            if not request.ruled:
                kind.full.add(cls)
                self._full.append((kind, cls))
        return None

    def lift(self, cls: int, row: int) -> None:
        """Remove a pod from a closed row: its room there cannot be used, but other pods' rules may no longer count
        it."""
        if self._request(cls) is None:
            self._simulated.put_one(cls, row, -1)
            self._odd.append((row, cls, -1))
            self.neighbours.follow(cls, row, -1)
        elif self._counts:
            self.neighbours.count(cls, row, -1)
            self._lifted.append((row, cls))

    def checkpoint(self) -> Checkpoint:
        """Return a checkpoint for `rewind`."""
        return Checkpoint(
            len(self._taken), len(self._lifted), len(self._odd), len(self._full), self._simulated.checkpoint()
        )

    def rollback(self, checkpoint: Checkpoint) -> None:
        """Undo everything since a checkpoint."""
        for row, cls in self._taken[checkpoint.taken :]:
            request = self._requests[cls]
            assert request is not None
            self._change(row, cls, request, 1)
        for row, cls in self._lifted[checkpoint.lifted :]:
            self.neighbours.count(cls, row, 1)
        for row, cls, sign in self._odd[checkpoint.odd :]:
            self.neighbours.follow(cls, row, -sign)
        for kind, cls in self._full[checkpoint.full :]:
            kind.full.discard(cls)
        del (
            self._taken[checkpoint.taken :],
            self._lifted[checkpoint.lifted :],
            self._odd[checkpoint.odd :],
            self._full[checkpoint.full :],
        )
        self._simulated.rollback(checkpoint.simulated)

    def again(self) -> None:
        """Restore the initial state after everything was undone."""
        for kind in self._kinds:
            kind.at = 0

    def _put_by_quota(self, cls: int) -> int | None:
        quota = self._simulated.quota(cls, moving=True)[0]
        able = quota[self._preferred] > 0
        if not able.any():
            return None
        row = int(self._preferred[int(able.argmax())])
        self._simulated.put_one(cls, row)
        self._odd.append((row, cls, 1))
        self.neighbours.follow(cls, row, 1)
        return row

    def _change(self, row: int, cls: int, request: _Request, sign: int) -> None:
        free = self._simulated.table.free
        for column, amount in request.needs:
            free[row, column] += sign * amount
        if self._counts:
            self.neighbours.count(cls, row, -sign)

    def _request(self, cls: int) -> _Request | None:
        """Return the cached data, or None if the class uses volumes or host ports or cannot be simulated."""
        if cls not in self._requests:
            simulated, request = self._simulated, None
            if simulated.is_plain(cls):
                pairs = (array.tolist() for array in simulated.table.columns.asked(cls))
                needs = tuple(zip(*pairs, strict=True))
                request = _Request(simulated.static(cls), needs, simulated.needs(cls) is not None)
            self._requests[cls] = request
        return self._requests[cls]

    def _find(self, kind: _Kind, request: _Request) -> int | None:
        """Return the next row of a kind that takes one more pod."""
        free, is_open, allowed, needs = self._simulated.table.free, self._simulated.open, request.allowed, request.needs
        start = kind.at if kind.in_turn else 0
        for at in range(start, min(start + _PEEKS, len(kind.listed))):
            row = kind.listed[at]
            if is_open[row] and allowed[row] and _holds(free, row, needs):
                kind.at = at
                return row
        fits = (is_open & allowed)[kind.rows]
        for column, amount in needs:
            fits &= free[kind.rows, column] >= amount
        at = int(fits[start:].argmax()) + start if start < len(fits) else 0
        if not fits[at]:
            at = int(fits.argmax())
        if not fits[at]:
            return None
        kind.at = at
        return kind.listed[at]

    def _find_by_rules(self, kind: _Kind, request: _Request, cls: int) -> int | None:
        """Return the next row of a kind that takes one more pod, for classes with rules between pods."""
        free, is_open, allowed, needs = self._simulated.table.free, self._simulated.open, request.allowed, request.needs
        neighbours, start = self.neighbours, kind.at if kind.in_turn else 0
        for at in range(start, min(start + _PEEKS, len(kind.listed))):
            row = kind.listed[at]
            if is_open[row] and allowed[row] and _holds(free, row, needs) and neighbours.allows(cls, row):
                return row
        fits = (is_open & allowed & neighbours.mask(cls))[kind.rows]
        for column, amount in needs:
            fits &= free[kind.rows, column] >= amount
        at = int(fits.argmax())
        return kind.listed[at] if fits[at] else None


def _holds(free: Ints, row: int, needs: tuple[tuple[int, int], ...]) -> bool:
    """Return whether a row has that much room; the most frequent call of this module."""
    for column, amount in needs:  # noqa: SIM110 - a generator takes twice as long
        if free.item(row, column) < amount:
            return False
    return True
