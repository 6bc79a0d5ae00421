"""The catalogue of a vendor in the cache that all functions share.

A pass reads what is there and never waits for the vendor. What is due is read again at the end of
a pass, after its plan has been sent (passes/cluster_reading.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import msgspec

from chalicelib.model.catalogue import Catalogue
from chalicelib.providers.kit.services import Cache

USABLE_FOR = 7 * 86400.0
"""Seconds for which nothing newer is needed to open a group."""
FRESH, FRESH_STOCK = 3600.0, 300.0
"""Seconds after which a catalogue is read again; where machines are bought, stock counts."""
_TRIED_EVERY = 300.0  # seconds between two attempts of all functions together
_MOST_BYTES = 4 * 2**20  # of a catalogue after decompression


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

    def read(self) -> StoredCatalogue | None:
        """Return the stored catalogue; None if there is none that can be used."""
        if self._row is None:
            self._row = _decoded(self._cache.get(self._key()))
        row = self._row
        return row if row is not None and 0 <= self._age(row) < USABLE_FOR else None

    def refresh(self, read: Callable[[], Catalogue], *, buying: bool) -> bool:
        """Read the catalogue again if it is due and nobody has tried for five minutes; return
        whether it has become known by that. read: asks the vendor; raises ProviderError, which
        this method raises. buying: machines of the catalogue are bought now, so stock counts."""
        row = self.read()
        fresh_for = FRESH_STOCK if buying else FRESH
        if row is not None and self._age(row) < fresh_for:
            return False
        tried = f"{self._key()}/tried"
        if self._cache.get(tried) is not None:
            return False
        self._cache.put(tried, b"1", _TRIED_EVERY)
        catalogue = read()
        if not catalogue.entries:
            return False
        self._row = StoredCatalogue(self._now(), catalogue)
        encoded = zlib.compress(msgspec.json.encode(self._row))
        self._cache.put(self._key(), encoded, USABLE_FOR)
        return row is None

    def _age(self, stored: StoredCatalogue) -> float:
        return self._now() - stored.read_at


def _decoded(stored: bytes | None) -> StoredCatalogue | None:
    """Return a row; None for one that cannot be read, which is then read from the vendor again."""
    if not stored:
        return None
    try:
        text = zlib.decompressobj().decompress(stored, _MOST_BYTES)
        return msgspec.json.decode(text, type=StoredCatalogue)
    except (zlib.error, msgspec.MsgspecError):
        return None
