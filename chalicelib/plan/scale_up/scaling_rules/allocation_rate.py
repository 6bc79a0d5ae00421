"""The allocation rate of a pool: the requests of its pods divided by the allocatable resources of its nodes.

Both are counted over the same nodes: ready, and not in removal. The rate uses requests, never actual usage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

import msgspec
import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.model.scaling_rules import Metric
from chalicelib.plan.scale_up.scaling_rules.sources import SourceBound, threshold
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pools import PoolFacts
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.tables import Bools, Ints

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


# DOC chalicelib/plan/scale_up/scaling_rules/removal_guard.py: Protects nodes that metric rules need: without them a pool would be above a rule's threshold, and the rule would buy
# DOC again what was just removed. Nodes added by a rule are empty at first, so without this guard purchase and removal
# DOC would alternate for ever.
# DOC
# DOC Every removed node reduces the room of the next. Nodes in removal count as gone, and their remaining pods are counted on
# DOC the nodes that stay.
# DOC
_Key = tuple[str, Metric]  # a pool's id, and the resource


class RuleRemovalGuard:
    """The remaining capacity of the pools with metric rules. bound: the rules in force."""

    def __init__(self, state: ClusterState, bound: Iterable[SourceBound], rates: Rates) -> None:
        self._state = state
        self._rules: dict[str, list[tuple[SourceBound, _Key]]] = {}  # group -> its pool's metric rules
        self._left: dict[_Key, Rate] = {}
        for each in bound:
            key = each.pool.id, each.rule.metric or Metric.CPU
            self._left[key] = rates.of(each.pool, key[1])
            for group in each.pool.groups:
                self._rules.setdefault(group, []).append((each, key))
        for node in sorted(name for name in state.leaving if state.group_of.get(name) in self._rules):
            moving = self._asked(node, staying=True)
            for _, key in self._rules[state.group_of[node]]:
                self._left[key] = _plus(self._left[key], moving[dict(RESOURCE)[key[1]]])

    def refuse(self, nodes: Sequence[Node]) -> Reason | None:
        """Return why nodes of one group that are removed together are needed; None if no rule needs them. The
        comparison is strict, as in the rule itself. Without a ready node a pool has no rate, and its rules do not
        act."""
        counted = [node for node in nodes if self._counts(node)]
        for bound, key in self._rules.get(self._state.group_of.get(nodes[0].name, ""), ()) if counted else ():
            after = self._without(key, counted)
            above = threshold(bound.rule, self._state)
            if after.nodes > 0 and after.allocatable > 0 and after.above(above):
                return Reason.of(
                    ReasonCode.RULE_NEEDS_NODE, rule=bound.rule.key, metric=str(key[1]), rate=after.percent, above=above
                )
        return None

    def take(self, nodes: Iterable[Node]) -> None:
        """Count removed nodes."""
        for node in nodes:
            keys = {key for _, key in self._rules.get(self._state.group_of.get(node.name, ""), ())}
            if keys and self._counts(node):
                self._left.update({key: self._without(key, [node]) for key in keys})

    def _counts(self, node: Node) -> bool:
        """Return whether a node is part of the rate (scaling_rules/allocation_rate.py)."""
        return self._state.buckets[node.name] is Bucket.READY and node.name not in self._state.leaving

    def _without(self, key: _Key, nodes: Iterable[Node]) -> Rate:
        """Return a pool's rate without these nodes: pods that come with a node go with it, and all other pods find room
        in the pool."""
        left, resource = self._left[key], dict(RESOURCE)[key[1]]
        for node in nodes:
            left = Rate(
                left.requests - self._asked(node.name, staying=False)[resource],
                left.allocatable - node.allocatable.get(resource, 0),
                left.nodes - 1,
            )
        return left

    def _asked(self, node: str, *, staying: bool) -> dict[str, int]:
        """Return the requests of a node's pods: of those that remain when it is removed, or of DaemonSet and static
        pods."""
        classes, asked = self._state.snapshot.classes, {CPU: 0, MEMORY: 0}
        for pod in self._state.occupancy.on(node):
            cls = classes[pod.cls]
            if pod.phase not in ENDED and (cls.is_daemonset or cls.mirror) is not staying:
                for name in asked:
                    asked[name] += cls.requests.get(name, 0)
        return asked


def _plus(rate: Rate, requests: int) -> Rate:
    return Rate(rate.requests + requests, rate.allocatable, rate.nodes)
