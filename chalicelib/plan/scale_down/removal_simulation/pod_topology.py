"""Keeps the rules between pods up to date pod by pod while removals are simulated.

plan/simulation/pod_topology answers for many pods and all rows at once and drops its sums after every placement. Here
single pods are checked thousands of times, so the sums per domain are kept and every change is added to them.
`tests/unit/plan/test_removal_pod_topology.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from chalicelib.plan.simulation.pod_constraints import AffinityTerm, AntiAffinityTerm, PodCounter, SpreadConstraint
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.tables import Bools, Ints


class DomainCounts:
    """Counted pods per domain of a key. eligible: rows that count, None: all of them; many: number of such rows per
    domain."""

    def __init__(self, counter: PodCounter, codes: Ints, domains: int, eligible: Bools | None) -> None:
        rows = counter.rows if eligible is None else np.where(eligible, counter.rows, 0)
        self.counter, self.codes, self.eligible = counter, codes, None if eligible is None else eligible.copy()
        self.pods: Ints = np.bincount(codes + 1, weights=rows, minlength=domains + 1)[1:].astype(np.int64)
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

    def count(self, cls: int, row: int, pods: int) -> None:
        """Add pods of a class to a row, or remove them, and update the simulated cluster's own counters."""
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
        for sums, _, _ in self._even:
            sums.admit(row, eligible=False)

    def stay(self, row: int, *, is_open: bool) -> None:
        """Undo `leave` and `gone` for a node that stays."""
        self._simulated.restore_node(row, is_open=is_open)
        for sums, counting, _ in self._even:
            sums.admit(row, eligible=bool(counting[row]))

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
                attraction = [self._attracted(needs.attraction)] if needs.attraction is not None else []
                repulsions = (self._unopposed(repulsion) for repulsion in needs.repulsions)
                rules = (*attraction, *repulsions, *(self._level(even) for even in needs.evenness))
            self._rules[cls] = rules
        return rules

    def _sum(self, counter: PodCounter, key: str, mark: object = None, eligible: Bools | None = None) -> DomainCounts:
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
            return int(counted.min()) if len(counted) and len(counted) >= constraint.min_domains else 0

        def one(row: int) -> bool:
            return bool(codes[row] >= 0 and pods[codes[row]] + own - least() <= constraint.max_skew)

        return one, lambda: np.append(pods + own - least() <= constraint.max_skew, False)[codes]
