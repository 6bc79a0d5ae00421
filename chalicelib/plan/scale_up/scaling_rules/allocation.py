"""Allocates a rule's nodes to the node groups of a pool. See docs/reference/scaling-rules.md "Allocation to groups".

The highest rank comes first. Groups of one rank whose nodes have the same type are filled so that their sizes even out;
what one of them cannot take goes to the others. Then the next rank follows: a flavour that is out of stock is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.scale_up.balancing import split
from chalicelib.plan.scale_up.search import ScaleUpSearch
from chalicelib.plan.state.cluster_state import NodeGroupState
from chalicelib.plan.state.pools import PoolFacts

_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
# Temporary reasons; limits are not among them.
TEMPORARY = frozenset(
    {ReasonCode.GROUP_BACKOFF, ReasonCode.GROUP_UNREADABLE, ReasonCode.GROUP_UNHEALTHY, ReasonCode.NO_TEMPLATE}
)


class NodeDemand(Protocol):
    """The remaining demand while nodes are given."""

    @property
    def enough(self) -> bool:
        """True if no more nodes are needed."""

    def nodes(self, node: Node) -> int:
        """Return how many more nodes like this one are needed; 0 or less if they are of no use."""

    def took(self, node: Node, count: int) -> None:
        """Record that `count` nodes like this one were given."""


class FixedCount:
    """A fixed number of nodes of any type."""

    def __init__(self, left: int) -> None:
        self.left = left

    @property
    def enough(self) -> bool:
        """True if none is left."""
        return self.left <= 0

    def nodes(self, node: Node) -> int:
        """Return what is left."""
        del node
        return self.left

    def took(self, node: Node, count: int) -> None:
        """Reduce what is left."""
        del node
        self.left -= count


class BelowThreshold:
    """The fewest nodes that bring a rate strictly below a threshold (automatic calculation).

    requests and offers in millicores or bytes, percent from 1. Requests of DaemonSets on the new nodes are not
    included.
    """

    def __init__(self, resource: str, requests: int, offers: int, percent: int) -> None:
        self.resource, self.requests, self.offers, self.percent = resource, requests, offers, percent

    @property
    def enough(self) -> bool:
        """True if the rate is strictly below the threshold."""
        return 100 * self.requests < self.percent * self.offers

    def nodes(self, node: Node) -> int:
        """Return (100 R - T sum(A)) / (T Af), rounded down, plus one; 0 for a node without the resource."""
        each = node.allocatable.get(self.resource, 0)
        if each <= 0:
            return 0
        return (100 * self.requests - self.percent * self.offers) // (self.percent * each) + 1

    def took(self, node: Node, count: int) -> None:
        """Add the resources of the new nodes to what the pool offers."""
        self.offers += count * node.allocatable.get(self.resource, 0)


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
    return next((_new_node(search, facts) for bunch in _groups_in_order(search, pool) for facts in bunch), None)


def allocate(search: ScaleUpSearch, pool: PoolFacts, demand: NodeDemand) -> Allocation:
    """Add the requested nodes as far as limits allow. A zero-or-max group gets all its nodes or none."""
    nodes: dict[str, int] = {}
    stop: Reason | None = None
    for bunch in _groups_in_order(search, pool):
        stop = _fill_equal_groups(search, bunch, demand, nodes) or stop
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


def _fill_equal_groups(
    search: ScaleUpSearch, bunch: Sequence[NodeGroupState], demand: NodeDemand, nodes: dict[str, int]
) -> Reason | None:
    """Give the groups of a bunch what they can take; returns what prevents more."""
    while not demand.enough and (wanted := demand.nodes(_new_node(search, bunch[0]))) > 0:
        shares, stop = _even_shares(search, bunch, wanted)
        for facts, count in shares:
            search.add(facts.id, count)
            nodes[facts.id] = nodes.get(facts.id, 0) + count
            demand.took(_new_node(search, facts), count)
        if not shares:
            return stop
    return None


def _groups_in_order(search: ScaleUpSearch, pool: PoolFacts) -> list[list[NodeGroupState]]:
    """Return the groups that may scale up, with those of one rank and type together: by rank, then the fewest nodes,
    then by name."""
    found: dict[tuple[object, ...], list[NodeGroupState]] = {}
    for name in pool.groups:
        if name in search.candidates.shapes:
            facts = search.state.groups[name]
            alone = name if facts.group.options.zero_or_max else ""
            found.setdefault((facts.group.rank, alone, *_node_type(_new_node(search, facts))), []).append(facts)
    return sorted(
        found.values(), key=lambda bunch: (-bunch[0].group.rank, min((facts.target, facts.id) for facts in bunch))
    )


def _node_type(node: Node) -> tuple[object, ...]:
    """Return a key that is equal for nodes that differ only in their location: the vendor's type, otherwise the
    size."""
    named = next((node.labels[label] for label in _TYPES if node.labels.get(label)), "")
    size = node.capacity or node.allocatable
    return (named,) if named else (size.get(CPU, 0), size.get(MEMORY, 0))


def _new_node(search: ScaleUpSearch, group: NodeGroupState) -> Node:
    """Return the expected new node of a group that may scale up."""
    return search.candidates.shapes[group.id].template.node


def _even_shares(
    search: ScaleUpSearch, bunch: Sequence[NodeGroupState], wanted: int
) -> tuple[list[tuple[NodeGroupState, int]], Reason | None]:
    """Return how many of the nodes each group gets, and what prevents more. Limits that groups share are divided too:
    otherwise the first group would take all that is left of them, and sizes would not even out."""
    ledger, grown = search.ledger, search.grown
    allowed = [ledger.allowance(facts, grown.get(facts.id, 0)) for facts in bunch]
    stop = min(allowed, key=lambda each: each.nodes).stop
    if bunch[0].group.options.zero_or_max:
        return ([(bunch[0], allowed[0].nodes)] if allowed[0].nodes > 0 else []), stop
    total = min(wanted, ledger.pool_room(bunch[0].group), ledger.room(_new_node(search, bunch[0])))
    sizes = [facts.target + grown.get(facts.id, 0) for facts in bunch]
    even = split(total, [(size, size + each.nodes) for size, each in zip(sizes, allowed, strict=True)])
    return [(facts, new - size) for facts, size, new in zip(bunch, sizes, even, strict=True) if new > size], stop


def _future_room(search: ScaleUpSearch, group: NodeGroupState) -> int:
    """Return how many nodes a group that may not scale up now could get otherwise."""
    if group.template is None:
        return min(max(0, group.group.max - group.target), search.ledger.pool_room(group.group))
    return search.ledger.allowance(group, search.grown.get(group.id, 0)).nodes
