"""A shared cache for vendor data that is expensive to read and seldom changes, such as the table of instance types.

Every pass may be a new process, so without this cache each would request hundreds of instance types again. The cached
data is public and can be requested again at any time: its loss is harmless, and no decision depends on whether it was
found. No method raises, therefore, and an unreadable row counts as missing.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable
from contextlib import suppress

from chalicelib.store.codec import PIECE
from chalicelib.store.errors import StoreError
from chalicelib.store.rate_limits import DIFFERENCE
from chalicelib.store.table_client import Table
from chalicelib.store.tables import SHELF, ShelfRow

LARGEST = 8 * 2**20  # bytes before compression; larger than any table of instance types
TIDY_AFTER = 3600  # seconds after its end that DynamoDB may delete a row
_LONGEST_KEY = 900  # bytes; DynamoDB allows 1,024


class SharedCache:
    """Implements the Cache of providers/services.py on the table; one row per key, compressed."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def get(self, key: str) -> bytes | None:
        """Return the stored value if it has not expired; None otherwise, also where the table does not respond."""
        try:
            row = self._table.get(ShelfRow, SHELF, _item(key))
        except StoreError:
            return None
        if row is None or row.blob is None or not row.since - DIFFERENCE <= self._clock() < row.until:
            return None
        return _unpacked(row.blob)

    def put(self, key: str, value: bytes, seconds: float) -> None:
        """Store a value for this many seconds. A value too large for a row (compressed, 300,000 bytes) is not
        stored."""
        if not 0 < seconds < math.inf or len(value) > LARGEST:
            return
        blob = zlib.compress(value, 6)
        if len(blob) > PIECE:
            return
        now = self._clock()
        row = ShelfRow(
            SHELF, _item(key), blob=blob, since=now, until=now + seconds, expires_at=int(now + seconds) + TIDY_AFTER
        )
        with suppress(StoreError):
            self._table.write(self._table.put(row))


def _unpacked(blob: bytes) -> bytes | None:
    """Return the bytes, unless they were truncated, or exceed what is ever stored."""
    unpacker = zlib.decompressobj()
    try:
        value = unpacker.decompress(blob, LARGEST + 1)
    except zlib.error:
        return None
    return value if unpacker.eof and len(value) <= LARGEST else None


def _item(key: str) -> str:
    """Return the key as it is, so that the table is readable; a digest where it is too long."""
    return key if len(key.encode()) <= _LONGEST_KEY else hashlib.sha256(key.encode()).hexdigest()
