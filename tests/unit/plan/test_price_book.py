"""PriceBook: who states the price of a node, in which currency, and why a node has none;
currencies are never mixed.
"""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.group import DEAREST, NodeGroup
from chalicelib.model.managed_group import MachineChoice, Managed
from chalicelib.model.memory import Memory
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.prices import NoPrice, Price, PriceSource, date_of, price_book
from chalicelib.plan.removal.consolidation.costs import Costs
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import NOW, ClusterBuilder, cluster, growth, node

TYPE = "node.kubernetes.io/instance-type"
LISTED = node("n1", "4", "16Gi", labels={TYPE: "listed"})
OTHER = node("n2", "4", "16Gi", labels={TYPE: "other"})
LIST = NodePrices(instance_types={"listed": 0.24}, as_of="2026-11-01")
DAY = 1_795_737_600.0  # 2026-11-27


def group(id_: str = "g", price: float = 0.1, currency: str = "EUR", **more: object) -> NodeGroup:
    fields = {
        "id": id_,
        "provider": "fake",
        "price": price,
        "currency": currency,
        "priced_at": DAY,
        **more,
    }
    return msgspec.convert(fields, NodeGroup)


@pytest.mark.parametrize(
    ("prices", "groups", "expected"),
    [
        pytest.param(
            None,
            (group(),),
            Price(100_000, "EUR", PriceSource.PROVIDER, "2026-11-27"),
            id="provider",
        ),
        pytest.param(
            None,
            (group(currency=""),),
            Price(100_000, "", PriceSource.PROVIDER, "2026-11-27"),
            id="unknown",
        ),
        pytest.param(
            None,
            (group(currency=""), group("h")),
            Price(100_000, "EUR", PriceSource.PROVIDER, "2026-11-27"),
            id="only",
        ),
        pytest.param(
            LIST,
            (group(),),
            Price(100_000, "EUR", PriceSource.PROVIDER, "2026-11-27"),
            id="beside-a-list",
        ),
        pytest.param(
            NodePrices(node=0.01, currency="EUR"),
            (group(),),
            Price(110_000, "EUR", PriceSource.PROVIDER, "2026-11-27"),
            id="fee",
        ),
        pytest.param(
            None,
            (group(), group("h", currency="USD")),
            NoPrice(
                "providers state prices in EUR and USD, which are not converted; give spec.prices "
                "in one currency"
            ),
            id="several",
        ),
        pytest.param(
            LIST,
            (group(), group("h", currency="USD")),
            NoPrice(
                "providers state prices in EUR and USD, and spec.prices name no currency; add "
                "prices.currency"
            ),
            id="several-beside-a-list",
        ),
        pytest.param(
            msgspec.structs.replace(LIST, currency="USD"),
            (group(),),
            NoPrice("its provider's price is in EUR, and spec.prices are in USD"),
            id="another-than-the-list",
        ),
        pytest.param(
            None,
            (group(price=0.0),),
            NoPrice("its provider names no price, and no spec.prices are given"),
            id="none",
        ),
        pytest.param(
            None,
            (group(price=0.0, price_error="the key may not call ecs:DescribePrice"),),
            NoPrice("the key may not call ecs:DescribePrice"),
            id="denied",
        ),
        pytest.param(
            LIST,
            (group(price=0.0, price_error="the key may not call ecs:DescribePrice"),),
            NoPrice("other is not in prices.instanceTypes; the key may not call ecs:DescribePrice"),
            id="denied-beside-a-list",
        ),
    ],
)
def test_price_of_a_node_that_no_list_names(
    prices: NodePrices | None, groups: tuple[NodeGroup, ...], expected: Price | NoPrice
) -> None:
    assert price_book(prices, groups).of_node(OTHER, groups[0]) == expected


@pytest.mark.parametrize(
    ("currency", "groups", "expected"),
    [
        ("", (), ""),
        ("USD", (group(),), "USD"),
        ("", (group(),), "EUR"),
        ("", (group(), group("h", currency="CNY")), ""),
    ],
)
def test_list_without_a_currency_has_the_only_one_that_is_stated(
    currency: str, groups: tuple[NodeGroup, ...], expected: str
) -> None:
    book = price_book(msgspec.structs.replace(LIST, currency=currency), groups)
    assert book.of_node(LISTED, groups[0] if groups else None) == Price(
        240_000, expected, PriceSource.POLICY, "2026-11-01"
    )


@pytest.mark.parametrize("price", [0.0, -1.0, float("nan"), float("inf"), 1e300, DEAREST * 2])
def test_impossible_price_of_a_provider_is_none(price: float) -> None:
    bad = msgspec.structs.replace(group(currency="USD"), price=price)
    book = price_book(None, (bad, group("h")))
    assert isinstance(book.of_node(OTHER, bad), NoPrice)
    assert book.named(bad) is None
    assert book.currency == "EUR", "it states no currency either"


def test_new_node_has_the_price_of_the_template_or_of_an_example() -> None:
    book = price_book(LIST, ())
    empty = group(price=0.0)
    assert book.of_group(msgspec.structs.replace(empty, template=LISTED)) == book.of_node(
        LISTED, None
    )
    assert book.of_group(empty, LISTED) == book.of_node(LISTED, None)
    assert book.of_group(empty) == NoPrice("it has no node template")
    rates = price_book(NodePrices(cpu=0.03), (group(),))
    assert rates.of_group(group()) == Price(100_000, "EUR", PriceSource.PROVIDER, "2026-11-27")


