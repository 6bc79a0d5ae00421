"""price: compares the cost of the nodes with the value of the pods, and prefers nodes of a suitable size.

A large node suits a large cluster but not a small one, and the size matters less when many nodes are added at once.
Nodes with GPUs are for pods that cannot run elsewhere. All of that is one score; the smallest wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, tanh

from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.scale_up.expanders.context import ExpanderContext, Kept
from chalicelib.plan.scale_up.expanders.node_prices import Rates, has_gpu, node_price, pod_rates, unpriced
from chalicelib.plan.scale_up.option import Option

_PREFERRED = ((2, 1), (6, 2), (20, 4), (60, 8), (200, 16))  # up to this many nodes in the cluster: this many cores
_PREFERRED_BEYOND = 32
_STABILISER = {CPU: 500, MEMORY: 500 * 2**20}
_GPU_UNFITNESS = 1000.0
_ABSENT_FACTOR = 2.0


def keep(options: Sequence[Option], context: ExpanderContext) -> Kept:
    """Return the options with the smallest score. An option without a price is dropped with a NO_PRICE note; the result
    may be empty."""
    prices, own = context.prices, [context.group_prices.get(option.group, 0.0) for option in options]
    rates = pod_rates(prices, [option.template for option in options], own)
    scores = [
        _priced(option, node_price(option.template, prices, price), rates, context)
        for option, price in zip(options, own, strict=True)
    ]
    notes = tuple(
        Reason.of(ReasonCode.NO_PRICE, group=option.group, detail=unpriced(option.template, prices))
        for option, score in zip(options, scores, strict=True)
        if score is None
    )
    least = min((score for score in scores if score is not None), default=inf)
    return [option for option, score in zip(options, scores, strict=True) if score == least], notes


def preferred_cores(cluster_nodes: int) -> int:
    """Return how many cores a node should have in a cluster of this many nodes."""
    return next((cores for most, cores in _PREFERRED if cluster_nodes <= most), _PREFERRED_BEYOND)


def score(option: Option, price: float, rates: Rates, context: ExpanderContext) -> float:
    """Return S * (P_nodes + p_stab) / (P_pods + p_stab), doubled for a group that does not exist yet. price: of one
    node."""
    stabiliser = rates.of(_STABILISER)
    nodes, pods = price * option.nodes + stabiliser, rates.of(option.requested) + stabiliser
    if pods > 0:
        ratio = nodes / pods
    else:  # reached only with a price list of zeros: a node that still has a cost is worse
        ratio = inf if nodes > 0 else 1.0
    return _unfitness(option, context) * ratio * (_ABSENT_FACTOR if option.group in context.absent else 1.0)


def _priced(option: Option, price: float | None, rates: Rates | None, context: ExpanderContext) -> float | None:
    return None if price is None or rates is None else score(option, price, rates, context)


def _unfitness(option: Option, context: ExpanderContext) -> float:
    """Return 1 for a node of the preferred size and more for a larger distance from it; the effect shrinks as more
    nodes are added at once."""
    if has_gpu(option.template):
        return _GPU_UNFITNESS
    preferred = preferred_cores(context.cluster_nodes) * 1000
    own = max((option.template.capacity or option.template.allocatable).get(CPU, 0), 1)
    return (max(preferred / own, own / preferred) - 1) * (1 - tanh((option.nodes - 1) / 15)) + 1
