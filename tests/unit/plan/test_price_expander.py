"""The price expander: scores and the prices of nodes and pods."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.node import Node
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.prices import node_price, pod_rates
from chalicelib.plan.scale_up.expanders import (
    ExpanderContext,
    Option,
    choose_option,
    preferred_cores,
    price_score,
)
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import amounts, node

TYPE = "node.kubernetes.io/instance-type"


def machine(name: str, cpu: str, memory: str = "4Gi", **more: object) -> Node:
    """A template whose name is its instance type."""
    return node(name, cpu, memory, labels={TYPE: name, **more.pop("labels", {})}, **more)  # type: ignore[arg-type,dict-item]


N1, N2, N3 = machine("n1", "1"), machine("n2", "4"), machine("n3", "4")
BOTH, FIRST = amounts(cpu="1500m"), amounts(cpu="1")  # worth 20 + 10 and 20, at 20 per core


def situation(preferred: int, absent: str = "", **types: float) -> ExpanderContext:
    """Cores cost 20 and memory nothing, so the stabilization price of half a core is 10;
    nodes have the given prices."""
    size = {1: 1, 2: 3, 4: 9}[preferred]
    prices = NodePrices(instance_types=types, cpu=20.0, memory=0.0)
    return ExpanderContext(cluster_nodes=size, prices=prices, absent=frozenset({absent} - {""}))


def option(template: Node, nodes: int, requested: dict[str, int], name: str = "") -> Option:
    return Option(name or template.name, nodes, {0: 1}, template, requested)


@pytest.mark.parametrize(
    ("options", "world", "group"),
    [
        pytest.param(
            [option(N1, 2, BOTH), option(N2, 1, BOTH)], situation(2, n1=20, n2=200), "n1", id="X10"
        ),
        pytest.param(
            [option(N1, 2, BOTH), option(N2, 1, BOTH)],
            situation(4, n1=50, n2=200),
            "n2",
            id="X11-preferred",
        ),
        pytest.param(
            [option(N1, 80, BOTH), option(N2, 40, BOTH)],
            situation(4, n1=20, n2=200),
            "n1",
            id="X11-many",
        ),
        pytest.param(
            [option(N1, 2, BOTH), option(N2, 1, BOTH)],
            situation(2, n1=200, n2=100),
            "n2",
            id="X11-cheaper",
        ),
        pytest.param(
            [option(N1, 2, FIRST), option(N2, 1, BOTH)],
            situation(2, n1=200, n2=200),
            "n2",
            id="X12-pods",
        ),
        pytest.param(
            [option(N1, 2, FIRST), option(N2, 1, BOTH), option(N3, 1, BOTH)],
            situation(2, "n3", n1=200, n2=200, n3=200),
            "n2",
            id="X12-absent",
        ),
        pytest.param(
            [option(N1, 2, FIRST), option(N2, 1, BOTH), option(N3, 1, BOTH)],
            situation(2, "n3", n1=200, n2=200, n3=90),
            "n3",
            id="X12-absent-cheap",
        ),
    ],
)
def test_price_expander_chooses_the_smallest_score(
    options: list[Option], world: ExpanderContext, group: str
) -> None:
    for some in (options, options[::-1]):
        best, notes = choose_option(some, ["price"], world)
        assert best is not None
        assert (best.group, notes) == (group, ())


def test_price_scores_equal_the_documented_values() -> None:
    world = situation(2, n1=20, n2=200)
    assert world.prices is not None
    rates = pod_rates(world.prices, [])
    assert rates is not None
    assert price_score(option(N1, 2, BOTH), 20, rates, world) == pytest.approx(2.42, abs=0.005)
    assert price_score(option(N2, 1, BOTH), 200, rates, world) == pytest.approx(10.5)
    world = situation(4, n1=50, n2=200)
    assert price_score(option(N1, 2, BOTH), 50, rates, world) == pytest.approx(10.45, abs=0.005)
    assert price_score(option(N2, 1, BOTH), 200, rates, world) == pytest.approx(5.25)


@pytest.mark.parametrize(
    "prices",
    [None, NodePrices(), NodePrices(instance_types={"other": 1.0}), NodePrices(node=1.0)],
    ids=["none", "empty", "other-types", "only-the-extra"],
)
def test_price_expander_without_any_price_returns_no_option_and_says_why(
    prices: NodePrices | None,
) -> None:
    for options in ([option(N1, 1, BOTH), option(N2, 1, BOTH)], [option(N1, 1, BOTH)]):
        best, notes = choose_option(
            options, ["price", "least-waste"], ExpanderContext(prices=prices)
        )
        assert best is None
        assert [(note.code, note.params["group"]) for note in notes] == [
            (ReasonCode.NO_PRICE, one.group) for one in options
        ]
        assert all(note.params["detail"] for note in notes)


def test_option_without_a_price_is_dropped_and_others_remain() -> None:
    world = ExpanderContext(prices=NodePrices(instance_types={"n1": 9.0}))
    best, notes = choose_option([option(N1, 1, BOTH), option(N2, 1, BOTH)], ["price"], world)
    assert best is not None
    assert best.group == "n1"
    assert [note.params for note in notes] == [
        {"group": "n2", "detail": "n2 is not in prices.instanceTypes"}
    ]


@pytest.mark.parametrize(
    ("nodes", "cores"),
    [
        *(
            (nodes, cores)
            for nodes, cores in ((1, 1), (3, 2), (9, 4), (27, 8), (81, 16), (243, 32))
        ),
        (0, 1),
        (2, 1),
        (6, 2),
        (7, 4),
        (20, 4),
        (21, 8),
        (60, 8),
        (61, 16),
        (200, 16),
        (201, 32),
    ],
    ids=lambda value: f"X13-{value}",
)
def test_price_expander_prefers_larger_nodes_in_larger_clusters(nodes: int, cores: int) -> None:
    assert preferred_cores(nodes) == cores


@pytest.mark.parametrize(
    "template",
    [
        machine("gpu", "4", labels={"cluster-api/accelerator": "t4"}),
        machine("gpu", "4", labels={"cloud.google.com/gke-accelerator": "t4"}),
        machine("gpu", "4", extra=amounts(gpu=1)),
    ],
    ids=["label", "cloud-label", "gpus"],
)
def test_price_expander_prefers_gpu_nodes_last(template: Node) -> None:
    world = situation(4, gpu=1, n2=500)
    best, _ = choose_option([option(template, 1, BOTH), option(N2, 1, BOTH)], ["price"], world)
    assert best is not None
    assert best.group == "n2"


def test_price_expander_chooses_the_cheaper_gpu_node() -> None:
    one, other = (machine(name, "4", extra=amounts(gpu=1)) for name in ("t4", "v100"))
    world = situation(4, t4=3, v100=2)
    best, _ = choose_option([option(one, 1, BOTH), option(other, 1, BOTH)], ["price"], world)
    assert best is not None
    assert best.group == "v100"


def test_equal_price_scores_are_left_to_the_next_expander() -> None:
    world = situation(4, n2=5, n3=5)
    more = Option("n3", 1, {0: 5}, N3, BOTH)
    best, _ = choose_option([option(N2, 1, BOTH), more], ["price", "most-pods"], world)
    assert best == more


RATES = NodePrices(cpu=0.5, memory=0.25, gpu=3.0)


@pytest.mark.parametrize(
    ("template", "prices", "price"),
    [
        (machine("m5", "2", "8Gi"), NodePrices(instance_types={"m5": 0.096}), 0.096),
        (machine("m5", "2", "8Gi"), NodePrices(instance_types={"m5": 0.0}, cpu=1.0), 0.0),
        (machine("m5", "2", "8Gi"), NodePrices(instance_types={"m5": 0.5}, node=0.25), 0.75),
        (
            node("x", "2", "8Gi", labels={"beta.kubernetes.io/instance-type": "m5"}),
            NodePrices(instance_types={"m5": 2.0}),
            2.0,
        ),
        (node("x", "2", "8Gi"), RATES, 3.0),
        (node("x", "2500m", "8Gi"), RATES, 3.25),
        (node("x", "2", "8Gi", extra=amounts(gpu=2)), RATES, 9.0),
        (node("x", "2", "8Gi"), msgspec.structs.replace(RATES, node=0.5), 3.5),
        (node("x", "2", "8Gi"), NodePrices(cpu=0.5), 1.0),
        (node("x", "2", "8Gi"), NodePrices(memory=0.25), 2.0),
        (node("x", "1", "4Gi", capacity=amounts(cpu=2, memory="8Gi")), RATES, 3.0),
        (
            machine("m6", "2", "8Gi"),
            msgspec.structs.replace(RATES, instance_types={"m5": 9.0}),
            3.0,
        ),
        (node("x", "2", "8Gi"), NodePrices(instance_types={"m5": 1.0}), None),
        (node("x", "2", "8Gi", extra=amounts(gpu=2)), NodePrices(cpu=0.5, memory=0.25), None),
    ],
    ids=[
        "type",
        "free-type",
        "type-and-extra",
        "beta-label",
        "rates",
        "part-of-a-core",
        "gpus",
        "rates-and-extra",
        "only-cores",
        "only-memory",
        "of-capacity",
        "other-type",
        "unlisted",
        "gpus-without-a-price",
    ],
)
def test_node_price_comes_from_listed_types_and_rates(
    template: Node, prices: NodePrices, price: float | None
) -> None:
    assert node_price(template, prices) == (None if price is None else pytest.approx(price))


def test_missing_pod_rates_are_derived_from_listed_types() -> None:
    templates = [
        machine("small", "2", "8Gi"),
        machine("large", "6", "24Gi"),
        machine("unlisted", "99", "1Gi"),
    ]
    prices = NodePrices(instance_types={"small": 0.36, "large": 0.84})
    rates = pod_rates(prices, templates)
    assert rates is not None
    assert (rates.cpu, rates.memory, rates.gpu) == pytest.approx((0.1, 0.0125, 1.0))
    assert rates.of(templates[0].capacity) + rates.of(templates[1].capacity) == pytest.approx(
        0.36 + 0.84
    )
    assert pod_rates(prices, templates[::-1]) == rates
    assert pod_rates(prices, templates[2:]) is None


def test_price_list_of_zeros_still_gives_a_choice() -> None:
    best, _ = choose_option(
        [option(N2, 1, BOTH), option(N3, 2, BOTH)],
        ["price", "least-nodes"],
        ExpanderContext(cluster_nodes=9, prices=NodePrices(cpu=0.0, memory=0.0)),
    )
    assert best is not None
    assert best.group == "n2"