def test_price_in_another_currency_is_still_named() -> None:
    eur, usd = group(), group("h", 0.2, "USD")
    book = price_book(None, (eur, usd))
    assert book.named(usd) == Price(200_000, "USD", PriceSource.PROVIDER, "2026-11-27")
    assert (book.own(eur), book.own(usd)) == (0.0, 0.0)
    assert price_book(None, (eur,)).own(eur) == 0.1


def test_date_of_a_price_is_of_the_pass_if_it_was_read_in_it() -> None:
    fresh = group(priced_at=0.0)
    price = price_book(None, (fresh,), DAY + 86400).of_node(OTHER, fresh)
    assert isinstance(price, Price)
    assert price.date == "2026-11-28"
    assert price.hourly == 0.1


@pytest.mark.parametrize("at", [0.0, -1.0, float("nan"), float("inf"), 1e300])
def test_impossible_instant_has_no_date(at: float) -> None:
    assert date_of(at) == ""


@pytest.mark.parametrize("expander", ["price", "least-cost"])
@pytest.mark.parametrize(
    ("prices", "chosen"),
    [
        (None, {}),
        (NodePrices(node=0.001, currency="EUR"), {"a": (1, 3)}),
        (NodePrices(node=0.1, currency="CNY"), {"b": (1, 3)}),
    ],
)
def test_scale_up_does_not_compare_prices_of_two_currencies(
    expander: str, prices: NodePrices | None, chosen: dict[str, tuple[int, int]]
) -> None:
    built = (
        cluster()
        .group(
            "a", template=node("t", "4", "16Gi", labels={TYPE: "type-a"}), price=0.3, currency="EUR"
        )
        .group(
            "b", template=node("t", "4", "16Gi", labels={TYPE: "type-b"}), price=0.9, currency="CNY"
        )
        .pending(3, "1", "1Gi")
    )
    options = msgspec.structs.replace(Options(), expander=(expander,))
    policy = Policy(name="test", mode=Mode.ACTIVE, options=options, prices=prices)
    plan = plan_cluster(built.snapshot(), policy, Memory(), NOW, 0)[0]
    if prices is None and expander == "least-cost":
        assert [note.code for note in plan.notes] == [ReasonCode.EXPANDER_SKIPPED]
        return
    assert growth(plan) == chosen
    if expander == "price":
        details = [
            str(note.params["detail"]) for note in plan.notes if note.code is ReasonCode.NO_PRICE
        ]
        assert len(details) == (2 if prices is None else 1)
        assert all("EUR" in detail and "CNY" in detail for detail in details)


def two_currencies() -> ClusterBuilder:
    build = cluster()
    for name in ("a", "b"):
        build.node(f"{name}-1", "4", "16Gi", group=name, labels={TYPE: f"type-{name}"})
    for name, currency in (("a", "EUR"), ("b", "CNY")):
        template = node("t", "4", "16Gi", labels={TYPE: f"type-{name}"})
        build.group(name, template=template, price=0.3, currency=currency)
    return build


@pytest.mark.parametrize(
    ("prices", "currency", "priced", "unpriced"),
    [
        pytest.param(None, "", (), ("a-1", "b-1"), id="none-without-a-list"),
        pytest.param(
            NodePrices(node=0.01, currency="EUR"), "EUR", ("a-1",), ("b-1",), id="in-the-lists"
        ),
        pytest.param(
            NodePrices({"type-a": 0.2}), "", ("a-1",), ("b-1",), id="list-without-a-currency"
        ),
    ],
)
def test_consolidation_compares_prices_of_one_currency_only(
    prices: NodePrices | None, currency: str, priced: tuple[str, ...], unpriced: tuple[str, ...]
) -> None:
    policy = Policy(name="test", mode=Mode.ACTIVE, prices=prices)
    costs = Costs(build_cluster_state(two_currencies().snapshot(), policy, Memory(), NOW))
    assert (costs.currency, tuple(costs.nodes)) == (currency, priced)
    assert tuple(costs.unpriced) == unpriced
    assert all("EUR" in detail and "CNY" in detail for detail in costs.unpriced.values())
    assert {f"{name}-1" for name in costs.groups} == set(priced)


def test_catalogue_price_of_a_managed_group_precedes_rates() -> None:
    made = Managed(MachineChoice("general", "other", "z1"))
    managed, other = group("m", managed=made), group("h")
    rates = NodePrices(instance_types={"listed": 0.24}, cpu=1.0, currency="EUR")
    book = price_book(rates, (managed, other))
    rows = [
        (OTHER, managed, 0.1),
        (OTHER, other, 4.0),
        (LISTED, managed, 0.24),
        (OTHER, group("d", currency="CHF", managed=made), 4.0),
        (OTHER, group("n", price=0.0, managed=made), 4.0),
    ]
    assert len(rows) == 5
    for of_node, of_group, expected in rows:
        price = book.of_node(of_node, of_group)
        assert isinstance(price, Price), of_group
        assert (price.hourly, book.hourly(of_node, of_group)) == (expected, expected), of_group
