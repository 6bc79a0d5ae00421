"""Prices reported by a provider (NodeGroup.price) in the price and least-cost expanders: alone,
with a price list, and in conflict with it."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.node import Node
from chalicelib.model.plan import Plan
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.prices import node_price, pod_rates
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import NOW, ClusterBuilder, amounts, cluster, growth, node

TYPE = "node.kubernetes.io/instance-type"


def planned(built: ClusterBuilder, *expanders: str, prices: NodePrices | None = None) -> Plan:
    options = msgspec.structs.replace(Options(), expander=expanders)
    policy = Policy(name="test", mode=Mode.ACTIVE, options=options, prices=prices)
    return plan_cluster(built.snapshot(), policy, Memory(), NOW, 0)[0]


def machine(name: str, cpu: str = "4", memory: str = "16Gi", **more: Any) -> Node:
    return node(name, cpu, memory, labels={TYPE: name}, **more)


def two(first: float, second: float, pods: int = 3) -> ClusterBuilder:
    """Two groups of equal instances at these prices."""
    return (
        cluster()
        .group("a", template=machine("type-a"), price=first)
        .group("b", template=machine("type-b"), price=second)
        .pending(pods, "1", "1Gi")
    )


def noted(plan: Plan) -> list[tuple[ReasonCode, object]]:
    return [
        (note.code, note.params.get("group") or note.params.get("expander")) for note in plan.notes
    ]


@pytest.mark.parametrize("expander", ["price", "least-cost"])
@pytest.mark.parametrize(("first", "second", "chosen"), [(0.2, 0.1, "b"), (0.1, 0.2, "a")])
def test_cheaper_group_by_provider_price_is_scaled_up_without_a_list(
    expander: str, first: float, second: float, chosen: str
) -> None:
    plan = planned(two(first, second), expander)
    assert growth(plan) == {chosen: (1, 3)}
    assert noted(plan) == []


@pytest.mark.parametrize("expander", ["price", "least-cost"])
def test_group_without_a_price_is_excluded(expander: str) -> None:
    plan = planned(two(0.0, 9.0), expander)
    assert growth(plan) == {"b": (1, 3)}
    assert noted(plan) == ([(ReasonCode.NO_PRICE, "a")] if expander == "price" else [])


@pytest.mark.parametrize("price", [0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("expander", ["price", "least-cost"])
def test_impossible_provider_price_counts_as_missing(expander: str, price: float) -> None:
    plan = planned(two(price, 0.1), expander)
    assert growth(plan) == {"b": (1, 3)}


def test_without_any_price_the_price_and_least_cost_expanders_are_skipped() -> None:
    assert growth(planned(two(0.0, 0.0), "price")) == {}
    plan = planned(two(0.0, 0.0), "least-cost", "most-pods")
    assert growth(plan) == {"a": (1, 3)}
    assert noted(plan) == [(ReasonCode.EXPANDER_SKIPPED, "least-cost")]


@pytest.mark.parametrize("expander", ["price", "least-cost"])
@pytest.mark.parametrize(
    ("prices", "chosen"),
    [
        (NodePrices(instance_types={"type-b": 5.0}), "a"),
        (NodePrices(instance_types={"type-b": 0.01}), "b"),
        (NodePrices(instance_types={"type-a": 0.01, "type-b": 5.0}), "a"),
        (NodePrices(instance_types={"other": 1.0}), "b"),
        (NodePrices(instance_types={"type-a": 0.01}, cpu=1.0, memory=0.0), "a"),
    ],
    ids=[
        "dearer-by-the-list",
        "cheaper-by-the-list",
        "both-listed",
        "neither-listed",
        "a-listed-b-by-rates",
    ],
)
def test_policy_price_list_overrides_provider_prices(
    expander: str, prices: NodePrices, chosen: str
) -> None:
    assert list(growth(planned(two(0.5, 0.2), expander, prices=prices))) == [chosen]


@pytest.mark.parametrize("expander", ["price", "least-cost"])
def test_listed_types_and_provider_prices_are_compared_with_each_other(expander: str) -> None:
    for listed, chosen in ((0.3, "listed"), (0.5, "own")):
        built = (
            cluster()
            .group("listed", template=machine("m5"))
            .group("own", template=machine("bare"), price=0.4)
            .pending(2, "1", "1Gi")
        )
        plan = planned(built, expander, prices=NodePrices(instance_types={"m5": listed}))
        assert growth(plan) == {chosen: (1, 2)}
        assert noted(plan) == []


def test_least_cost_mixes_groups_by_provider_prices() -> None:
    built = (
        cluster()
        .group("large", template=node("l", cpu="8", memory="32Gi"), price=7.4)
        .group("small", template=node("s", cpu="1", memory="4Gi"), price=1.1)
        .pending(9, "1", "1Gi")
    )
    assert growth(planned(built, "least-cost")) == {"large": (1, 8), "small": (1, 1)}


def test_least_cost_compares_whole_plans_by_provider_prices_with_unsupported_pods() -> None:
    from chalicelib.model.pod import HostPort

    built = two(0.1, 5.0).pending(1, "1", "1Gi", name="edge", owner="edge", ports=(HostPort(8080),))
    assert list(growth(planned(built, "least-cost", "least-waste"))) == ["a"]


@pytest.mark.parametrize(
    ("prices", "own", "price"),
    [
        (None, 0.3, 0.3),
        (None, 0.0, None),
        (NodePrices(), 0.3, 0.3),
        (NodePrices(node=0.05), 0.3, 0.35),
        (NodePrices(instance_types={"m": 0.0}), 0.3, 0.0),
        (NodePrices(cpu=0.1), 0.3, 0.4),
    ],
)
def test_node_price_with_a_provider_price(
    prices: NodePrices | None, own: float, price: float | None
) -> None:
    assert node_price(machine("m"), prices, own) == (
        None if price is None else pytest.approx(price)
    )


def test_gpus_without_a_listed_price_use_the_provider_price() -> None:
    template = machine("gpu", extra=amounts(gpu=1))
    assert node_price(template, NodePrices(cpu=0.1, memory=0.01)) is None
    assert node_price(template, NodePrices(cpu=0.1, memory=0.01), 3.0) == 3.0


def test_missing_pod_rates_are_derived_from_provider_prices() -> None:
    templates, own = (
        [
            machine("small", "2", "8Gi"),
            machine("large", "6", "24Gi"),
            machine("silent", "9", "1Gi"),
        ],
        [0.36, 0.84, 0.0],
    )
    rates = pod_rates(None, templates, own)
    assert rates is not None
    assert (rates.cpu, rates.memory, rates.gpu) == pytest.approx((0.1, 0.0125, 1.0))
    for order in itertools.permutations(range(3)):
        assert pod_rates(None, [templates[at] for at in order], [own[at] for at in order]) == rates
    assert pod_rates(None, templates, [0.0] * 3) is None
    assert pod_rates(None, templates) is None


def test_listed_type_uses_its_listed_price_and_each_type_price_counts_once() -> None:
    template = machine("m", "2", "16Gi")
    listed = pod_rates(NodePrices(instance_types={"m": 0.4}), [template] * 3, [9.0, 0.0, 9.0])
    assert listed is not None
    assert listed.cpu == pytest.approx(0.1)
    twice = pod_rates(None, [template] * 3, [0.4, 0.4, 0.8])
    assert twice is not None
    assert twice.cpu == pytest.approx(0.15)


def test_listed_rates_price_pods_even_with_provider_prices() -> None:
    rates = pod_rates(NodePrices(cpu=2.0), [machine("m")], [9.0])
    assert rates is not None
    assert (rates.cpu, rates.memory) == (2.0, 0.0)
