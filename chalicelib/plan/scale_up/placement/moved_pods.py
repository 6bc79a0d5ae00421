"""Makes room on upcoming nodes for pods that found none, by other places for pods
that this pass has placed.

Pods and nodes were chosen together when the nodes were bought; placed one after another, the same
pods may not fit. A pod that is left gets a place if equal pods that are planned on an upcoming node
fit elsewhere. No pod loses its place, and nothing that runs is moved. A move is undone if pods that
stay rely on the one that goes: it evened their domains, or drew them. The number of trials is
limited, so that the rest is left to the purchase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b

import msgspec
import numpy as np

from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.demand.pending_pods import PodBatch
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.tables import Bools, Ints

_MOST_TRIALS = 2_000
_MOST_ROWS = 500  # upcoming nodes that are looked at
_DRAWS = 200
_MIXED = 0.4  # the share of draws in any order
_ONE_NODE = 0.3  # the share of pods that are tried on one of the nodes first
# the share of draws in which pods that are left, or have rules about others, go first
_PICKY_FIRST = 0.7
_FEWEST_PACKED, _MOST_PACKED = 2, 6  # nodes of one draw


class _Move(msgspec.Struct, frozen=True, order=True):
    """Pods of a class that leave a row so that one pod of another class fits there.
    share: of the row's resources."""

    share: float
    count: int
    row: int
    cls: int


def make_room(
    simulated: SimulatedCluster, unserved: Sequence[PodBatch], stop: Callable[[], bool]
) -> None:
    """Place pods that are left, as far as others can be moved for them."""
    _Mover(simulated, stop).place(unserved)


def pack_again(
    simulated: SimulatedCluster, unserved: Sequence[PodBatch], stop: Callable[[], bool]
) -> None:
    """Place pods that are left by packing a few upcoming nodes at a time anew, in orders that are
    drawn; a draw that leaves more pods is undone. The draws are the same in every pass."""
    _PackingAgain(simulated, unserved, stop).pack()


class _Support:
    """What the pods placed in this pass rely on: the least count of a domain for each spread, and
    for each key of a required affinity the domains with a pod that it selects."""

    def __init__(self, simulated: SimulatedCluster) -> None:
        self._simulated = simulated
        rules = [rule for cls in simulated.standing() if (rule := simulated.needs(cls)) is not None]
        self._spreads = [spread for rule in rules for spread in rule.evenness]
        self._attractions = [rule.attraction for rule in rules if rule.attraction is not None]
        self._least, self._drawn = self._counts()

    def holds(self) -> bool:
        """Return whether nothing of it was lost since."""
        least, drawn = self._counts()
        is_even = all(now >= before for now, before in zip(least, self._least, strict=True))
        return is_even and not any(
            (before & ~now).any() for now, before in zip(drawn, self._drawn, strict=True)
        )

    def _counts(self) -> tuple[list[int], list[Bools]]:
        rows = self._simulated.rows
        least = [rows.level(spread).least for spread in self._spreads]
        drawn: list[Bools] = [
            rows.domains(term.counter, key) > 0 for term in self._attractions for key in term.keys
        ]
        return least, drawn


