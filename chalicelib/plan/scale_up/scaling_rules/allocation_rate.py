"""The allocation rate of a pool: the requests of its pods divided by the allocatable resources of its nodes.

Both are counted over the same nodes: ready, and not in removal. The rate uses requests, never actual usage.
"""

from __future__ import annotations

from operator import attrgetter

import msgspec
import numpy as np

from chalicelib.model.resources import CPU, MEMORY
from chalicelib.model.scaling_rules import Metric
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pools import PoolFacts
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.tables.array_types import Bools, Ints

RESOURCE = ((Metric.CPU, CPU), (Metric.MEMORY, MEMORY))
ENDED = frozenset({"Succeeded", "Failed"})


class Rate(msgspec.Struct, frozen=True):
    """requests and allocatable in whole millicores or bytes; nodes: how many were counted."""

    requests: int
    allocatable: int
    nodes: int

    @property
    def percent(self) -> float:
        """The rate for display, rounded to a thousandth. Decisions use whole numbers (`above`)."""
        return round(100 * self.requests / self.allocatable, 3) if self.allocatable > 0 else 0.0

    def above(self, percent: int) -> bool:
        """Return whether the rate is strictly above `percent`: 60.0 is not above 60."""
        return 100 * self.requests > percent * self.allocatable


class Rates:
    """The rates of one pass: all pods are counted once, by group and class, and pools are sums of groups."""

    def __init__(self, state: ClusterState) -> None:
        self._groups = {name: at for at, name in enumerate(sorted(state.groups))}
        self._offers = [{CPU: 0, MEMORY: 0, "": 0} for _ in self._groups]
        self._asked = [{CPU: 0, MEMORY: 0} for _ in self._groups]
        home: Ints = np.full(len(state.snapshot.nodes) + 1, -1, dtype=np.int64)  # the last entry: pods without a node
        for row, node in enumerate(state.snapshot.nodes):
            group = state.group_of.get(node.name)
            if group is None or state.buckets[node.name] is not Bucket.READY or node.name in state.leaving:
                continue
            home[row] = self._groups[group]
            offers = self._offers[self._groups[group]]
            offers[""] += 1
            for name in (CPU, MEMORY):
                offers[name] += node.allocatable.get(name, 0)
        self._count(state, home)

    def _count(self, state: ClusterState, home: Ints) -> None:
        pods, classes, occupancy = state.snapshot.pods, state.snapshot.classes, state.occupancy
        ended: Bools = np.fromiter(
            map(ENDED.__contains__, map(attrgetter("phase"), pods)), dtype=np.bool_, count=len(pods)
        )
        at = home[occupancy.where]
        here = (at >= 0) & ~ended
        pairs, counts = np.unique(at[here] * max(1, len(classes)) + occupancy.cls[here], return_counts=True)
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            group, cls = divmod(pair, len(classes))
            for name in (CPU, MEMORY):
                self._asked[group][name] += classes[cls].requests.get(name, 0) * count

    def of(self, pool: PoolFacts, metric: Metric) -> Rate:
        """Return the rate of a pool for one resource."""
        rows, name = [self._groups[group] for group in pool.groups], dict(RESOURCE)[metric]
        return Rate(
            sum(self._asked[row][name] for row in rows),
            sum(self._offers[row][name] for row in rows),
            sum(self._offers[row][""] for row in rows),
        )
