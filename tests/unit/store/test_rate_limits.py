"""One call budget for all functions: never more than burst + rate · time,
in any order of callers.
"""

from __future__ import annotations

import dataclasses
import math
import random
from functools import partial
from itertools import pairwise

import pytest

from chalicelib.providers.kit.services import RateLimit, RateLimiter
from chalicelib.store import Store
from chalicelib.store.tables import RATE_LIMITS, RateLimitRow
from chalicelib.store.vendor_calls import DIFFERENCE, LONGEST_HOLD, RATE_KEPT
from infra.emulators.aws_faults import AwsFaults, busy, lost_answer
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.memory_table import MemoryAccount
from tests.unit.store.support import START, RequestCounter, StoreFixture, all_at_once


def _at(bench: StoreFixture, instant: float) -> StoreFixture:
    """Returns the same table with another clock."""
    return dataclasses.replace(bench, clock=ManualClock(instant), _store=None)


def _pace(bench: StoreFixture, rate: float = 2.0, burst: int = 10) -> RateLimit:
    return RateLimit(f"vendor/{bench.cluster}/region/api", rate, burst)


def test_rate_limit_grants_a_burst_at_once_and_then_the_rate(bench: StoreFixture) -> None:
    pacer: RateLimiter = bench.store.rate_limits
    pace = _pace(bench)
    assert [pacer.take(pace, 5), pacer.take(pace, 5)] == [0.0, 0.0]
    assert pacer.take(pace, 1) == pytest.approx(0.5)
    bench.clock.advance(0.5)
    assert pacer.take(pace, 1) == 0.0
    assert pacer.take(pace, 4) == pytest.approx(2.0)
    bench.clock.advance(1000)
    assert pacer.take(pace, 10) == 0.0
    assert pacer.take(pace, 1) > 0


def test_rate_limit_grants_the_calls_after_the_stated_wait(bench: StoreFixture) -> None:
    pacer, pace = bench.store.rate_limits, _pace(bench, rate=3.0, burst=4)
    for lot in (4, 1, 2, 3, 4, 1):
        bench.clock.advance(pacer.take(pace, lot) and pacer.take(pace, lot) + 1e-3)
        bench.clock.advance(4 / 3)
        assert pacer.take(pace, 1) == 0.0


def test_rate_limits_of_different_budgets_are_independent(bench: StoreFixture) -> None:
    pacer, one = bench.store.rate_limits, _pace(bench)
    other = RateLimit(one.key + "/another", 2.0, 10)
    assert pacer.take(one, 10) == 0.0
    assert pacer.take(other, 10) == 0.0
    assert pacer.take(one, 1) > 0


def test_rate_limit_costs_one_write_two_under_contention_and_none_if_refused(
    bench: StoreFixture,
) -> None:
    pacer, pace = bench.store.rate_limits, _pace(bench)
    costs = []
    for lot in (5, 5, 1):
        with RequestCounter(bench) as counter:
            pacer.take(pace, lot)
        costs.append((len(counter.requests), counter.items_read))
    assert costs == [(1, 0), (2, 0), (1, 0)]


def test_rate_limit_request_above_the_burst_waits_for_a_full_bucket(bench: StoreFixture) -> None:
    pacer, pace = bench.store.rate_limits, _pace(bench, rate=1.0, burst=2)
    assert pacer.take(pace, 1) == 0.0
    assert pacer.take(pace, 5) == pytest.approx(1.0)
    bench.clock.advance(1.0)
    assert pacer.take(pace, 5) == 0.0
    assert pacer.take(pace, 1) == pytest.approx(4.0)


def test_rate_limit_pause_of_the_vendor_applies_to_all_callers(bench: StoreFixture) -> None:
    pace = _pace(bench)
    bench.store.rate_limits.hold(pace, 7.0)
    other = bench.fresh().rate_limits
    assert other.take(pace, 1) == pytest.approx(7.0)
    other.hold(pace, 2.0)
    assert other.take(pace, 1) == pytest.approx(7.0)
    bench.clock.advance(7.0)
    assert other.take(pace, 1) == 0.0


