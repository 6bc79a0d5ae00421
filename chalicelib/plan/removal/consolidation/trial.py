"""The trial of a move on the simulated cluster: do the pods of the nodes that go
find places in every order?

It passes if every pod finds a place in each of the scheduler's four orders, and if headroom still
has its room afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.pod import Pod
from chalicelib.model.reason import Reason
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.packing.scheduler_orders import (
    ORDERS,
    SchedulerOrder,
    emptiest_first,
    lowest,
)
from chalicelib.plan.removal.candidates import Candidate
from chalicelib.plan.removal.consolidation.purchases import NodeOffer
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster, renamed
from chalicelib.plan.tables import Bools, Floats, Ints, first_fit

_MOST_PAIRS = 400_000  # (row, pod) pairs that are ranked one by one when pods are spread
_ONE_BY_ONE = 64  # pods of a class that must be spread are placed one by one up to this number


class Shortage(msgspec.Struct, frozen=True):
    """An order in which pods find no place: class -> pods. headroom: the name of headroom that
    finds none; then there are no pods. failing: position of the order in ORDERS."""

    failing: int
    pods: Mapping[int, int]
    headroom: str = ""


class Places(msgspec.Struct, frozen=True):
    """Where the pods of a move go in the first order: (class, row, pods), in the order of
    placement. new_rows: rows of the nodes that are bought -> their group."""

    placed: tuple[tuple[int, int, int], ...]
    new_rows: Mapping[int, str]


class Trial:
    """Trials of moves among these candidates. The simulated cluster is left as it was."""

    def __init__(
        self,
        simulated: SimulatedCluster,
        candidates: Sequence[Candidate],
        offers: Sequence[NodeOffer],
    ) -> None:
        self._simulated, self._candidates, self._offers = simulated, candidates, offers
        self.orders: Sequence[int] = range(len(ORDERS))
        self._rows = [simulated.table.index[candidate.node.name] for candidate in candidates]
        self.moving = [_classes(candidate.pods) for candidate in candidates]
        table = simulated.table
        self._columns = [at for name in (CPU, MEMORY) if (at := table.columns.at(name)) is not None]
        self._parts: list[Floats] = []
        self._measure()
        self._mean: Floats = np.ones(len(table.columns.names))
        if simulated.real:
            self._mean = np.maximum(table.allocatable[: simulated.real].mean(axis=0), 1.0)

    def run(self, gone: Sequence[int], bought: Ints, first: int = 0) -> Places | Shortage:
        """Try a move in every order: the candidates with these indexes go, so many nodes of each
        offer are bought. first: the order to begin with."""
        simulated = self._simulated
        mark, was_open = (
            simulated.checkpoint(),
            [bool(simulated.open[self._rows[at]]) for at in gone],
        )
        length = len(simulated.table)
        new_rows = self._extend(bought)
        for at in gone:  # they stay domains of topology spread until they are deleted
            simulated.mark_leaving(self._rows[at])
        moving = self._lift(gone)
        lifted = simulated.checkpoint()
        sequence = sorted(self.orders, key=lambda at: at != first)
        result: Places | Shortage | None = None
        for at in sequence:
            placed, short, headroom = self._place(moving, ORDERS[at], new_rows)
            simulated.rollback(lifted)
            if short or headroom:
                result = Shortage(at, short, headroom)
                break
            if at == self.orders[0]:
                result = Places(tuple(placed), new_rows)
        simulated.rollback(mark)
        for at, is_open in zip(gone, was_open, strict=True):
            simulated.restore_node(self._rows[at], is_open=is_open)
        if new_rows:
            simulated.drop(length)
            self._measure()
        assert result is not None
        return result

    def tally(self, at: int, cls: int) -> tuple[tuple[tuple[Reason, int], ...], int]:
        """Count why no existing node takes a pod of a class when this candidate alone has gone;
        also returns the number of these nodes."""
        simulated, row = self._simulated, self._rows[at]
        mark, was_open = simulated.checkpoint(), bool(simulated.open[row])
        simulated.mark_leaving(row)
        self._lift([at])
        rows = simulated.open & (np.arange(len(simulated.table)) < simulated.real)
        counts = simulated.tally(cls, rows)
        simulated.rollback(mark)
        simulated.restore_node(row, is_open=was_open)
        return counts, int(rows.sum())

    def _size(self, cls: int) -> float:
        """Return the largest share of an average node that a pod of a class takes."""
        return float((self._simulated.table.columns.need(cls) / self._mean).max())

    def _extend(self, bought: Ints) -> dict[int, str]:
        """Add the nodes that are bought; returns their rows with their groups."""
        new_rows: dict[int, str] = {}
        for offer, count in zip(self._offers, bought.tolist(), strict=True):
            if count:
                template = offer.shape.template
                names = [f"replacement-{at}-of-{offer.group}" for at in range(count)]
                free: Ints = np.repeat(offer.shape.free[None, :], count, axis=0)
                nodes = renamed(template.node, names)
                rows = self._simulated.extend(nodes, free, template.daemons, template.volume_limits)
                new_rows.update(dict.fromkeys(rows, offer.group))
        if new_rows:
            self._measure()
        return new_rows

    def _lift(self, gone: Sequence[int]) -> dict[int, int]:
        """Take the pods off the nodes that go; returns class -> pods."""
        per_class: dict[int, dict[int, int]] = {}
        for at in gone:
            for cls, count in self.moving[at].items():
                per_class.setdefault(cls, {})[self._rows[at]] = count
        for cls, rows in sorted(per_class.items()):
            self._simulated.place(
                cls, np.array(list(rows)), -np.array(list(rows.values()), dtype=np.int64)
            )
        return {cls: sum(rows.values()) for cls, rows in sorted(per_class.items())}

    def _place(
        self, moving: Mapping[int, int], order: SchedulerOrder, new_rows: Mapping[int, str]
    ) -> tuple[list[tuple[int, int, int]], dict[int, int], str]:
        """Place all pods; returns the placements, the pods without a place, and the headroom
        without one. A class that depends on others is tried again after them."""
        simulated = self._simulated
        usable: Bools = np.zeros(len(simulated.table), dtype=np.bool_)
        usable[: simulated.real] = True
        usable[list(new_rows)] = True
        sign = -1 if order.largest_first else 1
        waiting = dict(
            sorted(moving.items(), key=lambda item: (sign * self._size(item[0]), sign * item[0]))
        )
        placed: list[tuple[int, int, int]] = []
        while waiting:
            short: dict[int, int] = {}
            for cls, count in waiting.items():
                left = self._place_class(cls, count, order, usable, placed)
                if left:
                    short[cls] = left
            if short == waiting or not any(simulated.needs(cls) is not None for cls in short):
                if short:
                    return placed, short, ""
                break
            waiting = short
        for spare in simulated.spare:
            if self._place_class(spare.cls, spare.pods, order, usable, []):
                return placed, {}, spare.name
        return placed, {}, ""

    def _place_class(
        self,
        cls: int,
        count: int,
        order: SchedulerOrder,
        usable: Bools,
        placed: list[tuple[int, int, int]],
    ) -> int:
        """Place the pods of a class; returns how many found no place."""
        simulated, again, needs = self._simulated, True, self._simulated.needs(cls)
        # A pod that must be spread changes where the next one may go.
        one_by_one = needs is not None and bool(needs.evenness) and count <= _ONE_BY_ONE
        while count > 0 and again:
            preference = (
                self._preference(cls, fullest=order.fullest_first) if needs is not None else None
            )
            quota, again = simulated.quota(cls, moving=True, preference=preference)
            quota = np.where(usable, quota, 0)
            most = 1 if one_by_one else simulated.attached.at_once(cls, count)
            rows, pods = self._distribute(cls, quota, most, fullest=order.fullest_first)
            again = again or most < count
            if not len(rows):
                break
            simulated.place(cls, rows, pods)
            placed += [
                (cls, row, number) for row, number in zip(rows.tolist(), pods.tolist(), strict=True)
            ]
            count -= int(pods.sum())
        return count

    def _distribute(self, cls: int, quota: Ints, count: int, *, fullest: bool) -> tuple[Ints, Ints]:
        """Return the rows that take up to `count` pods, and how many each takes: node by node
        from the fullest, or one by one to the emptiest, as the scheduler's scores
        MostAllocated and LeastAllocated do."""
        rows = np.flatnonzero(quota)
        if not len(rows):
            return rows, rows
        left, share = self._left_and_share(cls, rows)
        if fullest:
            # Each of these rows takes at least one pod, so no more rows than pods are needed.
            ranked = rows[lowest(left - share, count)]
            taken, pods = first_fit(quota[ranked], count)
            return ranked[taken], pods
        most = np.minimum(quota[rows], max(1, _MOST_PAIRS // min(len(rows), count)))
        pods = emptiest_first(left, share, most, count)
        taken = np.flatnonzero(pods)
        return rows[taken], pods[taken]

    def _preference(self, cls: int, *, fullest: bool) -> Ints:
        """Return all rows, those first that the scheduler prefers for a pod of a class."""
        left, share = self._left_and_share(cls, np.arange(len(self._simulated.table)))
        order: Ints = np.argsort(left - share if fullest else share - left, kind="stable")
        return order

    def _left_and_share(self, cls: int, rows: Ints) -> tuple[Floats, Floats]:
        """Return the free shares of cpu and memory of these rows together, and what a pod
        of a class takes of them."""
        free, need = self._simulated.table.free, self._simulated.table.columns.need(cls)
        left: Floats = np.zeros(len(rows))
        share: Floats = np.zeros(len(rows))
        for column, part in zip(self._columns, self._parts, strict=True):
            part_of_row = part[rows]
            left += free[rows, column] * part_of_row
            share += need[column] * part_of_row
        return left, share

    def _measure(self) -> None:
        """Note what one unit of cpu and of memory is of every row's node."""
        allocatable = self._simulated.table.allocatable
        self._parts = [1.0 / np.maximum(allocatable[:, column], 1.0) for column in self._columns]


def _classes(pods: Sequence[Pod]) -> dict[int, int]:
    """Return class -> pods that are moved. A pod that is being deleted is not placed again."""
    counts: dict[int, int] = {}
    for pod in pods:
        if not pod.deleted:
            counts[pod.cls] = counts.get(pod.cls, 0) + 1
    return counts
