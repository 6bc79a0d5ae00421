"""What is dear to ask a vendor for and seldom changes: the table of its instance types, for one.

Every pass is a new process as far as it knows, so without a shelf each would ask for hundreds of instance types again.
What is kept here is public and can be asked for again at any time: nothing is lost with it, and no decision depends on
whether it was found. So nothing here raises, and a row that cannot be read counts as none.
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

LARGEST = 8 * 2**20  # bytes before compression; what is larger is no table of instance types
TIDY_AFTER = 3600  # seconds after its end that DynamoDB may delete a row
_LONGEST_KEY = 900  # bytes; DynamoDB allows 1,024


class SharedCache:
    """providers/means.py's Shelf, over the table; one row per key, compressed."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def get(self, key: str) -> bytes | None:
        """What was put there and is not too old; None otherwise, also where the table does not answer."""
        try:
            row = self._table.get(ShelfRow, SHELF, _item(key))
        except StoreError:
            return None
        if row is None or row.blob is None or not row.since - DIFFERENCE <= self._clock() < row.until:
            return None
        return _unpacked(row.blob)

    def put(self, key: str, value: bytes, seconds: float) -> None:
        """Keep it for so long. What is too large for a row (compressed, 300,000 bytes) is not kept."""
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
    """The bytes, unless they were cut, or are more than were ever put there."""
    unpacker = zlib.decompressobj()
    try:
        value = unpacker.decompress(blob, LARGEST + 1)
    except zlib.error:
        return None
    return value if unpacker.eof and len(value) <= LARGEST else None


def _item(key: str) -> str:
    """The key as it is, for people who look into the table; a digest where it is too long for one."""
    return key if len(key.encode()) <= _LONGEST_KEY else hashlib.sha256(key.encode()).hexdigest()
