"""One reconcile per cluster at a time, and a number that tells an overtaken one from the one in force.

A lease alone does not protect: its holder may sleep through the end and wake up believing. So every take-over makes the
token one larger, and every save checks the token in its own transaction (memory.py). The token is never reset, not even
when the lease is given back.

    A acquires (token 7)          A's time is up        B acquires (token 8)
    ──┬───────────────────────────────┬──────────────────────┬───────────────────────►
      │ others: LeaseHeld(A, until)   │ A may still renew    │ A's saves: Fenced
                                        or save: nobody has acted since

Times are compared in the conditions. DynamoDB's own expiry is not used for leases: it deletes hours late.

A pass reads this row when it begins and writes it when it ends, whatever else it does. So what a pass leaves to the
next (the digest of its decision, what it told, its gauges) lies here as well and costs a quiet pass neither a read nor
a write. Only the holder writes it, under the same condition as everything else of his.

DynamoDB charges a write by the whole row, and this row is written three times a minute. So what a pass leaves lies here
only while the row stays within one unit of 1 KB; the rest has a row of its own (left_rows.py).
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
from chalicelib.store.table_client import ConditionFailed, Table, Write
from chalicelib.store.tables import LEASE, LeaseRow


class Lease(msgspec.Struct, frozen=True):
    """The right to reconcile one cluster until that instant (epoch seconds). token: the fencing token.

    decision: the digest of the last decision that is in the journal. left: what the last pass left, opaque here.
    failure: of the passes before; None where the last one succeeded. apart: what the row of left_rows.py had, None
    where it was not read. memory: what passes have taken; this one is counted in `unended`.
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
    """Taking, keeping and giving back."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def acquire(self, cluster: str, owner: str, ttl: float) -> Lease:
        """Take the lease for ttl seconds; raises LeaseHeld.

        owner must be new for every attempt (an invocation's request id): it is how a lost answer is recognised.
        The queued marker goes with the same write (schedule.py): the message it stood for has arrived, and what
        happens from now on deserves another.
        """
        now = self._clock()
        # Nobody has it: never taken, or given back.
        nobody_has_it = LeaseRow.owner.does_not_exist()
        # Somebody has it, but did not renew in time: died, or sleeps.
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
            row = LeaseRow.from_raw_data(self._table.write(take))
        except ConditionFailed as refused:
            row = LeaseRow.from_raw_data(refused.old)
            if row.owner != owner:
                raise LeaseHeld(row.owner or "", row.until or 0.0) from None
            # Our own name: the first try got through and only its answer was lost.
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
        """Give it back; False, and nothing done, if it was taken over meanwhile.

        passed_at: the instant of the pass that was completed under it, stored with the same write (schedule.py).
        decision, left: what the pass leaves to the next; None: what is there stays. succeeded: it came to a decision;
        failure: it failed, and this is what is known of it; neither of the two: what is there stays. memory: what is
        known of the memory that it took; None: what is there stays. ended: False where another function is to make the
        pass, which then still counts as begun.
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
        """Write into the row of its own what lies there and has changed; what is to be done in this one."""
        inside, apart = carry_over_rows.stored(left)
        if apart is not None and apart != lease.apart:
            try:
                carry_over_rows.write(self._table, lease.cluster, apart, lease.token)
            except StoreError:
                return []  # nothing is decided by what is left, and the lease must be given back all the same
        if inside:
            return [LeaseRow.left.set(inside)]
        # A lease whose left came from the other row alone has none in this one.
        return [] if lease.apart is not None and carry_over_rows.parts(lease.left) is None else [LeaseRow.left.remove()]


def fence(table: Table, lease: Lease) -> Write:
    """The check that belongs into every transaction that a reconcile writes."""
    return table.check(lease.cluster, LEASE, _is_in_force(lease))


def check_in_force(table: Table, lease: Lease) -> None:
    """The same check where there is nothing to write; raises Fenced."""
    row = table.get(LeaseRow, lease.cluster, LEASE)
    if row is None or int(row.token) != lease.token or row.owner != lease.owner:
        raise LeaseLost(lease.cluster, lease.token)


def _is_in_force(lease: Lease) -> Condition:
    # Nobody has taken it over since. That its time may be up does no harm as long as that is so.
    token_is_the_newest = LeaseRow.token == lease.token
    # It was not given back: a pass that ended does not write any more.
    owner_has_it = LeaseRow.owner == lease.owner
    both: Condition = token_is_the_newest & owner_has_it
    return both
