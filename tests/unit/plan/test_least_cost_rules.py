"""least-cost on random problems: every rule holds, every pod that can be placed is placed, and the
price is never above that of one group alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chalicelib.plan.scale_up.least_cost.cheapest_mix import solve
from chalicelib.plan.scale_up.least_cost.problem import Ask, Bought, Offer, Shared
from tests.amounts import examples

MANY = 10**6

Question = tuple[list[Offer], list[Ask], list[Shared]]


@st.composite
def questions(draw: st.DrawFn, *, limited: bool) -> Question:
    """Random groups and classes with integer amounts of three resources,
    and limits that may bind."""
    offers = [
        Offer(
            f"g{at}",
            np.array(
                [
                    draw(st.integers(1, 12)),
                    draw(st.integers(0, 16)),
                    draw(st.integers(0, 64)),
                    draw(st.sampled_from([0, 0, 2])),
                ],
                dtype=np.int64,
            ),
            draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5, 7.25])),
            draw(st.integers(0, 6)) if limited else MANY,
        )
        for at in range(draw(st.integers(1, 5)))
    ]
    asks = [
        Ask(
            np.array(
                [
                    1,
                    draw(st.integers(0, 8)),
                    draw(st.integers(0, 16)),
                    draw(st.sampled_from([0, 0, 0, 1])),
                ],
                dtype=np.int64,
            ),
            draw(st.integers(1, 25)),
            tuple(draw(st.sampled_from([True, True, True, False])) for _ in offers),
        )
        for _ in range(draw(st.integers(1, 6)))
    ]
    limits = (
        [
            Shared(tuple(draw(st.integers(0, 4)) for _ in offers), draw(st.integers(0, 20)))
            for _ in range(draw(st.integers(0, 2)))
        ]
        if limited
        else []
    )
    return offers, asks, limits


def holds(one: Offer, at: int, asks: Sequence[Ask], pods: dict[int, int]) -> bool:
    """Whether one node of an offer fits these pods."""
    used = sum((asks[a].need * n for a, n in pods.items()), np.zeros(4, dtype=np.int64))
    return all(asks[a].fits[at] for a, n in pods.items()) and bool((used <= one.free).all())


def bought_for(question: Question) -> list[Bought]:
    """Returns the result after checking every rule."""
    offers, asks, limits = question
    bought = solve(offers, asks, limits, lambda: False)
    assert bought is not None
    for one in bought:
        assert one.nodes > 0, "no nodes"
        assert one.pods, "an empty node"
        assert all(n > 0 for n in one.pods.values())
        assert holds(offers[one.offer], one.offer, asks, one.pods)
    for at, offer in enumerate(offers):
        assert sum(one.nodes for one in bought if one.offer == at) <= offer.most
    for limit in limits:
        assert sum(limit.amounts[one.offer] * one.nodes for one in bought) <= limit.most
    assert all(count >= 0 for count in left(asks, bought))
    return bought


def left(asks: Sequence[Ask], bought: Sequence[Bought]) -> list[int]:
    """Unplaced pods of each class."""
    return [
        ask.count - sum(one.pods.get(a, 0) * one.nodes for one in bought)
        for a, ask in enumerate(asks)
    ]


def first_fit_decreasing(at: int, one: Offer, asks: Sequence[Ask]) -> int | None:
    """Nodes of one group for all pods, largest first, pod by pod; None if
    the group cannot hold them."""
    nodes: list[dict[int, int]] = []
    size = [float((ask.need / np.maximum(one.free, 1)).sum()) for ask in asks]
    for a in sorted(range(len(asks)), key=lambda a: -size[a]):
        for _ in range(asks[a].count):
            for pods in nodes:
                if holds(one, at, asks, {**pods, a: pods.get(a, 0) + 1}):
                    pods[a] = pods.get(a, 0) + 1
                    break
            else:
                if not holds(one, at, asks, {a: 1}):
                    return None
                nodes.append({a: 1})
    return len(nodes)


@pytest.mark.more
@settings(
    max_examples=examples(30, 80),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(questions(limited=False))
def test_least_cost_places_every_pod_that_fits_an_empty_node(question: Question) -> None:
    offers, asks, _ = question
    rest = left(asks, bought_for(question))
    assert len(rest) == len(asks)
    for a, ask in enumerate(asks):
        anywhere = any(holds(one, at, asks, {a: 1}) for at, one in enumerate(offers))
        assert rest[a] == (0 if anywhere else ask.count)


@pytest.mark.more
@settings(
    max_examples=examples(30, 80),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(questions(limited=True))
def test_least_cost_respects_limits_and_leaves_no_placeable_pod(question: Question) -> None:
    offers, asks, limits = question
    bought = bought_for(question)
    assert len(left(asks, bought)) == len(asks)
    for a, missing in enumerate(left(asks, bought)):
        if not missing:
            continue
        for one in bought:
            assert not holds(
                offers[one.offer], one.offer, asks, {**one.pods, a: one.pods.get(a, 0) + 1}
            )
        for at, offer in enumerate(offers):
            room = sum(one.nodes for one in bought if one.offer == at) < offer.most and all(
                sum(limit.amounts[one.offer] * one.nodes for one in bought) + limit.amounts[at]
                <= limit.most
                for limit in limits
            )
            assert not (room and holds(offer, at, asks, {a: 1}))


@pytest.mark.more
@settings(
    max_examples=examples(30, 80),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(questions(limited=False))
def test_least_cost_is_never_dearer_than_first_fit_on_the_best_single_group(
    question: Question,
) -> None:
    offers, asks, limits = question
    cost = sum(offers[one.offer].price * one.nodes for one in bought_for(question))
    for at, one in enumerate(offers):
        alone = first_fit_decreasing(at, one, asks)
        assert alone is None or cost <= alone * one.price * (1 + 1e-4) + 1e-9
    assert limits == []


@pytest.mark.more
@settings(
    max_examples=examples(30, 80),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(questions(limited=True))
def test_least_cost_buys_no_superfluous_node(question: Question) -> None:
    """The pods of any one node do not fit on the others by first fit."""
    offers, asks, _ = question
    nodes = [(one.offer, dict(one.pods)) for one in bought_for(question) for _ in range(one.nodes)]
    for out in range(len(nodes)):
        others = [(at, dict(pods)) for number, (at, pods) in enumerate(nodes) if number != out]
        homeless = [a for a, n in nodes[out][1].items() for _ in range(n)]
        homeless.sort(
            key=lambda a: -float((asks[a].need / np.maximum(offers[nodes[out][0]].free, 1)).max())
        )
        for a in homeless:
            for at, pods in others:
                if holds(offers[at], at, asks, {**pods, a: pods.get(a, 0) + 1}):
                    pods[a] = pods.get(a, 0) + 1
                    break
            else:
                break
        else:
            raise AssertionError(f"node {out} is not needed")
