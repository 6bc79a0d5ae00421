"""How often a vendor's account may be called, as one budget that all functions draw from.

Why in the table and not in a queue's concurrency: one account serves many clusters, and both halves of the program call
it. Passes read there (the queue `reconcile`), executors read and write there (a queue per provider). No queue sees all
of these calls, so none can count them. The table does.

A budget is a token bucket kept as one number, the arrival (GCRA's theoretical arrival time): the instant at which the
bucket is full again. Each call moves it 1/rate later, and it may lie at most burst/rate ahead of the clock.

                   now            arrival            now + burst/rate
    ────────────────┼────────────────┼───────────────────────┼────────►
                    │ booked already │ may be booked at once │

Booking is one conditional write: `arrival = now + calls/rate` for an idle budget, `arrival += calls/rate` for one in
use. A refusal changes nothing and brings the row with it, so that a caller who has to wait need not read either.

Clocks differ, and go back. A clock that is behind waits for the difference, one that is ahead finds a fuller bucket:
in any time there are at most burst + rate · (time + largest difference) calls. What lies further ahead than an honest
clock can have put it is thrown away, so that no row stops a vendor for ever.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from pynamodb.expressions.condition import Condition

from chalicelib.store.errors import StoreError
from chalicelib.store.table_client import ConditionFailed, Raw, Table, Write
from chalicelib.store.tables import PACES, PaceRow

DIFFERENCE = 60.0  # seconds by which two honest clocks differ at most
LONGEST_HOLD = 3600.0
TIDY_AFTER = 3600  # seconds after its end that DynamoDB may delete a budget that nobody draws from
_SLOWEST = 1e-5  # calls per second; what is slower is a mistake and no pace
_SHORTEST_WAIT = 0.001
_TRIES = 4  # writes for one lot: two at contention, more only if others are as quick every time
_LONGEST_KEY = 900  # bytes; DynamoDB allows 1,024


class RateSettings(Protocol):
    """What providers/means.py calls a Pace: calls per second, and how many at once."""

    @property
    def key(self) -> str:
        """The account and the API, by a name that is no secret."""

    @property
    def rate(self) -> float:
        """Calls per second."""

    @property
    def burst(self) -> int:
        """Calls at once."""


class RateLimits:
    """providers/means.py's Pacer, over the table. Never raises: without a table there is no limit, for a vendor that
    refuses is better than nodes that nobody can ask for."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def take(self, pace: RateSettings, calls: int) -> float:
        """Seconds to wait before so many calls may be made; 0.0: now, and they are booked. A lot larger than the burst
        is given to a full bucket and paid for afterwards. A rate that is none sets no limit."""
        if calls <= 0 or not _SLOWEST <= pace.rate < math.inf:
            return 0.0
        try:
            return _Booking(self._table, pace, calls, self._clock()).run()
        except StoreError:
            return 0.0

    def hold(self, pace: RateSettings, seconds: float) -> None:
        """No calls for so long, an hour at most. A longer pause that is in force already stays."""
        if not seconds > 0:
            return
        now = self._clock()
        until = now + min(seconds, LONGEST_HOLD)
        ahead = pace.burst / pace.rate if pace.rate >= _SLOWEST else 0.0
        actions = [PaceRow.held_until.set(until), PaceRow.expires_at.set(int(until + ahead) + TIDY_AFTER)]
        with suppress(StoreError):  # Refused among them: another's pause is longer
            self._table.write(self._table.update(PACES, _item(pace), actions, _is_not_held(until, now)))


class _Booking:
    """One attempt to book a lot, at one instant."""

    def __init__(self, table: Table, pace: RateSettings, calls: int, now: float) -> None:
        self._table, self._item, self._now = table, _item(pace), now
        self._cost = _in_microseconds(calls / pace.rate)
        self._full = max(self._cost, _in_microseconds(pace.burst / pace.rate))  # how far ahead may be booked

    def run(self) -> float:
        """See Paces.take. Raises StoreError."""
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
        return self._cost  # others are quicker each time: their calls count

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
        """The wait, after a row that no honest clock wrote was replaced by an empty bucket of this clock."""
        it_is_still_there = PaceRow.arrival == arrival
        actions = [PaceRow.arrival.set(self._now + self._full), PaceRow.expires_at.set(self._tidy_at())]
        with suppress(ConditionFailed):  # somebody else has put it right
            self._table.write(self._table.update(PACES, self._item, actions, it_is_still_there))
        return self._cost

    def _is_free(self) -> Condition:
        return _is_not_held(self._now, self._now)

    def _tidy_at(self) -> int:
        return int(self._now + self._full) + TIDY_AFTER


def _is_not_held(until: float, now: float) -> Condition:
    """No pause lasts beyond that instant, or only one that nobody can have asked for."""
    no_pause = PaceRow.held_until.does_not_exist()
    it_is_over = PaceRow.held_until <= until
    it_is_rubbish = PaceRow.held_until > now + LONGEST_HOLD + DIFFERENCE
    free: Condition = no_pause | it_is_over | it_is_rubbish
    return free


def _instants(old: Raw) -> tuple[float, float]:
    """held_until and arrival of the row that was found, 0.0 for what it has not."""
    if not old:
        return 0.0, 0.0
    row = PaceRow.from_raw_data(old)
    return row.held_until or 0.0, row.arrival or 0.0


def _in_microseconds(seconds: float) -> float:
    """Rounded up: sums stay short, and never more than the rate is granted."""
    return math.ceil(seconds * 1e6) / 1e6


def _item(pace: RateSettings) -> str:
    """The key as it is, for people who look into the table; a digest where it is too long for one."""
    if len(pace.key.encode()) <= _LONGEST_KEY:
        return pace.key
    return hashlib.sha256(pace.key.encode()).hexdigest()
