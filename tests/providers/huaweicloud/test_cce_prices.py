"""Prices of Huawei Cloud by BSS's rating of pay-per-use products: what is asked, what is stated,
and that no trouble with it fails a pass."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.model.group import NodeGroup
from chalicelib.providers.huaweicloud.models import Service, url_of
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.cherryservers.fixture import MemoryCache
from tests.providers.huaweicloud.fixture import START, HuaweiBench, seen
from tests.providers.huaweicloud.test_cce_permissions import actions

HOUR = 3600.0


@pytest.fixture
def bench() -> Iterator[HuaweiBench]:
    with HuaweiBench() as made:
        made.settings["bssEndpoint"] = made.server.url
        yield made


def asked(bench: HuaweiBench) -> list[dict[str, Any]]:
    """Returns the bodies of the price calls since the last look."""
    return [json.loads(call.body) for call in bench.look() if call.operation == "rate-products"]


def stated(group: NodeGroup) -> tuple[float, str, bool]:
    return group.price, group.currency, group.spot


def test_huawei_price_is_that_of_the_flavour_for_an_hour(bench: HuaweiBench) -> None:
    bench.cloud.prices["c7.xlarge.2"] = 0.74
    group = seen(bench, bench.add_group("g", size=1))
    assert stated(group) == (0.74, "CNY", False)
    assert (group.priced_at, group.billed_per, group.price_error) == (START, 1.0, "")
    assert asked(bench) == [
        {
            "project_id": bench.cloud.project,
            "product_infos": [
                {
                    "id": "1",
                    "cloud_service_type": "hws.service.type.ec2",
                    "resource_type": "hws.resource.type.vm",
                    "resource_spec": "c7.xlarge.2.linux",
                    "region": "cn-north-4",
                    "usage_factor": "Duration",
                    "usage_value": 1,
                    "usage_measure_id": 4,
                    "subscription_num": 1,
                }
            ],
            "inquiry_precision": 1,
        }
    ]


@pytest.mark.parametrize(("permission", "price"), [(True, 0.8), (False, 1.0)])
def test_huawei_price_is_after_discounts_if_the_key_may_see_them(
    bench: HuaweiBench, permission: bool, price: float
) -> None:
    bench.cloud.prices["c7.xlarge.2"], bench.cloud.discount = 1.0, 0.2
    bench.key.permissions = actions("policy") | (
        actions("policy-prices") if permission else frozenset()
    )
    assert seen(bench, bench.add_group("g", size=1)).price == price


def test_huawei_currency_is_the_answers(bench: HuaweiBench) -> None:
    bench.cloud.currency = "USD"
    assert seen(bench, bench.add_group("g")).currency == "USD"


def test_huawei_spot_pool_has_no_price_and_says_so(bench: HuaweiBench) -> None:
    group = bench.add_group("g", size=1)
    bench.cloud.pool(group.partition("/")[0]).extend["marketType"] = "spot"
    read = seen(bench, group)
    assert stated(read) == (0.0, "", True)
    assert "no price of spot instances" in read.price_error
    assert asked(bench) == []


def test_huawei_two_groups_of_a_flavour_ask_once_and_again_after_six_hours(
    bench: HuaweiBench,
) -> None:
    bench.shared_cache = MemoryCache(bench.clock)
    names = [bench.add_group(name, size=1) for name in ("a", "b")]
    assert [seen(bench, name).price for name in names] == [bench.cloud.price("c7.xlarge.2")] * 2
    assert len(asked(bench)) == 1
    bench.clock.advance(5.9 * HOUR)
    assert seen(bench, names[0]).priced_at == START
    assert asked(bench) == []
    bench.clock.advance(0.2 * HOUR)
    assert seen(bench, names[0]).priced_at == START + 6.1 * HOUR
    assert len(asked(bench)) == 1


def test_huawei_denied_key_reads_everything_but_prices(bench: HuaweiBench) -> None:
    bench.shared_cache = MemoryCache(bench.clock)
    bench.server.faults.next(VendorFault.FORBIDDEN, on="rate-products", times=-1)
    for flavor in bench.cloud.flavors:
        bench.add_group(flavor.replace(".", "-"), size=1, instance_type=flavor)
    for _ in range(3):
        observed = bench.provider().observe(bench.nodes())
        assert [(group.error, group.template_error, group.price) for group in observed.groups] == [
            ("", "", 0.0)
        ] * 6
        assert all("it needs bss:discount:view" in group.price_error for group in observed.groups)
        (gap,) = observed.gaps
        assert (gap.kind, gap.place) == ("Price", "spec.providers.huaweicloud.readPrices")
    assert len(asked(bench)) == 1


def test_huawei_unknown_flavour_leaves_the_other_prices(bench: HuaweiBench) -> None:
    known, unknown = (
        bench.add_group("known"),
        bench.add_group("unknown", instance_type="m7.xlarge.8"),
    )
    del bench.cloud.flavors["m7.xlarge.8"]
    assert seen(bench, known).price
    assert "the vendor states no price" in seen(bench, unknown).price_error


def test_huawei_prices_are_not_asked_if_the_policy_says_so(bench: HuaweiBench) -> None:
    bench.settings["readPrices"] = "false"
    assert seen(bench, bench.add_group("g", size=1)).price == 0.0
    assert asked(bench) == []


def test_huawei_other_host_for_cce_needs_one_for_prices_too(bench: HuaweiBench) -> None:
    del bench.settings["bssEndpoint"]
    assert seen(bench, bench.add_group("g", size=1)).price == 0.0
    assert asked(bench) == []


@pytest.mark.parametrize("fault", [*VendorFault])
def test_huawei_failing_price_call_fails_nothing_else(
    bench: HuaweiBench, fault: VendorFault
) -> None:
    name = bench.add_group("g", size=2)
    bench.server.faults.next(fault, on="rate-products", times=-1)
    group = seen(bench, name)
    assert (group.error, group.template_error, len(group.instances)) == ("", "", 2)
    assert (group.price == 0.0) == bool(group.price_error)
    assert len(asked(bench)) <= 2


def rating(amount: Any, currency: Any = "CNY", **more: Any) -> Any:
    return {
        "currency": currency,
        "product_rating_results": [{"id": "1", "amount": amount, "measure_id": 1, **more}],
    }


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(rating(0.5), 0.5, id="number"),
        pytest.param(rating("0.5"), 0.5, id="text"),
        pytest.param(rating(None, official_website_amount=0.5), 0.5, id="list-price"),
        pytest.param({"amount": 0.5, "currency": "CNY"}, 0.5, id="total-only"),
        pytest.param(rating(0.5, measure_id=None), 0.5, id="unit-missing"),
        pytest.param(rating(50, measure_id=2), 0.0, id="another-unit"),
        pytest.param(rating(0.5, id="2"), 0.0, id="another-product"),
        pytest.param(rating(-0.5), 0.0, id="negative"),
        pytest.param(rating(float("nan")), 0.0, id="not-a-number"),
        pytest.param(rating(1e300), 0.0, id="huge"),
        pytest.param(rating("9" * 5000), 0.0, id="long-text"),
        pytest.param(rating(True), 0.0, id="boolean"),
        pytest.param(rating({"a": 1}), 0.0, id="object"),
        pytest.param(rating(0.5, None), 0.0, id="no-currency"),
        pytest.param(rating(0.5, "RMB yuan"), 0.0, id="no-code"),
        pytest.param(
            {"currency": "CNY", "product_rating_results": "none"}, 0.0, id="rows-are-text"
        ),
        pytest.param(
            {"currency": "CNY", "product_rating_results": [None, 7]}, 0.0, id="rows-are-no-objects"
        ),
        pytest.param({}, 0.0, id="empty"),
        pytest.param([], 0.0, id="a-list"),
        pytest.param("free", 0.0, id="a-text"),
    ],
)
def test_huawei_answer_without_a_possible_price_is_no_price(
    bench: HuaweiBench, answer: Any, expected: float
) -> None:
    bench.cloud.price_answer = answer
    group = seen(bench, bench.add_group("g", size=1))
    assert (group.price, group.currency) == (expected, "CNY" if expected else "")
    assert bool(group.price_error) == (not expected)
    assert (group.error, len(group.instances)) == ("", 1)


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("cn-north-4", "https://bss.myhuaweicloud.com"),
        ("ap-southeast-1", "https://bss-intl.myhuaweicloud.com"),
        ("eu-west-101", "https://bss.myhuaweicloud.eu"),
        ("me-new-1", "https://bss-intl.myhuaweicloud.com"),
    ],
)
def test_huawei_prices_are_asked_at_the_site_of_the_region(region: str, host: str) -> None:
    assert url_of(Service.BSS, region) == host
