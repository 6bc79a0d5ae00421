"""The lease's row, one per cluster: who may reconcile, when the last pass was, and what
passes leave for the next one.

A lease admits one reconcile at a time. Its holder may be suspended past the end and continue
unaware, so every take-over increments the fencing token, and every save checks the token in its own
transaction (memory.py). The token is never reset, not even when the lease is released.

    A acquires (token 7)          A's time is up        B acquires (token 8)
    ──┬───────────────────────────────┬──────────────────────┬───────────────────────►
      │ others: LeaseHeld(A, until)   │ A may still renew    │ A's saves: LeaseLost
                                        or save: no other
                                        pass has acted since

Times are compared in the conditions; DynamoDB's own expiry deletes hours late.

A lease is short, so that a cluster whose pass was killed soon has another one. Its holder renews it
while it works (passes/lease_renewal.py). An end further ahead than any correct clock can have
set it counts as over: the clock of a holder that died may have been wrong, and the token makes it
harmless that it may still live.

A slow pass must not accumulate messages, and a lost message must not stop a cluster. A message for
a pass is therefore announced here before it is sent (`mark_queued`), and the announcement expires
by itself. Acquiring the lease removes it: the message has arrived.

A pass always reads this row when it begins and writes it when it ends. Data for the next pass (its
decision's digest, the streak of failed passes, memory use, reported events, gauges) is therefore
stored here and costs an idle pass nothing. All of it is optional: rows of earlier releases lack
some of it.

DynamoDB charges a write by the whole row, and this row is written twice a minute. Carried-over data
that changes with every pass is therefore stored here while the row stays within one unit of 1 KB;
the rest has a row of its own, which is written only when it changes. `join_carry_over` separates
the two parts. Where both rows have a value, this row takes precedence: a release before the other
row writes everything into this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from pynamodb.attributes import Attribute
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.update import Action

from chalicelib.model.overview import ClusterOverview
from chalicelib.store.errors import LeaseHeld, LeaseLost, RowUnreadable, StoreError
from chalicelib.store.gauge_ring import GaugePoint, continued, unpacked
from chalicelib.store.journal import unpacked_overview
from chalicelib.store.pass_footprint import PassMemory
from chalicelib.store.table_client import (
    ConditionFailed,
    Raw,
    Table,
    Write,
    readable,
    row_of,
    value_or_error,
)
from chalicelib.store.tables import (
    CARRY_OVER,
    GAUGES,
    HOURS,
    LEASE,
    OVERVIEW,
    CarryOverRow,
    GaugesRow,
    LeaseRow,
    OverviewRow,
)

LONGEST_TEXT = 300
"""Characters of an error's message that are kept."""
LARGEST_IN_LEASE_ROW = 512
"""Bytes of carried-over data in the lease's row. Its keys and its other attributes are 400 bytes at
most while passes succeed."""
LONGEST_LEASE = 900.0
"""Seconds of the longest lease that anything acquires (`outscaler uninstall`)."""
DIFFERENCE = 60.0
"""Seconds by which two correct clocks differ at most."""
_JOINED = b"\x02"  # no other encoding of the data begins with it
_DIGITS = 2
_FAILURE: tuple[Attribute[Any], ...] = (
    LeaseRow.failing_since,
    LeaseRow.error_at,
    LeaseRow.error_class,
    LeaseRow.error_text,
    LeaseRow.failures,
)


class PassFailure(msgspec.Struct, frozen=True):
    """Consecutive failed passes. cls, message: of the last one. since, at: when the first and the
    last of them began (epoch seconds). count: their number."""

    cls: str
    message: str
    since: float
    at: float
    count: int = 1

    @classmethod
    def after(
        cls, old_failure: PassFailure | None, error: str, message: str, at: float
    ) -> PassFailure:
        """Return the streak after one more failed pass. old_failure: the streak so far, None where
        the last pass succeeded. error: the class."""
        text = " ".join(message.split())[:LONGEST_TEXT]
        if old_failure is None:
            return cls(error, text, at, at)
        return cls(error, text, old_failure.since, at, old_failure.count + 1)


class Lease(msgspec.Struct, frozen=True):
    """The right to reconcile one cluster until that instant (epoch seconds).
    token: the fencing token.

    decision: the digest of the last decision that is in the journal. carry_over: of the last pass,
    opaque here. failure: of the passes before; None where the last one succeeded. separate: the
    content of the row for large carried-over data, None where it was not read. memory: memory use
    of passes; this one is counted in `unended`. last_success: when the last pass that made a
    decision began, 0.0 where none has.
    """

    cluster: str
    owner: str
    token: int
    until: float
    decision: str = ""
    carry_over: bytes = b""
    failure: PassFailure | None = None
    separate: bytes | None = None
    memory: PassMemory = PassMemory()
    last_success: float = 0.0