def test_rate_limit_pause_applies_to_a_budget_in_use_and_lasts_at_most_an_hour(
    bench: StoreFixture,
) -> None:
    pacer, pace = bench.store.rate_limits, _pace(bench)
    assert pacer.take(pace, 3) == 0.0
    pacer.hold(pace, 10 * LONGEST_HOLD)
    assert pacer.take(pace, 3) == pytest.approx(LONGEST_HOLD)
    bench.clock.advance(LONGEST_HOLD)
    assert pacer.take(pace, 3) == 0.0


@pytest.mark.parametrize("seconds", [0.0, -5.0, math.nan])
def test_rate_limit_ignores_an_invalid_pause(bench: StoreFixture, seconds: float) -> None:
    bench.store.rate_limits.hold(_pace(bench), seconds)
    assert bench.store.rate_limits.take(_pace(bench), 1) == 0.0


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan, 5e-324])
def test_rate_limit_ignores_an_invalid_rate(bench: StoreFixture, rate: float) -> None:
    pace = _pace(bench, rate=rate)
    assert bench.store.rate_limits.take(pace, 1) == 0.0
    bench.store.rate_limits.hold(pace, 0.0)


def test_rate_limit_zero_calls_cost_nothing(bench: StoreFixture) -> None:
    with RequestCounter(bench) as counter:
        assert bench.store.rate_limits.take(_pace(bench), 0) == 0.0
    assert not counter.requests


def test_rate_limit_clock_that_goes_back_waits_for_the_difference_only(bench: StoreFixture) -> None:
    pace = _pace(bench)
    assert bench.store.rate_limits.take(pace, 10) == 0.0
    behind = _at(bench, START - 30.0)
    assert behind.store.rate_limits.take(pace, 1) == pytest.approx(30.5)
    behind.clock.advance(30.5)
    assert behind.store.rate_limits.take(pace, 1) == 0.0


def test_rate_limit_row_with_an_impossible_time_blocks_no_caller(bench: StoreFixture) -> None:
    pace, ahead = _pace(bench), _at(bench, START + 86_400 * 365)
    ahead.store.rate_limits.take(pace, 1)
    ahead.store.rate_limits.hold(pace, 600.0)
    pacer = bench.store.rate_limits
    assert pacer.take(pace, 1) == pytest.approx(0.5)  # discarded and replaced by an empty bucket
    bench.clock.advance(0.5)
    assert pacer.take(pace, 1) == 0.0
    assert pacer.take(pace, 1) > 0.0
    pacer.hold(pace, 3.0)
    assert pacer.take(pace, 1) == pytest.approx(3.0)


def test_rate_limit_without_an_answer_from_the_table_does_not_limit(bench: StoreFixture) -> None:
    pace = _pace(bench)
    bench.faults.instead(
        "update_item", lost_answer(), lost_answer(), busy("ResourceNotFoundException")
    )
    bench.store.rate_limits.hold(pace, 60.0)
    assert [bench.store.rate_limits.take(pace, 10), bench.store.rate_limits.take(pace, 10)] == [
        0.0,
        0.0,
    ]
    assert bench.store.rate_limits.take(pace, 10) == 0.0  # and nothing was booked


def test_rate_limit_booking_with_a_lost_answer_counts(bench: StoreFixture) -> None:
    pacer, pace = bench.store.rate_limits, _pace(bench)
    bench.faults.after("update_item", lost_answer())
    assert pacer.take(pace, 10) == 0.0
    assert pacer.take(pace, 1) > 0


def test_rate_limit_counts_a_concurrent_booking_between_two_writes(bench: StoreFixture) -> None:
    pacer, pace = bench.store.rate_limits, _pace(bench, burst=10)
    other = bench.fresh(faults=AwsFaults()).rate_limits
    assert pacer.take(pace, 1) == 0.0
    bench.faults.before("update_item", lambda: None, lambda: other.take(pace, 9))
    assert pacer.take(pace, 1) == pytest.approx(0.5)


