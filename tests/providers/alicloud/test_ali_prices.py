"""Prices of Alibaba Cloud by DescribePrice: what is asked, what is stated, and that no
trouble with it fails a pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.model.group import NodeGroup
from infra.emulators.alicloud.iam import read_policy
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.alicloud.fixture import START, AlicloudBench, seen
from tests.providers.alicloud.test_ali_permissions import FOLDER
from tests.providers.cherryservers.fixture import MemoryCache

HOUR = 3600.0


@pytest.fixture
def bench() -> Iterator[AlicloudBench]:
    with AlicloudBench() as made:
        yield made


def asked(bench: AlicloudBench) -> list[dict[str, str]]:
    """Returns the parameters of the price calls since the last look."""
    return [dict(call.parameters) for call in bench.look() if call.action == "DescribePrice"]


def group_of(bench: AlicloudBench, **more: Any) -> str:
    made = bench.cloud.add_group("g", **more)
    bench.bind(made.id, 0, 10)
    return made.id


def stated(group: NodeGroup) -> tuple[float, str, bool]:
    return group.price, group.currency, group.spot


def test_alicloud_price_is_the_instances_without_its_disk(bench: AlicloudBench) -> None:
    bench.cloud.prices["ecs.g7.xlarge"] = 0.9
    group = seen(bench, bench.add_group("g", size=1))
    assert stated(group) == (0.9, "CNY", False)
    assert (group.priced_at, group.billed_per, group.price_error) == (START, 1.0, "")
    (call,) = asked(bench)
    wanted = {
        "ResourceType": "instance",
        "InstanceType": "ecs.g7.xlarge",
        "PriceUnit": "Hour",
        "Period": "1",
    }
    assert call.items() >= wanted.items()
    assert "SpotStrategy" not in call
    assert "ZoneId" not in call


def test_alicloud_currency_is_the_answers(bench: AlicloudBench) -> None:
    bench.cloud.currency = "USD"
    assert seen(bench, bench.add_group("g")).currency == "USD"


def test_alicloud_preemptible_price_is_of_its_strategy_and_zone(bench: AlicloudBench) -> None:
    bench.cloud.prices["ecs.g7.xlarge"] = 1.0
    group = seen(bench, group_of(bench, size=1, spot="SpotAsPriceGo"))
    assert stated(group) == (0.2, "CNY", True)
    (call,) = asked(bench)
    assert call.items() >= {"SpotStrategy": "SpotAsPriceGo", "ZoneId": "cn-hangzhou-i"}.items()


def test_alicloud_preemptible_group_without_a_zone_has_no_price(bench: AlicloudBench) -> None:
    group = seen(bench, group_of(bench, size=0, spot="SpotAsPriceGo"))
    assert stated(group) == (0.0, "", True)
    assert "none of its zones is known" in group.price_error
    assert asked(bench) == []


def test_alicloud_preemptible_group_has_the_highest_price_of_its_zones(
    bench: AlicloudBench,
) -> None:
    name = group_of(
        bench,
        size=1,
        spot="SpotAsPriceGo",
        zones=("cn-hangzhou-i", "cn-hangzhou-h", "cn-hangzhou-g"),
    )
    bench.cloud.add_machines(name, 1, zone="cn-hangzhou-h")
    bench.cloud.prices["ecs.g7.xlarge"] = 1.0
    bench.cloud.spot_prices["ecs.g7.xlarge", "cn-hangzhou-h"] = 0.3
    assert stated(seen(bench, name)) == (0.3, "CNY", True)
    assert sorted(call["ZoneId"] for call in asked(bench)) == ["cn-hangzhou-h", "cn-hangzhou-i"]


def test_alicloud_preemptible_group_with_one_unknown_price_of_a_zone_has_none(
    bench: AlicloudBench,
) -> None:
    name = group_of(bench, size=1, spot="SpotAsPriceGo", zones=("cn-hangzhou-i", "cn-hangzhou-h"))
    bench.cloud.add_machines(name, 1, zone="cn-hangzhou-h")
    bench.cloud.spot_prices["ecs.g7.xlarge", "cn-hangzhou-h"] = 0.0
    group = seen(bench, name)
    assert stated(group) == (0.0, "", True)
    assert "states no price" in group.price_error


def test_alicloud_group_of_several_types_has_the_price_of_the_smallest(
    bench: AlicloudBench,
) -> None:
    bench.cloud.prices |= {"ecs.g7.2xlarge": 2.0, "ecs.g6.large": 0.5, "ecs.g7.xlarge": 1.0}
    assert (
        seen(
            bench, group_of(bench, types=("ecs.g7.2xlarge", "ecs.g6.large", "ecs.g7.xlarge"))
        ).price
        == 0.5
    )


def test_alicloud_price_is_asked_again_after_six_hours(bench: AlicloudBench) -> None:
    bench.shared_cache = MemoryCache(bench.clock)
    name = bench.add_group("g", size=1)
    assert seen(bench, name).priced_at == START
    bench.clock.advance(5.9 * HOUR)
    bench.cloud.prices["ecs.g7.xlarge"] = 7.0
    assert seen(bench, name).priced_at == START
    assert len(asked(bench)) == 1
    bench.clock.advance(0.2 * HOUR)
    group = seen(bench, name)
    assert (group.price, group.priced_at) == (7.0, START + 6.1 * HOUR)


def test_alicloud_old_price_counts_while_the_api_fails(bench: AlicloudBench) -> None:
    bench.shared_cache = MemoryCache(bench.clock)
    name = bench.add_group("g", size=1)
    before = seen(bench, name)
    bench.clock.advance(7 * HOUR)
    bench.server.faults.next(VendorFault.SERVER_ERROR, on="DescribePrice", times=-1)
    group = seen(bench, name)
    assert (group.price, group.priced_at) == (before.price, START)
    assert seen(bench, name).price == before.price
    assert len(asked(bench)) == 2, (
        "one call of each reading: the failure is remembered for ten minutes"
    )
    bench.clock.advance(8 * 24 * HOUR)
    group = seen(bench, name)
    assert group.price == 0.0
    assert "prices could not be read: Transient" in group.price_error


def test_alicloud_key_without_the_permission_reads_everything_but_prices(
    bench: AlicloudBench,
) -> None:
    bench.shared_cache = MemoryCache(bench.clock)
    names = [
        bench.add_group(f"g{number}", size=1, instance_type=kind)
        for number, kind in enumerate(bench.cloud.types)
    ]
    text = (
        (FOLDER / "ram-policy.json").read_text().replace("ecs:DescribePrice", "ecs:DescribeRegions")
    )
    bench.server.ring.keys[bench.key_id].permissions = read_policy(text)
    observed = [bench.provider().observe(bench.nodes()) for _ in range(3)]
    for seen_at in observed:
        assert [(group.error, group.template_error, group.price) for group in seen_at.groups] == [
            ("", "", 0.0)
        ] * len(names)
        assert all("it needs ecs:DescribePrice" in group.price_error for group in seen_at.groups)
        (gap,) = seen_at.gaps
        assert gap.kind == "Price"
        assert "readPrices: false" in gap.detail
    assert len(asked(bench)) <= 2, "one call, and once more in case the key has changed"


def test_alicloud_prices_are_not_asked_if_the_policy_says_so(bench: AlicloudBench) -> None:
    bench.settings["readPrices"] = "false"
    group = seen(bench, bench.add_group("g", size=1))
    assert (group.price, group.price_error) == (0.0, "")
    assert asked(bench) == []


def test_alicloud_slow_price_api_costs_a_pass_five_seconds(bench: AlicloudBench) -> None:
    for number, kind in enumerate(bench.cloud.types):
        bench.add_group(f"g{number}", size=1, instance_type=kind)
    handle = bench.server.front.handle

    def slow(incoming: Any) -> Any:
        if "DescribePrice" in incoming.headers.get("x-acs-action", ""):
            bench.clock.advance(2.0)
        return handle(incoming)

    bench.server.front.handle = slow  # type: ignore[method-assign]
    observed = bench.provider().observe(bench.nodes())
    assert len(asked(bench)) == 3
    assert [bool(group.price) for group in observed.groups].count(True) == 3
    assert {group.price_error for group in observed.groups} == {
        "",
        "its price is read in a later pass",
    }
    assert observed.gaps == ()


@pytest.mark.parametrize("fault", [*VendorFault])
def test_alicloud_failing_price_call_fails_nothing_else(
    bench: AlicloudBench, fault: VendorFault
) -> None:
    name = bench.add_group("g", size=2)
    bench.server.faults.next(fault, on="DescribePrice", times=-1)
    group = seen(bench, name)
    assert (group.error, group.template_error, len(group.instances)) == ("", "", 2)
    assert (group.price == 0.0) == bool(group.price_error)
    assert len(asked(bench)) <= 2


def price(amount: Any, currency: Any = "CNY", **more: Any) -> Any:
    return {"Price": {"TradePrice": amount, "Currency": currency, **more}}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(price(0.5), 0.5, id="without-parts"),
        pytest.param(price("0.5"), 0.5, id="text"),
        pytest.param(price(0.5, " cny "), 0.5, id="currency-in-small-letters"),
        pytest.param(price(0.5, DetailInfos={"DetailInfo": []}), 0.5, id="no-parts"),
        pytest.param(
            price(
                9.0,
                DetailInfos={
                    "DetailInfo": [{"Resource": "instanceType", "TradePrice": 0.5}, 7, None]
                },
            ),
            0.5,
            id="odd-parts",
        ),
        pytest.param(price(-0.5), 0.0, id="negative"),
        pytest.param(price(0), 0.0, id="zero"),
        pytest.param(price(float("nan")), 0.0, id="not-a-number"),
        pytest.param(price(float("inf")), 0.0, id="infinite"),
        pytest.param(price(1e300), 0.0, id="huge"),
        pytest.param(price(10**400), 0.0, id="huge-integer"),
        pytest.param(price("9" * 5000), 0.0, id="long-text"),
        pytest.param(price("1_0"), 0.0, id="underscore"),
        pytest.param(price("free"), 0.0, id="word"),
        pytest.param(price(True), 0.0, id="boolean"),
        pytest.param(price([0.5]), 0.0, id="list"),
        pytest.param(price(0.5, ""), 0.0, id="no-currency"),
        pytest.param(price(0.5, "¥"), 0.0, id="symbol"),
        pytest.param(price(0.5, {"code": "CNY"}), 0.0, id="currency-object"),
        pytest.param({"Price": None}, 0.0, id="null"),
        pytest.param({}, 0.0, id="empty"),
        pytest.param([], 0.0, id="a-list"),
        pytest.param("free", 0.0, id="a-text"),
    ],
)
def test_alicloud_answer_without_a_possible_price_is_no_price(
    bench: AlicloudBench, answer: Any, expected: float
) -> None:
    bench.cloud.price_answer = answer
    group = seen(bench, bench.add_group("g", size=1))
    assert (group.price, group.currency) == (expected, "CNY" if expected else "")
    assert bool(group.price_error) == (not expected)
    assert (group.error, len(group.instances)) == ("", 1)
