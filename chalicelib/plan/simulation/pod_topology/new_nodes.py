"""Evaluates the rules between pods on nodes that do not exist yet: arithmetic on bins of equal new nodes.

All new nodes of one template share every label except the host name. A rule by zone is therefore one number for all of
them, and a rule by host name is a number per bin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.node import HOSTNAME_LABEL
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.simulation.pod_topology.constraints import (
    AffinityTerm,
    AntiAffinityTerm,
    PodConstraints,
    SpreadConstraint,
)
from chalicelib.plan.simulation.pod_topology.existing_nodes import UNLIMITED, ExistingNodeTopology
from chalicelib.plan.simulation.pod_topology.pod_counts import PodCounter
from chalicelib.plan.tables.array_types import Ints


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
    """Rules on new nodes with these labels. tracked: the classes that may be on bins; daemons: on every new node."""

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
