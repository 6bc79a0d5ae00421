"""Which node groups of a pool get a rule's nodes (huaweicloud-cce.md A6.3, A6.5, A6.7, A9.1).

The highest rank first. Of groups of one rank, those whose nodes are of one type are filled so that their sizes even
out, and what one of them cannot take goes to the others. Then the next rank: a flavour that is sold out is passed over.
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
# What may be over in a moment; limits are not among it.
PASSING = frozenset(
    {ReasonCode.GROUP_BACKOFF, ReasonCode.GROUP_UNREADABLE, ReasonCode.GROUP_UNHEALTHY, ReasonCode.NO_TEMPLATE}
)


class NodeDemand(Protocol):
    """How much is wanted, as nodes are given."""

    @property
    def enough(self) -> bool:
        """Whether nothing more is."""

    def nodes(self, node: Node) -> int:
        """How many more nodes like this one; 0 or less where they are of no use."""

    def took(self, node: Node, count: int) -> None:
        """So many like this one were given."""


class FixedCount:
    """A number of nodes, whatever they are."""

    def __init__(self, left: int) -> None:
        self.left = left

    @property
    def enough(self) -> bool:
        """None is left."""
        return self.left <= 0

    def nodes(self, node: Node) -> int:
        """What is left."""
        del node
        return self.left

    def took(self, node: Node, count: int) -> None:
        """So many fewer."""
        del node
        self.left -= count


class BelowThreshold:
    """As many nodes as bring a rate strictly below a threshold, the fewest of them (A3, automatic calculation).

    requests and offers in millicores or bytes, percent from 1. What DaemonSets ask for on the new nodes is left out.
    """

    def __init__(self, resource: str, requests: int, offers: int, percent: int) -> None:
        self.resource, self.requests, self.offers, self.percent = resource, requests, offers, percent

    @property
    def enough(self) -> bool:
        """The rate is strictly below."""
        return 100 * self.requests < self.percent * self.offers

    def nodes(self, node: Node) -> int:
        """(100 R - T sum(A)) / (T Af), rounded down, and one more; none of a node that offers nothing."""
        each = node.allocatable.get(self.resource, 0)
        if each <= 0:
            return 0
        return (100 * self.requests - self.percent * self.offers) // (self.percent * each) + 1

    def took(self, node: Node, count: int) -> None:
        """They offer so much more."""
        self.offers += count * node.allocatable.get(self.resource, 0)


class Allocation(msgspec.Struct, frozen=True):
    """nodes: how many, by group. stop: why no more, None if that is all that was wanted. later: how many more there
    will be room for in groups that may not grow just now."""

    nodes: dict[str, int] = {}
    stop: Reason | None = None
    later: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.nodes.values())


def first_choice(search: ScaleUpSearch, pool: PoolFacts) -> Node | None:
    """What the first nodes of a pool would be like; None: none of its groups may grow."""
    return next((_model(search, facts) for bunch in _bunches(search, pool) for facts in bunch), None)


def give(search: ScaleUpSearch, pool: PoolFacts, want: NodeDemand) -> Allocation:
    """Add what is wanted, as far as bounds and limits allow. A zero-or-max group gets all its nodes or none."""
    nodes: dict[str, int] = {}
    stop: Reason | None = None
    for bunch in _bunches(search, pool):
        stop = _fill(search, bunch, want, nodes) or stop
        if want.enough:
            return Allocation(nodes)
    skipped = search.candidates.skipped
    waiting = [name for name in pool.groups if name in skipped and skipped[name].code in PASSING]
    later = sum(_room(search, search.world.groups[name]) for name in waiting)
    reasons = [
        *([skipped[waiting[0]]] if later and not nodes else []),
        *([stop] if stop else []),
        *(skipped[name] for name in [*waiting, *pool.groups] if name in skipped),
    ]
    return Allocation(nodes, next(iter(reasons), None), later)


def _fill(
    search: ScaleUpSearch, bunch: Sequence[NodeGroupState], want: NodeDemand, nodes: dict[str, int]
) -> Reason | None:
    """Give what the groups of a bunch can take; returns what stops more."""
    while not want.enough and (wanted := want.nodes(_model(search, bunch[0]))) > 0:
        shares, stop = _shares(search, bunch, wanted)
        for facts, count in shares:
            search.add(facts.id, count)
            nodes[facts.id] = nodes.get(facts.id, 0) + count
            want.took(_model(search, facts), count)
        if not shares:
            return stop
    return None


def _bunches(search: ScaleUpSearch, pool: PoolFacts) -> list[list[NodeGroupState]]:
    """The groups that may grow, those of one rank and type together: by rank, then the fewest nodes, then by name."""
    found: dict[tuple[object, ...], list[NodeGroupState]] = {}
    for name in pool.groups:
        if name in search.candidates.shapes:
            facts = search.world.groups[name]
            alone = name if facts.group.options.zero_or_max else ""
            found.setdefault((facts.group.rank, alone, *_type(_model(search, facts))), []).append(facts)
    return sorted(
        found.values(), key=lambda bunch: (-bunch[0].group.rank, min((facts.target, facts.id) for facts in bunch))
    )


def _type(node: Node) -> tuple[object, ...]:
    """Equal for nodes that differ in nothing but where they stand: the vendor's type, else the size."""
    named = next((node.labels[label] for label in _TYPES if node.labels.get(label)), "")
    size = node.capacity or node.allocatable
    return (named,) if named else (size.get(CPU, 0), size.get(MEMORY, 0))


def _model(search: ScaleUpSearch, facts: NodeGroupState) -> Node:
    """What a new node of a group that may grow is like."""
    return search.candidates.shapes[facts.id].template.node


def _shares(
    search: ScaleUpSearch, bunch: Sequence[NodeGroupState], wanted: int
) -> tuple[list[tuple[NodeGroupState, int]], Reason | None]:
    """Who gets how many of so many nodes, and what stops more. Limits that groups share are divided too: else the first
    would take all that is left of them, and sizes would not even out."""
    ledger, grown = search.ledger, search.grown
    allowed = [ledger.allowance(facts, grown.get(facts.id, 0)) for facts in bunch]
    stop = min(allowed, key=lambda each: each.nodes).stop
    if bunch[0].group.options.zero_or_max:
        return ([(bunch[0], allowed[0].nodes)] if allowed[0].nodes > 0 else []), stop
    total = min(wanted, ledger.pool_room(bunch[0].group), ledger.room(_model(search, bunch[0])))
    sizes = [facts.target + grown.get(facts.id, 0) for facts in bunch]
    even = split(total, [(size, size + each.nodes) for size, each in zip(sizes, allowed, strict=True)])
    return [(facts, new - size) for facts, size, new in zip(bunch, sizes, even, strict=True) if new > size], stop


def _room(search: ScaleUpSearch, facts: NodeGroupState) -> int:
    """How many nodes a group that may not grow just now could get otherwise."""
    if facts.template is None:
        return min(max(0, facts.group.max - facts.target), search.ledger.pool_room(facts.group))
    return search.ledger.allowance(facts, search.grown.get(facts.id, 0)).nodes