class _PackingAgain:
    def __init__(
        self, simulated: SimulatedCluster, unserved: Sequence[PodBatch], stop: Callable[[], bool]
    ) -> None:
        self._simulated, self._stop, self._draws = simulated, stop, 0
        self._left: dict[int, int] = {}
        for batch in unserved:
            self._left[batch.cls] = self._left.get(batch.cls, 0) + len(batch.pods)
        rows = sorted(row for rows in simulated.coming.values() for row in rows)
        self._rows = [row for row in rows[:_MOST_ROWS] if simulated.open[row]]
        self._share: dict[int, float] = {}
        classes = {*self._left, *simulated.standing()}
        self._priorities = sorted(
            {simulated.classes[cls].priority or 0 for cls in classes}, reverse=True
        )
        self._room, self._support = self._whole_room(), _Support(simulated)

    def pack(self) -> None:
        """Draw until every pod has a place. If no draw leaves fewer pods, all are undone: pods for
        which nodes were bought would lose their places on these for nothing."""
        if len(self._rows) < _FEWEST_PACKED:
            return
        mark, left_at_first = self._simulated.checkpoint(), self._by_priority(self._left)
        for _ in range(_DRAWS):
            if not any(self._left.values()) or self._stop() or self._simulated.late():
                break
            self._draw()
        if self._by_priority(self._left) >= left_at_first:
            self._simulated.rollback(mark)

    def _draw(self) -> None:
        """Pack some nodes anew, with the pods that are left."""
        simulated, mark = self._simulated, self._simulated.checkpoint()
        count = _FEWEST_PACKED + int(self._random() * (_MOST_PACKED - _FEWEST_PACKED + 1))
        wanted = self._wanted()
        drawn = sorted(
            self._rows, key=lambda row: self._random() - (0.7 if row in wanted else 0.0)
        )[:count]
        pods = dict(self._left)
        for cls, (rows, counts) in simulated.standing().items():
            for row, pods_there in zip(rows.tolist(), counts.tolist(), strict=True):
                if row in drawn:
                    simulated.put_one(cls, row, -pods_there)
                    pods[cls] = pods.get(cls, 0) + pods_there
        left: dict[int, int] = {}
        for cls, part in self._parts(pods):
            row = drawn[int(self._random() * len(drawn))]
            only = [row] if self._random() < _ONE_NODE else []
            placed = (
                sum(count for _, count in simulated.place_first_fit(cls, part, only=only))
                if only
                else 0
            )
            placed += sum(count for _, count in simulated.place_first_fit(cls, part - placed))
            if placed < part:
                left[cls] = left.get(cls, 0) + part - placed
        room, before, after = (
            self._whole_room(),
            self._by_priority(self._left),
            self._by_priority(left),
        )
        is_better = after < before or (after == before and room >= self._room)
        if is_better and self._support.holds():
            self._left, self._room, self._support = left, room, _Support(simulated)
        else:
            simulated.rollback(mark)

    def _parts(self, pods: Mapping[int, int]) -> list[tuple[int, int]]:
        """Return class and number of pods in a drawn order: about by size, in two parts each, so
        that equal pods need not fill one node."""
        simulated = self._simulated
        first, is_mixed = self._random() < _PICKY_FIRST, self._random() < _MIXED
        parts: list[tuple[int, bool, float, int, int]] = []
        for cls, count in sorted(pods.items()):
            is_picky = first and (cls in self._left or simulated.needs(cls) is not None)
            share, cut = self._share_of(cls), int(self._random() * (count + 1))
            for part in (cut, count - cut):
                rank = self._random() if is_mixed else share * (0.5 + self._random())
                parts.append(
                    (-(simulated.classes[cls].priority or 0), not is_picky, -rank, cls, part)
                )
        return [(cls, part) for _, _, _, cls, part in sorted(parts) if part]

    def _wanted(self) -> frozenset[int]:
        """Return the nodes that would take one of the pods that are left, if they were empty."""
        simulated, wanted = self._simulated, set[int]()
        for cls in sorted(self._left):
            fits, needs = simulated.static(cls), simulated.needs(cls)
            if needs is not None and fits.any():
                fits = fits & simulated.rows.open(needs)
            wanted.update(row for row in self._rows if fits[row])
        return frozenset(wanted)

    def _by_priority(self, left: Mapping[int, int]) -> list[int]:
        """Return how many pods are left per priority, the highest first."""
        counts = dict.fromkeys(self._priorities, 0)
        for cls, count in left.items():
            counts[self._simulated.classes[cls].priority or 0] += count
        return list(counts.values())

    def _whole_room(self) -> float:
        """Return a measure of the free room that is larger, the more of it is on one node."""
        table = self._simulated.table
        columns = [at for name in (CPU, MEMORY) if (at := table.columns.at(name)) is not None]
        whole = np.maximum(table.allocatable[self._rows][:, columns], 1)
        share = (table.free[self._rows][:, columns] / whole).min(axis=1, initial=1.0)
        return float((share**2).sum())

    def _share_of(self, cls: int) -> float:
        if cls not in self._share:
            table = self._simulated.table
            whole = np.maximum(table.allocatable[self._rows].max(axis=0), 1)
            self._share[cls] = float((table.columns.need(cls) / whole).max())
        return self._share[cls]

    def _random(self) -> float:
        """Return a number in [0, 1), the same in every pass."""
        self._draws += 1
        digest = blake2b(self._draws.to_bytes(8, "big"), digest_size=6).digest()
        return int.from_bytes(digest, "big") / float(1 << 48)


class _Mover:
    def __init__(self, simulated: SimulatedCluster, stop: Callable[[], bool]) -> None:
        self._simulated, self._stop = simulated, stop
        rows = sorted(row for rows in simulated.coming.values() for row in rows)
        self._rows: Ints = np.array(rows[:_MOST_ROWS], dtype=np.int64)
        self._trials = _MOST_TRIALS

    def place(self, unserved: Sequence[PodBatch]) -> None:
        """Place the pods of each batch one by one, until one of them finds no place."""
        for batch in unserved:
            for _ in batch.pods:
                if self._trials <= 0 or self._stop() or self._simulated.late():
                    return
                if not (
                    self._simulated.place_first_fit(batch.cls, 1)
                    or self._place_by_a_move(batch.cls)
                ):
                    break

    def _place_by_a_move(self, cls: int) -> bool:
        """Place one pod where pods of another class make room for it."""
        simulated, support = self._simulated, _Support(self._simulated)
        for move in sorted(self._moves(cls)):
            self._trials -= 1
            if self._trials <= 0:
                return False
            mark = simulated.checkpoint()
            simulated.put_one(move.cls, move.row, -move.count)
            if simulated.place_first_fit(cls, 1, only=[move.row]):
                moved = sum(pods for _, pods in simulated.place_first_fit(move.cls, move.count))
                if moved == move.count and support.holds():
                    return True
            simulated.rollback(mark)
        return False

    def _moves(self, cls: int) -> Iterator[_Move]:
        """Yield which pods could make room for one pod of a class, by resources alone."""
        simulated, table = self._simulated, self._simulated.table
        fits = simulated.static(cls) & simulated.open
        needs = simulated.needs(cls)
        if needs is not None and fits.any():
            fits = fits & simulated.rows.open(needs)
        rows = self._rows[fits[self._rows]]
        lacks = np.maximum(table.columns.need(cls) - table.free[rows], 0)
        for other, (placed_rows, counts) in simulated.standing().items():
            if other == cls:
                continue
            on_row = dict(zip(placed_rows.tolist(), counts.tolist(), strict=True))
            need = table.columns.need(other)
            elsewhere = simulated.capacity(other)
            room = int(elsewhere.sum())
            for row, lack in zip(rows.tolist(), lacks, strict=True):
                count = _pods_for(lack, need)
                if 0 < count <= on_row.get(row, 0) and count <= room - int(elsewhere[row]):
                    share = float((count * need / np.maximum(table.allocatable[row], 1)).max())
                    yield _Move(share, count, row, other)


def _pods_for(lack: Ints, need: Ints) -> int:
    """Return how many pods free what is lacking, 0 if these pods do not, or if nothing is
    lacking."""
    short = lack > 0
    if not short.any() or (need[short] <= 0).any():
        return 0
    return int(np.ceil(lack[short] / need[short]).max())
