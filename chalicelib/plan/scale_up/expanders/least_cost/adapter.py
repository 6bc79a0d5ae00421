"""Converts the planner's groups and pod classes to solver input, and the solver's answer to purchases.

Only what the search can optimise is converted. Pods with rules about other pods, host ports or claims, and groups that
scale from zero to their maximum at once, are left to the rest of the chain, which sees the nodes bought here in the
simulated cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.policy import NodePrices
from chalicelib.plan.scale_up.candidate_groups import Candidates
from chalicelib.plan.scale_up.expanders.least_cost import Ask, Offer, Shared, solve
from chalicelib.plan.scale_up.expanders.least_cost.solver_types import Stop
from chalicelib.plan.scale_up.expanders.node_prices import node_price
from chalicelib.plan.scale_up.limits import ResourceLimiter
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster

_UNLIMITED = 10**9


class Purchase(msgspec.Struct, frozen=True):
    """`nodes` new nodes of a group, each with pods[class] pods of a class."""

    group: str
    nodes: int
    pods: dict[int, int]


def purchases(
    counts: Mapping[int, int],
    candidates: Candidates,
    simulated: SimulatedCluster,
    limiter: ResourceLimiter,
    prices: NodePrices | None,
    stop: Stop,
    grown: Mapping[str, int],
    limits: Sequence[Shared],
) -> list[Purchase] | None:
    """Return the cheapest mix of new nodes for pending pods, or None if there is no answer and the next expander
    decides.

    counts: class -> unplaced pods; grown: group -> nodes already bought; limits: cluster-wide limits, with their
    amounts per able group.
    """
    able = candidates.able
    offers = [
        Offer(
            facts.id,
            candidates.shapes[facts.id].free,
            _price(facts.template.node, prices, facts.group.price),
            0 if facts.group.options.zero_or_max else limiter.allowance(facts, grown.get(facts.id, 0)).nodes,
        )
        for facts in able
        if facts.template is not None
    ]
    classes = [
        cls
        for cls in counts
        if simulated.needs(cls) is None and not simulated.classes[cls].ports and not simulated.volumes.concerns(cls)
    ]
    asks = [
        Ask(simulated.table.columns.need(cls), counts[cls], tuple(candidates.fits(cls).tolist()), _UNLIMITED)
        for cls in classes
    ]
    bought = solve(offers, asks, limits, stop)
    if bought is None:
        return None
    return [
        Purchase(offers[one.offer].group, one.nodes, {classes[at]: each for at, each in one.pods.items()})
        for one in bought
    ]


def _price(node: Node, prices: NodePrices | None, own: float) -> float:
    price = node_price(node, prices, own)
    return float("inf") if price is None else price