def test_rate_limit_row_expires_once_unused(bench: StoreFixture) -> None:
    pace = _pace(bench)
    bench.store.rate_limits.take(pace, 10)
    row = bench.store.table.get(RateLimitRow, RATE_LIMITS, pace.key)
    assert row is not None
    assert START + 5 < row.expires_at < START + 5 + 2 * 3600


def test_rate_limit_key_too_long_for_the_table_still_works(bench: StoreFixture) -> None:
    pace = RateLimit("x" * 5000 + bench.cluster, 1.0, 1)
    assert bench.store.rate_limits.take(pace, 1) == 0.0
    assert bench.store.rate_limits.take(pace, 1) == pytest.approx(1.0)


def test_rate_limit_concurrent_threads_get_exactly_the_burst(bench: StoreFixture) -> None:
    pace = _pace(bench, rate=0.001, burst=8)
    stores = [bench.fresh() for _ in range(4)]

    def draw(store: Store) -> int:
        return sum(store.rate_limits.take(pace, 1) == 0.0 for _ in range(6))

    granted = all_at_once([partial(draw, store) for store in stores])
    counts = [each for each in granted if isinstance(each, int)]
    assert len(counts) == 4
    assert sum(counts) == 8


class _Callers:
    """Functions with separate clocks and one table; a write of another function may
    precede each of their writes."""

    def __init__(self, seed: int, skew: float) -> None:
        self.random, self.now = random.Random(seed), START
        self.account = MemoryAccount()
        self.pace = RateLimit(
            "vendor", self.random.choice([0.3, 1.0, 3.0, 7.0]), self.random.choice([1, 3, 10])
        )
        self.granted: list[tuple[float, int]] = []
        self.depth = 0
        self.paces = [self._made(self.random.uniform(-skew, skew)) for _ in range(5)]

    def _made(self, off: float) -> RateLimiter:
        faults = AwsFaults()
        store = self.account.store("t", clock=lambda: self.now + off, wrap=faults.wrap)
        play = faults.play

        def interleaved(method: str, call: object, arguments: dict[str, object]) -> object:
            if self.depth < 3 and self.random.random() < 0.3:
                self.take()
            return play(method, call, arguments)  # type: ignore[arg-type]

        faults.play = interleaved  # type: ignore[method-assign]
        return store.rate_limits

    def take(self) -> None:
        self.depth += 1
        calls = self.random.randint(1, self.pace.burst)
        if self.random.choice(self.paces).take(self.pace, calls) == 0.0:
            self.granted.append((self.now, calls))
        self.depth -= 1

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.take()
            self.now += self.random.choice([0.0, 0.0, 0.01, 0.3, 2.0, 30.0])

    def most_above_the_rate(self) -> float:
        """The largest number of calls in any interval, less the number that the rate allows in
        it."""
        best = level = 0.0
        for (before, _), (at, calls) in pairwise([(START, 0), *self.granted]):
            level = max(0.0, level - (at - before) * self.pace.rate) + calls
            best = max(best, level)
        return best


@pytest.mark.parametrize("seed", range(12))
def test_rate_limit_holds_for_any_interleaving(seed: int) -> None:
    callers = _Callers(seed, skew=0.0)
    callers.run(120)
    assert len(callers.granted) > 5
    assert callers.most_above_the_rate() <= callers.pace.burst + 1e-6


@pytest.mark.parametrize("seed", range(12))
def test_rate_limit_clock_differences_cost_at_most_the_rate_in_them(seed: int) -> None:
    skew = 5.0
    assert 2 * skew < DIFFERENCE
    callers = _Callers(seed, skew)
    callers.run(120)
    assert len(callers.granted) > 5
    assert callers.most_above_the_rate() <= callers.pace.burst + callers.pace.rate * 2 * skew + 1e-6


def test_rate_limit_uses_only_the_given_clock() -> None:
    """The budget reads the clock it was given, and no other."""
    clock = ManualClock(1_000.0)
    store = MemoryAccount().store("t", clock=clock)
    assert store.rate_limits.take(RateLimit("k", 1.0, 1), 1) == 0.0
    assert store.rate_limits.take(RateLimit("k", 1.0, 1), 1) == 1.0


