"""The catalogue of a vendor in the cache that all functions share.

A pass reads what is there and never waits for the vendor. What is due is read again at the end of
a pass, after its plan has been sent (passes/cluster_reading.py). An old catalogue opens no group,
but it still says what the machines of existing ones are and cost.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import msgspec

from chalicelib.model.catalogue import Catalogue, CatalogueEntry
from chalicelib.model.group import DEAREST
from chalicelib.model.label_syntax import is_label_value
from chalicelib.providers.kit.services import Cache

USABLE_FOR = 7 * 86400.0
"""Seconds for which nothing newer is needed to open a group."""
FRESH, FRESH_STOCK = 3600.0, 300.0
"""Seconds after which a catalogue is read again; where machines are bought, stock counts."""
MOST_ENTRIES = 10_000
"""Rows of a catalogue that are used: more than any vendor has types in zones."""
_KEPT_FOR = 60 * 86400.0
_TRIED_EVERY = 300.0  # seconds between two attempts of all functions together
_MOST_BYTES = 4 * 2**20  # of a catalogue after decompression
_MOST_CORES, _MOST_GPUS, _MOST_MEMORY, _MOST_DISK = 65_536, 1024, 2**50, 2**60
_MOST_STOCK = 2**53
_LONGEST_ID = 300


class StoredCatalogue(msgspec.Struct, frozen=True):
    """read_at: when the vendor stated it, epoch seconds."""

    read_at: float
    catalogue: Catalogue


class CatalogueShelf:
    """The row of one account and region. key: determined at the first use, because it names the
    account."""

    def __init__(self, cache: Cache, key: Callable[[], str], now: Callable[[], float]) -> None:
        self._cache, self._key, self._now = cache, key, now
        self._row: StoredCatalogue | None = None
        self._is_read = False

    def read(self) -> StoredCatalogue | None:
        """Return the stored catalogue; None if there is none that can be used to open a group."""
        row = self.last()
        return row if row is not None and self.age(row) < USABLE_FOR else None

    def last(self) -> StoredCatalogue | None:
        """Return what was read last, however old; None if nothing is stored."""
        if not self._is_read:
            self._row, self._is_read = _decoded(self._cache.get(self._key())), True
        row = self._row
        return row if row is not None and self.age(row) >= 0 else None

    def age(self, stored: StoredCatalogue) -> float:
        """Return the seconds since a catalogue was read."""
        return self._now() - stored.read_at

    def refresh(self, read: Callable[[], Catalogue], *, buying: bool) -> bool:
        """Read the catalogue again if it is due and nobody has tried for five minutes; return
        whether it has become known by that. read: asks the vendor; raises ProviderError, which
        this method raises. buying: machines of the catalogue are bought now, so stock counts."""
        row = self.read()
        fresh_for = FRESH_STOCK if buying else FRESH
        if row is not None and self.age(row) < fresh_for:
            return False
        tried = f"{self._key()}/tried"
        if self._cache.get(tried) is not None:
            return False
        self._cache.put(tried, b"1", _TRIED_EVERY)
        catalogue = sound(read())
        # where only the prices could not be read, those of the last catalogue are better than none
        if not catalogue.entries or (row is not None and not _has_prices(catalogue)):
            return False
        self._row, self._is_read = StoredCatalogue(self._now(), catalogue), True
        encoded = zlib.compress(msgspec.json.encode(self._row))
        self._cache.put(self._key(), encoded, _KEPT_FOR)
        return row is None


def sound(catalogue: Catalogue) -> Catalogue:
    """Return a catalogue without the rows that cannot be true, whose number is one of the gaps. At
    most MOST_ENTRIES rows stay, the first of them."""
    entries = tuple(entry for entry in catalogue.entries if _is_possible(entry))
    dropped = len(catalogue.entries) - len(entries[:MOST_ENTRIES])
    gaps = catalogue.gaps
    if dropped:
        gaps = (*gaps, f"types with impossible names or numbers, or too many of them: {dropped}")
    disk_price = catalogue.disk_price if _is_price(catalogue.disk_price) else None
    return Catalogue(catalogue.currency, entries[:MOST_ENTRIES], disk_price, gaps)


def _is_possible(entry: CatalogueEntry) -> bool:
    names = bool(entry.name and entry.zone) and all(map(is_label_value, (entry.name, entry.zone)))
    numbers = (
        (entry.cores, 1, _MOST_CORES),
        (entry.memory, 1, _MOST_MEMORY),
        (entry.gpus, 0, _MOST_GPUS),
        (entry.disk, 0, _MOST_DISK),
        (entry.stock or 0, 0, _MOST_STOCK),
        (entry.spot_stock or 0, 0, _MOST_STOCK),
    )
    prices = (entry.price, entry.spot_price)
    return (
        names
        and max(len(entry.family), len(entry.vendor_id)) <= _LONGEST_ID
        and all(least <= number <= most for number, least, most in numbers)
        and all(price is None or _is_price(price) for price in prices)
    )


def _is_price(price: float | None) -> bool:
    return price is not None and 0.0 < price <= DEAREST


def _has_prices(catalogue: Catalogue) -> bool:
    return any(entry.price is not None for entry in catalogue.entries)


def _decoded(stored: bytes | None) -> StoredCatalogue | None:
    """Return a row; None for one that cannot be read, which is then read from the vendor again."""
    if not stored:
        return None
    try:
        text = zlib.decompressobj().decompress(stored, _MOST_BYTES)
        return msgspec.json.decode(text, type=StoredCatalogue)
    except (zlib.error, msgspec.MsgspecError):
        return None
