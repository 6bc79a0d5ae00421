"""What happened, for people: kept for a while, then forgotten. Nothing is ever decided by reading the journal."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.store.client import Table
from chalicelib.store.codec import PIECE, decode, encode, fingerprint, pack, unpack
from chalicelib.store.tables import JOURNAL, JournalRow

KEPT = 14 * 86400.0    # seconds, unless the store is told otherwise


class JournalEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened. at: epoch seconds. kind: a word such as plan, operation, wake, policy.

    facts: small values that are always kept. body: JSON text (a whole plan), left out if it is too large.
    """

    at: float
    kind: str
    plan: str = ""
    operation: str = ""
    group: str = ""
    facts: dict[str, str | int | float | bool] = {}
    body: str = ""


class Journal:
    """Appending and reading back, per cluster."""

    def __init__(self, table: Table, clock: Callable[[], float], kept: float = KEPT) -> None:
        self._table, self._clock, self._kept = table, clock, kept

    def append(self, cluster: str, entry: JournalEntry) -> None:
        """Write one entry. The same entry twice (a message that came twice) is one entry."""
        data = encode(entry)
        pieces = pack(data)
        if len(pieces) > 1:
            left_out = f"{len(entry.body)} characters; {PIECE} bytes compressed is the limit"
            facts = entry.facts | {"body_left_out": left_out}
            data = encode(msgspec.structs.replace(entry, facts=facts, body=""))
            pieces = pack(data)
        item = f"{_first_at(entry.at)}#{fingerprint(data)}"
        self._table.write(self._table.put(
            JournalRow(cluster, item, blob=pieces[0], expires_at=int(entry.at + self._kept))
        ))

    def recent(self, cluster: str, limit: int = 50, *, before: float | None = None) -> tuple[JournalEntry, ...]:
        """The newest entries, newest first, without those whose time is up.

        before: epoch seconds; only what happened earlier, to the microsecond. The last one's `at` gives the next page.
        """
        below = "" if before is None else _first_at(max(before, 0.0))
        oldest = self._clock() - self._kept
        rows = (JournalRow.from_raw_data(raw)
                for raw in self._table.query(cluster, JOURNAL, newest_first=True, limit=limit, below=below))
        entries = (decode(unpack((row.blob,)), JournalEntry) for row in rows)
        return tuple(entry for entry in entries if entry.at > oldest)


def _first_at(at: float) -> str:
    """Comes before the items of all entries of this instant and after those of earlier ones."""
    return f"{JOURNAL}{round(at * 1e6):020d}"
