"""Offers that least-cost leaves out because no cheap mix needs them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import msgspec
import numpy as np
import pytest

from chalicelib.plan.scale_up.least_cost import reduction
from chalicelib.plan.scale_up.least_cost.cheapest_mix import solve
from chalicelib.plan.scale_up.least_cost.problem import Ask, Offer, Problem, Shared, pose
from chalicelib.plan.scale_up.least_cost.reduction import without_dear, without_dominated
from chalicelib.plan.scale_up.least_cost.relaxation import relax
from tests.benchmarks.machine_types import backlog

PODS = 8


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two offers are many."""
    monkeypatch.setattr(reduction, "MANY", 1)


def machine(name: str, cpu: int, memory: int, price: float, most: int = PODS) -> Offer:
    return Offer(name, np.array([110, cpu, memory], dtype=np.int64), price, most)


def pods(count: int, cpu: int, memory: int, fits: Sequence[bool] = (True,) * 9) -> Ask:
    return Ask(np.array([1, cpu, memory], dtype=np.int64), count, tuple(fits))


def names(problem: Problem, offers: Sequence[Offer]) -> set[str]:
    return {offers[at].group for members in problem.offers for at in members}


S4, DEARER = machine("s4", 4, 16, 0.19), machine("x", 4, 16, 0.20)
DOMINANCE = {
    "a dearer one of the same size": ((S4, DEARER), (True, True), (), {"s4"}),
    "a smaller one of the same price": ((S4, machine("x", 2, 16, 0.19)), (True, True), (), {"s4"}),
    "a larger one": ((S4, machine("x", 8, 16, 0.20)), (True, True), (), {"s4", "x"}),
    "one for more pods": ((S4, DEARER), (False, True), (), {"s4", "x"}),
    "one for fewer pods": ((S4, DEARER), (True, False), (), {"s4"}),
    "the cheaper one is scarce": ((machine("s4", 4, 16, 0.19, PODS - 1), DEARER), (True, True), (),
                                  {"s4", "x"}),
    "the dearer one is scarce": ((S4, machine("x", 4, 16, 0.20, 1)), (True, True), (), {"s4"}),
    "the cheaper one counts more": ((S4, DEARER), (True, True), (Shared((8, 4), 40),),
                                    {"s4", "x"}),
    "the dearer one counts more": ((S4, DEARER), (True, True), (Shared((4, 8), 40),), {"s4"}),
}  # fmt: skip


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("offers", "fits", "limits", "left"), DOMINANCE.values(), ids=DOMINANCE)
def test_offer_is_left_out_if_another_can_always_stand_in_its_place(
    offers: Sequence[Offer], fits: Sequence[bool], limits: Sequence[Shared], left: set[str]
) -> None:
    asks = [pods(4, 1, 4), pods(PODS - 4, 1, 3, fits)]
    assert names(without_dominated(pose(offers, asks, limits)), offers) == left


@pytest.mark.usefixtures("few")
def test_resource_that_no_pod_requests_does_not_count() -> None:
    offers = [machine("a", 4, 8, 0.19), machine("b", 4, 32, 0.20)]
    assert names(without_dominated(pose(offers, [pods(PODS, 1, 0)], ())), offers) == {"a"}


def test_few_offers_are_all_searched() -> None:
    problem = pose([S4, DEARER], [pods(PODS, 1, 4)], ())
    assert without_dominated(problem) is problem
    relaxed = relax(problem)
    assert without_dear(problem, relaxed) == (problem, relaxed)


@pytest.mark.usefixtures("few")
def test_offer_that_costs_more_than_any_of_its_loads_is_worth_is_left_out() -> None:
    sizes = (("s4", 4, 16, 0.19), ("near", 8, 32, 0.39), ("dear", 8, 33, 0.60))
    offers = [machine(*size, most=1000) for size in sizes]
    problem = pose(offers, [pods(400, 1, 4)], ())
    problem, relaxed = without_dear(problem, relax(problem))
    assert names(problem, offers) == {"s4", "near"}
    assert len(relaxed.scarce) == len(relaxed.shares) == len(relaxed.surcharge) == 2


