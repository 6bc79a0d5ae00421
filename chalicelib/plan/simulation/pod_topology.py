"""Evaluates the rules between pods, on existing rows and on new nodes: where one more pod of a class may run, and how
many at once.

A domain's count is a sum over its rows. Several pods are only taken at once as far as the rule holds in any order of
arrival: the lowest count of a spread never falls while pods are added, so what fits the current lowest count also fits
later. Then the question is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np

from chalicelib.model.node import HOSTNAME_LABEL
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.simulation.pod_constraints import (
    AffinityTerm,
    AntiAffinityTerm,
    PodConstraints,
    PodCounter,
    SpreadConstraint,
)
from chalicelib.plan.tables import Bools, Ints

UNLIMITED = 2**31


class Labels(Protocol):
    """The part of a table of nodes that is needed here (plan/tables.py)."""

    def label(self, key: str) -> tuple[Ints, dict[str, int]]:
        """Return codes per row (-1: missing) and the code of each value."""


class Level(msgspec.Struct, frozen=True):
    """The state of a spread constraint. counts: per domain; counted: which domains count; least: the global minimum."""

    counts: Ints
    counted: Bools
    least: int


class ExistingNodeTopology:
    """Rules over one table. eligible: (class, spread constraint, keys) -> the rows that count for it."""

    def __init__(self, labels: Labels, eligible: Callable[[int, SpreadConstraint, tuple[str, ...]], Bools]) -> None:
        self._table, self._eligible = labels, eligible
        self._domains: dict[tuple[int, str], Ints] = {}
        self._levels: dict[tuple[int, int, str], Level] = {}

    def forget(self) -> None:
        """Drop the cached sums after a placement."""
        self._domains.clear()
        self._levels.clear()

    def domains(self, counter: PodCounter, key: str) -> Ints:
        """Return the counted pods per domain of a key."""
        found = self._domains.get((id(counter), key))
        if found is None:
            codes, values = self._table.label(key)
            found = self._domains[(id(counter), key)] = _sum_per_code(codes, counter.rows, len(values))
        return found

    def here(self, counter: PodCounter, key: str, value: str) -> int:
        """Return the counted pods in one domain, 0 for a domain without rows."""
        _, values = self._table.label(key)
        at = values.get(value)
        return 0 if at is None else int(self.domains(counter, key)[at])

    def level(self, cls: int, constraint: SpreadConstraint, keys: tuple[str, ...]) -> Level:
        """Return the state of a constraint for a class."""
        key = (cls, id(constraint.counter), constraint.key)
        found = self._levels.get(key)
        if found is None:
            found = self._levels[key] = self._level(cls, constraint, keys)
        return found

    def others(self, cls: int, constraint: SpreadConstraint, keys: tuple[str, ...], value: str) -> tuple[int, int, int]:
        """Compare a domain with the others: returns its count, the lowest count of the others (UNLIMITED if there are
        none), and the number of domains including it, whether or not it has rows yet."""
        level = self.level(cls, constraint, keys)
        _, values = self._table.label(constraint.key)
        at = values.get(value)
        rest = level.counted.copy()
        mine = 0
        if at is not None:
            mine, rest[at] = int(level.counts[at]), False
        least = int(level.counts[rest].min()) if rest.any() else UNLIMITED
        return mine, least, int(rest.sum()) + 1

    def _level(self, cls: int, constraint: SpreadConstraint, keys: tuple[str, ...]) -> Level:
        codes, values = self._table.label(constraint.key)
        rows = self._eligible(cls, constraint, keys)
        counts = _sum_per_code(codes, np.where(rows, constraint.counter.rows, 0), len(values))
        counted = np.bincount(codes[rows] + 1, minlength=len(values) + 1)[1:] > 0
        many = int(counted.sum())
        least = int(counts[counted].min()) if many and many >= constraint.min_domains else 0
        return Level(counts, counted, least)

    def open(self, cls: int, constraints: PodConstraints) -> Bools:
        """Return the rows on which every rule allows one more pod."""
        allowed: Bools | None = None
        for rule in self._rules(cls, constraints):
            allowed = rule if allowed is None else allowed & rule
        assert allowed is not None
        return allowed

    def _rules(self, cls: int, constraints: PodConstraints) -> list[Bools]:
        rules = []
        if constraints.attraction is not None:
            rules.append(self._attracted(constraints.attraction))
        rules += [self._unopposed(repulsion) for repulsion in constraints.repulsions]
        rules += [self._even(cls, even, constraints) for even in constraints.evenness]
        return rules

    def _unopposed(self, term: AntiAffinityTerm) -> Bools:
        codes, _ = self._table.label(term.key)
        allowed: Bools = np.append(self.domains(term.counter, term.key) == 0, True)[codes]
        return allowed

    def _even(self, cls: int, constraint: SpreadConstraint, constraints: PodConstraints) -> Bools:
        codes, _ = self._table.label(constraint.key)
        level = self.level(cls, constraint, constraints.spread_keys)
        allowed: Bools = np.append(level.counts + int(constraint.own) - level.least <= constraint.max_skew, False)[
            codes
        ]
        return allowed

    def tally(self, cls: int, constraints: PodConstraints, rows: Bools) -> list[tuple[Reason, int]]:
        """Count how many of these rows each rule rejects; the first failing rule counts."""
        counts: list[tuple[Reason, int]] = []
        left = rows.copy()

        def turned_away(failing: Bools, reason: Reason) -> None:
            counts.append((reason, int((left & failing).sum())))
            left[failing] = False

        for even in constraints.evenness:
            codes, _ = self._table.label(even.key)
            turned_away(codes < 0, Reason.of(ReasonCode.TOPOLOGY_LABEL, key=even.key))
            turned_away(~self._even(cls, even, constraints), Reason.of(ReasonCode.TOPOLOGY_SPREAD, key=even.key))
        if constraints.attraction is not None:
            turned_away(~self._attracted(constraints.attraction), Reason.of(ReasonCode.POD_AFFINITY))
        for repulsion in constraints.repulsions:
            turned_away(~self._unopposed(repulsion), Reason.of(repulsion.code))
        return [(reason, count) for reason, count in counts if count]

    def _attracted(self, term: AffinityTerm) -> Bools:
        allowed, carried = None, None
        for key in term.keys:
            codes, _ = self._table.label(key)
            here = np.append(self.domains(term.counter, key) > 0, False)[codes]
            allowed = here if allowed is None else allowed & here
            carried = codes >= 0 if carried is None else carried & (codes >= 0)
        assert allowed is not None
        assert carried is not None
        return carried if term.own and not self.begun(term) else allowed

    def begun(self, term: AffinityTerm) -> bool:
        """Return whether any domain contains a pod that the affinity requires; if not, the first pod of its class may
        run anywhere."""
        return any(self.domains(term.counter, key).any() for key in term.keys)

    def quota(self, cls: int, constraints: PodConstraints, counts: Ints) -> tuple[Ints, bool]:
        """Return how many of these counts per row may be taken at once, and whether to ask again afterwards."""
        counts = np.where(self.open(cls, constraints), counts, 0)
        if not counts.any():
            return counts, False
        if constraints.attraction is not None and constraints.attraction.own and not self.begun(constraints.attraction):
            return _first_only(counts), True
        again = False
        for even in constraints.evenness:
            if even.own:
                codes, _ = self._table.label(even.key)
                level = self.level(cls, even, constraints.spread_keys)
                counts = _capped_per_domain(counts, codes, level.least + even.max_skew - level.counts)
                again = True
        for repulsion in constraints.repulsions:
            if repulsion.own:
                codes, values = self._table.label(repulsion.key)
                counts = _capped_per_domain(counts, codes, np.ones(len(values), dtype=np.int64))
        return counts, again

    def reasons(self, cls: int, constraints: PodConstraints, row: int) -> tuple[Reason, ...]:
        """Return why a row is closed: the first failing rule in the scheduler's order (spread before affinity)."""
        for even in constraints.evenness:
            codes, _ = self._table.label(even.key)
            if codes[row] < 0:
                return (Reason.of(ReasonCode.TOPOLOGY_LABEL, key=even.key),)
            level = self.level(cls, even, constraints.spread_keys)
            skew = int(level.counts[codes[row]]) + int(even.own) - level.least
            if skew > even.max_skew:
                return (Reason.of(ReasonCode.TOPOLOGY_SPREAD, key=even.key, skew=skew, max=even.max_skew),)
        if constraints.attraction is not None and not self._attracted(constraints.attraction)[row]:
            return (Reason.of(ReasonCode.POD_AFFINITY),)
        for repulsion in constraints.repulsions:
            codes, _ = self._table.label(repulsion.key)
            if codes[row] >= 0 and self.domains(repulsion.counter, repulsion.key)[codes[row]] > 0:
                return (Reason.of(repulsion.code),)
        return ()


