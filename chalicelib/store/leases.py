"""A lease per cluster that admits one reconcile at a time, and a fencing token that invalidates an overtaken one.

A lease alone does not protect: its holder may be suspended past the end and continue unaware. Every take-over therefore
increments the token, and every save checks the token in its own transaction (memory.py). The token is never reset, not
even when the lease is released.

    A acquires (token 7)          A's time is up        B acquires (token 8)
    ──┬───────────────────────────────┬──────────────────────┬───────────────────────►
      │ others: LeaseHeld(A, until)   │ A may still renew    │ A's saves: LeaseLost
                                        or save: no other
                                        pass has acted since

Times are compared in the conditions. DynamoDB's own expiry is not used for leases, because it deletes hours late.

A pass always reads this row when it begins and writes it when it ends. Data for the next pass (the digest of its
decision, the reported events, its gauges) is therefore stored here as well and costs an idle pass neither a read nor a
write. Only the holder writes it, under the same condition as all its other writes.

DynamoDB charges a write by the whole row, and this row is written three times a minute. The carried-over data is
therefore stored here only while the row stays within one unit of 1 KB; the rest has a row of its own
(carry_over_rows.py).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.update import Action

from chalicelib.model.pass_footprint import PassMemory
from chalicelib.store import carry_over_rows, failure_streak, pass_footprint
from chalicelib.store.errors import LeaseHeld, LeaseLost, StoreError
from chalicelib.store.failure_streak import PassFailure
from chalicelib.store.table_client import ConditionFailed, Table, Write, row_of
from chalicelib.store.tables import LEASE, LeaseRow


class Lease(msgspec.Struct, frozen=True):
    """The right to reconcile one cluster until that instant (epoch seconds). token: the fencing token.

    decision: the digest of the last decision that is in the journal. left: what the last pass carried over, opaque
    here. failure: of the passes before; None where the last one succeeded. apart: the content of the row of
    carry_over_rows.py, None where it was not read. memory: memory use of passes; this one is counted in `unended`.
    """

    cluster: str
    owner: str
    token: int
    until: float
    decision: str = ""
    left: bytes = b""
    failure: PassFailure | None = None
    apart: bytes | None = None
    memory: PassMemory = PassMemory()


class Leases:
    """Acquires, renews and releases leases."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def acquire(self, cluster: str, owner: str, ttl: float) -> Lease:
        """Acquire the lease for ttl seconds; raises LeaseHeld.

        owner must be new for every attempt (an invocation's request id), because it identifies a write whose response
        was lost. The same write removes the queued marker (scan_state.py): its message has arrived, and later changes
        need a new one.
        """
        now = self._clock()
        # The lease is free: never acquired, or released.
        nobody_has_it = LeaseRow.owner.does_not_exist()
        # The holder did not renew in time: it died, or is suspended.
        time_is_up = LeaseRow.until < now
        take = self._table.update(
            cluster,
            LEASE,
            [
                LeaseRow.owner.set(owner),
                LeaseRow.until.set(now + ttl),
                LeaseRow.token.add(1),
                LeaseRow.queued_until.remove(),
                pass_footprint.begins(),
            ],
            nobody_has_it | time_is_up,
        )
        try:
            row = row_of(LeaseRow, self._table.write(take))
        except ConditionFailed as refused:
            row = row_of(LeaseRow, refused.old)
            if row.owner != owner:
                raise LeaseHeld(row.owner or "", row.until or 0.0) from None
            # The owner is this attempt: the first try succeeded and only its response was lost.
        inside = row.left or b""
        apart = carry_over_rows.read(self._table, cluster) if carry_over_rows.needs_both(inside) else None
        return Lease(
            cluster,
            owner,
            int(row.token),
            float(row.until or 0.0),
            row.decision or "",
            carry_over_rows.whole(inside, apart or b""),
            failure_streak.read(row),
            apart,
            pass_footprint.read(row),
        )

    def release(
        self,
        lease: Lease,
        *,
        passed_at: float | None = None,
        decision: str | None = None,
        left: bytes | None = None,
        succeeded: bool = False,
        failure: PassFailure | None = None,
        memory: PassMemory | None = None,
        ended: bool = True,
    ) -> bool:
        """Release the lease; return False, with nothing written, if it was taken over in the meantime.

        passed_at: the instant of the pass that was completed under it, stored with the same write (scan_state.py).
        decision, left: carried over to the next pass; None: keep the stored values. succeeded: the pass made a
        decision; failure: the pass failed, with these details; neither: keep the stored state. memory: the memory use
        of passes as known now; None: keep the stored values. ended: False where another function is to make the pass,
        which then still counts as begun.
        """
        actions: list[Action] = [LeaseRow.owner.remove(), LeaseRow.until.remove()]
        if ended:
            actions.extend(pass_footprint.ends(lease.memory, memory))
        if passed_at is not None:
            actions.append(LeaseRow.last_pass.set(passed_at))
        if decision is not None and decision != lease.decision:
            actions.append(LeaseRow.decision.set(decision))
        if left is not None and left != lease.left:
            actions += self._leave(lease, left)
        if succeeded and passed_at is not None:
            actions.append(LeaseRow.last_success.set(passed_at))
        if succeeded and lease.failure is not None:
            actions.extend(failure_streak.clears())
        if failure is not None:
            actions.extend(failure_streak.writes(failure))
        try:
            self._table.write(self._table.update(lease.cluster, LEASE, actions, _is_in_force(lease)))
        except ConditionFailed:
            return False
        return True

    def _leave(self, lease: Lease, left: bytes) -> list[Action]:
        """Write the separate row if its content has changed; return the actions for this row."""
        inside, apart = carry_over_rows.stored(left)
        if apart is not None and apart != lease.apart:
            try:
                carry_over_rows.write(self._table, lease.cluster, apart, lease.token)
            except StoreError:
                return []  # no decision depends on carried-over data, and the lease must be released in any case
        if inside:
            return [LeaseRow.left.set(inside)]
        # A lease whose data came from the separate row alone has none in this row.
        return [] if lease.apart is not None and carry_over_rows.parts(lease.left) is None else [LeaseRow.left.remove()]


def fence(table: Table, lease: Lease) -> Write:
    """Return the condition check that every transaction of a reconcile must include."""
    return table.check(lease.cluster, LEASE, _is_in_force(lease))


def check_in_force(table: Table, lease: Lease) -> None:
    """Make the same check without a write; raises LeaseLost."""
    row = table.get(LeaseRow, lease.cluster, LEASE)
    if row is None or int(row.token) != lease.token or row.owner != lease.owner:
        raise LeaseLost(lease.cluster, lease.token)


def _is_in_force(lease: Lease) -> Condition:
    # The lease was not taken over since. As long as this is true, it does no harm that it may have expired.
    token_is_the_newest = LeaseRow.token == lease.token
    # The lease was not released: a pass that ended must not write any more.
    owner_has_it = LeaseRow.owner == lease.owner
    both: Condition = token_is_the_newest & owner_has_it
    return both
