"""Headroom while removals are tried: what nodes that exist hold of it, those that stay must hold, too.

Its virtual pods stand nowhere. They would pin the nodes that they happened to be put on, and bar real pods from the
only nodes that these may go to. So it is counted how many the open rows could take, which is the same for pods that are
alike; and a few divisions per pod that is moved keep the count. Headroom of several kinds goes to rows first that only
its own kind may use; what is left of two kinds for rows that both may use is laid out there.

Rules of real pods about others are looked at once, at the beginning: a node whose pod wants to be alone holds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from chalicelib.plan.arrays import Bools, Ints
from chalicelib.plan.floor import Floor, Spare, first_fit
from chalicelib.plan.table import least_fit

_ALL = slice(None)
_TRIES = 16     # how often headroom is made to stand in vain before one trial asks for it no more


class _Kind:
    """Headroom of one kind. alone: rows that no other kind may use; room: what every row takes; total, own: of all
    rows, and of those alone."""

    def __init__(self, floor: Floor, spare: Spare) -> None:
        self.name, self.cls, self.pods = spare.name, spare.cls, spare.pods
        barred = (floor.capacity(spare.cls) > 0) & (floor.quota(spare.cls)[0] == 0)
        self.usable: Bools = (floor.static(spare.cls) & ~barred)[: floor.real]
        self.asked, self.need = floor.table.columns.asked(spare.cls)
        self.whole: Ints = floor.table.columns.need(spare.cls)
        self.alone: list[bool] = []
        self.room: list[int] = []
        self.total = self.own = 0
        self._pairs = tuple(zip(self.asked.tolist(), self.need.tolist(), strict=True))
        self._listed: list[bool] = self.usable.tolist()

    def begin(self, floor: Floor, free: Ints) -> None:
        """Count every row."""
        counts = self.capacity(floor, free)
        self.room, self.total = counts.tolist(), int(counts.sum())
        self.own = sum(room for room, alone in zip(self.room, self.alone, strict=True) if alone)

    def capacity(self, floor: Floor, free: Ints, rows: Ints | slice = _ALL) -> Ints:
        """How many each of these rows takes, of all if none are named. free: what is free on each."""
        counts = np.maximum(least_fit(free, self.asked, self.need), 0)
        taken: Ints = np.where(self.usable[rows] & floor.open[: floor.real][rows], counts, 0)
        return taken

    def takes(self, floor: Floor, row: int) -> int:
        """How many one row takes now."""
        if not self._listed[row] or not floor.open[row]:
            return 0
        free = floor.table.free
        least: int = min([free.item(row, column) // amount for column, amount in self._pairs])
        return max(0, least)


class Reserve:
    """All headroom, as things stand on the floor."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._kinds: list[_Kind] = []
        self._standing: Ints | None = None      # the room it takes where it stands
        self._left = _TRIES
        if not floor.spare:
            return
        self._kinds = [_Kind(floor, spare) for spare in floor.spare]
        shared: Bools = np.sum([kind.usable for kind in self._kinds], axis=0) > 1
        self._shared: Ints = np.flatnonzero(shared)
        self._order: Ints = np.argsort(shared, kind="stable")
        for kind in self._kinds:
            kind.alone = (~shared).tolist()
        # What is laid out here may be less than what was, by other rules: what never was is never missed.
        for kind, here in zip(self._kinds, self._laid_out(), strict=True):
            kind.pods = int(here.sum())
        self.again()

    def again(self) -> None:
        """Count from the beginning."""
        self._left = _TRIES
        for kind in self._kinds:
            kind.begin(self._floor, self._free())

    def lacking(self, row: int | None, moved: Iterable[tuple[int, object, object]]) -> str:
        """The name of headroom that finds no room any more, now that a row is closed and pods have been put on others;
        empty if all of it does: then that is how things stand."""
        if not self._kinds:
            return ""
        changed = {at for at, _, _ in moved} | ({row} if row is not None and row < self._floor.real else set())
        before = [(kind, kind.total, kind.own, [(at, kind.room[at]) for at in changed]) for kind in self._kinds]
        for kind in self._kinds:
            for at in changed:
                takes = kind.takes(self._floor, at)
                kind.total += takes - kind.room[at]
                kind.own += takes - kind.room[at] if kind.alone[at] else 0
                kind.room[at] = takes
        name = self._missing()
        if name:
            for kind, total, own, rooms in before:
                kind.total, kind.own = total, own
                for at, room in rooms:
                    kind.room[at] = room
        return name

    def _missing(self) -> str:
        short = next((kind.name for kind in self._kinds if kind.total < kind.pods), "")
        rivals = [kind for kind in self._kinds if kind.own < kind.pods]
        if short or len(rivals) < 2:
            return short
        left = self._free()[self._shared]
        for kind in rivals:
            counts = kind.capacity(self._floor, left, self._shared)
            if counts.sum() < kind.pods - kind.own:
                return kind.name
            where, here = first_fit(counts, kind.pods - kind.own)
            left[where] -= here[:, None] * kind.whole[None, :]
        return ""

    def may_stand(self, row: int | None) -> bool:
        """Whether it may help to put headroom somewhere first and other pods beside it: there is room enough for it
        without this row, and it has not failed too often."""
        if self._left <= 0:
            return False
        return all(kind.total - (kind.room[row] if row is not None and row < self._floor.real else 0) >= kind.pods
                   for kind in self._kinds)

    def stand(self) -> bool:
        """Take the room, first fit; whether there is enough. `vanish` gives it back."""
        self._left -= 1
        laid_out = self._laid_out()
        if any(here.sum() < kind.pods for here, kind in zip(laid_out, self._kinds, strict=True)):
            return False
        self._standing = np.zeros_like(self._free())
        for kind, here in zip(self._kinds, laid_out, strict=True):
            self._standing += here[:, None] * kind.whole[None, :]
        self._floor.table.free[: self._floor.real] -= self._standing
        return True

    def vanish(self) -> None:
        """Undo `stand`."""
        if self._standing is not None:
            self._floor.table.free[: self._floor.real] += self._standing
        self._standing = None

    def helped(self) -> None:
        """It did help."""
        self._left += 1

    def _free(self) -> Ints:
        free: Ints = self._floor.table.free[: self._floor.real]
        return free

    def _laid_out(self) -> list[Ints]:
        """Pods per row of every kind, in order, each first fit, shared rows last, as many as there is room for."""
        left, found = self._free(), []
        for kind in self._kinds:
            where, counts = first_fit(kind.capacity(self._floor, left)[self._order], kind.pods)
            here: Ints = np.zeros(len(left), dtype=np.int64)
            here[self._order[where]] = counts
            left = left - here[:, None] * kind.whole[None, :]
            found.append(here)
        return found
