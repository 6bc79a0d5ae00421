"""How calls are booked: in lots with a burst, or one by one in even distances."""

from __future__ import annotations

import pytest

from chalicelib.providers.errors import Throttled
from chalicelib.providers.rate_limit import CallBudget, WaitLimit
from chalicelib.providers.services import ProviderServices, RateLimit, UnlimitedRateLimiter
from tests.cases import each_row


class Bucket(UnlimitedRateLimiter):
    """One bucket as store/paces.py keeps it, on a clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now, self.arrival = 0.0, 0.0
        self.paces: set[RateLimit] = set()

    def take(self, pace: RateLimit, calls: int) -> float:
        self.paces.add(pace)
        cost, full = calls / pace.rate, pace.burst / pace.rate
        wait = max(self.arrival, self.now) + cost - full - self.now
        if wait > 1e-9:
            return wait
        self.arrival = max(self.arrival, self.now) + cost
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def most_in_a_second(times: list[float]) -> int:
    return max(sum(start <= each < start + 1.0 - 1e-6 for each in times) for start in times)


def taken(budget: CallBudget, bucket: Bucket, calls: int) -> list[float]:
    times = []
    for _ in range(calls):
        budget.take()
        times.append(bucket.now)
    return times


def test_CHERRY_D7_no_second_has_more_calls_than_the_rate_also_not_the_first() -> None:
    bucket = Bucket()
    budget = CallBudget(
        ProviderServices(rate_limiter=bucket, sleep=bucket.sleep), lambda: "a", 4.0, WaitLimit(60.0), burst=0.0, lot=1
    )
    budget.expect(30)
    assert most_in_a_second(taken(budget, bucket, 30)) == 4
    assert bucket.now == pytest.approx(29 / 4)
    assert {pace.burst for pace in bucket.paces} == {1}


def test_a_bucket_that_may_be_emptied_at_once_lets_more_through() -> None:
    """Why a burst of one second's worth would not do for a limit of so many calls in every second."""
    bucket = Bucket()
    budget = CallBudget(
        ProviderServices(rate_limiter=bucket, sleep=bucket.sleep), lambda: "a", 4.0, WaitLimit(60.0), burst=1.0, lot=1
    )
    assert most_in_a_second(taken(budget, bucket, 30)) > 4


@each_row(("rate", "burst"), [(10.0, 200), (0.1, 10), (4.0, 80)])
def test_by_default_twenty_seconds_worth_may_be_had_at_once_in_lots_of_ten(rate: float, burst: int) -> None:
    bucket = Bucket()
    CallBudget(ProviderServices(rate_limiter=bucket, sleep=bucket.sleep), lambda: "a", rate, WaitLimit()).take()
    assert {pace.burst for pace in bucket.paces} == {burst}
    assert bucket.arrival == pytest.approx(10 / rate)


def test_patience_ends() -> None:
    bucket = Bucket()
    budget = CallBudget(
        ProviderServices(rate_limiter=bucket, sleep=bucket.sleep), lambda: "a", 1.0, WaitLimit(2.0), burst=0.0, lot=1
    )
    with pytest.raises(Throttled) as told:
        taken(budget, bucket, 30)
    assert bucket.now == pytest.approx(2.0)
    assert told.value.retry_after == pytest.approx(1.0)