def _sum_per_code(codes: Ints, amounts: Ints, count: int) -> Ints:
    """Sum amounts per code; code -1 is left out."""
    return np.bincount(codes + 1, weights=amounts, minlength=count + 1)[1:].astype(np.int64)


def _first_only(counts: Ints) -> Ints:
    first = np.zeros_like(counts)
    first[int(np.flatnonzero(counts)[0])] = 1
    return first


def _capped_per_domain(counts: Ints, codes: Ints, allowance: Ints) -> Ints:
    """Cut counts so that no domain gets more than its allowance, earlier rows first; rows without a domain are
    unchanged."""
    if np.bincount(codes + 1)[1:].max(initial=0) <= 1:  # every row is a domain of its own, as with host names
        capped: Ints = np.minimum(counts, np.append(np.maximum(allowance, 0), UNLIMITED)[codes])
        return capped
    left = counts.copy()
    for domain in np.unique(codes[counts > 0]):
        if domain >= 0:
            rows = np.flatnonzero((codes == domain) & (counts > 0))
            before = np.concatenate([[0], np.cumsum(counts[rows])[:-1]])
            left[rows] = np.clip(allowance[domain] - before, 0, counts[rows])
    return left


class Cap(msgspec.Struct):
    """What the rules currently allow a class. each: per node of every bin; fresh: on one more, empty node; total: over
    all new nodes; again: ask again once these are used, because the rules may then allow more."""

    each: Ints
    fresh: int = UNLIMITED
    total: int = UNLIMITED
    again: bool = False

    def nothing(self) -> None:
        """Set the total to zero, for a rule that no new node meets."""
        self.total = 0


