"""Prices from a vendor's API: bounded calls, what the cache remembers, and what is a
price or a currency at all.
"""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.group import DEAREST
from chalicelib.providers.kit.errors import (
    InvalidRequest,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
)
from chalicelib.providers.kit.price_reader import PriceReader, VendorPrice, currency_code, price_of
from chalicelib.providers.kit.rate_limit import OWN_PACE
from chalicelib.providers.kit.services import Cache, NullCache, TtlCache
from infra.emulators.controllers.clock import ManualClock
from tests.providers.cherryservers.fixture import MemoryCache

START, HOUR = 1_800_000_000.0, 3600.0


class PriceApi:
    """A vendor that states prices. answers: name -> price and currency, None, or what is raised."""

    def __init__(self, cache: Cache | None = None, /, **answers: Any) -> None:
        self.clock, self.answers, self.asked = ManualClock(START), answers, list[str]()
        self.cache = cache if cache is not None else MemoryCache(self.clock)

    def ask(self, name: str) -> tuple[float, str] | None:
        self.asked.append(name)
        answer = self.answers[name]
        if isinstance(answer, ProviderError):
            raise answer
        stated: tuple[float, str] | None = answer
        return stated

    def reader(self) -> PriceReader:
        """Returns a reader of a new pass."""
        cache = TtlCache(self.cache, lambda: "prices", VendorPrice, self.clock)
        return PriceReader(cache, self.ask, self.clock, permission="vendor:Prices")

    def read(self, *names: str, spot: tuple[str, ...] = ()) -> dict[str, VendorPrice]:
        return self.reader().read(names or self.answers, spot=spot)

    def calls(self) -> list[str]:
        """Returns the names that were asked for since the last call of this method."""
        asked, self.asked = self.asked, []
        return asked


def test_pass_asks_ten_times_and_a_later_one_for_the_rest() -> None:
    api = PriceApi(None, **{f"m{number:02d}": (1.0, "EUR") for number in range(25)})
    assert [sum(price.price > 0 for price in api.read().values()) for _ in range(4)] == [
        10,
        20,
        25,
        25,
    ]
    assert len(api.calls()) == 25
    assert PriceApi(NullCache(), a=(1.0, "EUR")).read()["a"].price == 1.0


def test_each_price_is_read_again_when_it_is_due() -> None:
    api = PriceApi(a=(1.0, "EUR"), b=(2.0, "EUR"))
    api.read(spot=("b",))
    api.calls()
    due = []
    for _ in range(7):
        api.clock.advance(HOUR)
        api.read(spot=("b",))
        due.append(api.calls())
    assert due == [["b"], ["b"], ["b"], ["b"], ["b"], ["a", "b"], ["b"]]


@pytest.mark.parametrize(
    ("error", "hours", "denied"),
    [
        (Unauthorized("no"), 6.0, True),
        (Transient("down"), 1 / 6, False),
        (Throttled("slowly"), 1 / 6, False),
    ],
)
def test_failure_of_the_api_is_remembered_by_all_passes(
    error: ProviderError, hours: float, denied: bool
) -> None:
    api = PriceApi(a=error, b=(2.0, "EUR"))
    reader = api.reader()
    assert [price.price for price in reader.read(["a", "b"]).values()] == [0.0, 0.0]
    assert bool(reader.denied) == denied
    api.clock.advance(hours * HOUR - 1)
    later = api.reader()
    prices = later.read(["a", "b"])
    assert bool(later.denied) == denied
    assert all("vendor:Prices" in price.error for price in prices.values()) == denied
    assert api.calls() == ["a"], "nothing is asked after it, and nothing until then"
    api.clock.advance(1)
    api.answers["a"] = (1.0, "EUR")
    assert [price.price for price in api.read().values()] == [1.0, 2.0]


def test_our_own_pace_is_not_remembered() -> None:
    api = PriceApi(a=Throttled("our own pace", code=OWN_PACE))
    assert api.read()["a"].price == 0.0
    api.answers["a"] = (1.0, "EUR")
    assert api.read()["a"].price == 1.0


def test_machine_that_the_vendor_does_not_price_leaves_the_others() -> None:
    api = PriceApi(a=InvalidRequest("unknown"), b=None, c=(3.0, "EUR"))
    prices = api.read()
    assert [price.price for price in prices.values()] == [0.0, 0.0, 3.0]
    assert [price.error for price in prices.values()] == [
        "the vendor states no price: unknown",
        "the vendor states no price for it",
        "",
    ]
    api.calls()
    api.clock.advance(HOUR)
    api.read()
    assert api.calls() == ["a", "b"]


def test_old_price_is_used_for_a_week_and_then_none() -> None:
    api = PriceApi(a=(1.0, "EUR"))
    api.read()
    api.answers["a"] = None
    for _ in range(7):
        api.clock.advance(23.9 * HOUR)
        price = api.read()["a"]
        assert (price.price, price.at) == (1.0, START)
    api.clock.advance(23.9 * HOUR)
    assert api.read()["a"].price == 0.0


def test_unreadable_cache_is_read_again_from_the_vendor() -> None:
    api = PriceApi(a=(1.0, "EUR"))
    for row in (b"", b"[]", b'{"a": 7}', b'{"a": [1, 9e99, ["free"]]}', b"\xff"):
        api.cache.put("prices", row, 60.0)
        assert api.read()["a"].price == 1.0
    assert len(api.calls()) == 5


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.24, 0.24),
        (1, 1.0),
        ("0.24", 0.24),
        (DEAREST, DEAREST),
        (DEAREST * 1.01, 0.0),
        (0, 0.0),
        (-1, 0.0),
        ("-1", 0.0),
        (float("nan"), 0.0),
        (float("inf"), 0.0),
        ("inf", 0.0),
        ("nan", 0.0),
        ("1_000", 0.0),
        ("٣", 0.0),
        ("9" * 50, 0.0),
        (10**500, 0.0),
        ("", 0.0),
        (True, 0.0),
        (None, 0.0),
        ([1.0], 0.0),
        ({}, 0.0),
    ],
)
def test_price_is_a_positive_number_below_a_million(value: object, expected: float) -> None:
    assert price_of(value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("EUR", "EUR"),
        (" cny\n", "CNY"),
        ("", ""),
        ("EU", ""),
        ("EURO", ""),
        ("€", ""),
        ("ÄÖÜ", ""),
        (None, ""),
        (7, ""),
    ],
)
def test_currency_is_three_letters(text: object, expected: str) -> None:
    assert currency_code(text) == expected
