"""What all functions share about calls to vendors: the rate limits of
accounts, and cached responses.

One account serves many clusters, and both passes and executors call it, so no queue sees all of
its calls: its budget is in the table. A budget is a token bucket stored as one number, the arrival
(GCRA's theoretical arrival time): the instant at which the bucket is full again. Each call moves it
1/rate later, and it may be at most burst/rate ahead of the clock.

                   now            arrival            now + burst/rate
    ────────────────┼────────────────┼───────────────────────┼────────►
                    │ booked already │ may be booked at once │

A refused booking changes nothing and returns the row, so that a caller who has
to wait need not read it.

Those who share a budget may have different rates. The row holds the slowest of them with its burst,
for a while after its last use, and all book at that rate: with two rates the slower would find a
bucket that never has room for it, or the faster one that the slower has emptied for a minute.
Nobody books calls for more than LONGEST_BOOKING at once.

Clocks differ,
and may be set back: in any time there are at most burst + rate · (time + largest difference)
calls. A value further ahead than a correct clock can have set it is discarded, so that no row
blocks a vendor permanently.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from pynamodb.expressions.condition import Condition
from pynamodb.expressions.update import Action

from chalicelib.store.codec import PIECE
from chalicelib.store.errors import StoreError
from chalicelib.store.table_client import ConditionFailed, Table, Write, row_of
from chalicelib.store.tables import CACHE, RATE_LIMITS, CacheRow, RateLimitRow

DIFFERENCE = 60.0  # seconds by which two correct clocks differ at most
LONGEST_HOLD = 3600.0
# seconds after its end that DynamoDB may delete an unused budget, or a cached value
TIDY_AFTER = 3600
LONGEST_BOOKING = 5.0
"""Seconds' worth of calls that one booking covers at most; a single call may be worth more."""
RATE_KEPT = 900.0
"""Seconds after its last booking for which the slowest rate applies to all that share a budget."""
# bytes of a cached value before compression; larger than any table of instance types
LARGEST = 8 * 2**20
_SLOWEST = 1e-5  # calls per second; a lower rate is a mistake
_SHORTEST_WAIT = 0.001
_TRIES = 4  # writes per booking: two under contention, more only if every one is outrun
_LONGEST_KEY = 900  # bytes; DynamoDB allows 1,024


class RateSettings(Protocol):
    """The settings of a rate limit in providers/kit/services.py: calls per
    second, and how many at once."""

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
    """Implements the RateLimiter of providers/kit/services.py on the table. Never raises: without a
    table there is no limit, because refusals by the vendor are better than no scale-up at all."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def take(self, rate: RateSettings, calls: int) -> float:
        """Return the seconds to wait before this many calls may be made; 0.0: now, and they are
        booked. More calls than the burst are granted to a full bucket and paid for afterwards;
        those for more than LONGEST_BOOKING are not granted together. An invalid rate sets no
        limit."""
        if calls <= 0 or not _SLOWEST <= rate.rate < math.inf:
            return 0.0
        try:
            return _Booking(self._table, rate, calls, self._clock()).run()
        except StoreError:
            return 0.0

    def hold(self, rate: RateSettings, seconds: float) -> None:
        """Allow no calls for this many seconds, an hour at most. A longer
        pause already in force stays."""
        if not seconds > 0:
            return
        now = self._clock()
        until = now + min(seconds, LONGEST_HOLD)
        ahead = rate.burst / rate.rate if rate.rate >= _SLOWEST else 0.0
        actions = [
            RateLimitRow.held_until.set(until),
            RateLimitRow.expires_at.set(int(until + ahead) + TIDY_AFTER),
        ]
        with suppress(StoreError):  # including ConditionFailed: a longer pause is in force
            self._table.write(
                self._table.update(RATE_LIMITS, _item(rate.key), actions, _is_not_held(until, now))
            )


class _Booking:
    """One attempt to book calls, at one instant."""

    def __init__(self, table: Table, own_settings: RateSettings, calls: int, now: float) -> None:
        self._table, self._item, self._now, self._calls = table, _item(own_settings.key), now, calls
        self._rate, self._burst = self._own = own_settings.rate, own_settings.burst

    @property
    def _cost(self) -> float:
        return _in_microseconds(self._calls / self._rate)

    @property
    def _full(self) -> float:
        """How far ahead calls may be booked."""
        return max(self._cost, _in_microseconds(self._burst / self._rate))

    def run(self) -> float:
        """See RateLimits.take. Raises StoreError."""
        in_use = False
        for _ in range(_TRIES):
            if self._calls > 1 and self._cost > LONGEST_BOOKING:
                return self._cost  # fewer calls may be booked
            try:
                self._table.write(self._in_use() if in_use else self._idle())
            except ConditionFailed as refused:
                row = (
                    row_of(RateLimitRow, refused.old)
                    if refused.old
                    else RateLimitRow(RATE_LIMITS, self._item)
                )
                held_until, arrival = row.held_until or 0.0, row.arrival or 0.0
                if self._now < held_until <= self._now + LONGEST_HOLD + DIFFERENCE:
                    return held_until - self._now
                if self._adopted_rate(row):
                    in_use = arrival > self._now
                    continue
                if arrival > self._now + self._full + DIFFERENCE:
                    # No correct clock wrote this: it is replaced by an empty bucket of this clock.
                    it_is_still_there = RateLimitRow.arrival == arrival
                    with suppress(ConditionFailed):  # another writer has corrected it
                        full = RateLimitRow.arrival.set(self._now + self._full)
                        self._table.write(self._update(full, it_is_still_there))
                    return self._cost
                wait = arrival + self._cost - self._full - self._now
                if wait > 0:
                    return max(wait, _SHORTEST_WAIT)
                in_use = arrival > self._now
            else:
                return 0.0
        return self._cost  # other writers were faster each time: their calls count

    def _idle(self) -> Write:
        idle = RateLimitRow.arrival.does_not_exist() | (RateLimitRow.arrival <= self._now)
        return self._update(
            RateLimitRow.arrival.set(self._now + self._cost), idle & self._is_free()
        )

    def _in_use(self) -> Write:
        enough_is_left = RateLimitRow.arrival <= self._now + self._full - self._cost
        in_use = (RateLimitRow.arrival > self._now) & enough_is_left
        return self._update(RateLimitRow.arrival.add(self._cost), in_use & self._is_free())

    def _update(self, arrival: Action, condition: Condition) -> Write:
        actions = [arrival, RateLimitRow.expires_at.set(int(self._now + self._full) + TIDY_AFTER)]
        if (self._rate, self._burst) == self._own:
            until = RateLimitRow.rate_until.set(self._now + RATE_KEPT)
            actions += [
                RateLimitRow.rate.set(self._rate),
                RateLimitRow.burst.set(self._burst),
                until,
            ]
        return self._table.update(RATE_LIMITS, self._item, actions, condition)

    def _is_free(self) -> Condition:
        not_held = _is_not_held(self._now, self._now)
        adopted = (RateLimitRow.rate == self._rate) & (RateLimitRow.burst == self._burst)
        is_own = (self._rate, self._burst) == self._own
        free: Condition = not_held & (self._is_slowest() if is_own else adopted)
        return free

    def _is_slowest(self) -> Condition:
        """Return the condition that no slower rate than the caller's own is in force."""
        none_is_known = RateLimitRow.rate.does_not_exist()
        it_is_not_slower = RateLimitRow.rate >= self._own[0]
        it_is_over = RateLimitRow.rate_until <= self._now
        it_is_rubbish = (RateLimitRow.rate < _SLOWEST) | (
            RateLimitRow.rate_until > self._latest_end()
        )
        slowest: Condition = none_is_known | it_is_not_slower | it_is_over | it_is_rubbish
        return slowest

    def _latest_end(self) -> float:
        return self._now + RATE_KEPT + DIFFERENCE

    def _adopted_rate(self, row: RateLimitRow) -> bool:
        """Return whether the rate to book at is another one than before, now
        that this row was found."""
        before, rate, burst = (self._rate, self._burst), float(row.rate or 0.0), int(row.burst or 1)
        in_force = self._now < (row.rate_until or 0.0) <= self._latest_end()
        is_slower = _SLOWEST <= rate < self._own[0]
        self._rate, self._burst = (rate, burst) if in_force and is_slower else self._own
        return (self._rate, self._burst) != before


