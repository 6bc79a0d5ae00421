"""The stored catalogue: how long it is used, when it is read again, and impossible rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chalicelib.model.catalogue import Catalogue, CatalogueEntry
from chalicelib.providers.kit.catalogue_shelf import (
    FRESH,
    FRESH_STOCK,
    MOST_ENTRIES,
    USABLE_FOR,
    CatalogueShelf,
    sound,
)
from chalicelib.providers.kit.errors import Transient
from infra.emulators.controllers.clock import ManualClock
from tests.providers.cherryservers.fixture import MemoryCache

ENTRY = CatalogueEntry("s4", "s", "z1", 4, 2**34, price=0.2)
KEY = "vendor/account/zone/catalogue"


class CountedCache(MemoryCache):
    """reads: keys that were asked for."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.reads: list[str] = []

    def get(self, key: str) -> bytes | None:
        self.reads.append(key)
        return super().get(key)


class Shop:
    """A vendor whose catalogue is read. entries: what it sells now. calls: lists so far."""

    def __init__(self, *entries: CatalogueEntry) -> None:
        self.clock = ManualClock(1_800_000_000.0)
        self.cache = CountedCache(self.clock)
        self.entries, self.calls, self.is_down = entries or (ENTRY,), 0, False

    def shelf(self) -> CatalogueShelf:
        return CatalogueShelf(self.cache, lambda: KEY, self.clock)

    def list_entries(self) -> Catalogue:
        self.calls += 1
        if self.is_down:
            raise Transient("no answer")
        return Catalogue("EUR", self.entries)

    def refresh(self, *, buying: bool = False) -> bool:
        return self.shelf().refresh(self.list_entries, buying=buying)

    def prices(self) -> list[float | None]:
        stored = self.shelf().read()
        return [entry.price for entry in stored.catalogue.entries] if stored is not None else []


def with_(**fields: Any) -> CatalogueEntry:
    return msgspec.structs.replace(ENTRY, **fields)


def test_first_catalogue_is_news_and_later_ones_are_not() -> None:
    shop = Shop()
    assert shop.refresh()
    shop.clock.advance(FRESH + 1)
    assert not shop.refresh()
    assert shop.calls == 2


@pytest.mark.parametrize(("buying", "fresh"), [(False, FRESH), (True, FRESH_STOCK)])
def test_catalogue_is_read_again_when_it_is_due(buying: bool, fresh: float) -> None:
    shop = Shop()
    shop.refresh()
    shop.clock.advance(fresh - 1)
    shop.refresh(buying=buying)
    assert shop.calls == 1
    shop.clock.advance(2)
    shop.refresh(buying=buying)
    assert shop.calls == 2


def test_vendor_that_fails_is_asked_again_after_five_minutes() -> None:
    shop = Shop()
    shop.is_down = True
    with pytest.raises(Transient):
        shop.refresh()
    assert not shop.refresh()
    assert shop.calls == 1
    shop.clock.advance(301)
    shop.is_down = False
    assert shop.refresh()


def test_old_catalogue_opens_nothing_and_is_still_known() -> None:
    shop = Shop()
    shop.refresh()
    shop.clock.advance(USABLE_FOR - 1)
    assert shop.prices() == [0.2]
    shop.clock.advance(2)
    assert shop.prices() == []
    shelf = shop.shelf()
    last = shelf.last()
    assert last is not None
    assert (last.catalogue.entries, shelf.age(last)) == ((ENTRY,), USABLE_FOR + 1)


def test_catalogue_from_the_future_is_not_used() -> None:
    shop = Shop()
    shop.refresh()
    shelf = CatalogueShelf(shop.cache, lambda: KEY, lambda: shop.clock() - 10.0)
    assert shelf.last() is None


def test_one_pass_reads_the_row_once_whether_or_not_it_is_there() -> None:
    shop = Shop()
    for expected in (None, ENTRY):
        shelf = shop.shelf()
        shop.cache.reads.clear()
        for _ in range(3):
            stored = shelf.read()
            assert (stored.catalogue.entries[0] if stored is not None else None) == expected
        assert shop.cache.reads == [KEY]
        shop.refresh()


def test_catalogue_without_any_price_does_not_replace_one_with_prices() -> None:
    shop = Shop()
    shop.refresh()
    shop.entries = (with_(price=None),)
    shop.clock.advance(FRESH + 1)
    shop.refresh()
    assert (shop.calls, shop.prices()) == (2, [0.2])


def test_catalogue_without_any_price_is_better_than_none() -> None:
    shop = Shop(with_(price=None))
    assert shop.refresh()
    assert shop.prices() == [None]


def test_empty_catalogue_replaces_nothing() -> None:
    shop = Shop()
    shop.refresh()
    shop.entries = ()
    shop.clock.advance(FRESH + 1)
    shop.refresh()
    assert shop.prices() == [0.2]


@pytest.mark.parametrize("stored", [b"", b"x", b"x" * 5000])
def test_row_that_cannot_be_read_is_none(stored: bytes) -> None:
    shop = Shop()
    shop.cache.put(KEY, stored, 100.0)
    assert shop.shelf().last() is None


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "no name": {"name": ""},
    "name with a blank": {"name": "a b"},
    "name with a line break": {"name": "a\n"},
    "no zone": {"zone": ""},
    "long family": {"family": "x" * 400},
    "long id": {"vendor_id": "x" * 400},
    "no cores": {"cores": 0},
    "negative cores": {"cores": -1},
    "many cores": {"cores": 10**9},
    "no memory": {"memory": 0},
    "negative memory": {"memory": -1},
    "much memory": {"memory": 2**60},
    "negative gpus": {"gpus": -1},
    "many gpus": {"gpus": 10**6},
    "negative disk": {"disk": -1},
    "negative stock": {"stock": -1},
    "negative spot stock": {"spot_stock": -1},
    "price of zero": {"price": 0.0},
    "negative price": {"price": -0.1},
    "price that is no number": {"price": float("nan")},
    "price without end": {"price": float("inf")},
    "negative spot price": {"spot_price": -0.1},
}


@pytest.mark.parametrize("fields", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_row_that_cannot_be_true_is_dropped_and_counted(fields: dict[str, Any]) -> None:
    catalogue = sound(Catalogue("EUR", (with_(**fields), with_(name="s8")), gaps=("earlier",)))
    assert [entry.name for entry in catalogue.entries] == ["s8"]
    assert catalogue.gaps[0] == "earlier"
    assert catalogue.gaps[1].endswith(": 1")


@pytest.mark.parametrize("price", [-1.0, 0.0, float("nan"), float("inf")])
def test_price_of_a_disk_that_cannot_be_true_is_none(price: float) -> None:
    assert sound(Catalogue("EUR", (ENTRY,), price)).disk_price is None


def test_rows_beyond_the_most_are_dropped_and_counted() -> None:
    entries = tuple(with_(name=f"s{number}") for number in range(MOST_ENTRIES + 3))
    catalogue = sound(Catalogue("EUR", entries))
    assert catalogue.entries == entries[:MOST_ENTRIES]
    assert catalogue.gaps[0].endswith(": 3")


def test_sound_catalogue_stays_as_it_is() -> None:
    full = with_(gpus=8, disk=2**40, spot_price=0.1, stock=0, spot_stock=2**40, vendor_id="x")
    catalogue = Catalogue("EUR", (ENTRY, full), 0.0001, ("gap",))
    assert sound(catalogue) == catalogue