class Leases:
    """Acquires, renews and releases leases."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def acquire(self, cluster: str, owner: str, ttl: float) -> Lease:
        """Acquire the lease for ttl seconds; raises LeaseHeld.

        owner must be new for every attempt (an invocation's request id), because it identifies a
        write whose response was lost. The same write removes the queued marker: its message has
        arrived, and later changes need a new one.
        """
        now = self._clock()
        # The lease is free: never acquired, or released.
        nobody_has_it = LeaseRow.owner.does_not_exist()
        # The holder did not renew in time: it died, or is suspended.
        time_is_up = LeaseRow.until < now
        it_is_rubbish = LeaseRow.until > now + LONGEST_LEASE + DIFFERENCE
        actions = [
            LeaseRow.owner.set(owner),
            LeaseRow.until.set(now + ttl),
            LeaseRow.token.add(1),
            LeaseRow.queued_until.remove(),
            LeaseRow.unended.add(1),
        ]
        try:
            write = self._table.update(
                cluster, LEASE, actions, nobody_has_it | time_is_up | it_is_rubbish
            )
            row = row_of(LeaseRow, self._table.write(write))
        except ConditionFailed as refused:
            row = row_of(LeaseRow, refused.old)
            if row.owner != owner:
                raise LeaseHeld(row.owner or "", row.until or 0.0) from None
            # The owner is this attempt: the first try succeeded and only its response was lost.
        inside, separate = row.left or b"", None
        if not inside or inside.startswith(_JOINED):
            separate_row = self._table.get(CarryOverRow, cluster, CARRY_OVER)
            separate = (separate_row.left or b"") if separate_row is not None else b""
        return Lease(
            cluster,
            owner,
            int(row.token),
            float(row.until or 0.0),
            row.decision or "",
            _whole_carry_over(inside, separate or b""),
            _failure(row),
            separate,
            _memory(row),
            float(row.last_success or 0.0),
        )

    def renew(self, lease: Lease, ttl: float) -> Lease:
        """Return the lease with its end ttl seconds from now. Raises LeaseLost if it was taken over
        or released; an end that has passed does no harm as long as it was not."""
        until = self._clock() + ttl
        try:
            self._table.write(
                self._table.update(
                    lease.cluster, LEASE, [LeaseRow.until.set(until)], _is_in_force(lease)
                )
            )
        except ConditionFailed:
            raise LeaseLost(lease.cluster, lease.token) from None
        return msgspec.structs.replace(lease, until=until)

    def release(
        self,
        lease: Lease,
        *,
        passed_at: float | None = None,
        decision: str | None = None,
        carry_over: bytes | None = None,
        succeeded: bool = False,
        failure: PassFailure | None = None,
        memory: PassMemory | None = None,
        ended: bool = True,
    ) -> bool:
        """Release the lease; return False, with nothing written, if it was
        taken over in the meantime.

        passed_at: the instant of the pass that was completed under it. decision, carry_over: for
        the next pass; None: keep the stored values. succeeded: the pass made a decision; failure:
        the pass failed, with these details; the stored state stays without either. memory: the
        memory use of passes as known now; None: keep the stored values. ended: False where another
        function is to make the pass, which then still counts as begun.
        """
        actions: list[Action] = [LeaseRow.owner.remove(), LeaseRow.until.remove()]
        if ended:
            actions += _end_of_pass(lease.memory, memory)
        if passed_at is not None:
            actions.append(LeaseRow.last_pass.set(passed_at))
        if decision is not None and decision != lease.decision:
            actions.append(LeaseRow.decision.set(decision))
        if carry_over is not None and carry_over != lease.carry_over:
            actions += self._store_carry_over(lease, carry_over)
        if succeeded and passed_at is not None:
            actions.append(LeaseRow.last_success.set(passed_at))
        if succeeded and lease.failure is not None:
            actions.extend(attribute.remove() for attribute in _FAILURE)
        if failure is not None:
            values = (failure.since, failure.at, failure.cls, failure.message, failure.count)
            actions.extend(
                attribute.set(value) for attribute, value in zip(_FAILURE, values, strict=True)
            )
        try:
            self._table.write(
                self._table.update(lease.cluster, LEASE, actions, _is_in_force(lease))
            )
        except ConditionFailed:
            return False
        return True

    def _store_carry_over(self, lease: Lease, carry_over: bytes) -> list[Action]:
        """Write the separate row if its content has changed; return the
        actions for the lease's row."""
        parts = split_carry_over(carry_over)
        if parts is not None:
            inside, separate = _JOINED + parts[0], parts[1]
        elif len(carry_over) <= LARGEST_IN_LEASE_ROW:
            return (
                [LeaseRow.left.set(carry_over)] if carry_over else self._without_carry_over(lease)
            )
        else:
            inside, separate = b"", carry_over
        if separate != lease.separate:
            an_earlier_pass_wrote_it = CarryOverRow.token.does_not_exist() | (
                CarryOverRow.token <= lease.token
            )
            row = CarryOverRow(lease.cluster, CARRY_OVER, left=separate, token=lease.token)
            try:
                self._table.write(self._table.put(row, an_earlier_pass_wrote_it))
            except ConditionFailed:
                pass  # a later holder of the lease has written it
            except StoreError:
                # no decision depends on carried-over data, and the lease
                # must be released in any case
                return []
        return [LeaseRow.left.set(inside)] if inside else self._without_carry_over(lease)

    @staticmethod
    def _without_carry_over(lease: Lease) -> list[Action]:
        """A lease whose data came from the separate row alone has none in this row."""
        only_separate = lease.separate is not None and split_carry_over(lease.carry_over) is None
        return [] if only_separate else [LeaseRow.left.remove()]


def fence(table: Table, lease: Lease) -> Write:
    """Return the condition check that every transaction of a reconcile must include."""
    return table.check(lease.cluster, LEASE, _is_in_force(lease))


def check_in_force(table: Table, lease: Lease) -> None:
    """Make the same check without a write; raises LeaseLost."""
    row = table.get(LeaseRow, lease.cluster, LEASE)
    if row is None or int(row.token) != lease.token or row.owner != lease.owner:
        raise LeaseLost(lease.cluster, lease.token)


def _is_in_force(lease: Lease) -> Condition:
    # The lease was not taken over since. As long as this is true, it does no harm
    # that it may have expired.
    token_is_the_newest = LeaseRow.token == lease.token
    # The lease was not released: a pass that ended must not write any more.
    owner_has_it = LeaseRow.owner == lease.owner
    both: Condition = token_is_the_newest & owner_has_it
    return both


def _failure(row: LeaseRow) -> PassFailure | None:
    if not row.failing_since:
        return None
    since, at = float(row.failing_since), float(row.error_at or row.failing_since)
    return PassFailure(
        row.error_class or "", row.error_text or "", since, at, int(row.failures or 1)
    )


def _memory(row: LeaseRow) -> PassMemory:
    return PassMemory(
        int(row.peak or 0), int(row.size or 0), int(row.unended or 0), float(row.large_until or 0.0)
    )


def _end_of_pass(old_memory: PassMemory, new_memory: PassMemory | None) -> list[Action]:
    """Return the actions for a pass that has ended with this memory use; None: unchanged."""
    actions: list[Action] = [LeaseRow.unended.remove()]
    for name in ("peak", "size", "large_until") if new_memory is not None else ():
        attribute, new = getattr(LeaseRow, name), getattr(new_memory, name)
        if new != getattr(old_memory, name):
            actions.append(attribute.set(new) if new else attribute.remove())
    return actions


# --- carried-over data


def join_carry_over(often: bytes, seldom: bytes) -> bytes:
    """Join two parts into one value. often: data that changes with every pass, LARGEST_IN_LEASE_ROW
    bytes at most without the prefix; seldom: the rest."""
    return _JOINED + len(often).to_bytes(_DIGITS, "big") + often + seldom


def split_carry_over(carry_over: bytes) -> tuple[bytes, bytes] | None:
    """Return the two parts of a value that `join_carry_over` made; None for any other."""
    if not carry_over.startswith(_JOINED):
        return None
    start = len(_JOINED) + _DIGITS
    end = start + int.from_bytes(carry_over[len(_JOINED) : start], "big")
    return carry_over[start:end], carry_over[end:]


def _whole_carry_over(inside: bytes, separate: bytes) -> bytes:
    """Return the whole value from the content of the two rows."""
    if inside.startswith(_JOINED):
        return join_carry_over(inside.removeprefix(_JOINED), separate)
    return inside or separate


# --- when passes were


class ScanState(msgspec.Struct, frozen=True):
    """A cluster's scan state. Instants in epoch seconds; 0.0: never, or not. last_pass: of any pass
    that ended; last_success: of one that made a decision, 0.0 also where only an earlier version
    has made passes. memory: memory use of passes."""

    last_pass: float = 0.0
    queued_until: float = 0.0
    lease_until: float = 0.0
    last_success: float = 0.0
    failure: PassFailure | None = None
    memory: PassMemory = PassMemory()


class LastPass(msgspec.Struct, frozen=True):
    """The last pass for display. last_pass: its instant (epoch seconds, 0.0: none yet). carry_over:
    the bytes of journal/carry_over.py, empty where it has none. state: all of the scan state.
    points, hours, overview: of the charts (store/gauge_ring.py) and of groups and nodes
    (model/overview.py), where they were requested."""

    last_pass: float = 0.0
    carry_over: bytes = b""
    state: ScanState = ScanState()
    points: tuple[GaugePoint, ...] = ()
    hours: tuple[GaugePoint, ...] = ()
    overview: ClusterOverview = ClusterOverview()


class ScanStates:
    """Markers of queued messages and instants of passes."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def due(self, cluster: str) -> ScanState:
        """Return a cluster's state, which says whether a pass is due."""
        raw = self._table.find(cluster, LEASE)
        return _scan_state(raw) if raw is not None else ScanState()

    def due_by(self, clusters: Sequence[str]) -> dict[str, ScanState | StoreError]:
        """Return the same for each of many clusters, or why it cannot be read; one
        read for a hundred of them. A state may be a second old: the cluster then looks
        late, and its marker decides."""
        raws = self._table.get_many([(cluster, LEASE) for cluster in clusters], consistent=False)
        states: dict[str, ScanState | StoreError] = {cluster: ScanState() for cluster in clusters}
        return states | {
            cluster: value_or_error(partial(_scan_state, raw)) for (cluster, _), raw in raws.items()
        }

    def passed_by(self, clusters: Sequence[str]) -> dict[str, LastPass | StoreError]:
        """Return the last pass of each of these clusters, or why it cannot be read; one read for
        fifty of them. Those without a pass are omitted."""
        raws = self._table.get_many(
            [(cluster, item) for cluster in clusters for item in (LEASE, CARRY_OVER)]
        )
        return {
            cluster: value_or_error(partial(_last_pass, raws, cluster))
            for cluster in clusters
            if (cluster, LEASE) in raws
        }

    def last(self, cluster: str, *, points: bool = False) -> LastPass | None:
        """Return the last pass of one cluster, None where there is none; one read. points: with
        those of its charts, and with the overview. Raises StoreError."""
        items = (LEASE, CARRY_OVER, GAUGES, HOURS, OVERVIEW) if points else (LEASE, CARRY_OVER)
        raws = self._table.get_many([(cluster, item) for item in items])
        return _last_pass(raws, cluster) if (cluster, LEASE) in raws else None

    def mark_queued(self, cluster: str, until: float) -> bool:
        """Announce a message. True: send it. False: one is under way already,
        until its own marker expires."""
        none_is_announced = LeaseRow.queued_until.does_not_exist()
        # Announced, but overdue: the message is lost.
        the_announced_is_lost = LeaseRow.queued_until < self._clock()
        condition, marker = (
            none_is_announced | the_announced_is_lost,
            LeaseRow.queued_until.set(until),
        )
        try:
            self._table.write(self._table.update(cluster, LEASE, [marker], condition))
        except ConditionFailed:
            return False
        return True

    def clear_queued(self, cluster: str, marker: float | None = None) -> None:
        """Remove an announcement, e.g. when sending failed. marker: only if it is the
        one made with that `until`."""
        it_is_that_one = LeaseRow.queued_until == marker if marker is not None else None
        try:
            self._table.write(
                self._table.update(cluster, LEASE, [LeaseRow.queued_until.remove()], it_is_that_one)
            )
        except ConditionFailed:
            return

    def passed(self, cluster: str, at: float) -> None:
        """Record a pass that was made without releasing a lease;
        `Leases.release` records it itself."""
        self._table.write(self._table.update(cluster, LEASE, [LeaseRow.last_pass.set(at)]))


def _scan_state(raw: Raw) -> ScanState:
    row = row_of(LeaseRow, raw)
    with readable(row.cluster, row.item):
        return ScanState(
            row.last_pass or 0.0,
            row.queued_until or 0.0,
            row.until or 0.0,
            row.last_success or 0.0,
            _failure(row),
            _memory(row),
        )


def _last_pass(raws: Mapping[tuple[str, str], Raw], cluster: str) -> LastPass:
    items = (LEASE, CARRY_OVER, GAUGES, HOURS, OVERVIEW)
    lease, separate_row, points, hours, overview = (raws.get((cluster, item)) for item in items)
    state, row = _scan_state(lease or {}), row_of(LeaseRow, lease or {})
    separate = row_of(CarryOverRow, separate_row).left or b"" if separate_row is not None else b""
    return LastPass(
        state.last_pass,
        _whole_carry_over(row.left or b"", separate),
        state,
        continued(_points(points), state.last_success),
        _points(hours),
        unpacked_overview(_blob(OverviewRow, overview)),
    )


def _points(raw: Raw | None) -> tuple[GaugePoint, ...]:
    return unpacked(_blob(GaugesRow, raw))


def _blob(model: type[GaugesRow | OverviewRow], raw: Raw | None) -> bytes:
    """Return the content of a row for people; b"" for one that cannot be read:
    they still see the rest."""
    with suppress(RowUnreadable):
        return (row_of(model, raw).blob or b"") if raw is not None else b""
    return b""
