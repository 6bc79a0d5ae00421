"""Rows on which no decision depends: the journal, counters, charts, notifications, and the
comparison in mode shadow.

The journal contains events for operators, kept for a limited time. Counters only grow; with them
the table keeps which events were reported recently. Many executors write both concurrently.
DynamoDB itself adds to the counters, so that no increment is lost; the rest is one value, written
only if it is unchanged since the writer read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
from pynamodb.expressions.operand import Path
from pynamodb.expressions.update import Action

from chalicelib.model.machine_offers import MachineOffers, PodFits
from chalicelib.model.overview import ClusterOverview
from chalicelib.store.codec import NOT_DECODED, PIECE, decode, encode, fingerprint, pack, unpack
from chalicelib.store.errors import RowUnreadable, StoreError
from chalicelib.store.gauge_ring import (
    EVERY,
    HOUR,
    NO_EXTREMES,
    Extremes,
    GaugePoint,
    added,
    continued,
    hourly,
    is_due,
    packed,
    unpacked,
    with_extremes,
)
from chalicelib.store.table_client import (
    ConditionFailed,
    Raw,
    Table,
    readable,
    row_of,
    value_or_error,
)
from chalicelib.store.tables import (
    COUNTERS,
    GAUGES,
    HOURS,
    JOURNAL,
    NOTICES,
    OFFERS,
    OVERVIEW,
    PARTITION_KEY,
    SHADOW,
    SHADOW_ACCEPTED,
    SORT_KEY,
    CountersRow,
    GaugesRow,
    JournalRow,
    NoticesRow,
    OverviewRow,
    RowKey,
    ShadowRow,
)

if TYPE_CHECKING:
    from chalicelib.shadow.records import Ledger

R = TypeVar("R", GaugesRow, OverviewRow)

KEPT = 14 * 86400.0  # seconds, the store's default
OFFERS_USED = 86400.0
"""Seconds for which decisions refer to machines that are stored already."""
UNREADABLE = "unreadable"
"""The kind of an entry whose row cannot be read."""
COUNT = "n "  # prefix of the attributes that are counters
_ACCEPTED = "a "  # prefix of the attributes that are accepted results
_GAUGES_KEPT = 15 * 86400  # seconds after the last write that DynamoDB may delete the row
_UNCHANGED = 1800.0  # seconds for which an overview stands whose changes do not matter
# nodes of an overview, beyond which it is written the less often, the more it has
_NODES_PER_WRITE = 250


class CounterTotals(msgspec.Struct, frozen=True):
    """counts: by name, since the cluster was first seen. state: defined in
    journal/events.py. version: of state."""

    counts: dict[str, float] = {}
    state: bytes = b""
    version: str = ""


class JournalEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One journal entry. at: epoch seconds. kind: a word such as plan, operation, wake, policy.

    facts: small values that are always stored. body: JSON text (a whole plan),
    omitted if it is too large. fits: of a plan, omitted first.
    """

    at: float
    kind: str
    plan: str = ""
    operation: str = ""
    group: str = ""
    facts: dict[str, str | int | float | bool] = {}
    body: str = ""
    fits: PodFits | None = None


