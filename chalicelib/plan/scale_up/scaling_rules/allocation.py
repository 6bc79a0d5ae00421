"""Allocates a rule's nodes to the node groups of a pool. See docs/reference/scaling-rules.md "Allocation to groups".

The highest rank comes first. Groups of one rank whose nodes have the same type are filled so that their sizes even out;
what one of them cannot take goes to the others. Then the next rank follows: a flavour that is out of stock is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.prices import instance_type
from chalicelib.plan.scale_up.balancing import split
from chalicelib.plan.scale_up.search import ScaleUpSearch
from chalicelib.plan.state.cluster_state import NodeGroupState
from chalicelib.plan.state.pools import PoolFacts

# Temporary reasons; limits are not among them.
TEMPORARY = frozenset(
    {ReasonCode.GROUP_BACKOFF, ReasonCode.GROUP_UNREADABLE, ReasonCode.GROUP_UNHEALTHY, ReasonCode.NO_TEMPLATE}
)


class FixedCount:
    """A fixed number of nodes of any type that are still needed."""

    def __init__(self, count: int) -> None:
        self.count = count

    @property
    def enough(self) -> bool:
        """True if no more nodes are needed."""
        return self.count <= 0

    def nodes(self, _node: Node) -> int:
        """Return how many more nodes like this one are needed."""
        return self.count

    def add(self, _node: Node, count: int) -> None:
        """Record that `count` nodes like this one were added."""
        self.count -= count


class BelowThreshold:
    """The fewest nodes that bring a rate strictly below a threshold (automatic calculation).

    requests and offers in millicores or bytes, percent from 1. Requests of DaemonSets on the new nodes are not
    included.
    """

    def __init__(self, resource: str, requests: int, offers: int, percent: int) -> None:
        self.resource, self.requests, self.offers, self.percent = resource, requests, offers, percent

    @property
    def enough(self) -> bool:
        """True if no more nodes are needed: the rate is strictly below the threshold."""
        return 100 * self.requests < self.percent * self.offers

    def nodes(self, node: Node) -> int:
        """Return (100 R - T sum(A)) / (T Af), rounded down, plus one; 0 for a node without the resource."""
        per_node = node.allocatable.get(self.resource, 0)
        if per_node <= 0:
            return 0
        return (100 * self.requests - self.percent * self.offers) // (self.percent * per_node) + 1

    def add(self, node: Node, count: int) -> None:
        """Add the resources of the new nodes to what the pool offers."""
        self.offers += count * node.allocatable.get(self.resource, 0)


NodeDemand = FixedCount | BelowThreshold


class Allocation(msgspec.Struct, frozen=True):
    """nodes: how many, by group. stop: why no more, None if the demand is met. later: how many more nodes there will be
    room for in groups that may not scale up now."""

    nodes: dict[str, int] = {}
    stop: Reason | None = None
    later: int = 0

    @property
    def total(self) -> int:
        """The number of nodes over all groups."""
        return sum(self.nodes.values())


def first_choice(search: ScaleUpSearch, pool: PoolFacts) -> Node | None:
    """Return the expected first new node of a pool; None: none of its groups may scale up."""
    return next((_new_node(search, equal[0]) for equal in _equal_groups(search, pool)), None)


def allocate(search: ScaleUpSearch, pool: PoolFacts, demand: NodeDemand) -> Allocation:
    """Add the requested nodes as far as limits allow. A zero-or-max group gets all its nodes or none."""
    nodes: dict[str, int] = {}
    stop: Reason | None = None
    for groups in _equal_groups(search, pool):
        while not demand.enough and (count_needed := demand.nodes(_new_node(search, groups[0]))) > 0:
            shares, limit = _even_shares(search, groups, count_needed)
            for group, count in shares:
                search.add(group.id, count)
                nodes[group.id] = nodes.get(group.id, 0) + count
                demand.add(_new_node(search, group), count)
            if not shares:
                stop = limit
                break
        if demand.enough:
            return Allocation(nodes)
    skipped = search.candidates.skipped
    waiting = [name for name in pool.groups if name in skipped and skipped[name].code in TEMPORARY]
    later = sum(_future_room(search, search.state.groups[name]) for name in waiting)
    reasons = [
        *([skipped[waiting[0]]] if later and not nodes else []),
        *([stop] if stop else []),
        *(skipped[name] for name in [*waiting, *pool.groups] if name in skipped),
    ]
    return Allocation(nodes, next(iter(reasons), None), later)


def _equal_groups(search: ScaleUpSearch, pool: PoolFacts) -> list[list[NodeGroupState]]:
    """Return the groups that may scale up, with those of one rank and type together: by rank, then the fewest nodes,
    then by name."""
    by_kind: dict[tuple[object, ...], list[NodeGroupState]] = {}
    for name in pool.groups:
        if name in search.candidates.shapes:
            group = search.state.groups[name]
            alone = name if group.group.options.zero_or_max else ""
            # Nodes that differ only in their location have the same type: the vendor's, otherwise the size.
            node = _new_node(search, group)
            size = node.capacity or node.allocatable
            kind = instance_type(node) or (size.get(CPU, 0), size.get(MEMORY, 0))
            by_kind.setdefault((group.group.rank, alone, kind), []).append(group)
    return sorted(
        by_kind.values(),
        key=lambda groups: (-groups[0].group.rank, min((group.target, group.id) for group in groups)),
    )


def _new_node(search: ScaleUpSearch, group: NodeGroupState) -> Node:
    """Return the expected new node of a group that may scale up."""
    return search.candidates.shapes[group.id].template.node


def _even_shares(
    search: ScaleUpSearch, groups: Sequence[NodeGroupState], wanted: int
) -> tuple[list[tuple[NodeGroupState, int]], Reason]:
    """Return how many of the nodes each group gets, and what prevents more. Limits that groups share are divided too:
    otherwise the first group would take all that remains of them, and sizes would not even out."""
    limiter, first = search.limiter, groups[0]
    allowances = [search.allowance(group) for group in groups]
    stop = min(allowances, key=lambda allowance: allowance.nodes).stop
    if first.group.options.zero_or_max:
        return ([(first, allowances[0].nodes)] if allowances[0].nodes > 0 else []), stop
    total = min(wanted, limiter.pool_room(first.group), limiter.room(_new_node(search, first)))
    sizes = [group.target + search.grown.get(group.id, 0) for group in groups]
    even = split(total, [(size, size + most.nodes) for size, most in zip(sizes, allowances, strict=True)])
    return [(group, new - size) for group, size, new in zip(groups, sizes, even, strict=True) if new > size], stop


def _future_room(search: ScaleUpSearch, group: NodeGroupState) -> int:
    """Return how many nodes a group that may not scale up now could get otherwise."""
    if group.template is None:
        return min(max(0, group.group.max - group.target), search.limiter.pool_room(group.group))
    return search.allowance(group).nodes
