"""The price that a node of a group is expected to cost for one hour of use: what the
group has taught is weighed.

A node is paid while it starts, and a node that does not come is paid and asked for again:

    expected = price * (1 + median / 24 h) / (1 - min(failure rate, 0.9))

`median` is that of the time until ready, spread over a day as every cost that is paid once. Of what
is not known nothing is weighed: the expected price of a cold start is its price. What a spot
group's interruptions cost is added. Computed in whole millionths, so that equal prices stay equal.
See docs/reference/learning.md "Expected price" and docs/reference/spot.md "Risk".
"""

from __future__ import annotations

import msgspec

from chalicelib.model.join_summary import join_summary
from chalicelib.plan.prices import MICRO, NoPrice
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.spot_market import risk_premium, spot_groups

HORIZON = 86_400
"""Seconds over which the time until a node is ready is spread."""
WORST = 900_000
"""The largest failure rate that is weighed, in millionths."""


class ExpectedPrice(msgspec.Struct, frozen=True):
    """What a node of a group costs per hour, in millionths. price: according to the list or the
    provider; amount: the expected price."""

    price: int
    amount: int


def expected_prices(state: ClusterState) -> dict[str, ExpectedPrice]:
    """Return the expected price of each group with a template and a price where the policy weighs
    what groups have taught, and of spot groups where it has spec.spot."""
    learns, spot = state.policy.scale_up.expected_cost, state.policy.spot is not None
    if not (learns or spot):
        return {}
    book = state.prices
    spots = spot_groups(state) if spot else frozenset[str]()
    prices: dict[str, ExpectedPrice] = {}
    for name, group in sorted(state.groups.items()):
        price = (
            book.of_node(group.template.node, group.group) if group.template is not None else None
        )
        if price is None or isinstance(price, NoPrice) or not (learns or name in spots):
            continue
        known = join_summary(group.memory.joins if learns else None, state.now)
        risk = risk_premium(group, state) if name in spots else 0
        prices[name] = ExpectedPrice(
            price.amount, weighed(price.amount, known.median or 0, known.failure_rate or 0.0) + risk
        )
    return prices


def weighed(price: int, ready: int, failure_rate: float) -> int:
    """Return the expected price in millionths, rounded half up. ready: seconds."""
    rate = min(round(failure_rate * MICRO), WORST)
    dividend, divisor = price * (HORIZON + ready) * MICRO, HORIZON * (MICRO - rate)
    return (2 * dividend + divisor) // (2 * divisor)