# -- budgets that policies with different rates share


def test_rate_limit_shared_by_two_rates_is_booked_at_the_slower_one(bench: StoreFixture) -> None:
    pacer, fast, slow = bench.store.rate_limits, _pace(bench, 10.0, 200), _pace(bench, 0.5, 10)
    assert pacer.take(slow, 1) == 0.0
    assert [pacer.take(fast, 1) for _ in range(9)] == [0.0] * 9
    assert pacer.take(fast, 1) == pytest.approx(2.0)
    assert pacer.take(slow, 1) == pytest.approx(2.0)


@pytest.mark.parametrize("first", ["fast", "slow"])
def test_rate_limit_of_two_rates_starves_neither_in_an_hour(
    bench: StoreFixture, first: str
) -> None:
    fast, slow = _pace(bench, 10.0, 200), _pace(bench, 0.13, 10)
    order = (fast, slow) if first == "fast" else (slow, fast)
    granted = {fast: 0, slow: 0}
    for _ in range(60):
        for pace in order:
            granted[pace] += sum(bench.store.rate_limits.take(pace, 1) == 0.0 for _ in range(3))
        bench.clock.advance(60.0)
    assert granted == {fast: 180, slow: 180}


def test_rate_limit_goes_back_to_the_faster_rate_when_the_slower_is_not_used(
    bench: StoreFixture,
) -> None:
    pacer, fast, slow = bench.store.rate_limits, _pace(bench, 10.0, 200), _pace(bench, 0.5, 10)
    assert pacer.take(slow, 2) == 0.0
    bench.clock.advance(RATE_KEPT - 1.0)
    assert pacer.take(fast, 10) > 0.0
    bench.clock.advance(1.0)
    assert pacer.take(fast, 50) == 0.0


def test_rate_limit_of_a_rate_that_is_slower_than_the_others_applies_at_once(
    bench: StoreFixture,
) -> None:
    pacer, fast, slow = bench.store.rate_limits, _pace(bench, 10.0, 200), _pace(bench, 0.5, 10)
    assert pacer.take(fast, 50) == 0.0
    assert pacer.take(slow, 1) == 0.0
    assert pacer.take(fast, 1) == 0.0
    granted = sum(pacer.take(fast, 1) == 0.0 for _ in range(50))
    assert granted < 10


@pytest.mark.parametrize(
    ("rate", "calls", "granted"), [(10.0, 50, True), (10.0, 51, False), (0.13, 2, False)]
)
def test_rate_limit_books_five_seconds_of_calls_at_once(
    bench: StoreFixture, rate: float, calls: int, *, granted: bool
) -> None:
    pace = _pace(bench, rate, 200)
    with RequestCounter(bench) as counter:
        assert (bench.store.rate_limits.take(pace, calls) == 0.0) is granted
    assert len(counter.requests) == granted
    assert bench.store.rate_limits.take(pace, 1) == 0.0


def test_rate_limit_of_two_rates_holds_for_processes_that_race(bench: StoreFixture) -> None:
    fast, slow = _pace(bench, 10.0, 200), _pace(bench, 0.5, 10)
    assert bench.store.rate_limits.take(slow, 1) == 0.0
    calls = [
        lambda pace=pace: bench.fresh().rate_limits.take(pace, 1)
        for pace in (fast, slow)
        for _ in range(8)
    ]
    waits = all_at_once(calls)
    assert not [wait for wait in waits if isinstance(wait, Exception)]
    assert waits.count(0.0) <= 9


def test_rate_limit_of_an_impossible_slow_rate_is_replaced(bench: StoreFixture) -> None:
    ahead, pace = _at(bench, START + 86_400), _pace(bench, 10.0, 200)
    ahead.store.rate_limits.take(RateLimit(pace.key, 0.1, 10), 1)
    pacer = bench.store.rate_limits
    pacer.take(pace, 1)  # its arrival is discarded
    bench.clock.advance(60.0)
    assert pacer.take(pace, 50) == 0.0
