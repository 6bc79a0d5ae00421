"""Caches vendor data that seldom changes in the cache shared by all functions: one row per account, region and kind.

Each entry has its own expiry, so adding an entry does not change the age of the others. An unreadable row is read again
from the vendor, a clock that goes back makes no entry live forever, and without a shared cache everything works
uncached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from chalicelib.providers.services import Cache

T = TypeVar("T")

_LARGEST = 250_000  # bytes; the shared cache accepts 300 kB


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """value None: the vendor does not know the name."""

    put: float
    until: float
    value: msgspec.Raw


class TtlCache(Generic[T]):
    """A cache of items of one kind by name. key: determined at the first use, because it names the account."""

    def __init__(self, cache: Cache, key: Callable[[], str], kind: type[T], now: Callable[[], float]) -> None:
        self._cache, self._key, self._now = cache, key, now
        self._values: msgspec.json.Decoder[T | None] = msgspec.json.Decoder(kind | None)
        self._row: dict[str, _Entry] | None = None

    def get(self, names: Iterable[str]) -> dict[str, T | None]:
        """Return the cached items of these names; None: known not to exist. Names that are absent must be requested."""
        row, now = self._read(), self._now()
        items: dict[str, T | None] = {}
        for name in names:
            entry = row.get(name)
            if entry is not None and entry.put <= now < entry.until:
                try:
                    items[name] = self._values.decode(entry.value)
                except msgspec.MsgspecError:
                    continue
        return items

    def put(self, things: Mapping[str, T | None], *, known: float, unknown: float) -> None:
        """Add items to the row in one write. known, unknown: seconds to cache existing and missing items (0: do not
        cache)."""
        now = self._now()
        new = {
            name: _Entry(now, now + seconds, msgspec.Raw(msgspec.json.encode(thing)))
            for name, thing in things.items()
            if (seconds := unknown if thing is None else known)
        }
        if not new:
            return
        row = {name: entry for name, entry in self._read().items() if entry.put <= now < entry.until} | new
        text = msgspec.json.encode(row)
        if len(text) > _LARGEST:
            row, text = new, msgspec.json.encode(new)
        self._row = row
        if len(text) <= _LARGEST:
            self._cache.put(self._key(), text, max(entry.until for entry in row.values()) - now)

    def _read(self) -> dict[str, _Entry]:
        if self._row is None:
            text = self._cache.get(self._key())
            try:
                self._row = msgspec.json.decode(text, type=dict[str, _Entry]) if text else {}
            except msgspec.MsgspecError:
                self._row = {}
        return self._row
