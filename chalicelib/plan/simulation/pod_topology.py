"""Evaluates the rules between pods, on existing rows and on new nodes: where one more pod of a
class may run, and how many at once.

A domain's count is a sum over its rows. Several pods are only taken at once as far as the rule
holds in any order of arrival: the lowest count of a spread never falls while pods are added, so
what fits the current lowest count also fits later. Then the question is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.simulation.pod_constraints import (
    AffinityTerm,
    AntiAffinityTerm,
    PodConstraints,
    PodCounter,
    SpreadConstraint,
)
from chalicelib.plan.state.node_labels import own_keys
from chalicelib.plan.tables import Bools, Ints, NodeTable

UNLIMITED = 2**31


class Level(msgspec.Struct, frozen=True):
    """The state of a spread constraint. counts: per domain; counted: which domains count;
    least: the global minimum."""

    counts: Ints
    counted: Bools
    least: int


class ExistingNodeTopology:
    """Rules over one table. eligible: spread constraint -> the rows that count for it."""

    def __init__(self, table: NodeTable, eligible: Callable[[SpreadConstraint], Bools]) -> None:
        self._table, self._eligible = table, eligible
        self._domains: dict[tuple[int, str], Ints] = {}
        self._levels: dict[tuple[int, int, str], Level] = {}

    def forget(self) -> None:
        """Drop the cached sums after a placement."""
        self._domains.clear()
        self._levels.clear()

    def domains(self, counter: PodCounter, key: str) -> Ints:
        """Return the counted pods per domain of a key."""
        sums = self._domains.get((id(counter), key))
        if sums is None:
            codes, values = self._table.label(key)
            sums = self._domains[(id(counter), key)] = _sum_per_code(
                codes, counter.rows, len(values)
            )
        return sums

    def here(self, counter: PodCounter, key: str, value: str) -> int:
        """Return the counted pods in one domain, 0 for a domain without rows."""
        at = self._table.label(key)[1].get(value)
        return 0 if at is None else int(self.domains(counter, key)[at])

    def level(self, constraint: SpreadConstraint) -> Level:
        """Return the state of a constraint."""
        key = (constraint.cls, id(constraint.counter), constraint.key)
        level = self._levels.get(key)
        if level is None:
            codes, values = self._table.label(constraint.key)
            rows = self._eligible(constraint)
            counts = _sum_per_code(codes, np.where(rows, constraint.counter.rows, 0), len(values))
            counted = np.bincount(codes[rows] + 1, minlength=len(values) + 1)[1:] > 0
            many = int(counted.sum())
            least = int(counts[counted].min()) if many and many >= constraint.min_domains else 0
            level = self._levels[key] = Level(counts, counted, least)
        return level

    def others(self, constraint: SpreadConstraint, value: str) -> tuple[int, int, int]:
        """Compare a domain with the others: returns its count, the lowest count of the
        others (UNLIMITED if there are none), and the number of domains including it,
        whether or not it has rows yet."""
        level = self.level(constraint)
        at = self._table.label(constraint.key)[1].get(value)
        others = level.counted.copy()
        count = 0
        if at is not None:
            count, others[at] = int(level.counts[at]), False
        least = int(level.counts[others].min()) if others.any() else UNLIMITED
        return count, least, int(others.sum()) + 1

    def open(self, constraints: PodConstraints) -> Bools:
        """Return the rows on which every rule allows one more pod."""
        allowed: Bools | None = (
            self._attracted(constraints.attraction) if constraints.attraction is not None else None
        )
        for repulsion in constraints.repulsions:
            unopposed = self._unopposed(repulsion)
            allowed = unopposed if allowed is None else allowed & unopposed
        for spread in constraints.evenness:
            even = self._even(spread)
            allowed = even if allowed is None else allowed & even
        assert allowed is not None
        return allowed

    def _unopposed(self, term: AntiAffinityTerm) -> Bools:
        codes, _ = self._table.label(term.key)
        allowed: Bools = np.append(self.domains(term.counter, term.key) == 0, True)[codes]
        return allowed

    def _even(self, constraint: SpreadConstraint) -> Bools:
        codes, _ = self._table.label(constraint.key)
        level = self.level(constraint)
        within = level.counts + int(constraint.own) - level.least <= constraint.max_skew
        allowed: Bools = np.append(within, False)[codes]
        return allowed

    def _attracted(self, term: AffinityTerm) -> Bools:
        first = term.own and not self.has_started(term)
        allowed: Bools | None = None
        for key in term.keys:
            codes, _ = self._table.label(key)
            rows = (
                codes >= 0
                if first
                else np.append(self.domains(term.counter, key) > 0, False)[codes]
            )
            allowed = rows if allowed is None else allowed & rows
        assert allowed is not None
        return allowed

    def has_started(self, term: AffinityTerm) -> bool:
        """Return whether any domain contains a pod that the affinity requires; if not, the first
        pod of its class may run anywhere that has the keys."""
        return any(self.domains(term.counter, key).any() for key in term.keys)

    def tally(self, constraints: PodConstraints, rows: Bools) -> list[tuple[Reason, int]]:
        """Count how many of these rows each rule rejects; the first failing rule counts."""
        counts: list[tuple[Reason, int]] = []
        passing = rows.copy()

        def reject(failing: Bools, reason: Reason) -> None:
            counts.append((reason, int((passing & failing).sum())))
            passing[failing] = False

        for spread in constraints.evenness:
            codes, _ = self._table.label(spread.key)
            reject(codes < 0, Reason.of(ReasonCode.TOPOLOGY_LABEL, key=spread.key))
            reject(~self._even(spread), Reason.of(ReasonCode.TOPOLOGY_SPREAD, key=spread.key))
        if constraints.attraction is not None:
            reject(~self._attracted(constraints.attraction), Reason.of(ReasonCode.POD_AFFINITY))
        for repulsion in constraints.repulsions:
            reject(~self._unopposed(repulsion), Reason.of(repulsion.code))
        return [(reason, count) for reason, count in counts if count]

    def quota(
        self, constraints: PodConstraints, counts: Ints, preference: Ints | None = None
    ) -> tuple[Ints, bool]:
        """Return how many of these counts per row may be taken at once, and whether to ask again
        afterwards. preference: all rows, in the order in which they share what a domain may
        take; by number if not given."""
        counts = np.where(self.open(constraints), counts, 0)
        if not counts.any():
            return counts, False
        attraction, again = constraints.attraction, False
        if attraction is not None and attraction.own and not self.has_started(attraction):
            first, able = np.zeros_like(counts), np.flatnonzero(counts)
            first[int(able[0] if preference is None else preference[counts[preference] > 0][0])] = 1
            return first, True
        for spread in constraints.evenness:
            if spread.own:
                codes, _ = self._table.label(spread.key)
                level = self.level(spread)
                counts = _capped_per_domain(
                    counts, codes, level.least + spread.max_skew - level.counts, preference
                )
                again = True
        for repulsion in constraints.repulsions:
            if repulsion.own:
                codes, values = self._table.label(repulsion.key)
                counts = _capped_per_domain(
                    counts, codes, np.ones(len(values), dtype=np.int64), preference
                )
        return counts, again

    def reasons(self, constraints: PodConstraints, row: int) -> tuple[Reason, ...]:
        """Return why a row is closed: the first failing rule in the scheduler's order
        (spread before affinity)."""
        for spread in constraints.evenness:
            codes, _ = self._table.label(spread.key)
            if codes[row] < 0:
                return (Reason.of(ReasonCode.TOPOLOGY_LABEL, key=spread.key),)
            level = self.level(spread)
            skew = int(level.counts[codes[row]]) + int(spread.own) - level.least
            if skew > spread.max_skew:
                return (
                    Reason.of(
                        ReasonCode.TOPOLOGY_SPREAD, key=spread.key, skew=skew, max=spread.max_skew
                    ),
                )
        if constraints.attraction is not None and not self._attracted(constraints.attraction)[row]:
            return (Reason.of(ReasonCode.POD_AFFINITY),)
        for repulsion in constraints.repulsions:
            if not self._unopposed(repulsion)[row]:
                return (Reason.of(repulsion.code),)
        return ()


def _sum_per_code(codes: Ints, amounts: Ints, count: int) -> Ints:
    """Sum amounts per code, without those of code -1."""
    return np.bincount(codes + 1, weights=amounts, minlength=count + 1)[1:].astype(np.int64)


def _capped_per_domain(counts: Ints, codes: Ints, allowance: Ints, preference: Ints | None) -> Ints:
    """Cut counts so that no domain gets more than its allowance, earlier rows first, or those of
    the preference; rows without a domain are unchanged."""
    # every row is a domain of its own, as with host names
    if np.bincount(codes + 1)[1:].max(initial=0) <= 1:
        limited: Ints = np.minimum(counts, np.append(np.maximum(allowance, 0), UNLIMITED)[codes])
        return limited
    capped = counts.copy()
    for domain in np.unique(codes[counts > 0]):
        if domain >= 0:
            inside = (codes == domain) & (counts > 0)
            rows = np.flatnonzero(inside) if preference is None else preference[inside[preference]]
            before = np.concatenate([[0], np.cumsum(counts[rows])[:-1]])
            capped[rows] = np.clip(allowance[domain] - before, 0, counts[rows])
    return capped


class Cap(msgspec.Struct):
    """What the rules currently allow a class. each: per node of every bin; fresh: on one more,
    empty node; total: over all new nodes; again: ask again once these are used, because the
    rules may then allow more."""

    each: Ints
    fresh: int = UNLIMITED
    total: int = UNLIMITED
    again: bool = False


class NewNodeTopology:
    """The rules on nodes that do not exist yet: arithmetic on bins of equal new nodes with these
    labels. tracked: the classes that may be on bins; daemons: on every new node.

    All new nodes of one template share every label except the host name. A rule by zone is
    therefore one number for all of them, and a rule by host name is a number per bin. In
    all methods: pods: (tracked classes, bins), on each node of a bin; mult: nodes per bin.
    """

    def __init__(
        self,
        topology: ExistingNodeTopology,
        labels: Mapping[str, str],
        tracked: Sequence[int],
        daemons: Sequence[int],
    ) -> None:
        self._existing, self._labels, self._tracked, self._daemons = (
            topology,
            labels,
            tracked,
            daemons,
        )
        self._own = own_keys(labels)
        self._row_of = {cls: row for row, cls in enumerate(tracked)}
        self._members: dict[int, tuple[Ints, int]] = {}

    def cap(self, constraints: PodConstraints, pods: Ints, mult: Ints) -> Cap:
        """Return what the rules allow a class."""
        cap, attraction = Cap(np.full(len(mult), UNLIMITED, dtype=np.int64)), constraints.attraction
        if attraction is not None:
            self._attract(attraction, cap, pods, mult)
        for repulsion in constraints.repulsions:
            self._repel(repulsion, cap, pods, mult)
        for spread in constraints.evenness:
            self._spread(spread, cap, pods, mult)
        if (
            attraction is not None
            and cap.again
            and cap.total
            and not self._has_started(attraction, pods)
        ):
            cap.total = min(cap.total, 1)
        return cap

    def counts(self, counter: PodCounter, pods: Ints) -> tuple[Ints, int]:
        """Return counted pods on each node of every bin, and on an empty new node."""
        members = self._members.get(id(counter))
        if members is None:
            # Over the smaller of the two: thousands of classes may each have a rule about a few.
            tracked = self._row_of.keys() & counter.members
            rows: Ints = np.array(sorted(self._row_of[cls] for cls in tracked), dtype=np.int64)
            members = self._members[id(counter)] = (
                rows,
                sum(cls in counter.members for cls in self._daemons),
            )
        rows, daemons = members
        counted: Ints = pods.sum(axis=0) if len(rows) == len(pods) else pods[rows].sum(axis=0)
        return counted + daemons, daemons

    def _count_in_domain(self, counter: PodCounter, key: str, pods: Ints, mult: Ints) -> int:
        """Return counted pods in the template's domain of a key that all new nodes share, including
        one more node's daemons."""
        on_new, daemons = self.counts(counter, pods)
        return self._existing.here(counter, key, self._labels[key]) + int(on_new @ mult) + daemons

    def _has_started(self, term: AffinityTerm, pods: Ints) -> bool:
        on_new, daemons = self.counts(term.counter, pods)
        return bool(daemons) or bool(on_new.any()) or self._existing.has_started(term)

    def _attract(self, term: AffinityTerm, cap: Cap, pods: Ints, mult: Ints) -> None:
        if any(key not in self._labels for key in term.keys):
            cap.total = 0
            return
        if not self._has_started(term, pods):
            cap.total, cap.again = (min(cap.total, 1), True) if term.own else (0, False)
            return
        for key in term.keys:
            if key in self._own:
                on_new, daemons = self.counts(term.counter, pods)
                cap.each[on_new == 0] = 0
                cap.fresh = cap.fresh if daemons else 0
            elif not self._count_in_domain(term.counter, key, pods, mult):
                cap.total = 0

    def _repel(self, term: AntiAffinityTerm, cap: Cap, pods: Ints, mult: Ints) -> None:
        if term.key not in self._labels:
            return
        if term.key in self._own:
            on_new, daemons = self.counts(term.counter, pods)
            cap.each[on_new > 0] = 0
            cap.fresh = 0 if daemons else cap.fresh
            if term.own:
                np.minimum(cap.each, 1, out=cap.each)
                cap.fresh = min(cap.fresh, 1)
        elif self._count_in_domain(term.counter, term.key, pods, mult):
            cap.total = 0
        elif term.own:
            cap.total = min(cap.total, 1)

    def _spread(self, constraint: SpreadConstraint, cap: Cap, pods: Ints, mult: Ints) -> None:
        if any(key not in self._labels for key in constraint.keys):
            cap.total = 0
            return
        on_new, daemons = self.counts(constraint.counter, pods)
        max_skew = constraint.max_skew
        if constraint.key in self._own:
            least, domains = self.host_level(constraint, on_new, mult)
            new_least = min(least, daemons) if domains + 1 >= constraint.min_domains else 0
            if constraint.own:
                np.minimum(cap.each, np.maximum(least + max_skew - on_new, 0), out=cap.each)
                cap.fresh = min(cap.fresh, max(0, new_least + max_skew - daemons))
                cap.again = True
            else:
                cap.each[on_new - least > max_skew] = 0
                cap.fresh = 0 if daemons - new_least > max_skew else cap.fresh
            return
        count, others, domains = self._existing.others(constraint, self._labels[constraint.key])
        count += int(on_new @ mult) + (0 if len(mult) else daemons)
        if constraint.own:
            least = 0 if domains < constraint.min_domains else others
            cap.total = min(cap.total, max(0, least + max_skew - count))
        elif count - (min(count, others) if domains >= constraint.min_domains else 0) > max_skew:
            cap.total = 0

    def host_level(self, constraint: SpreadConstraint, on_new: Ints, mult: Ints) -> tuple[int, int]:
        """Return the lowest count over all host names, new ones included (0 while there are too
        few), and the number of host names. on_new: counted pods on each node of every bin."""
        level = self._existing.level(constraint)
        domains = int(level.counted.sum()) + int(mult.sum())
        counts = np.concatenate([level.counts[level.counted], on_new])
        least = int(counts.min()) if len(counts) and domains >= constraint.min_domains else 0
        return least, domains

    def reasons(self, constraints: PodConstraints) -> tuple[Reason, ...]:
        """Return why one more, empty new node takes no pod of a class, in the
        scheduler's order; () if it does."""
        pods: Ints = np.zeros((len(self._tracked), 0), dtype=np.int64)
        mult: Ints = np.zeros(0, dtype=np.int64)
        for spread in constraints.evenness:
            if spread.key not in self._labels:
                return (Reason.of(ReasonCode.TOPOLOGY_LABEL, key=spread.key),)
            _, daemons = self.counts(spread.counter, pods)
            value = "" if spread.key in self._own else self._labels[spread.key]
            count, others, domains = self._existing.others(spread, value)
            count += daemons
            skew = (
                count
                + int(spread.own)
                - (min(count, others) if domains >= spread.min_domains else 0)
            )
            if skew > spread.max_skew:
                return (
                    Reason.of(
                        ReasonCode.TOPOLOGY_SPREAD, key=spread.key, skew=skew, max=spread.max_skew
                    ),
                )
        cap = Cap(mult)
        if constraints.attraction is not None:
            self._attract(constraints.attraction, cap, pods, mult)
            if not cap.total or not cap.fresh:
                return (Reason.of(ReasonCode.POD_AFFINITY),)
        for repulsion in constraints.repulsions:
            cap = Cap(mult)
            self._repel(repulsion, cap, pods, mult)
            if not cap.total or not cap.fresh:
                return (Reason.of(repulsion.code),)
        return ()
