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
        pods, classes, occupancy = state.snapshot.pods, state.snapshot.classes, state.occupancy
        ended: Bools = np.fromiter(
            map(ENDED.__contains__, map(attrgetter("phase"), pods)), dtype=np.bool_, count=len(pods)
        )
        groups = group_of[occupancy.where]
        counted = (groups >= 0) & ~ended
        pairs, counts = np.unique(
            groups[counted] * max(1, len(classes)) + occupancy.cls[counted], return_counts=True
        )
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            at, cls = divmod(pair, len(classes))
            for name in (CPU, MEMORY):
                self._requests[at][name] += classes[cls].requests.get(name, 0) * count

    def of(self, pool: PoolFacts, metric: Metric) -> Rate:
        """Return the rate of a pool for one resource."""
        groups, name = [self._groups[group] for group in pool.groups], RESOURCE[metric]
        return Rate(
            sum(self._requests[at][name] for at in groups),
            sum(self._allocatable[at][name] for at in groups),
            sum(self._nodes[at] for at in groups),
        )


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
            key = bound.pool.id, bound.rule.metric or Metric.CPU
            self._rates[key] = rates.of(bound.pool, key[1])
            for group in bound.pool.groups:
                self._rules.setdefault(group, []).append((bound, key))
        for node in sorted(
            name for name in state.leaving if state.group_of.get(name) in self._rules
        ):
            moving = self._requests(node, staying=True)
            for _, key in self._rules[state.group_of[node]]:
                rate = self._rates[key]
                requests = rate.requests + moving[RESOURCE[key[1]]]
                self._rates[key] = msgspec.structs.replace(rate, requests=requests)

    def refuse(self, nodes: Sequence[Node]) -> Reason | None:
        """Return why nodes of one group that are removed together are needed; None if no rule needs
        them. The comparison is strict, as in the rule itself. Without a ready node a pool has no
        rate, and its rules do not act."""
        counted = [node for node in nodes if _is_counted(node, self._state)]
        for bound, key in (
            self._rules.get(self._state.group_of.get(nodes[0].name, ""), ()) if counted else ()
        ):
            after = self._without(key, counted)
            above = threshold(bound.rule, self._state)
            if after.nodes > 0 and after.allocatable > 0 and after.above(above):
                return Reason.of(
                    ReasonCode.RULE_NEEDS_NODE,
                    rule=bound.rule.key,
                    metric=str(key[1]),
                    rate=after.percent,
                    above=above,
                )
        return None

    def rooms(self, nodes: Sequence[Node]) -> Iterator[tuple[list[int], int, Reason]]:
        """Return per rule what each of these nodes uses of its room, the room, and the reason of a
        node without room. Nodes may go while what they use together is within the room."""
        seen: set[tuple[str, _Key]] = set()
        for bound, key in (pair for pairs in self._rules.values() for pair in pairs):
            rate, resource, above = (
                self._rates[key],
                RESOURCE[key[1]],
                threshold(bound.rule, self._state),
            )
            if (bound.rule.key, key) in seen or rate.nodes <= 0:
                continue
            seen.add((bound.rule.key, key))
            used = [
                above * node.allocatable.get(resource, 0)
                - 100 * self._requests(node.name, staying=False)[resource]
                if self._state.group_of.get(node.name) in bound.pool.groups
                and _is_counted(node, self._state)
                else 0
                for node in nodes
            ]
            reason = Reason.of(
                ReasonCode.RULE_NEEDS_NODE,
                rule=bound.rule.key,
                metric=str(key[1]),
                rate=rate.percent,
                above=above,
            )
            yield used, above * rate.allocatable - 100 * rate.requests, reason

    def take(self, nodes: Iterable[Node], times: int = 1) -> None:
        """Count removed nodes; times -1: nodes that stay after all."""
        for node in nodes:
            keys = {key for _, key in self._rules.get(self._state.group_of.get(node.name, ""), ())}
            if keys and _is_counted(node, self._state):
                self._rates.update({key: self._without(key, [node], times) for key in keys})

    def _without(self, key: _Key, nodes: Iterable[Node], times: int = 1) -> Rate:
        """Return a pool's rate without these nodes: pods that come with a node go with it, and all
        other pods find room in the pool. times -1: with them."""
        rate, resource = self._rates[key], RESOURCE[key[1]]
        for node in nodes:
            rate = Rate(
                rate.requests - times * self._requests(node.name, staying=False)[resource],
                rate.allocatable - times * node.allocatable.get(resource, 0),
                rate.nodes - times,
            )
        return rate

    def _requests(self, node: str, *, staying: bool) -> dict[str, int]:
        """Return the requests of a node's pods: of those that remain when it is removed, or of
        DaemonSet and static pods."""
        classes, requests = self._state.snapshot.classes, {CPU: 0, MEMORY: 0}
        for pod in self._state.occupancy.on(node):
            cls = classes[pod.cls]
            if pod.phase not in ENDED and (cls.is_daemonset or cls.mirror) is not staying:
                for name in requests:
                    requests[name] += cls.requests.get(name, 0)
        return requests
