"""When a cluster's last pass was, and whether a message for the next one is already under way.

A slow pass must not accumulate messages, and a lost message must not stop a cluster. A message is therefore announced
here before it is sent, and the announcement expires by itself:

    tick: mark_queued(until) ► True      tick: mark_queued ► False       until
    ──┬──────────────────────────────────────┬─────────────────────────────┬──────────►
      │ message sent                         │ not sent twice              │ lost: may be sent again
                  │ message arrives: leases.acquire removes the marker

Both facts are in the lease's row: acquiring and releasing the lease write them as well (leases.py), so that they cost
an idle pass nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from chalicelib.model.gauge_ring import GaugePoint, unpacked
from chalicelib.model.pass_footprint import PassMemory
from chalicelib.store import carry_over_rows, failure_streak, pass_footprint
from chalicelib.store.errors import StoreError
from chalicelib.store.failure_streak import PassFailure
from chalicelib.store.table_client import ConditionFailed, Raw, Table, readable, row_of, value_or_error
from chalicelib.store.tables import GAUGES, LEASE, LEFT, GaugesRow, LeaseRow, LeftRow


class ScanState(msgspec.Struct, frozen=True):
    """A cluster's scan state. Instants in epoch seconds; 0.0: never, or not. last_pass: of any pass that ended;
    last_success: of one that made a decision, 0.0 also where only an earlier version has made passes. memory: memory
    use of passes."""

    last_pass: float = 0.0
    queued_until: float = 0.0
    lease_until: float = 0.0
    last_success: float = 0.0
    failure: PassFailure | None = None
    memory: PassMemory = PassMemory()


class Passed(msgspec.Struct, frozen=True):
    """The last pass for display: its instant (epoch seconds, 0.0: none yet) and the bytes of record/carry_over.py,
    empty where it has none. state: all of the scan state. points: of the charts, where they were requested."""

    last_pass: float = 0.0
    left: bytes = b""
    state: ScanState = ScanState()
    points: tuple[GaugePoint, ...] = ()


class ScanStates:
    """Markers of queued messages and instants of passes."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def due(self, cluster: str) -> ScanState:
        """Return a cluster's state for `ScanState.is_due`."""
        raw = self._table.find(cluster, LEASE)
        return _state(raw) if raw is not None else ScanState()

    def due_by(self, clusters: Sequence[str]) -> dict[str, ScanState | StoreError]:
        """Return the same for each of many clusters, or why it cannot be read; one read for a hundred of them."""
        raws = self._table.get_many([(cluster, LEASE) for cluster in clusters])
        found: dict[str, ScanState | StoreError] = {cluster: ScanState() for cluster in clusters}
        return found | {cluster: value_or_error(partial(_state, raw)) for (cluster, _), raw in raws.items()}

    def passed_by(self, clusters: Sequence[str]) -> dict[str, Passed | StoreError]:
        """Return the last pass of each of these clusters, or why it cannot be read; one read for fifty of them. Those
        without a pass are omitted."""
        raws = self._table.get_many([(cluster, item) for cluster in clusters for item in (LEASE, LEFT)])
        return {
            cluster: value_or_error(partial(_passed, raws, cluster)) for cluster in clusters if (cluster, LEASE) in raws
        }

    def last(self, cluster: str) -> Passed | None:
        """Return the last pass of one cluster, None where there is none. Raises StoreError."""
        raws = self._table.get_many([(cluster, item) for item in (LEASE, LEFT)])
        return _passed(raws, cluster) if (cluster, LEASE) in raws else None

    def shown(self, cluster: str) -> Passed:
        """Return the last pass of one cluster with the points of its charts, in one read."""
        raws = self._table.get_many([(cluster, LEASE), (cluster, LEFT), (cluster, GAUGES)])
        return _passed(raws, cluster) if (cluster, LEASE) in raws else Passed()

    def mark_queued(self, cluster: str, until: float) -> bool:
        """Announce a message. True: send it. False: one is under way already, until its own marker expires."""
        none_is_announced = LeaseRow.queued_until.does_not_exist()
        # Announced, but overdue: the message is lost.
        the_announced_is_lost = LeaseRow.queued_until < self._clock()
        mark = self._table.update(
            cluster, LEASE, [LeaseRow.queued_until.set(until)], none_is_announced | the_announced_is_lost
        )
        try:
            self._table.write(mark)
        except ConditionFailed:
            return False
        return True

    def clear_queued(self, cluster: str, marker: float | None = None) -> None:
        """Remove an announcement, e.g. when sending failed. marker: only if it is the one made with that `until`."""
        it_is_that_one = LeaseRow.queued_until == marker if marker is not None else None
        try:
            self._table.write(self._table.update(cluster, LEASE, [LeaseRow.queued_until.remove()], it_is_that_one))
        except ConditionFailed:
            return

    def passed(self, cluster: str, at: float) -> None:
        """Record a pass that was made without releasing a lease; `leases.release` records it itself."""
        self._table.write(self._table.update(cluster, LEASE, [LeaseRow.last_pass.set(at)]))


def _state(raw: Raw) -> ScanState:
    row = row_of(LeaseRow, raw)
    with readable(row.cluster, row.item):
        return ScanState(
            row.last_pass or 0.0,
            row.queued_until or 0.0,
            row.until or 0.0,
            row.last_success or 0.0,
            failure_streak.read(row),
            pass_footprint.read(row),
        )


def _passed(raws: Mapping[tuple[str, str], Raw], cluster: str) -> Passed:
    lease, left, points = (raws.get((cluster, item)) for item in (LEASE, LEFT, GAUGES))
    state, row = _state(lease or {}), row_of(LeaseRow, lease or {})
    apart = row_of(LeftRow, left).left or b"" if left is not None else b""
    return Passed(
        state.last_pass,
        carry_over_rows.whole(row.left or b"", apart),
        state,
        unpacked(row_of(GaugesRow, points).blob) if points is not None else (),
    )
