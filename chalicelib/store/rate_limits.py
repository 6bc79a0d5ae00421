"""Rate limits of vendor accounts, as one budget that all functions share.

The budget is in the table and not in a queue's concurrency, because one account serves many clusters and is called by
both halves of the program. Passes read there (queue `reconcile`), executors read and write there (a queue per
provider). No queue sees all of these calls, so none can count them. The table does.

A budget is a token bucket stored as one number, the arrival (GCRA's theoretical arrival time): the instant at which the
bucket is full again. Each call moves it 1/rate later, and it may be at most burst/rate ahead of the clock.

                   now            arrival            now + burst/rate
    ────────────────┼────────────────┼───────────────────────┼────────►
                    │ booked already │ may be booked at once │

Booking is one conditional write: `arrival = now + calls/rate` for an idle budget, `arrival += calls/rate` for one in
use. A refusal changes nothing and returns the row, so that a caller who has to wait need not read it.

Clocks differ, and may be set back. A slow clock waits for the difference, a fast one finds a fuller bucket: in any time
there are at most burst + rate · (time + largest difference) calls. A value further ahead than a correct clock can have
set it is discarded, so that no row blocks a vendor permanently.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from pynamodb.expressions.condition import Condition

from chalicelib.store.errors import StoreError
from chalicelib.store.table_client import ConditionFailed, Raw, Table, Write, row_of
from chalicelib.store.tables import PACES, PaceRow

DIFFERENCE = 60.0  # seconds by which two correct clocks differ at most
LONGEST_HOLD = 3600.0
TIDY_AFTER = 3600  # seconds after its end that DynamoDB may delete an unused budget
_SLOWEST = 1e-5  # calls per second; a lower rate is a mistake
_SHORTEST_WAIT = 0.001
_TRIES = 4  # writes per booking: two under contention, more only if every one is outrun
_LONGEST_KEY = 900  # bytes; DynamoDB allows 1,024


class RateSettings(Protocol):
    """The settings of a rate limit in providers/services.py: calls per second, and how many at once."""

    @property
    def key(self) -> str:
        """Return the account and the API, under a name that is not secret."""

    @property
    def rate(self) -> float:
        """Return the calls per second."""

    @property
    def burst(self) -> int:
        """Return the calls at once."""


class RateLimits:
    """Implements the RateLimiter of providers/services.py on the table. Never raises: without a table there is no
    limit, because refusals by the vendor are better than no scale-up at all."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def take(self, rate: RateSettings, calls: int) -> float:
        """Return the seconds to wait before this many calls may be made; 0.0: now, and they are booked. More calls than
        the burst are granted to a full bucket and paid for afterwards. An invalid rate sets no limit."""
        if calls <= 0 or not _SLOWEST <= rate.rate < math.inf:
            return 0.0
        try:
            return _Booking(self._table, rate, calls, self._clock()).run()
        except StoreError:
            return 0.0

    def hold(self, rate: RateSettings, seconds: float) -> None:
        """Allow no calls for this many seconds, an hour at most. A longer pause already in force stays."""
        if not seconds > 0:
            return
        now = self._clock()
        until = now + min(seconds, LONGEST_HOLD)
        ahead = rate.burst / rate.rate if rate.rate >= _SLOWEST else 0.0
        actions = [PaceRow.held_until.set(until), PaceRow.expires_at.set(int(until + ahead) + TIDY_AFTER)]
        with suppress(StoreError):  # including ConditionFailed: a longer pause is in force
            self._table.write(self._table.update(PACES, _item(rate), actions, _is_not_held(until, now)))


class _Booking:
    """One attempt to book calls, at one instant."""

    def __init__(self, table: Table, rate: RateSettings, calls: int, now: float) -> None:
        self._table, self._item, self._now = table, _item(rate), now
        self._cost = _in_microseconds(calls / rate.rate)
        self._full = max(self._cost, _in_microseconds(rate.burst / rate.rate))  # how far ahead calls may be booked

    def run(self) -> float:
        """See RateLimits.take. Raises StoreError."""
        write = self._of_an_idle_one()
        for _ in range(_TRIES):
            try:
                self._table.write(write)
            except ConditionFailed as refused:
                held, arrival = _instants(refused.old)
                if self._now < held <= self._now + LONGEST_HOLD + DIFFERENCE:
                    return held - self._now
                if arrival > self._now + self._full + DIFFERENCE:
                    return self._emptied(arrival)
                wait = arrival + self._cost - self._full - self._now
                if wait > 0:
                    return max(wait, _SHORTEST_WAIT)
                write = self._of_one_in_use() if arrival > self._now else self._of_an_idle_one()
            else:
                return 0.0
        return self._cost  # other writers were faster each time: their calls count

    def _of_an_idle_one(self) -> Write:
        nobody_draws = PaceRow.arrival.does_not_exist() | (PaceRow.arrival <= self._now)
        actions = [PaceRow.arrival.set(self._now + self._cost), PaceRow.expires_at.set(self._tidy_at())]
        return self._table.update(PACES, self._item, actions, nobody_draws & self._is_free())

    def _of_one_in_use(self) -> Write:
        somebody_draws = PaceRow.arrival > self._now
        enough_is_left = PaceRow.arrival <= self._now + self._full - self._cost
        actions = [PaceRow.arrival.add(self._cost), PaceRow.expires_at.set(self._tidy_at())]
        return self._table.update(PACES, self._item, actions, somebody_draws & enough_is_left & self._is_free())

    def _emptied(self, arrival: float) -> float:
        """Return the wait after replacing a row that no correct clock wrote by an empty bucket of this clock."""
        it_is_still_there = PaceRow.arrival == arrival
        actions = [PaceRow.arrival.set(self._now + self._full), PaceRow.expires_at.set(self._tidy_at())]
        with suppress(ConditionFailed):  # another writer has corrected it
            self._table.write(self._table.update(PACES, self._item, actions, it_is_still_there))
        return self._cost

    def _is_free(self) -> Condition:
        return _is_not_held(self._now, self._now)

    def _tidy_at(self) -> int:
        return int(self._now + self._full) + TIDY_AFTER


def _is_not_held(until: float, now: float) -> Condition:
    """Return the condition that no pause lasts beyond that instant, except an impossibly long one."""
    no_pause = PaceRow.held_until.does_not_exist()
    it_is_over = PaceRow.held_until <= until
    it_is_rubbish = PaceRow.held_until > now + LONGEST_HOLD + DIFFERENCE
    free: Condition = no_pause | it_is_over | it_is_rubbish
    return free


def _instants(old: Raw) -> tuple[float, float]:
    """Return held_until and arrival of the row that was found, 0.0 for missing values."""
    if not old:
        return 0.0, 0.0
    row = row_of(PaceRow, old)
    return row.held_until or 0.0, row.arrival or 0.0


def _in_microseconds(seconds: float) -> float:
    """Round up to microseconds: sums stay short, and the rate is never exceeded."""
    return math.ceil(seconds * 1e6) / 1e6


def _item(rate: RateSettings) -> str:
    """Return the key as it is, so that the table is readable; a digest where it is too long."""
    if len(rate.key.encode()) <= _LONGEST_KEY:
        return rate.key
    return hashlib.sha256(rate.key.encode()).hexdigest()
