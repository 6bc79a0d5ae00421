"""least-cost over thousands of machine types: what leaving out offers costs and saves, as ratios
measured in one run.
"""

from __future__ import annotations

import time

import pytest

from chalicelib.plan.scale_up.least_cost import reduction
from chalicelib.plan.scale_up.least_cost.cheapest_mix import solve
from tests.benchmarks.machine_types import Backlog, backlog

SEEDS = (1, 2, 3)
DEARER = 1.005
"""Most that a mix may cost, as a multiple of the same search over all offers."""
QUICKER = {1000: 4.0, 3600: 8.0}
"""Least by which the search is quicker, by offers."""


def priced(question: Backlog) -> tuple[float, float]:
    """The price of the mix for all pods, and seconds of CPU."""
    offers = question.offers()
    started = time.process_time()
    bought = solve(offers, question.asks, [], lambda: False)
    seconds = time.process_time() - started
    assert bought is not None
    placed = sum(node.nodes * sum(node.pods.values()) for node in bought)
    assert placed == sum(ask.count for ask in question.asks)
    return sum(offers[node.offer].price * node.nodes for node in bought), seconds


@pytest.mark.parametrize("offers", QUICKER)
def test_pool_25_mix_of_many_types_is_found_quickly_and_costs_hardly_more(
    offers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices, seconds = [], []
    for seed in SEEDS:
        question = backlog(seed, offers)
        reduced_price, reduced_seconds = priced(question)
        with monkeypatch.context() as patch:
            patch.setattr(reduction, "MANY", 10**9)
            price, whole_seconds = priced(question)
        prices.append(reduced_price / price)
        seconds.append(whole_seconds / reduced_seconds)
        print(
            f"\n{offers:,} offers, seed {seed}: {reduced_seconds:.2f} s of CPU, over all of them "
            f"{whole_seconds:.2f} s; {reduced_price / price:.4f} x its price"
        )
    assert max(prices) <= DEARER
    assert min(seconds) >= QUICKER[offers]
