"""The journal of events for operators, kept for a limited time. No decision ever depends on it.

In addition to the entries there is one ledger per cluster, in one row: counters that only grow, and which events were
reported recently. Many executors write it concurrently. DynamoDB itself adds to the counters, so that no increment is
lost; the rest is one value, written only if it is unchanged since the writer read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
from pynamodb.expressions.operand import Path
from pynamodb.expressions.update import Action

from chalicelib.store.codec import PIECE, decode, encode, fingerprint, pack, unpack
from chalicelib.store.errors import RowUnreadable, StoreError
from chalicelib.store.table_client import ConditionFailed, Raw, Table, readable, row_of, value_or_error
from chalicelib.store.tables import JOURNAL, LEDGER, PARTITION_KEY, SORT_KEY, JournalRow, LedgerRow

KEPT = 14 * 86400.0  # seconds, the store's default
UNREADABLE = "unreadable"
"""The kind of an entry whose row cannot be read."""
COUNT = "n "  # prefix of the ledger's attributes that are counters


class CounterTotals(msgspec.Struct, frozen=True):
    """counts: by name, since the cluster was first seen. told: defined in record/events.py. version: of told."""

    counts: dict[str, float] = {}
    state: bytes = b""
    version: str = ""


class JournalEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One journal entry. at: epoch seconds. kind: a word such as plan, operation, wake, policy.

    facts: small values that are always stored. body: JSON text (a whole plan), omitted if it is too large.
    """

    at: float
    kind: str
    plan: str = ""
    operation: str = ""
    group: str = ""
    facts: dict[str, str | int | float | bool] = {}
    body: str = ""


class Journal:
    """Appends and reads entries, per cluster."""

    def __init__(self, table: Table, clock: Callable[[], float], kept: float = KEPT) -> None:
        self._table, self._clock, self._kept = table, clock, kept

    def append(self, cluster: str, entry: JournalEntry) -> None:
        """Write one entry. Writing the same entry twice (for a message delivered twice) stores one entry."""
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
        """Return the newest entries, newest first, without expired ones. One that cannot be read has the kind
        UNREADABLE.

        before: epoch seconds; return only earlier entries, to the microsecond. The last entry's `at` gives the next
        page.
        """
        below = "" if before is None else _first_at(max(before, 0.0))
        oldest = self._clock() - self._kept
        raws = self._table.query(cluster, JOURNAL, newest_first=True, limit=limit, below=below)
        entries = map(_entry, raws)
        return tuple(entry for entry in entries if entry.at > oldest)

    def at(self, cluster: str, at: float) -> tuple[JournalEntry, ...]:
        """Return the entries of this instant (epoch seconds), to the microsecond. One read."""
        return tuple(map(_entry, self._table.query(cluster, f"{_first_at(at)}#")))

    # --- the ledger

    def ledger(self, cluster: str) -> CounterTotals:
        """Return the current ledger; an empty one where nothing was written yet. One read."""
        raw = self._table.find(cluster, LEDGER)
        return _ledger(raw) if raw is not None else CounterTotals()

    def ledgers(self, clusters: Sequence[str]) -> dict[str, CounterTotals | StoreError]:
        """Return the ledger of each of these clusters that has one, or why it cannot be read; one read for a hundred of
        them."""
        rows = self._table.get_many([(cluster, LEDGER) for cluster in clusters])
        return {cluster: value_or_error(partial(_ledger, raw)) for (cluster, _), raw in rows.items()}

    def count(self, cluster: str, counts: Mapping[str, float]) -> None:
        """Add to counters; concurrent calls are safe. Use only names from a fixed vocabulary, because each is stored
        permanently. A write whose response was lost may be counted twice."""
        self._table.write(self._table.update(cluster, LEDGER, _adding(counts)))

    def tell(self, cluster: str, counts: Mapping[str, float], told: bytes, *, expected: str) -> bool:
        """Add to counters and replace `told`, in one write; return False, with nothing written, if `told` has changed.

        expected: the version that was read. Returns True if a first attempt succeeded and only its response was lost.
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
    # As a path of one segment, because a dot may be part of a name.
    return [Path([COUNT + name]).add(counts[name]) for name in sorted(counts)]


def _ledger(raw: Raw) -> CounterTotals:
    row = row_of(LedgerRow, raw)
    counts = {
        name.removeprefix(COUNT): float(value["N"])
        for name, value in raw.items()
        if name.startswith(COUNT) and "N" in value
    }
    return CounterTotals(counts, row.told or b"", row.version or "")


def _entry(raw: Raw) -> JournalEntry:
    """Return the entry in an item; one that cannot be read must not hide the others."""
    cluster, item = raw[PARTITION_KEY]["S"], raw[SORT_KEY]["S"]
    try:
        with readable(cluster, item):
            return decode(unpack((row_of(JournalRow, raw).blob,)), JournalEntry)
    except RowUnreadable as error:
        micros = item.removeprefix(JOURNAL).partition("#")[0]
        at = int(micros) / 1e6 if micros.isascii() and micros.isdecimal() else 0.0
        return JournalEntry(at, UNREADABLE, facts={"problem": str(error)})


def _first_at(at: float) -> str:
    """Return a key that sorts before the items of all entries of this instant and after those of earlier ones."""
    return f"{JOURNAL}{round(at * 1e6):020d}"
