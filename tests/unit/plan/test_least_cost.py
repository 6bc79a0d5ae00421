"""least-cost: purchases with a known optimum, the rules it respects, and
the cases without a result.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from chalicelib.plan.scale_up.least_cost.cheapest_mix import solve
from chalicelib.plan.scale_up.least_cost.master_problem import Effort, Prices, generate
from chalicelib.plan.scale_up.least_cost.node_filling import ColumnCounter, cover, fill
from chalicelib.plan.scale_up.least_cost.problem import Ask, Bought, Offer, Rooms, Shared, pose

MANY = 10**6


def never() -> bool:
    """No time limit."""
    return False


def offer(
    group: str,
    cpu: int,
    memory: int,
    price: float,
    *,
    gpu: int = 0,
    pods: int = 110,
    most: int = 1000,
) -> Offer:
    """A group that is offered; cpu, memory, gpu in any unit."""
    return Offer(group, np.array([pods, cpu, memory, gpu], dtype=np.int64), price, most)


def ask(
    count: int,
    cpu: int = 0,
    memory: int = 0,
    *,
    gpu: int = 0,
    fits: Sequence[bool] = (True,) * 9,
) -> Ask:
    """Equivalent pods that by default may run on every group."""
    return Ask(np.array([1, cpu, memory, gpu], dtype=np.int64), count, tuple(fits))


def buy(offers: Sequence[Offer], asks: Sequence[Ask], *limits: Shared) -> list[Bought]:
    """Solves the problem and expects a result."""
    bought = solve(offers, asks, limits, never)
    assert bought is not None
    return bought


def nodes(offers: Sequence[Offer], bought: Sequence[Bought]) -> dict[str, int]:
    """group -> nodes."""
    found: dict[str, int] = {}
    for one in bought:
        found[offers[one.offer].group] = found.get(offers[one.offer].group, 0) + one.nodes
    return found


def placed(bought: Sequence[Bought]) -> dict[int, int]:
    """ask -> pods."""
    found: dict[int, int] = {}
    for one in bought:
        for at, each in one.pods.items():
            found[at] = found.get(at, 0) + each * one.nodes
    return found


def cost(offers: Sequence[Offer], bought: Sequence[Bought]) -> float:
    """The total price."""
    return sum(offers[one.offer].price * one.nodes for one in bought)


def test_least_cost_buys_nothing_without_pods() -> None:
    assert buy([offer("a", 4, 16, 1.0)], []) == []
    assert buy([offer("a", 4, 16, 1.0)], [ask(0, cpu=1)]) == []


def test_least_cost_buys_nothing_without_groups() -> None:
    assert buy([], []) == []
    assert buy([], [ask(3, cpu=1, fits=())]) == []


def test_least_cost_buys_the_cheapest_node_that_fits_one_pod() -> None:
    offers = [offer("large", 16, 64, 16.0), offer("small", 2, 8, 2.0), offer("medium", 4, 16, 4.0)]
    assert buy(offers, [ask(1, cpu=3, memory=4)]) == [Bought(2, 1, {0: 1})]


def test_least_cost_puts_complementary_pods_on_shared_nodes() -> None:
    """Each class alone prefers its own group; together they fill the balanced group,
    which costs more than either."""
    offers = [
        offer("compute", 8, 8, 5.0),
        offer("memory", 2, 64, 5.0),
        offer("balanced", 8, 64, 7.0),
    ]
    bought = buy(offers, [ask(40, cpu=6, memory=2), ask(40, cpu=2, memory=60)])
    assert nodes(offers, bought) == {"balanced": 40}


def test_least_cost_mixes_groups_where_that_is_cheaper_than_any_one_group() -> None:
    """Pods without GPUs fill up the GPU nodes and the rest get plain nodes; either group alone is
    expensive or unsuitable."""
    offers = [offer("gpu", 16, 64, 30.0, gpu=4), offer("plain", 16, 64, 8.0)]
    bought = buy(offers, [ask(8, cpu=2, memory=8, gpu=1), ask(20, cpu=4, memory=16)])
    assert nodes(offers, bought) == {"gpu": 2, "plain": 4}
    assert placed(bought) == {0: 8, 1: 20}


def test_least_cost_chooses_the_smallest_sufficient_last_node() -> None:
    offers = [offer("large", 8, 32, 7.5), offer("small", 2, 8, 2.0)]
    assert nodes(offers, buy(offers, [ask(17, cpu=1, memory=1)])) == {"large": 2, "small": 1}


def test_least_cost_counts_a_hundred_shares_of_a_node_exactly() -> None:
    offers = [offer("only", 10, 100, 1.0)]
    assert nodes(offers, buy(offers, [ask(1001, cpu=1, memory=10)])) == {"only": 101}


def test_least_cost_respects_the_pod_limit_of_a_node() -> None:
    offers = [offer("few", 100, 100, 1.0, pods=10), offer("many", 100, 100, 1.5, pods=100)]
    assert nodes(offers, buy(offers, [ask(300)])) == {"many": 3}


def test_least_cost_places_pods_only_on_allowed_groups() -> None:
    offers = [offer("cheap", 4, 16, 1.0), offer("dear", 4, 16, 9.0)]
    bought = buy(offers, [ask(4, cpu=1, memory=1, fits=(False, True)), ask(4, cpu=1, memory=1)])
    assert {one.offer for one in bought if 0 in one.pods} == {1}
    assert nodes(offers, bought) == {"dear": 1, "cheap": 1}


def test_least_cost_uses_the_next_best_group_above_a_group_maximum() -> None:
    offers = [offer("cheap", 4, 16, 1.0, most=3), offer("dear", 4, 16, 9.0)]
    assert nodes(offers, buy(offers, [ask(20, cpu=1, memory=1)])) == {"cheap": 3, "dear": 2}


def test_least_cost_fills_identical_groups_one_after_the_other() -> None:
    offers = [offer("a", 4, 16, 1.0, most=3), offer("b", 4, 16, 1.0, most=3)]
    assert nodes(offers, buy(offers, [ask(20, cpu=1, memory=1)])) == {"a": 3, "b": 2}


def test_least_cost_spends_a_cluster_limit_on_the_most_pods() -> None:
    offers = [offer("small", 2, 8, 1.0), offer("large", 16, 64, 10.0)]
    bought = buy(offers, [ask(20, cpu=1, memory=1)], Shared((1, 1), 2))
    assert placed(bought) == {0: 20}
    assert sum(one.nodes for one in bought) == 2


def test_least_cost_respects_a_limit_that_leaves_pods_pending() -> None:
    offers = [offer("a", 4, 16, 1.0), offer("b", 4, 16, 1.1)]
    bought = buy(offers, [ask(100, cpu=1, memory=1)], Shared((4, 4), 14))
    assert placed(bought) == {0: 12}


def test_least_cost_rejects_a_cheaper_node_that_exceeds_a_cluster_limit() -> None:
    offers = [offer("light", 1, 1, 0.5, most=2), offer("heavy", 1, 1, 0.0, most=1)]
    bought = buy(offers, [ask(2, cpu=1)], Shared((1, 2), 2))
    assert nodes(offers, bought) == {"light": 2}


def test_least_cost_places_other_pods_when_one_fits_nowhere() -> None:
    offers = [offer("a", 4, 16, 1.0)]
    assert placed(buy(offers, [ask(1, cpu=5, memory=1), ask(8, cpu=1, memory=1)])) == {1: 8}


def test_least_cost_does_not_buy_groups_without_a_price() -> None:
    offers = [offer("unknown", 4, 16, float("inf")), offer("known", 4, 16, 9.0)]
    assert nodes(offers, buy(offers, [ask(2, cpu=1, memory=1)])) == {"known": 1}


def test_least_cost_minimizes_the_node_count_where_all_nodes_are_free() -> None:
    offers = [offer("small", 2, 8, 0.0), offer("large", 8, 32, 0.0)]
    assert nodes(offers, buy(offers, [ask(16, cpu=1, memory=1)])) == {"large": 2}


def test_least_cost_handles_byte_amounts_exactly() -> None:
    offers = [offer("a", 4000, 2**40, 1.0)]
    assert nodes(offers, buy(offers, [ask(2, cpu=1, memory=2**39)])) == {"a": 1}
    assert nodes(offers, buy(offers, [ask(2, cpu=1, memory=2**39 + 1)])) == {"a": 2}


def _backlog(seed: int, groups: int = 12, classes: int = 30) -> tuple[list[Offer], list[Ask]]:
    chance = np.random.default_rng(seed)
    offers = []
    for at in range(groups):
        cpu = int(chance.choice([2, 4, 8, 16, 32]))
        memory, gpu = cpu * int(chance.choice([2, 4, 8])), int(chance.choice([0, 0, 0, 2]))
        price = round((cpu + memory / 8 + 10 * gpu) * float(chance.uniform(0.9, 1.1)), 3)
        offers.append(offer(f"g{at:02d}", cpu * 1000, memory * 1024, price, gpu=gpu))
    asks = [
        ask(
            int(chance.integers(1, 60)),
            int(chance.choice([100, 250, 500, 1000, 1900])),
            int(chance.choice([128, 700, 1500, 4000])),
            gpu=int(chance.random() < 0.1),
            fits=tuple(bool(x) for x in chance.random(groups) < 0.8),
        )
        for _ in range(classes)
    ]
    return offers, asks


@pytest.mark.parametrize("seed", range(1, 9))
def test_least_cost_buys_the_same_nodes_in_another_order(seed: int) -> None:
    offers, asks = _backlog(seed)
    straight = buy(offers, asks)
    turned = buy(
        offers[::-1],
        [Ask(one.need, one.count, one.fits[::-1]) for one in reversed(asks)],
    )
    assert nodes(offers, straight) == nodes(offers[::-1], turned)


def test_least_cost_is_deterministic() -> None:
    offers, asks = _backlog(2)
    assert buy(offers, asks) == buy(offers, asks)


def test_least_cost_without_time_has_no_result() -> None:
    assert solve([offer("a", 4, 16, 1.0)], [ask(1, cpu=1)], [], lambda: True) is None


@pytest.mark.parametrize("calls", [1, 2, 3, 5, 8, 20])
def test_least_cost_returns_the_best_result_found_when_time_runs_out(calls: int) -> None:
    offers, asks = _backlog(3)
    clock = iter([False] * calls)
    bought = solve(offers, asks, [], lambda: next(clock, True))
    assert bought is not None
    assert placed(bought) == placed(buy(offers, asks))
    assert cost(offers, bought) >= cost(offers, buy(offers, asks)) * 0.99


def test_least_cost_without_the_solver_has_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)  # importing it fails
    assert solve([offer("a", 4, 16, 1.0)], [ask(1, cpu=1)], [], never) is None


def test_least_cost_solver_is_imported_only_for_solving() -> None:
    program = "import sys, chalicelib.plan.scale_up.least_cost; sys.exit('highspy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# -- comparison with exhaustive search


def _fillings(one: Offer, asks: Sequence[Ask]) -> Iterator[tuple[int, ...]]:
    for pods in product(*(range(a.count + 1) for a in asks)):
        used = sum(
            (a.need * n for a, n in zip(asks, pods, strict=True)), np.zeros(4, dtype=np.int64)
        )
        if any(pods) and (used <= one.free).all():
            yield pods


def _cheapest(offers: Sequence[Offer], asks: Sequence[Ask]) -> float:
    """Returns the lowest price of all mixes by exhaustive search."""
    loads = [(one.price, pods) for one in offers for pods in _fillings(one, asks)]
    least: dict[tuple[int, ...], float] = {(0,) * len(asks): 0.0}
    for state in product(*(range(a.count + 1) for a in asks)):
        if state in least or not any(state):
            continue
        least[state] = min(
            (
                price
                + least[tuple(max(0, have - held) for have, held in zip(state, pods, strict=True))]
                for price, pods in loads
                if any(have and held for have, held in zip(state, pods, strict=True))
            ),
            default=float("inf"),
        )
    return least[tuple(a.count for a in asks)]


def test_least_cost_finds_the_minimum_price_for_small_problems() -> None:
    found, least = [], []
    for seed in range(40):
        chance = np.random.default_rng(seed)
        offers = [
            offer(
                f"g{at}",
                cpu,
                cpu * int(chance.choice([2, 4])),
                cpu * float(chance.uniform(0.8, 1.2)),
            )
            for at, cpu in enumerate(chance.choice([2, 3, 4, 6, 8], 3).tolist())
        ]
        asks = [
            ask(int(chance.integers(1, 6)), int(chance.integers(1, 3)), int(chance.integers(1, 7)))
            for _ in range(3)
        ]
        found.append(cost(offers, buy(offers, asks)))
        least.append(_cheapest(offers, asks))
    exact = sum(f <= one * (1 + 1e-4) for f, one in zip(found, least, strict=True))
    assert all(f >= one * (1 - 1e-4) for f, one in zip(found, least, strict=True)), (
        "cheaper than possible"
    )
    assert exact >= 36, "of 40"
    assert sum(found) <= 1.005 * sum(least)


def test_search_for_loads_ends_after_twelve_rounds_without_progress() -> None:
    """Every round finds a load that does not lower the price."""
    rounds = []

    class Offers:
        def solve(self) -> Prices:
            return Prices(100.0, np.ones(1), np.ones(1), np.ones(1))

        def add(self, loads: object) -> int:
            rounds.append(loads)
            return 1

        def loads(self, *_: object) -> tuple[()]:
            return ()

    market: Any = Offers()
    generate(market, market, np.ones(1, dtype=np.int64), Effort(rounds=50, keep=1, tries=1), never)
    assert len(rounds) == 12


def test_nodes_are_also_filled_as_if_each_resource_alone_were_scarce() -> None:
    """Three nodes take all pods if the pods without memory go beside those that use it all; a
    filling that counts both resources alike needs four."""
    asks = [ask(2, cpu=7, memory=3), ask(3, cpu=4, memory=2), ask(1, cpu=5)]
    problem = pose([offer("g", 12, 8, 1.0)], asks, [])
    unplaced, alike = problem.pending.copy(), np.ones(problem.room.shape)
    loads = cover(problem, unplaced, np.ones(len(asks)), alike, Rooms(problem))
    assert not unplaced.any()
    assert sum(load.nodes for load in loads) == 3


def test_closed_ask_gets_no_pod_of_a_filled_node() -> None:
    """A filling that has given up a pod of an ask looks for others in its place."""
    problem = pose([offer("g", 4, 8, 1.0)], [ask(9, cpu=1), ask(9, cpu=2)], [])
    counter = ColumnCounter(problem, np.array([9.0, 1.0]), problem.cap, np.ones(problem.room.shape))
    for closed in (0, 1):
        pods = np.zeros((1, 2), dtype=np.int64)
        scarce = np.ones((1, problem.room.shape[1]))
        fill(counter, np.array([0]), pods, counter.value[[0]], scarce, np.array([closed]))
        assert pods[0, closed] == 0
        assert pods[0, 1 - closed] > 0
