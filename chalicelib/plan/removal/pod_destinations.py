"""Finds another place, among existing nodes, for a pod that must move.

Nodes that stay are tried before nodes that may be removed too, because a pod placed on the latter
would have to move once more. Within each kind, a small cluster is filled first fit; a large one in
turn, starting where the last pod was placed, as Cluster Autoscaler does, so that few rows are
checked in vain. Room only shrinks while removals are tried, so a class that found no place among
the nodes of one kind is not tried there again, unless an attempt is rolled back.

The simulated cluster checks pods with volumes or host ports.

The rules between pods are kept up to date pod by pod. plan/simulation/pod_topology answers for many
pods and all rows at once and drops its sums after every placement. Here single pods are checked
thousands of times, so the sums per domain are kept and every change is added to them.
`tests/unit/plan/test_removal_pod_topology.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from chalicelib.plan.simulation.pod_constraints import (
    AffinityTerm,
    AntiAffinityTerm,
    PodCounter,
    SpreadConstraint,
)
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.tables import Bools, Ints

_IN_TURN = 400  # number of rows from which a cluster is filled in turn
_PEEKS = 6  # rows checked one by one before all of them are checked at once


Checkpoint = tuple[int, int, int, int, int]
"""The length of each log: taken, lifted, odd, full, and that of the simulated cluster."""


class NodeKind:
    """Rows of nodes of one kind, in order of preference. at: where the last pod was placed."""

    def __init__(self, rows: Ints, *, in_turn: bool) -> None:
        self.rows, self.in_turn, self.at = rows, in_turn, 0
        self.listed: list[int] = rows.tolist()
        self.full: set[int] = set()  # classes that found no place here


class PodRequest(NamedTuple):
    """Cached data of a class: rows that pass the constant predicates, the amount that a pod takes
    of each column, and whether there are rules between it and other pods."""

    allowed: Bools
    needs: tuple[tuple[int, int], ...]
    ruled: bool


class PodDestinations:
    """Room in the simulated cluster, with a log of what was taken. staying, going: rows of existing
    nodes, best place first."""

    def __init__(self, simulated: SimulatedCluster, staying: Ints, going: Ints) -> None:
        self._simulated = simulated
        in_turn = len(staying) + len(going) > _IN_TURN
        self._kinds = tuple(
            NodeKind(rows, in_turn=in_turn) for rows in (staying, going) if len(rows)
        )
        self._preferred = np.concatenate([staying, going])
        self._requests: dict[int, PodRequest | None] = {}
        # Row and class of plain pods placed and removed (the simulated cluster logs the others),
        # and classes that found a kind full.
        self._taken: list[tuple[int, int]] = []
        self._lifted: list[tuple[int, int]] = []
        self._odd: list[tuple[int, int, int]] = []
        self._full: list[tuple[NodeKind, int]] = []
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
            row = (
                self._find_by_rules(kind, request, cls)
                if request.ruled
                else self._find(kind, request)
            )
            if row is not None:
                self._change(row, cls, request, -1)
                self._taken.append((row, cls))
                return row
            if not request.ruled:
                kind.full.add(cls)
                self._full.append((kind, cls))
        return None

    def lift(self, cls: int, row: int) -> None:
        """Remove a pod from a closed row: its room there cannot be used, but other pods'
        rules may no longer count it."""
        if self._request(cls) is None:
            self._simulated.put_one(cls, row, -1)
            self._odd.append((row, cls, -1))
            self.neighbours.follow(cls, row, -1)
        elif self._counts:
            self.neighbours.count(cls, row, -1)
            self._lifted.append((row, cls))

    def checkpoint(self) -> Checkpoint:
        """Return a checkpoint for `rewind`."""
        before = self._simulated.checkpoint()
        return len(self._taken), len(self._lifted), len(self._odd), len(self._full), before

    def rollback(self, checkpoint: Checkpoint) -> None:
        """Undo everything since a checkpoint."""
        taken, lifted, odd, full, before = checkpoint
        for row, cls in self._taken[taken:]:
            request = self._requests[cls]
            assert request is not None
            self._change(row, cls, request, 1)
        for row, cls in self._lifted[lifted:]:
            self.neighbours.count(cls, row, 1)
        for row, cls, sign in self._odd[odd:]:
            self.neighbours.follow(cls, row, -sign)
        for kind, cls in self._full[full:]:
            kind.full.discard(cls)
        del self._taken[taken:], self._lifted[lifted:], self._odd[odd:], self._full[full:]
        self._simulated.rollback(before)

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

    def _change(self, row: int, cls: int, request: PodRequest, sign: int) -> None:
        free = self._simulated.table.free
        for column, amount in request.needs:
            free[row, column] += sign * amount
        if self._counts:
            self.neighbours.count(cls, row, -sign)

    def _request(self, cls: int) -> PodRequest | None:
        """Return the cached data, or None if the class uses volumes or host
        ports or cannot be simulated."""
        if cls not in self._requests:
            simulated, request = self._simulated, None
            if simulated.is_plain(cls):
                pairs = (array.tolist() for array in simulated.table.columns.asked(cls))
                needs = tuple(zip(*pairs, strict=True))
                request = PodRequest(simulated.static(cls), needs, simulated.needs(cls) is not None)
            self._requests[cls] = request
        return self._requests[cls]

    def _find(self, kind: NodeKind, request: PodRequest) -> int | None:
        """Return the next row of a kind that takes one more pod."""
        free, is_open, allowed, needs = (
            self._simulated.table.free,
            self._simulated.open,
            request.allowed,
            request.needs,
        )
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

    def _find_by_rules(self, kind: NodeKind, request: PodRequest, cls: int) -> int | None:
        """Return the next row of a kind that takes one more pod, for classes
        with rules between pods."""
        free, is_open, allowed, needs = (
            self._simulated.table.free,
            self._simulated.open,
            request.allowed,
            request.needs,
        )
        neighbours, start = self.neighbours, kind.at if kind.in_turn else 0
        for at in range(start, min(start + _PEEKS, len(kind.listed))):
            row = kind.listed[at]
            if (
                is_open[row]
                and allowed[row]
                and _holds(free, row, needs)
                and neighbours.allows(cls, row)
            ):
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


class DomainCounts:
    """Counted pods per domain of a key. eligible: rows that count, None: all of them; many: number
    of such rows per domain."""

    def __init__(
        self, counter: PodCounter, codes: Ints, domains: int, eligible: Bools | None
    ) -> None:
        rows = counter.rows if eligible is None else np.where(eligible, counter.rows, 0)
        self.counter, self.codes, self.eligible = (
            counter,
            codes,
            None if eligible is None else eligible.copy(),
        )
        self.pods: Ints = np.bincount(codes + 1, weights=rows, minlength=domains + 1)[1:].astype(
            np.int64
        )
        counted = codes if eligible is None else codes[eligible]
        self.many: Ints = np.bincount(counted + 1, minlength=domains + 1)[1:].astype(np.int64)

    def count(self, row: int, pods: int) -> None:
        """Add pods to a row, or remove them with a negative number."""
        code = self.codes[row]
        if code >= 0 and (self.eligible is None or self.eligible[row]):
            self.pods[code] += pods

    def admit(self, row: int, *, eligible: bool) -> None:
        """Set whether a row counts."""
        if self.eligible is None or bool(self.eligible[row]) is eligible:
            return
        self.eligible[row] = eligible
        code, sign = self.codes[row], 1 if eligible else -1
        if code >= 0:
            self.pods[code] += sign * self.counter.rows[row]
            self.many[code] += sign


Rule = tuple[Callable[[int], bool], Callable[[], Bools]]
"""Two functions: whether one row takes one more pod, and the mask for all rows."""


class IncrementalPodTopology:
    """All rules that concern classes of moving pods."""

    def __init__(self, simulated: SimulatedCluster) -> None:
        self._simulated = simulated
        self._sums: dict[tuple[int, str, object], DomainCounts] = {}
        self._of: dict[int, list[DomainCounts]] = {}  # id of a counter -> its sums
        self._even: list[
            tuple[DomainCounts, Bools, bool]
        ] = []  # with the rows that count, and whether the taint matters
        self._rules: dict[int, tuple[Rule, ...]] = {}
        self._gone: set[int] = set()

    def count(self, cls: int, row: int, pods: int) -> None:
        """Add pods of a class to a row, or remove them, and update the
        simulated cluster's own counters."""
        self.follow(cls, row, pods)
        self._simulated.adjust_counts(cls, row, pods)

    def follow(self, cls: int, row: int, pods: int) -> None:
        """Update the sums where the simulated cluster has counted the pods already, or will."""
        for counter in self._simulated.counting.followers(cls):
            for sums in self._of.get(id(counter), ()):
                sums.count(row, pods)

    def leave(self, row: int) -> None:
        """Mark a node as leaving: it no longer counts where its taint excludes it."""
        self._simulated.mark_leaving(row)
        for sums, _, minds in self._even:
            if minds:
                sums.admit(row, eligible=False)

    def gone(self, row: int) -> None:
        """Remove a node that was leaving; it does not count as a domain any more."""
        self._simulated.remove_node(row)
        self._gone.add(row)
        for sums, counting, _ in self._even:
            if counting[row]:  # the others never count it
                sums.admit(row, eligible=False)

    def stay(self, row: int, *, is_open: bool) -> None:
        """Undo `leave` and `gone` for a node that stays."""
        self._simulated.restore_node(row, is_open=is_open)
        was_gone = row in self._gone
        self._gone.discard(row)
        for sums, counting, minds in self._even:
            if (minds or was_gone) and counting[row]:
                sums.admit(row, eligible=True)

    def allows(self, cls: int, row: int) -> bool:
        """Return whether the rules allow one more pod of a class on a row."""
        return all(one(row) for one, _ in self._for(cls))

    def mask(self, cls: int) -> Bools:
        """Return for all rows whether the rules allow one more pod of a class."""
        allowed: Bools = np.ones(len(self._simulated.table), dtype=np.bool_)
        for _, every in self._for(cls):
            allowed &= every()
        return allowed

    def _for(self, cls: int) -> tuple[Rule, ...]:
        rules = self._rules.get(cls)
        if rules is None:
            needs = self._simulated.constraints.needs(cls)
            rules = ()
            if needs is not None:
                attraction = (
                    [self._attracted(needs.attraction)] if needs.attraction is not None else []
                )
                repulsions = (self._unopposed(repulsion) for repulsion in needs.repulsions)
                rules = (*attraction, *repulsions, *(self._level(even) for even in needs.evenness))
            self._rules[cls] = rules
        return rules

    def _sum(
        self, counter: PodCounter, key: str, mark: object = None, eligible: Bools | None = None
    ) -> DomainCounts:
        name = (id(counter), key, mark)
        counts = self._sums.get(name)
        if counts is None:
            codes, values = self._simulated.table.label(key)
            counts = self._sums[name] = DomainCounts(counter, codes, len(values), eligible)
            self._of.setdefault(id(counter), []).append(counts)
        return counts

    def _unopposed(self, term: AntiAffinityTerm) -> Rule:
        sums = self._sum(term.counter, term.key)
        codes, pods = sums.codes, sums.pods

        def one(row: int) -> bool:
            return bool(codes[row] < 0 or pods[codes[row]] == 0)

        return one, lambda: np.append(pods == 0, True)[codes]

    def _attracted(self, term: AffinityTerm) -> Rule:
        parts = [self._sum(term.counter, key) for key in term.keys]

        def first() -> bool:
            return term.own and not any(part.pods.any() for part in parts)

        def one(row: int) -> bool:
            if any(part.codes[row] < 0 for part in parts):
                return False
            return all(part.pods[part.codes[row]] > 0 for part in parts) or first()

        def every() -> Bools:
            alone = first()
            allowed: Bools = np.ones(len(self._simulated.table), dtype=np.bool_)
            for part in parts:
                allowed &= part.codes >= 0 if alone else np.append(part.pods > 0, False)[part.codes]
            return allowed

        return one, every

    def _level(self, constraint: SpreadConstraint) -> Rule:
        sums = self._sum(
            constraint.counter,
            constraint.key,
            (constraint.cls, constraint.honors_affinity, constraint.honors_taints),
            self._simulated.counts_in_spread(constraint),
        )
        minds = constraint.honors_taints and not self._simulated.tolerates_removal(constraint.cls)
        self._even.append((sums, self._simulated.of_spread(constraint), minds))
        codes, pods, many, own = sums.codes, sums.pods, sums.many, int(constraint.own)

        def least() -> int:
            counted = pods[many > 0]
            return (
                int(counted.min()) if len(counted) and len(counted) >= constraint.min_domains else 0
            )

        def one(row: int) -> bool:
            return bool(codes[row] >= 0 and pods[codes[row]] + own - least() <= constraint.max_skew)

        return one, lambda: np.append(pods + own - least() <= constraint.max_skew, False)[codes]