@pytest.mark.usefixtures("few")
def test_scarce_offer_is_never_left_out_for_its_price() -> None:
    offers = [machine("s4", 4, 16, 0.19, most=1000), machine("dear", 8, 33, 0.60, most=3)]
    problem = pose(offers, [pods(400, 1, 4)], ())
    assert names(without_dear(problem, relax(problem))[0], offers) == {"s4", "dear"}


def random_question(seed: int) -> tuple[list[Offer], list[Ask], list[Shared]]:
    """At most six offers, eight pods and one limit."""
    chance = np.random.default_rng(seed)
    offers = [
        machine(
            f"g{at}",
            int(chance.choice([2, 4, 8])),
            int(chance.choice([4, 8, 16])),
            round(float(chance.uniform(0.1, 0.4)), 2),
            int(chance.choice([1, 2, PODS, PODS])),
        )
        for at in range(6)
    ]
    asks = [
        pods(
            int(chance.integers(1, 5)),
            int(chance.choice([1, 2])),
            int(chance.choice([1, 4])),
            tuple(bool(x) for x in chance.random(6) < 0.8),
        )
        for _ in range(2)
    ]
    amounts = tuple(int(offer.free[1]) for offer in offers)
    limits = [Shared(amounts, int(chance.choice([8, 16])))] if chance.random() < 0.5 else []
    return offers, asks, limits


def least(problem: Problem) -> tuple[int, float]:
    """The fewest pods without a place, and the lowest price, of all mixes of whole nodes."""
    needs, wanted = problem.need, tuple(problem.pending.tolist())
    loads = [
        (at, filling)
        for at in range(len(problem.price))
        for filling in product(*(range(cap + 1) for cap in problem.cap[at].tolist()))
        if any(filling) and (np.array(filling) @ needs <= problem.room[at]).all()
    ]
    best = sum(wanted), 0.0
    stack = [(wanted, 0.0, problem.most.copy(), problem.limit.copy(), 0)]
    while stack:
        left, price, most, limit, first = stack.pop()
        best = min(best, (sum(left), round(price, 9)))
        for number in range(first, len(loads)):
            at, filling = loads[number]
            rest = tuple(have - held for have, held in zip(left, filling, strict=True))
            next_limit = limit - problem.buying[:, at]
            if min(rest) < 0 or not most[at] or (next_limit < 0).any():
                continue
            next_most = most.copy()
            next_most[at] -= 1
            stack.append((rest, price + float(problem.price[at]), next_most, next_limit, number))
    return best


def never_loses(seeds: range) -> None:
    left_out = 0
    for seed in seeds:
        problem = pose(*random_question(seed))
        reduced = without_dominated(problem)
        left_out += len(problem.price) - len(reduced.price)
        assert least(problem) == least(reduced), seed
    assert left_out > len(seeds)


@pytest.mark.usefixtures("few")
def test_optimum_is_never_lost_with_dominated_offers() -> None:
    never_loses(range(40))


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_optimum_of_a_thousand_problems_is_never_lost_with_dominated_offers() -> None:
    never_loses(range(1000))


def test_order_of_offers_and_pods_changes_nothing() -> None:
    question = backlog(1, 200, pods=300)
    offers, asks = question.offers(), question.asks
    turned = [msgspec.structs.replace(ask, fits=ask.fits[::-1]) for ask in reversed(asks)]
    answers = solve(offers, asks, [], lambda: False), solve(offers[::-1], turned, [], lambda: False)
    bought = []
    for answer, own in zip(answers, (offers, offers[::-1]), strict=True):
        assert answer
        bought.append(sorted((own[node.offer].group, node.nodes) for node in answer))
    assert bought[0] == bought[1]
