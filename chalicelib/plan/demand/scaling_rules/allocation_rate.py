"""The allocation rate of a pool: the requests of its pods divided by the allocatable resources of
its nodes; and the nodes that metric rules need.

Both amounts are counted over the same nodes: ready, and not in removal. The rate uses
requests, never actual usage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

import msgspec
import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.model.scaling_rules import Metric
from chalicelib.plan.demand.scaling_rules.sources import BoundRule, threshold
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pools import PoolFacts
from chalicelib.plan.state.readiness import Bucket
from chalicelib.plan.tables import Bools, Ints

RESOURCE = {Metric.CPU: CPU, Metric.MEMORY: MEMORY}
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
    """The rates of one pass: all pods are counted once, by group and class, and
    pools are sums of groups."""

    def __init__(self, state: ClusterState) -> None:
        self._groups = {name: at for at, name in enumerate(sorted(state.groups))}
        self._nodes = [0 for _ in self._groups]
        self._allocatable = [{CPU: 0, MEMORY: 0} for _ in self._groups]
        self._requests = [{CPU: 0, MEMORY: 0} for _ in self._groups]
        # the last: pods without a node
        group_of: Ints = np.full(len(state.snapshot.nodes) + 1, -1, dtype=np.int64)
        for row, node in enumerate(state.snapshot.nodes):
            group = state.group_of.get(node.name)
            if group is None or not _is_counted(node, state):
                continue
            at = group_of[row] = self._groups[group]
            self._nodes[at] += 1
            for name in (CPU, MEMORY):
                self._allocatable[at][name] += node.allocatable.get(name, 0)
        pods = state.snapshot.pods
        classes = state.snapshot.classes
        phases = map(attrgetter("phase"), pods)
        ended: Bools = np.fromiter(map(ENDED.__contains__, phases), dtype=np.bool_, count=len(pods))
        groups = group_of[state.occupancy.where]
        counted = (groups >= 0) & ~ended
        pair_of_pod = groups[counted] * max(1, len(classes)) + state.occupancy.cls[counted]
        pairs, counts = np.unique(pair_of_pod, return_counts=True)
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            at, cls = divmod(pair, len(classes))
            for name in (CPU, MEMORY):
                self._requests[at][name] += classes[cls].requests.get(name, 0) * count

    def of(self, pool: PoolFacts, metric: Metric) -> Rate:
        """Return the rate of a pool for one resource."""
        resource = RESOURCE[metric]
        requests = allocatable = nodes = 0
        for group in pool.groups:
            at = self._groups[group]
            requests += self._requests[at][resource]
            allocatable += self._allocatable[at][resource]
            nodes += self._nodes[at]
        return Rate(requests, allocatable, nodes)


def _is_counted(node: Node, state: ClusterState) -> bool:
    """Return whether a node is part of the rate of its pool."""
    return state.buckets[node.name] is Bucket.READY and node.name not in state.leaving


_Key = tuple[str, Metric]  # a pool's id, and the resource


class RuleRemovalGuard:
    """Protects nodes that metric rules need: without them a pool would be above a rule's threshold,
    and the rule would buy again what was just removed. Nodes added by a rule are empty at first, so
    without this guard purchase and removal would alternate for ever.

    Every removed node reduces the room of the next. Nodes in removal count as removed, and their
    remaining pods are counted on the nodes that stay.
    """

    def __init__(self, state: ClusterState, bound_rules: Iterable[BoundRule], rates: Rates) -> None:
        """bound_rules: the metric rules in force."""
        self._state = state
        # group -> its pool's metric rules
        self._rules: dict[str, list[tuple[BoundRule, _Key]]] = {}
        self._rates: dict[_Key, Rate] = {}
        for bound in bound_rules:
            metric = bound.rule.metric or Metric.CPU
            key = bound.pool.id, metric
            self._rates[key] = rates.of(bound.pool, metric)
            for group in bound.pool.groups:
                self._rules.setdefault(group, []).append((bound, key))
        for node in sorted(state.leaving):
            rules = self._rules_of(node)
            if not rules:
                continue
            moving = self._requests(node, staying=True)
            for _, key in rules:
                rate = self._rates[key]
                requests = rate.requests + moving[RESOURCE[key[1]]]
                self._rates[key] = msgspec.structs.replace(rate, requests=requests)

    def _rules_of(self, node: str) -> Sequence[tuple[BoundRule, _Key]]:
        """Return the metric rules of a node's pool."""
        return self._rules.get(self._state.group_of.get(node, ""), ())

    def refuse(self, nodes: Sequence[Node]) -> Reason | None:
        """Return why nodes of one group that are removed together are needed; None if no rule needs
        them. The comparison is strict, as in the rule itself. Without a ready node a pool has no
        rate, and its rules do not act."""
        counted = [node for node in nodes if _is_counted(node, self._state)]
        if not counted:
            return None
        for bound, key in self._rules_of(nodes[0].name):
            after = self._without(key, counted)
            above = threshold(bound.rule, self._state)
            has_rate = after.nodes > 0 and after.allocatable > 0
            if has_rate and after.above(above):
                return _needed(bound, key, after, above)
        return None

    def rooms(self, nodes: Sequence[Node]) -> Iterator[tuple[list[int], int, Reason]]:
        """Return per rule what each of these nodes uses of its room, the room, and the reason of a
        node without room. Nodes may go while what they use together is within the room."""
        rules: dict[tuple[str, _Key], BoundRule] = {}
        for pairs in self._rules.values():
            for bound, key in pairs:
                rules.setdefault((bound.rule.key, key), bound)
        for (_, key), bound in rules.items():
            rate = self._rates[key]
            if rate.nodes <= 0:
                continue
            above = threshold(bound.rule, self._state)
            used = [self._use(node, bound, key, above) for node in nodes]
            room = above * rate.allocatable - 100 * rate.requests
            yield used, room, _needed(bound, key, rate, above)

    def _use(self, node: Node, bound: BoundRule, key: _Key, above: int) -> int:
        """Return what a node uses of the room of a rule."""
        if self._state.group_of.get(node.name) not in bound.pool.groups:
            return 0
        if not _is_counted(node, self._state):
            return 0
        resource = RESOURCE[key[1]]
        requests = self._requests(node.name, staying=False)[resource]
        return above * node.allocatable.get(resource, 0) - 100 * requests

    def take(self, nodes: Iterable[Node], times: int = 1) -> None:
        """Count removed nodes; times -1: nodes that stay after all."""
        for node in nodes:
            keys = {key for _, key in self._rules_of(node.name)}
            if keys and _is_counted(node, self._state):
                self._rates.update({key: self._without(key, [node], times) for key in keys})

    def _without(self, key: _Key, nodes: Iterable[Node], times: int = 1) -> Rate:
        """Return a pool's rate without these nodes: pods that come with a node go with it, and all
        other pods find room in the pool. times -1: with them."""
        rate = self._rates[key]
        resource = RESOURCE[key[1]]
        for node in nodes:
            own = self._requests(node.name, staying=False)[resource]
            requests = rate.requests - times * own
            allocatable = rate.allocatable - times * node.allocatable.get(resource, 0)
            rate = Rate(requests, allocatable, rate.nodes - times)
        return rate

    def _requests(self, node: str, *, staying: bool) -> dict[str, int]:
        """Return the requests of a node's pods: of those that remain when it is removed, or of
        DaemonSet and static pods."""
        classes = self._state.snapshot.classes
        requests = {CPU: 0, MEMORY: 0}
        for pod in self._state.occupancy.on(node):
            pod_class = classes[pod.cls]
            goes = pod_class.is_daemonset or pod_class.mirror
            if pod.phase in ENDED or goes is staying:
                continue
            for name in requests:
                requests[name] += pod_class.requests.get(name, 0)
        return requests


def _needed(bound: BoundRule, key: _Key, rate: Rate, above: int) -> Reason:
    return Reason.of(
        ReasonCode.RULE_NEEDS_NODE,
        rule=bound.rule.key,
        metric=str(key[1]),
        rate=rate.percent,
        above=above,
    )
