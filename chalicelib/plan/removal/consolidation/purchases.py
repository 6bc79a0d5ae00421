"""The groups of which a consolidation may buy nodes, what such a node costs and holds, and why
other groups are not bought."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import Amounts
from chalicelib.plan.prices import instance_type
from chalicelib.plan.removal.consolidation.costs import Costs
from chalicelib.plan.scale_up.candidate_groups import Candidates
from chalicelib.plan.scale_up.estimator import NodeShape, shape_of
from chalicelib.plan.scale_up.scale_up_limits import ResourceLimiter
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.managed_groups import is_candidate
from chalicelib.plan.state.readiness import zone_of
from chalicelib.plan.state.spot_groups import is_spot
from chalicelib.plan.state.spot_market import returns_at
from chalicelib.plan.tables import Bools, Ints

Form = tuple[str, tuple[tuple[str, int], ...], str, bool]
"""What makes two machines equal for a replacement: instance type (or capacity, if it
is unknown), zone, spot."""


class NodeOffer(msgspec.Struct, frozen=True):
    """A group of which nodes may be bought. price: of one node, the overlap included. cost: without
    it. most: nodes; stop: what keeps it from more. shared: limits that it shares with the others:
    what one node of each counts, the room, the reason. settled_at: when its present price counts,
    0.0 if it does already; now: that price."""

    group: str
    node: Node
    shape: NodeShape
    price: int
    cost: int
    now: int
    settled_at: float
    form: Form
    most: int
    stop: Reason
    shared: tuple[tuple[tuple[int, ...], int, Reason], ...] = ()


def form_of(node: Node, group: NodeGroupState | None) -> Form:
    """Return the form of a node."""
    kind = instance_type(node)
    amounts: Amounts = node.capacity or node.allocatable
    capacity = (
        () if kind else tuple(sorted((name, int(amount)) for name, amount in amounts.items()))
    )
    return (
        kind,
        capacity,
        zone_of((node,), None),
        is_spot(node, group.group if group is not None else None),
    )


def _opened(price: int, group: NodeGroupState, limiter: ResourceLimiter) -> int:
    """Return the price at which a node counts in comparisons: dearer in a group to open."""
    if limiter.declared is None:
        return price
    return round(price * limiter.declared.opening_factor(group.group))


def _not_yet(group: NodeGroupState, state: ClusterState) -> Reason | None:
    """Return why a spot group is no offer although it could be bought."""
    until = returns_at(group, state)
    return Reason.of(ReasonCode.SPOT_RETURN, group=group.id, until=until) if until else None


def _cheapest_new(candidates: Candidates, costs: Costs, limiter: ResourceLimiter) -> frozenset[str]:
    """Return the groups to open that are weighed: of each declaration, zone and market those that
    no other one dominates."""
    if limiter.declared is None:
        return frozenset()
    # Imported here, because few clusters have managed pools.
    from chalicelib.plan.scale_up.finalists import not_dominated

    prices = {name: price.price for name, price in costs.groups.items()}
    return not_dominated(candidates, limiter.declared, prices)


class Market:
    """The groups that may be bought, in the order of their ids, and why each other group is not.
    fits [G,K]: by constant predicates, for the classes asked; room [G,R]."""

    def __init__(
        self,
        state: ClusterState,
        simulated: SimulatedCluster,
        costs: Costs,
        named: Collection[str],
        reason: Reason | None,
    ) -> None:
        """named: the groups that consolidation may use. reason: why nothing is bought in this
        pass."""
        limiter = ResourceLimiter(state)
        self._candidates = Candidates(state, simulated, limiter)
        self._rows: list[int] = []
        self.offers: tuple[NodeOffer, ...] = ()
        self.blocked: dict[str, tuple[NodeOffer, Reason]] = {}
        offers: list[NodeOffer] = []
        finalists = _cheapest_new(self._candidates, costs, limiter)
        row_of = {group.id: row for row, group in enumerate(self._candidates.groups)}
        for name, group in sorted(state.groups.items()):
            price = costs.groups.get(name)
            if (
                price is None
                or group.template is None
                or name not in named
                or group.group.options.zero_or_max
            ):
                continue
            shape = self._candidates.shapes.get(name) or shape_of(group.template, simulated)
            stop = Reason.of(ReasonCode.GROUP_MAX_SIZE, max=group.group.max)
            most = 0
            if name in row_of:
                allowance = limiter.allowance(group, 0)
                most, stop = allowance.nodes, allowance.stop
            offer = NodeOffer(
                group=name,
                node=group.template.node,
                shape=shape,
                price=_opened(price.price, group, limiter) + price.overlap,
                cost=price.price,
                now=price.now,
                settled_at=price.settled_at,
                form=form_of(group.template.node, group),
                most=most,
                stop=stop,
            )
            if is_candidate(group.group) and name not in finalists:
                continue
            why = reason or self._candidates.skipped.get(name) or _not_yet(group, state)
            if why is not None or most <= 0:
                self.blocked[name] = offer, why or stop
            else:
                offers.append(offer)
                self._rows.append(row_of[name])
        groups = [state.groups[offer.group] for offer in offers]
        shared = (
            tuple((amounts, room, offers[0].stop) for amounts, room in limiter.shared(groups))
            if offers
            else ()
        )
        self.offers = tuple(msgspec.structs.replace(offer, shared=shared) for offer in offers)

    def fits(self, cls: int) -> Bools:
        """Return which offers take one pod of a class on an empty new node,
        regardless of other pods."""
        fits: Bools = self._candidates.fits(cls)[self._rows]
        return fits

    def room(self, columns: int) -> Ints:
        """Return the free room of an empty new node of each offer, [G,R]."""
        room: Ints = np.array([offer.shape.free for offer in self.offers], dtype=np.int64).reshape(
            -1, columns
        )
        return room
