"""What seldom changes at the vendor, kept on the shelf that all functions share: one row per account, region and kind.

Each entry has its own end, so that putting a new one beside it makes none of the others older or younger. A row that
cannot be read is asked for anew, a clock that went back makes nothing live for ever, and without a shelf everything
works as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from chalicelib.providers.services import Cache

T = TypeVar("T")

_LARGEST = 250_000  # bytes; a shelf takes 300 kB


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """value None: the vendor does not know the name."""

    put: float
    until: float
    value: msgspec.Raw


class TtlCache(Generic[T]):
    """Names -> things of one kind. key: asked for at the first use, since it names the account."""

    def __init__(self, shelf: Cache, key: Callable[[], str], kind: type[T], now: Callable[[], float]) -> None:
        self._shelf, self._key, self._now = shelf, key, now
        self._values: msgspec.json.Decoder[T | None] = msgspec.json.Decoder(kind | None)
        self._row: dict[str, _Entry] | None = None

    def get(self, names: Iterable[str]) -> dict[str, T | None]:
        """What is known of these names; None: known to be unknown. What is missing has to be asked for."""
        row, now = self._read(), self._now()
        found: dict[str, T | None] = {}
        for name in names:
            entry = row.get(name)
            if entry is not None and entry.put <= now < entry.until:
                try:
                    found[name] = self._values.decode(entry.value)
                except msgspec.MsgspecError:
                    continue
        return found

    def put(self, things: Mapping[str, T | None], *, known: float, unknown: float) -> None:
        """Keep them beside what is there already, in one write; known, unknown: seconds for what is there and for what
        is not (0: not at all)."""
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
            self._shelf.put(self._key(), text, max(entry.until for entry in row.values()) - now)

    def _read(self) -> dict[str, _Entry]:
        if self._row is None:
            text = self._shelf.get(self._key())
            try:
                self._row = msgspec.json.decode(text, type=dict[str, _Entry]) if text else {}
            except msgspec.MsgspecError:
                self._row = {}
        return self._row
