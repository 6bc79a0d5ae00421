"""What happened, for people: kept for a while, then forgotten. Nothing is ever decided by reading the journal.

Beside the entries there is one ledger per cluster, in one row: counters that only grow, and which events were told
lately. Executors write it, many at a time. Counters are added by DynamoDB itself, so that no sum is ever lost; the rest
is one value, written only if it still is what the writer has read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from pynamodb.expressions.operand import Path
from pynamodb.expressions.update import Action

from chalicelib.store.codec import PIECE, decode, encode, fingerprint, pack, unpack
from chalicelib.store.table_client import ConditionFailed, Raw, Table
from chalicelib.store.tables import JOURNAL, LEDGER, JournalRow, LedgerRow

KEPT = 14 * 86400.0  # seconds, unless the store is told otherwise
COUNT = "n "  # attributes of the ledger that begin with this are counters


class CounterTotals(msgspec.Struct, frozen=True):
    """counts: by name, since the cluster is known. told: record/repeats.py knows what is in it. version: of told."""

    counts: dict[str, float] = {}
    state: bytes = b""
    version: str = ""


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
        self._table.write(
            self._table.put(JournalRow(cluster, item, blob=pieces[0], expires_at=int(entry.at + self._kept)))
        )

    def recent(self, cluster: str, limit: int = 50, *, before: float | None = None) -> tuple[JournalEntry, ...]:
        """The newest entries, newest first, without those whose time is up.

        before: epoch seconds; only what happened earlier, to the microsecond. The last one's `at` gives the next page.
        """
        below = "" if before is None else _first_at(max(before, 0.0))
        oldest = self._clock() - self._kept
        rows = (
            JournalRow.from_raw_data(raw)
            for raw in self._table.query(cluster, JOURNAL, newest_first=True, limit=limit, below=below)
        )
        entries = (decode(unpack((row.blob,)), JournalEntry) for row in rows)
        return tuple(entry for entry in entries if entry.at > oldest)

    # --- the ledger

    def ledger(self, cluster: str) -> CounterTotals:
        """As it is now; an empty one where nothing was written yet. One read."""
        return self.ledgers([cluster]).get(cluster, CounterTotals())

    def ledgers(self, clusters: Sequence[str]) -> dict[str, CounterTotals]:
        """Of each of these clusters that has one; one read for a hundred of them."""
        rows = self._table.get_many([(cluster, LEDGER) for cluster in clusters])
        return {cluster: _ledger(raw) for (cluster, _), raw in rows.items()}

    def count(self, cluster: str, counts: Mapping[str, float]) -> None:
        """Add to counters, whoever else does at the same time. Only names from a fixed vocabulary: each is kept for
        good. A write whose answer was lost may be counted twice."""
        self._table.write(self._table.update(cluster, LEDGER, _adding(counts)))

    def tell(self, cluster: str, counts: Mapping[str, float], told: bytes, *, expected: str) -> bool:
        """Add to counters and replace told, in one write; False, and nothing done, if told is not what it was.

        expected: the version that was read. A first try that got through, of which only the answer was lost, is True.
        """
        version = fingerprint(told)
        still_is_as_read = LedgerRow.version == expected if expected else LedgerRow.version.does_not_exist()
        write = [*_adding(counts), LedgerRow.told.set(told), LedgerRow.version.set(version)]
        try:
            self._table.write(self._table.update(cluster, LEDGER, write, still_is_as_read))
        except ConditionFailed as refused:
            return _ledger(refused.old).version == version
        return True


def _adding(counts: Mapping[str, float]) -> list[Action]:
    # As a path of one segment: a dot in a name is part of it.
    return [Path([COUNT + name]).add(counts[name]) for name in sorted(counts)]


def _ledger(raw: Raw) -> CounterTotals:
    row = LedgerRow.from_raw_data(raw)
    counts = {
        name.removeprefix(COUNT): float(value["N"])
        for name, value in raw.items()
        if name.startswith(COUNT) and "N" in value
    }
    return CounterTotals(counts, row.told or b"", row.version or "")


def _first_at(at: float) -> str:
    """Comes before the items of all entries of this instant and after those of earlier ones."""
    return f"{JOURNAL}{round(at * 1e6):020d}"