class Journal:
    """Appends and reads entries, per cluster."""

    def __init__(self, table: Table, clock: Callable[[], float], kept: float = KEPT) -> None:
        self._table, self._clock, self._kept = table, clock, kept

    def append(self, cluster: str, entry: JournalEntry) -> None:
        """Write one entry. Writing the same entry twice (for a message delivered
        twice) stores one entry."""
        data = encode(entry)
        pieces = pack(data)
        if len(pieces) > 1 and entry.fits is not None:
            entry = msgspec.structs.replace(entry, fits=None)
            data = encode(entry)
            pieces = pack(data)
        if len(pieces) > 1:
            left_out = f"{len(entry.body)} characters; {PIECE} bytes compressed is the limit"
            facts = entry.facts | {"body_left_out": left_out}
            data = encode(msgspec.structs.replace(entry, facts=facts, body=""))
            pieces = pack(data)
        item = f"{_first_at(entry.at)}#{fingerprint(data)}"
        row = JournalRow(cluster, item, blob=pieces[0], expires_at=int(entry.at + self._kept))
        self._table.write(self._table.put(row))

    def put_offers(self, cluster: str, name: str, offers: MachineOffers, at: float) -> None:
        """Write the machines that decisions are chosen from for OFFERS_USED seconds; of more than a
        row takes, the cheapest. name: see PodFits."""
        pieces = pack(encode(offers))
        while len(pieces) > 1 and offers.machines:
            cheapest = offers.machines[: len(offers.machines) // 2]
            offers = msgspec.structs.replace(offers, machines=cheapest)
            pieces = pack(encode(offers))
        expires_at = int(at + OFFERS_USED + self._kept)
        row = JournalRow(cluster, f"{OFFERS}{name}", blob=pieces[0], expires_at=expires_at)
        self._table.write(self._table.put(row))

    def offers(self, cluster: str, name: str) -> MachineOffers | None:
        """Return the machines of this name, None if they are not stored. Raises RowUnreadable."""
        item = f"{OFFERS}{name}"
        row = self._table.get(JournalRow, cluster, item)
        if row is None:
            return None
        with readable(cluster, item):
            return decode(unpack((row.blob,)), MachineOffers)

    def recent(
        self, cluster: str, limit: int = 50, *, before: float | None = None
    ) -> tuple[JournalEntry, ...]:
        """Return the newest entries, newest first, without expired ones. One that cannot be read
        has the kind UNREADABLE.

        before: epoch seconds; return only earlier entries, to the microsecond. The last entry's
        `at` gives the next page.
        """
        below = "" if before is None else _first_at(max(before, 0.0))
        oldest = self._clock() - self._kept
        raws = self._table.query(cluster, JOURNAL, newest_first=True, limit=limit, below=below)
        entries = map(_entry, raws)
        return tuple(entry for entry in entries if entry.at > oldest)

    def at(self, cluster: str, at: float) -> tuple[JournalEntry, ...]:
        """Return the entries of this instant (epoch seconds), to the microsecond. One read."""
        return tuple(map(_entry, self._table.query(cluster, f"{_first_at(at)}#")))

    # --- counters

    def ledger(self, cluster: str) -> CounterTotals:
        """Return the current counters; none where nothing was written yet. One read."""
        raw = self._table.find(cluster, COUNTERS)
        return _counters(raw) if raw is not None else CounterTotals()

    def ledgers(self, clusters: Sequence[str]) -> dict[str, CounterTotals | StoreError]:
        """Return the counters of each of these clusters that has some, or why they cannot be read;
        one read for a hundred of them."""
        rows = self._table.get_many([(cluster, COUNTERS) for cluster in clusters])
        return {
            cluster: value_or_error(partial(_counters, raw)) for (cluster, _), raw in rows.items()
        }

    def count(self, cluster: str, counts: Mapping[str, float]) -> None:
        """Add to counters; concurrent calls are safe. Use only names from a fixed vocabulary,
        because each is stored permanently. A write whose response was lost may be counted twice."""
        self._table.write(self._table.update(cluster, COUNTERS, _additions(counts)))

    def tell(
        self, cluster: str, counts: Mapping[str, float], state: bytes, *, expected: str
    ) -> bool:
        """Add to counters and replace the state, in one write; return False, with nothing
        written, if it has changed.

        expected: the version that was read. Returns True if a first attempt succeeded and
        only its response was lost.
        """
        version = fingerprint(state)
        still_is_as_read = (
            CountersRow.version == expected if expected else CountersRow.version.does_not_exist()
        )
        actions = [
            *_additions(counts),
            CountersRow.told.set(state),
            CountersRow.version.set(version),
        ]
        try:
            self._table.write(self._table.update(cluster, COUNTERS, actions, still_is_as_read))
        except ConditionFailed as refused:
            return _counters(refused.old).version == version
        return True


def _additions(counts: Mapping[str, float]) -> list[Action]:
    # As a path of one segment, because a dot may be part of a name.
    return [Path([COUNT + name]).add(counts[name]) for name in sorted(counts)]


def _numbers(raw: Raw, prefix: str) -> dict[str, float]:
    """Return the numbers in the attributes that begin with the prefix, by the rest of their
    name."""
    return {
        name.removeprefix(prefix): float(value["N"])
        for name, value in raw.items()
        if name.startswith(prefix) and "N" in value
    }


def _counters(raw: Raw) -> CounterTotals:
    row = row_of(CountersRow, raw)
    return CounterTotals(_numbers(raw, COUNT), row.told or b"", row.version or "")


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
    """Return a key that sorts before the items of all entries of this instant and
    after those of earlier ones."""
    return f"{JOURNAL}{round(at * 1e6):020d}"


class GaugeRings:
    """A cluster's numbers of the last 14 days (store/gauge_ring.py), and the overview of its groups
    and nodes (model/overview.py), for people.

    Every five minutes a pass reads one row. It writes that row only if the stored point does not
    stand for the new one, the row of the hours once an hour, and the overview only if it has
    changed, because a quiet cluster should cost next to nothing. A pass that decides anew stores
    the overview, too, so that both are of one time. Passes of a cluster follow each other, so a
    lost point is the worst that two writers can cause.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def add(
        self,
        cluster: str,
        point: GaugePoint,
        overview: ClusterOverview | None = None,
        *,
        seen: float,
        extremes: Extremes = NO_EXTREMES,
    ) -> None:
        """Store a point, and the overview. seen: when the last point was made, stored or not (epoch
        seconds; 0.0: unknown). extremes: of the passes since then, for that last point. Raises
        StoreError."""
        row = self._row(GaugesRow, cluster, GAUGES) or GaugesRow(cluster, GAUGES, blob=b"")
        points = unpacked(row.blob)
        has_overview = self._wrote_overview(row, overview, point.at)
        if not has_overview and not is_due(points, point, seen, extremes):
            return
        points = with_extremes(continued(points, seen), seen, extremes)
        if points and points[-1].at // HOUR < point.at // HOUR:
            old = self._row(GaugesRow, cluster, HOURS)
            hours = hourly(unpacked(old.blob) if old is not None else (), points, point.at)
            self._put(GaugesRow(cluster, HOURS, blob=packed(hours)), point.at)
        row.blob = packed(added(points, point))
        self._put(row, point.at)

    def add_overview(self, cluster: str, overview: ClusterOverview, now: float) -> None:
        """Store the overview without a point, if it has changed. Raises StoreError."""
        row = self._row(GaugesRow, cluster, GAUGES) or GaugesRow(cluster, GAUGES, blob=b"")
        if self._wrote_overview(row, overview, now):
            self._put(row, now)

    def _wrote_overview(self, row: GaugesRow, overview: ClusterOverview | None, now: float) -> bool:
        """Write an overview that must be stored, and note it in the row. Returns whether it was."""
        prints = _overview_prints(overview, row, now)
        if overview is None or not prints:
            return False
        blob = _packed_overview(overview)
        self._put(OverviewRow(row.cluster, OVERVIEW, blob=blob), now)
        row.overview = prints
        row.overview_at = now
        return True

    def overview(self, cluster: str) -> ClusterOverview:
        """Return the overview, an empty one where there is none. Raises StoreError."""
        row = self._row(OverviewRow, cluster, OVERVIEW)
        return unpacked_overview(row.blob) if row is not None else ClusterOverview()

    def _row(self, model: type[R], cluster: str, item: str) -> R | None:
        """Return a row; None for one that cannot be read, too, which the next write replaces."""
        with suppress(RowUnreadable):
            return self._table.get(model, cluster, item, consistent=False)
        return None

    def _put(self, row: GaugesRow | OverviewRow, at: float) -> None:
        row.expires_at = int(at) + _GAUGES_KEPT
        self._table.write(self._table.put(row))


def _overview_prints(overview: ClusterOverview | None, row: GaugesRow, now: float) -> str:
    """Return the fingerprints of an overview that must be stored, "" for one that need not be: of
    what matters at once, and of all of it, which matters after half an hour. A large overview is
    written the less often, the larger it is."""
    age = now - (row.overview_at or 0.0)
    if overview is None or 0.0 <= age < EVERY * len(overview.nodes) / _NODES_PER_WRITE:
        return ""
    prints = f"{fingerprint(encode(overview.coarse))} {fingerprint(encode(overview.timeless))}"
    if prints == row.overview:
        return ""
    same = prints.partition(" ")[0] == (row.overview or "").partition(" ")[0]
    return "" if same and 0.0 <= age < _UNCHANGED else prints


def _packed_overview(overview: ClusterOverview) -> bytes:
    """Return the form that is stored, with fewer nodes where all of them are more than a row
    takes, or without the bill."""
    pieces = pack(encode(overview))
    while len(pieces) > 1 and overview.nodes:
        nodes = overview.nodes[: len(overview.nodes) // 2]
        more = overview.more_nodes + len(overview.nodes) - len(nodes)
        overview = msgspec.structs.replace(overview, nodes=nodes, more_nodes=more)
        pieces = pack(encode(overview))
    if len(pieces) > 1:
        pieces = pack(encode(msgspec.structs.replace(overview, bill=None)))
    return pieces[0] if len(pieces) == 1 else pack(encode(ClusterOverview(overview.at)))[0]


def unpacked_overview(data: bytes) -> ClusterOverview:
    """Return an overview from its stored form; an empty one for anything that is not one:
    people still see the rest."""
    try:
        return decode(unpack((data,)), ClusterOverview)
    except NOT_DECODED:
        return ClusterOverview()


class NoticeRows:
    """The state of a cluster's notifications (notify/notices.py), among them the messages that are
    to be sent; opaque here.

    The tick alone writes the row. A write is based on the version that was read, so of two ticks at
    the same time one writes, and the other one leaves the cluster to it.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def load(self, cluster: str) -> tuple[bytes, str]:
        """Return the content, b"" where there is none, and its version. Raises StoreError."""
        row = self._table.get(NoticesRow, cluster, NOTICES)
        if row is None or row.blob is None:
            return b"", ""
        with readable(cluster, NOTICES):
            return unpack((row.blob,)), row.version or ""

    def save(self, cluster: str, data: bytes, expected: str) -> str:
        """Replace the content that has the version `expected`, and return the new version; "" where
        another tick was faster. Raises StoreError."""
        version = fingerprint(data)
        as_read = (
            NoticesRow.version == expected if expected else NoticesRow.version.does_not_exist()
        )
        change: list[Action] = [NoticesRow.blob.set(pack(data)[0]), NoticesRow.version.set(version)]
        try:
            self._table.write(self._table.update(cluster, NOTICES, change, as_read))
        except ConditionFailed as refused:
            return version if refused.old.get("version", {}).get("S") == version else ""
        return version


class ShadowRows:
    """The comparison of a cluster in mode shadow with the autoscaler that acts in it: one row of
    the passes, and one row of the operators, so that an operator neither waits for a pass nor loses
    to one. Methods raise StoreError.

    The comparison's types are imported by its methods, because only clusters
    in mode shadow need them.
    """

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def load(self, cluster: str) -> Ledger | None:
        """Return the comparison; None where there is none, or none that can be read: it
        then begins anew. One read."""
        from chalicelib.shadow.records import Ledger

        try:
            row = self._table.get(ShadowRow, cluster, SHADOW)
            if row is None or (row.expires_at or 0) <= self._clock():
                return None
            with readable(cluster, SHADOW):
                return decode(unpack((row.blob,)), Ledger)
        except RowUnreadable:
            return None

    def save(self, cluster: str, ledger: Ledger, token: int) -> None:
        """Replace the comparison, unless a later holder of the lease has written it.
        token: the lease's. One write."""
        blob = next(
            pieces[0] for pieces in map(pack, map(encode, _smaller(ledger))) if len(pieces) == 1
        )
        row = ShadowRow(
            cluster, SHADOW, blob=blob, token=token, expires_at=self._expiry(self._clock())
        )
        try:
            self._table.write(
                self._table.put(row, ShadowRow.token.does_not_exist() | (ShadowRow.token <= token))
            )
        except ConditionFailed:
            return

    def accept(self, cluster: str, name: str, at: float) -> None:
        """Record that an operator has looked at a result (its id), or at all
        results of a node until now."""
        actions = [Path([_ACCEPTED + name]).set(at), RowKey.expires_at.set(self._expiry(at))]
        self._table.write(self._table.update(cluster, SHADOW_ACCEPTED, actions))

    def accepted(self, cluster: str) -> dict[str, float]:
        """Return node or id -> when it was accepted."""
        raws = self._table.get_many([(cluster, SHADOW_ACCEPTED)])
        return _numbers(raws.get((cluster, SHADOW_ACCEPTED), {}), _ACCEPTED)

    @staticmethod
    def _expiry(now: float) -> int:
        from chalicelib.shadow.records import KEPT as KEPT_RESULTS

        return int(now + KEPT_RESULTS)


def _smaller(ledger: Ledger) -> Iterator[Ledger]:
    """Yield the comparison, and smaller ones for a cluster whose row would be too large;
    the last one always fits."""
    replace = msgspec.structs.replace
    yield ledger
    yield replace(ledger, matches=ledger.matches[-200:])
    short = replace(ledger, matches=(), seen=replace(ledger.seen, soft={}, refusals={}))
    yield short
    empty = type(ledger)(ledger.first, replace(short.seen, nodes={}, targets={}))
    yield replace(empty, days=ledger.days)
    yield replace(empty, first=ledger.seen.at)
