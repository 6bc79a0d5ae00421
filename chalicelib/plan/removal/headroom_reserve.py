"""Reserves headroom while removals are simulated: the nodes that stay must offer the headroom
that existing nodes offer.

Its virtual pods are not placed anywhere. They would tie down the nodes on which they happened to be
placed, and keep real pods from the only nodes that these may use. Instead, the number that the open
rows could take is counted, which is the same for equal pods. Two counts must suffice:

    planned ► with all moving pods where the plan puts them: all unneeded nodes can be removed
    sure    ► with the pods of as many drains as may run at once wherever they do most
            harm (HeadroomCost): a drain
              never causes a purchase, so nothing is drained and bought in turn

Neither bought_back.py nor `planned` alone can stand for `sure`: what is bought for headroom is
bought for no owner's pods, so nothing would end the turns of draining and buying.
test_headroom_never_oscillates_wherever_the_scheduler_places_pods shows them.

A row is counted again only when something on it changes, and only for the kinds that may use it.
Rules of real pods about others are evaluated once, at the beginning: a node whose pod excludes all
others provides no headroom.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from chalicelib.model.pod import Pod
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.tables import Bools, Ints, first_fit, least_fit

_FINE = 1000  # virtual pods are counted in thousandths where amounts are divided
_MOST = 2**44  # cap of an amount
_SUM = 2**52  # cap of a sum


class _Ledger:
    """Room of every kind on every row. room: (kinds, rows); total, own, rows: per
    kind, virtual pods that fit, those on rows that no other kind may use, and the
    number of rows that take any."""

    def __init__(self, room: Ints, alone: Bools) -> None:
        self.room = room.copy()
        self.total: Ints = room.sum(axis=1)
        self.own: Ints = room[:, alone].sum(axis=1)
        self.rows: Ints = np.count_nonzero(room, axis=1)

    def set(self, kind: int, row: int, room: int, *, alone: bool) -> None:
        """Set how many virtual pods of a kind a row takes now."""
        room_before = self.room.item(kind, row)
        change = room - room_before
        self.room[kind, row] = room
        self.total[kind] += change
        if alone:
            self.own[kind] += change
        self.rows[kind] += (room > 0) - (room_before > 0)


class HeadroomReserve:
    """All headroom in the current state of the simulated cluster. drains: how many
    nodes may be drained at once."""

    def __init__(self, simulated: SimulatedCluster, drains: int) -> None:
        self._simulated = simulated
        self._names = [spare.name for spare in simulated.spare]
        if not self._names:
            return
        real = simulated.real
        classes = [spare.cls for spare in simulated.spare]
        usable = np.array([_usable_rows(simulated, cls) for cls in classes])
        shared: Bools = usable.sum(axis=0) > 1
        self._alone: list[bool] = (~shared).tolist()
        self._free: Ints = simulated.table.free[:real].copy()
        requests = [simulated.table.columns.asked(cls) for cls in classes]
        fits = [least_fit(self._free, columns, amounts) for columns, amounts in requests]
        room: Ints = np.where(usable & simulated.open[:real], np.maximum(fits, 0), 0)
        self._room_at_start = room
        self._requests = [
            tuple(zip(columns.tolist(), amounts.tolist(), strict=True))
            for columns, amounts in requests
        ]
        # a row that takes none at the beginning never will
        self._kinds_on: list[list[int]] = [[] for _ in range(real)]
        kinds_with_room, rows_with_room = np.nonzero(room)
        for kind, row in zip(kinds_with_room.tolist(), rows_with_room.tolist(), strict=True):
            self._kinds_on[row].append(kind)
        self._contention = HeadroomContention(simulated, classes, usable, np.flatnonzero(shared))
        # Fewer virtual pods may fit here than were planned, because the rules differ; those that
        # never fit are not required.
        planned_pods = np.array([spare.pods for spare in simulated.spare])
        self._pods: Ints = self._contention.laid_out(self._free, planned_pods)
        self._costs = HeadroomCost(simulated, classes, room)
        self._drains = max(1, drains)
        self.again()

    def again(self) -> None:
        """Start counting again."""
        if not self._names:
            return
        alone = np.array(self._alone)
        self._planned = _Ledger(self._room_at_start, alone)
        self._sure = _Ledger(self._room_at_start, alone)
        # Per column of a cost, the highest values of as many nodes as may be drained at
        # once, in ascending order.
        self._highest: Ints = np.zeros((self._drains, *self._costs.shape), dtype=np.int64)
        self._sum_of_highest: Ints = self._highest.sum(axis=0)
        self._highest_wholes = [0] * self._drains
        # classes of moving pods that are not in the costs yet, per node
        self._uncounted: list[list[int]] = []
        self._moving: list[int] = []

    def unsure(self, row: int | None, pods: Iterable[Pod]) -> str:
        """Return the name of headroom that might find no room once a row is closed and its pods are
        anywhere, "" if all of it finds room in any case. Called before the pods are placed."""
        if not self._names:
            return ""
        self._moving = [pod.cls for pod in pods]
        if self._is_ample(row):
            return ""
        while self._uncounted:
            self._insert(self._costs.of(self._uncounted.pop()))
        ledger = self._sure
        own_room = ledger.own
        closed_room: Ints = np.zeros(len(self._names), dtype=np.int64)
        if row is not None:
            closed_room = ledger.room[:, row]
            if self._alone[row]:
                own_room = own_room - closed_room
        room_left = ledger.total - closed_room
        rows_left = ledger.rows - (closed_room > 0)
        least = self._highest[0]
        highest_others = self._sum_of_highest - least
        cost = highest_others + np.maximum(self._costs.of(self._moving), least)
        room_needed = self._pods + self._costs.loss(cost, rows_left)
        return self._short(room_left, own_room, room_needed, self._free)

    def _is_ample(self, row: int | None) -> bool:
        """Return whether the check can be skipped: there is room even if every moving pod costs
        whole virtual pods of every kind."""
        ledger = self._sure
        least = self._highest_wholes[0]
        highest_others = sum(self._highest_wholes) - least
        lost = highest_others + max(least, self._costs.whole(self._moving))
        if row is not None:
            lost += max([ledger.room.item(kind, row) for kind in self._kinds_on[row]], default=0)
        spare_room = ledger.total - self._pods
        if int(spare_room.min()) < lost:
            return False
        if len(self._names) < 2:
            return True
        spare_own_room = ledger.own - self._pods
        second_least = int(np.partition(spare_own_room, 1)[1])
        return second_least >= lost

    def lacking(self, row: int | None, rows: Iterable[int]) -> str:
        """Return the name of headroom that finds no room after a row was closed and its pods were
        placed on others; "" if all of it does, and then the new state is kept. Called after
        `unsure` for the same node."""
        if not self._names:
            return ""
        ledger = self._planned
        rooms_before: list[tuple[int, int, int]] = []
        changed_rows = set(rows) if row is None else {row, *rows}
        for changed_row in changed_rows:
            for kind in self._kinds_on[changed_row]:
                room = self._room_on(kind, changed_row)
                room_before = ledger.room.item(kind, changed_row)
                if room != room_before:
                    rooms_before.append((kind, changed_row, room_before))
                    ledger.set(kind, changed_row, room, alone=self._alone[changed_row])
        if rooms_before:
            free = self._simulated.table.free[: self._simulated.real]
            name = self._short(ledger.total, ledger.own, self._pods, free)
            if name:
                for kind, changed_row, room_before in rooms_before:
                    ledger.set(kind, changed_row, room_before, alone=self._alone[changed_row])
                return name
        self._accept(row)
        return ""

    def _accept(self, closed_row: int | None) -> None:
        """Count a drain whose pods leave enough room."""
        if closed_row is not None:
            for kind in self._kinds_on[closed_row]:
                self._sure.set(kind, closed_row, 0, alone=self._alone[closed_row])
        if self._moving:
            self._uncounted.append(self._moving)
            wholes = sorted((*self._highest_wholes, self._costs.whole(self._moving)))
            self._highest_wholes = wholes[1:]

    def _insert(self, cost: Ints) -> None:
        """Insert a cost into the highest costs, column by column."""
        least = self._highest[0]
        self._sum_of_highest += np.maximum(cost, least) - least
        highest = np.maximum(self._highest, cost)
        highest[:-1] = np.minimum(highest[:-1], self._highest[1:])
        self._highest = highest

    def _short(self, total: Ints, own: Ints, need: Ints, free: Ints) -> str:
        """Return the first kind that finds less room than it needs."""
        lacks = total < need
        if lacks.any():
            return self._names[int(lacks.argmax())]
        rivals = np.flatnonzero(own < need)
        if len(rivals) < 2:
            return ""
        kind = self._contention.first_short(rivals, total, need, need - own, free)
        return "" if kind is None else self._names[kind]

    def _room_on(self, kind: int, row: int) -> int:
        """Return how many virtual pods of a kind one row takes now."""
        free = self._simulated.table.free
        if not self._simulated.open[row]:
            return 0
        fits = [free.item(row, column) // amount for column, amount in self._requests[kind]]
        least: int = min(fits)
        return max(0, least)


def _usable_rows(simulated: SimulatedCluster, cls: int) -> Bools:
    """Return the nodes that virtual pods of a class may use."""
    has_room = simulated.capacity(cls) > 0
    quota, _ = simulated.quota(cls)
    barred = has_room & (quota == 0)
    usable: Bools = simulated.static(cls) & ~barred
    return usable[: simulated.real]


class HeadroomContention:
    """Several kinds of headroom on rows that more than one of them may use. What each kind finds on
    rows of its own is counted separately; the rest is placed first fit, kind after kind, unless a
    sum shows that there is ample room.

    usable: rows by kind; shared: rows that more than one kind may use.
    """

    def __init__(
        self, simulated: SimulatedCluster, classes: Sequence[int], usable: Bools, shared: Ints
    ) -> None:
        columns = simulated.table.columns
        self._simulated = simulated
        self._usable = usable
        self._shared: list[Ints] = [shared[rows[shared]] for rows in usable]
        self._requests = [columns.asked(cls) for cls in classes]
        self._need: Ints = np.array([columns.need(cls) for cls in classes], dtype=np.int64)
        own = np.setdiff1d(np.arange(simulated.real), shared)
        self._order: Ints = np.concatenate([own, shared])
        # Maximum number of virtual pods of a kind (column) that lose their room to
        # one of another kind (row).
        need = self._need[None, :]
        lost_by_column = -(-self._need[:, None] // np.maximum(need, 1))
        lost = np.where(need > 0, lost_by_column, 0).max(axis=2)
        row_counts = usable.astype(np.float64)
        have_common_rows = row_counts @ row_counts.T > 0
        self._lost: Ints = np.triu(np.where(have_common_rows, lost, 0), 1)

    def first_short(
        self, rivals: Ints, total: Ints, need: Ints, left: Ints, free: Ints
    ) -> int | None:
        """Return the first of these kinds that finds no room after the earlier ones. total: what
        all rows take; need: how many are required; left: those that find no room on rows of their
        own; free: what is free on each row."""
        displaced = left[rivals] @ self._lost[np.ix_(rivals, rivals)]
        if np.all(total[rivals] - displaced >= need[rivals]):
            return None
        is_open = self._simulated.open
        room = free.copy()
        for kind in rivals.tolist():
            rows = self._shared[kind]
            counts = np.where(is_open[rows], self._capacity(kind, room[rows]), 0)
            if counts.sum() < left[kind]:
                return int(kind)
            where, pods = first_fit(counts, int(left[kind]))
            room[rows[where]] -= pods[:, None] * self._need[kind]
        return None

    def laid_out(self, free: Ints, pods: Ints) -> Ints:
        """Return how many of each kind find room, in order, each first fit, shared rows last."""
        room = free[self._order]
        is_open = self._simulated.open[self._order]
        placed = []
        for kind, count in enumerate(pods.tolist()):
            is_usable = self._usable[kind, self._order] & is_open
            counts = np.where(is_usable, self._capacity(kind, room), 0)
            where, pods_on_row = first_fit(counts, count)
            room[where] -= pods_on_row[:, None] * self._need[kind]
            placed.append(int(pods_on_row.sum()))
        return np.array(placed, dtype=np.int64)

    def _capacity(self, kind: int, room: Ints) -> Ints:
        columns, amounts = self._requests[kind]
        counts: Ints = np.maximum(least_fit(room, columns, amounts), 0)
        return counts


class HeadroomCost:
    """How much headroom moved pods may take, wherever the scheduler puts them: costs of classes of
    pods in virtual pods of every kind. The rows that a pod could use are those of the beginning,
    because removals only reduce what is free.

    A plan says where the pods of a drained node find room, but the scheduler decides, and it
    prefers empty nodes, which provide headroom. If headroom existed only where the plan left it, a
    drain could cause a purchase and the purchase the next drain, and pods would be evicted for
    nothing all day. A drain is therefore costed by the worst places that its pods could take.

    There are three upper bounds, and the lowest one counts. Each row on which a pod is placed may
    lose one virtual pod more than the amounts alone imply, because of fragmentation. See
    docs/reference/headroom.md "Headroom and drains".

    A cost is a row of numbers per kind: the pods' requests column by column (for pods: their
    number); thousandths of virtual pods by the dominant request; whole virtual pods, pod by pod.
    """

    def __init__(self, simulated: SimulatedCluster, kinds: Sequence[int], room: Ints) -> None:
        """kinds: the class of each; room: virtual pods of each kind that each
        row takes, (kinds, rows)."""
        columns = simulated.table.columns
        self._simulated = simulated
        self._free = simulated.table.free[: simulated.real].copy()
        self._need: Ints = np.array([columns.need(cls) for cls in kinds], dtype=np.int64)
        self._asks: Bools = self._need > 0
        self._divisors: Ints = np.maximum(self._need, 1)
        kind_count, column_count = self._need.shape
        self.shape = (kind_count, column_count + 2)
        self._costs: Ints = np.empty((len(simulated.classes), *self.shape), dtype=np.int64)
        self._whole_costs: dict[int, int] = {}
        self._kinds, self._rows = np.nonzero(room)
        self._room: Ints = room[self._kinds, self._rows]
        self._kinds_with_room, self._starts = np.unique(self._kinds, return_index=True)
        self._total: Ints = room.sum(axis=1)
        # For every column, the minimum over all rows of what is left after the row's virtual pods.
        self._over: Ints = np.full((kind_count, column_count), _MOST, dtype=np.int64)
        if len(self._kinds_with_room):
            amounts = self._room[:, None] * self._need[self._kinds]
            over = self._free[self._rows] - amounts
            self._over[self._kinds_with_room] = np.minimum.reduceat(over, self._starts, axis=0)
        self._objectors = [_objectors(simulated, cls) for cls in kinds]

    def of(self, classes: list[int]) -> Ints:
        """Return the cost of pods of these classes together."""
        for cls in classes:
            self._whole_cost(cls)
        total: Ints = self._costs[classes].sum(axis=0)
        return total

    def whole(self, classes: list[int]) -> int:
        """Return the maximum number of whole virtual pods, of any kind, that these pods cost."""
        return sum([self._whole_cost(cls) for cls in classes])

    def _whole_cost(self, cls: int) -> int:
        whole_cost = self._whole_costs.get(cls)
        if whole_cost is None:
            cost = self._cost(cls)
            whole_cost = int(cost[:, -1].max())
            self._costs[cls] = cost
            self._whole_costs[cls] = whole_cost
        return whole_cost

    def loss(self, price: Ints, rows: Ints) -> Ints:
        """Return the maximum number of virtual pods of every kind that are lost. rows: those
        that take any, per kind."""
        amounts = np.minimum(price[:, :-2], _SUM)
        shares = price[:, -2]
        whole = price[:, -1]
        pods = amounts[:, 0]
        rows_hit = np.minimum(pods, rows)
        is_tight = self._asks & (amounts > self._over)
        thousandths = -(-amounts * _FINE // self._divisors)
        tight_thousandths = np.where(is_tight, thousandths, 0).sum(axis=1)
        by_column = np.where(is_tight.any(axis=1), _broken(tight_thousandths, rows_hit), 0)
        pods_over = np.maximum(0, pods - self._over[:, 0])
        by_share = _broken(shares, rows_hit) + pods_over
        lost: Ints = np.minimum(whole, np.minimum(by_column, by_share))
        return lost

    def _cost(self, cls: int) -> Ints:
        """Return the cost of one pod, 0 for a kind if the pod fits on none of its rows."""
        most = self._most_room(cls)
        need = self._simulated.table.columns.need(cls)
        amounts = np.minimum(need, _MOST)
        shares = np.where(self._asks, -(-amounts * _FINE // self._divisors), 0)
        whole = -(-shares.max(axis=1) // _FINE)
        cost = np.zeros(self.shape, dtype=np.int64)
        cost[:, :-2] = amounts
        cost[:, -2] = shares[:, 1:].max(axis=1, initial=0)
        cost[:, -1] = np.minimum(whole, most)
        for kind, objectors in enumerate(self._objectors):
            # its anti-affinity may exclude all virtual pods, maybe in a whole zone
            if cls in objectors:
                cost[kind] = _MOST
                cost[kind, -1] = self._total[kind]
        cost[most == 0] = 0
        return cost

    def _most_room(self, cls: int) -> Ints:
        """Return the most virtual pods of each kind on a row that a pod of this class fits on."""
        columns, need = self._simulated.table.columns.asked(cls)
        has_amounts = np.all(self._free[:, columns] >= need, axis=1)
        fits = self._simulated.static(cls)[: self._simulated.real] & has_amounts
        most: Ints = np.zeros(len(self._need), dtype=np.int64)
        if len(self._kinds_with_room):
            room = np.where(fits[self._rows], self._room, 0)
            most[self._kinds_with_room] = np.maximum.reduceat(room, self._starts)
        return most


def _broken(thousandths: Ints, rows: Ints) -> Ints:
    """Return the maximum number of whole virtual pods from these thousandths on this many
    rows, each row rounded up."""
    whole: Ints = (thousandths + rows * _FINE - 1) // _FINE
    return np.maximum(0, whole)


def _objectors(simulated: SimulatedCluster, kind: int) -> frozenset[int]:
    """Return the classes that no virtual pod of a kind may share a domain with."""
    needs = simulated.needs(kind)
    if not needs:
        return frozenset()
    return frozenset(cls for term in needs.repulsions for cls in term.counter.members)
