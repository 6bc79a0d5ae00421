"""How many nodes a group may still be grown by (scale-up.md §6, §7, §9): the group's own maximum and the cluster's.

The cluster-wide limits count all nodes, autoscaled or not, upcoming ones included, except virtual-kubelet nodes. The
ledger is reduced as options are taken within a pass, so that two groups never spend the same room.
"""

from __future__ import annotations

import math

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.reason import Code, Reason
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.readiness import Bucket
from chalicelib.plan.world import GroupFacts, World

_UNLIMITED = 10**9


class Allowance(msgspec.Struct, frozen=True):
    """So many nodes, and what stops more."""

    nodes: int
    stop: Reason


class Ledger:
    """What is left of the cluster-wide limits."""

    def __init__(self, world: World) -> None:
        options = world.options
        self._max_nodes = options.max_nodes_total
        self._per_scale_up = options.max_nodes_per_scale_up
        self._max = {CPU: options.cores_total[1], MEMORY: options.memory_total[1]}
        counted = [node for node in world.snapshot.nodes if node.labels.get("type") != "virtual-kubelet"]
        self._nodes = len(counted)
        self._used = {CPU: 0, MEMORY: 0}
        for node in counted:
            self._spend(node, 1)
        for facts in world.groups.values():
            ahead = max(0, facts.upcoming - facts.counts[Bucket.NOT_STARTED])  # those are nodes of the cluster already
            self._nodes += ahead
            if facts.template is not None:
                self._spend(facts.template.node, ahead)

    def _spend(self, node: Node, count: int) -> None:
        for name, amount in _amounts(node).items():
            self._used[name] += amount * count

    def take(self, node: Node, count: int) -> None:
        """Spend room for `count` new nodes like this one."""
        self._nodes += count
        self._spend(node, count)

    def allowance(self, facts: GroupFacts, grown: int) -> Allowance:
        """How many more nodes a group may get in this pass; grown: what the pass already gave it."""
        assert facts.template is not None
        offers: list[Allowance] = [
            Allowance(facts.group.max - facts.target - grown, Reason.of(Code.GROUP_MAX_SIZE, max=facts.group.max)),
        ]
        if self._max_nodes > 0:
            offers.append(Allowance(self._max_nodes - self._nodes,
                                    Reason.of(Code.MAX_NODES_TOTAL, max=self._max_nodes)))
        short = [(name, (self._max[name] - self._used[name]) // amount)
                 for name, amount in _amounts(facts.template.node).items() if amount > 0]
        if short:
            name, room = min(short, key=lambda pair: pair[1])
            offers.append(Allowance(room, Reason.of(Code.RESOURCE_LIMIT, resources=name)))
        if self._per_scale_up > 0:
            offers.append(Allowance(self._per_scale_up - grown,
                                    Reason.of(Code.MAX_NODES_PER_SCALE_UP, max=self._per_scale_up)))
        smallest = min(offers, key=lambda offer: offer.nodes)
        return Allowance(max(0, min(smallest.nodes, _UNLIMITED)), smallest.stop)


def _amounts(node: Node) -> dict[str, int]:
    """cores, rounded up per node, and bytes, of its capacity."""
    source = node.capacity or node.allocatable
    return {CPU: math.ceil(source.get(CPU, 0) / 1000), MEMORY: source.get(MEMORY, 0)}