class NewNodeTopology:
    """The rules on nodes that do not exist yet: arithmetic on bins of equal new nodes with these labels. tracked: the
    classes that may be on bins; daemons: on every new node.

    All new nodes of one template share every label except the host name. A rule by zone is therefore one number for all
    of them, and a rule by host name is a number per bin.
    """

    def __init__(
        self, topology: ExistingNodeTopology, labels: Mapping[str, str], tracked: Sequence[int], daemons: Sequence[int]
    ) -> None:
        self._rows, self._labels, self._tracked, self._daemons = topology, labels, tracked, daemons
        self._at = {cls: at for at, cls in enumerate(tracked)}
        self._which: dict[int, tuple[Ints, int]] = {}

    def cap(self, cls: int, constraints: PodConstraints, pods: Ints, mult: Ints) -> Cap:
        """Return what the rules allow a class. pods: (tracked classes, bins), on each node of a bin; mult: nodes per
        bin."""
        cap = Cap(np.full(len(mult), UNLIMITED, dtype=np.int64))
        if constraints.attraction is not None:
            self._attract(constraints.attraction, cap, pods, mult)
        for repulsion in constraints.repulsions:
            self._repel(repulsion, cap, pods, mult)
        for even in constraints.evenness:
            self._level(cls, even, constraints, cap, pods, mult)
        if constraints.attraction is not None and cap.again and cap.total:
            cap.total = min(cap.total, 1) if not self._begun(constraints.attraction, pods) else cap.total
        return cap

    def counts(self, counter: PodCounter, pods: Ints) -> tuple[Ints, int]:
        """Return counted pods on each node of every bin, and on an empty new node."""
        found = self._which.get(id(counter))
        if found is None:
            # Over the smaller of the two: thousands of classes may each have a rule about a few.
            here = self._at.keys() & counter.members
            which: Ints = np.array(sorted(self._at[cls] for cls in here), dtype=np.int64)
            found = self._which[id(counter)] = (which, sum(cls in counter.members for cls in self._daemons))
        which, daemons = found
        counted: Ints = pods.sum(axis=0) if len(which) == len(pods) else pods[which].sum(axis=0)
        return counted + daemons, daemons

    def _in_domain(self, counter: PodCounter, key: str, pods: Ints, mult: Ints) -> int:
        """Return counted pods in the template's domain of a key that all new nodes share, including one more node's
        daemons."""
        each, daemons = self.counts(counter, pods)
        return self._rows.here(counter, key, self._labels[key]) + int(each @ mult) + daemons

    def _begun(self, term: AffinityTerm, pods: Ints) -> bool:
        each, daemons = self.counts(term.counter, pods)
        return bool(daemons) or bool(each.any()) or self._rows.begun(term)

    def _attract(self, term: AffinityTerm, cap: Cap, pods: Ints, mult: Ints) -> None:
        if any(key not in self._labels for key in term.keys):
            cap.nothing()
            return
        if not self._begun(term, pods):
            cap.total, cap.again = (min(cap.total, 1), True) if term.own else (0, False)
            return
        for key in term.keys:
            if key == HOSTNAME_LABEL:
                each, daemons = self.counts(term.counter, pods)
                cap.each[each == 0] = 0
                cap.fresh = cap.fresh if daemons else 0
            elif not self._in_domain(term.counter, key, pods, mult):
                cap.nothing()

    def _repel(self, term: AntiAffinityTerm, cap: Cap, pods: Ints, mult: Ints) -> None:
        if term.key not in self._labels:
            return
        if term.key == HOSTNAME_LABEL:
            each, daemons = self.counts(term.counter, pods)
            cap.each[each > 0] = 0
            cap.fresh = 0 if daemons else cap.fresh
            if term.own:
                np.minimum(cap.each, 1, out=cap.each)
                cap.fresh = min(cap.fresh, 1)
        elif self._in_domain(term.counter, term.key, pods, mult):
            cap.nothing()
        elif term.own:
            cap.total = min(cap.total, 1)

    def _level(
        self, cls: int, constraint: SpreadConstraint, constraints: PodConstraints, cap: Cap, pods: Ints, mult: Ints
    ) -> None:
        if any(key not in self._labels for key in constraints.spread_keys):
            cap.nothing()
            return
        each, daemons = self.counts(constraint.counter, pods)
        if constraint.key == HOSTNAME_LABEL:
            least, domains = self.host_level(cls, constraint, constraints, each, mult)
            new_least = min(least, daemons) if domains + 1 >= constraint.min_domains else 0
            if constraint.own:
                np.minimum(cap.each, np.maximum(least + constraint.max_skew - each, 0), out=cap.each)
                cap.fresh = min(cap.fresh, max(0, new_least + constraint.max_skew - daemons))
                cap.again = True
            else:
                cap.each[each - least > constraint.max_skew] = 0
                cap.fresh = 0 if daemons - new_least > constraint.max_skew else cap.fresh
            return
        mine, others, domains = self._rows.others(
            cls, constraint, constraints.spread_keys, self._labels[constraint.key]
        )
        mine += int(each @ mult) + (0 if len(mult) else daemons)
        if constraint.own:
            allowed = (
                constraint.max_skew - mine if domains < constraint.min_domains else others + constraint.max_skew - mine
            )
            cap.total = min(cap.total, max(0, allowed))
        elif mine - (min(mine, others) if domains >= constraint.min_domains else 0) > constraint.max_skew:
            cap.nothing()

    def host_level(
        self, cls: int, constraint: SpreadConstraint, constraints: PodConstraints, each: Ints, mult: Ints
    ) -> tuple[int, int]:
        """Return the lowest count over all host names, new ones included (0 while there are too few), and the number of
        host names."""
        level = self._rows.level(cls, constraint, constraints.spread_keys)
        domains = int(level.counted.sum()) + int(mult.sum())
        counts = np.concatenate([level.counts[level.counted], each])
        least = int(counts.min()) if len(counts) and domains >= constraint.min_domains else 0
        return least, domains

    def reasons(self, cls: int, constraints: PodConstraints) -> tuple[Reason, ...]:
        """Return why one more, empty new node takes no pod of a class, in the scheduler's order; () if it does."""
        none: Ints = np.zeros((len(self._tracked), 0), dtype=np.int64)
        nodes: Ints = np.zeros(0, dtype=np.int64)
        for even in constraints.evenness:
            if even.key not in self._labels:
                return (Reason.of(ReasonCode.TOPOLOGY_LABEL, key=even.key),)
            skew = self._skew(cls, even, constraints)
            if skew > even.max_skew:
                return (Reason.of(ReasonCode.TOPOLOGY_SPREAD, key=even.key, skew=skew, max=even.max_skew),)
        if constraints.attraction is not None:
            cap = Cap(nodes)
            self._attract(constraints.attraction, cap, none, nodes)
            if not cap.total or not cap.fresh:
                return (Reason.of(ReasonCode.POD_AFFINITY),)
        for repulsion in constraints.repulsions:
            cap = Cap(nodes)
            self._repel(repulsion, cap, none, nodes)
            if not cap.total or not cap.fresh:
                return (Reason.of(repulsion.code),)
        return ()

    def _skew(self, cls: int, constraint: SpreadConstraint, constraints: PodConstraints) -> int:
        """Return the skew with one more pod on an empty new node."""
        _, daemons = self.counts(constraint.counter, np.zeros((len(self._tracked), 0), dtype=np.int64))
        value = "" if constraint.key == HOSTNAME_LABEL else self._labels[constraint.key]
        mine, others, domains = self._rows.others(cls, constraint, constraints.spread_keys, value)
        mine += daemons
        least = min(mine, others) if domains >= constraint.min_domains else 0
        return mine + int(constraint.own) - least