def _is_not_held(until: float, now: float) -> Condition:
    """Return the condition that no pause lasts beyond that instant, except an impossibly long
    one."""
    no_pause = RateLimitRow.held_until.does_not_exist()
    it_is_over = RateLimitRow.held_until <= until
    it_is_rubbish = RateLimitRow.held_until > now + LONGEST_HOLD + DIFFERENCE
    free: Condition = no_pause | it_is_over | it_is_rubbish
    return free


def _in_microseconds(seconds: float) -> float:
    """Round up to microseconds: sums stay short, and the rate is never exceeded."""
    return math.ceil(seconds * 1e6) / 1e6


def _item(key: str) -> str:
    """Return the key as it is, so that the table is readable; a digest where it is too long."""
    return key if len(key.encode()) <= _LONGEST_KEY else hashlib.sha256(key.encode()).hexdigest()


class SharedCache:
    """Implements the Cache of providers/kit/services.py on the table, for vendor data
    that is expensive to read and seldom changes, such as the table of instance types; one
    row per key, compressed.

    Every pass may be a new process, so without this cache each would request hundreds of instance
    types again. The data is public and can be requested again at any time: no decision depends on
    whether it was found. No method raises, therefore, and an unreadable row counts as missing.
    """

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def get(self, key: str) -> bytes | None:
        """Return the stored value if it has not expired; None otherwise, also where
        the table does not respond."""
        try:
            row = self._table.get(CacheRow, CACHE, _item(key))
        except StoreError:
            return None
        if (
            row is None
            or row.blob is None
            or not row.since - DIFFERENCE <= self._clock() < row.until
        ):
            return None
        unpacker = zlib.decompressobj()
        try:
            value = unpacker.decompress(row.blob, LARGEST + 1)
        except zlib.error:
            return None
        return value if unpacker.eof and len(value) <= LARGEST else None

    def put(self, key: str, value: bytes, seconds: float) -> None:
        """Store a value for this many seconds. A value too large for a row (compressed,
        300,000 bytes) is not stored."""
        if not 0 < seconds < math.inf or len(value) > LARGEST:
            return
        blob = zlib.compress(value, 6)
        if len(blob) > PIECE:
            return
        now = self._clock()
        until = now + seconds
        row = CacheRow(
            CACHE, _item(key), blob=blob, since=now, until=until, expires_at=int(until) + TIDY_AFTER
        )
        with suppress(StoreError):
            self._table.write(self._table.put(row))
