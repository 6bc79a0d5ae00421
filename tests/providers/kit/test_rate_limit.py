"""Booking of calls: in batches with a burst, or one by one at even intervals."""

from __future__ import annotations

import pytest

from chalicelib.providers.kit.errors import Throttled
from chalicelib.providers.kit.rate_limit import CallPace, WaitLimit
from chalicelib.providers.kit.services import ProviderServices, RateLimit, UnlimitedRateLimiter
from tests.cases import each_row


class Bucket(UnlimitedRateLimiter):
    """One bucket as store/vendor_calls.py keeps it, on a clock that only sleeping advances."""

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


def taken(pace: CallPace, bucket: Bucket, calls: int) -> list[float]:
    times = []
    for _ in range(calls):
        pace.take()
        times.append(bucket.now)
    return times


def test_call_budget_never_exceeds_the_rate_in_any_second() -> None:
    bucket = Bucket()
    pace = CallPace(
        ProviderServices(rate_limiter=bucket, sleep=bucket.sleep),
        lambda: "a",
        4.0,
        WaitLimit(60.0),
        burst=0.0,
        lot=1,
    )
    pace.expect(30)
    assert most_in_a_second(taken(pace, bucket, 30)) == 4
    assert bucket.now == pytest.approx(29 / 4)
    assert {pace.burst for pace in bucket.paces} == {1}


def test_call_budget_with_a_burst_exceeds_the_rate_in_one_second() -> None:
    """Shows why a burst of one second's calls violates a limit on the calls in every second."""
    bucket = Bucket()
    pace = CallPace(
        ProviderServices(rate_limiter=bucket, sleep=bucket.sleep),
        lambda: "a",
        4.0,
        WaitLimit(60.0),
        burst=1.0,
        lot=1,
    )
    assert most_in_a_second(taken(pace, bucket, 30)) > 4


@each_row(("rate", "burst"), [(10.0, 200), (0.1, 10), (4.0, 80)])
def test_call_budget_default_burst_is_twenty_seconds_in_batches_of_ten(
    rate: float, burst: int
) -> None:
    bucket = Bucket()
    CallPace(
        ProviderServices(rate_limiter=bucket, sleep=bucket.sleep), lambda: "a", rate, WaitLimit()
    ).take()
    assert {pace.burst for pace in bucket.paces} == {burst}
    assert bucket.arrival == pytest.approx(10 / rate)


def test_call_budget_wait_limit_ends_waiting() -> None:
    bucket = Bucket()
    pace = CallPace(
        ProviderServices(rate_limiter=bucket, sleep=bucket.sleep),
        lambda: "a",
        1.0,
        WaitLimit(2.0),
        burst=0.0,
        lot=1,
    )
    with pytest.raises(Throttled) as reported:
        taken(pace, bucket, 30)
    assert bucket.now == pytest.approx(2.0)
    assert reported.value.retry_after == pytest.approx(1.0)
