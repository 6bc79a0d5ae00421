"""A rate limit shared by all functions; calls are reserved in lots, so an idle
pass costs one write for it.

Alibaba Cloud limits calls per account, product and window and publishes no numbers; its limits have
the form "200 in 60 s". So 200 calls may be made at once, which covers a pass over 190 groups, and
ten per second after that. This is enough for many clusters. If it is too much, it is corrected
soon, because every function pauses for as long as the vendor requests once it throttles. Accounts
with another quota set `callsPerSecond`.
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.providers.kit.errors import Throttled
from chalicelib.providers.kit.services import ProviderServices, RateLimit

LOT = 10  # calls reserved at a time
# seconds' worth of calls that are granted together at most; a single call may be worth more
LOT_SECONDS = 5.0
BURST = 20.0  # seconds' worth of calls that may be made at once
HOLD = 5.0  # seconds without calls after throttling that names no pause
OWN_PACE = "OwnPace"  # the code of a Throttled for which no call was made
# seconds that one provider object may sleep in total before it raises Throttled instead
LONGEST_WAIT = 2.0


class WaitLimit:
    """The remaining seconds that one provider object may sleep, at all its paces."""

    def __init__(self, seconds: float = LONGEST_WAIT) -> None:
        self.left = seconds


class CallPace:
    """The pace of calls of one product in one region with one account, for one pass. key: names
    the owner of the limit, never a secret; determined at the first call (raises ProviderError).
    rate: calls per second. burst: seconds' worth of calls at once. lot: calls reserved at a time,
    and the minimum burst. For a limit of a number of calls in every second, use burst 0 and lot 1,
    which spaces calls evenly. A bucket that can be emptied at once and refills meanwhile would
    allow twice as many in its first second."""

    def __init__(
        self,
        services: ProviderServices,
        key: Callable[[], str],
        rate: float,
        limit: WaitLimit,
        *,
        burst: float = BURST,
        lot: int = LOT,
    ) -> None:
        self._services, self._key, self._rate, self._limit = services, key, rate, limit
        self._burst, self._lot = burst, lot
        self._reserved, self._expected = 0, 0
        self._rate_limit: RateLimit | None = None

    def expect(self, calls: int) -> None:
        """Announce calls, so that the next reservation is one larger lot.
        The calls need not follow."""
        self._expected = calls

    def take(self) -> None:
        """Take one call. Raises Throttled if the wait would exceed
        the remaining time to wait."""
        if not self._reserved:
            self._reserved = self._reserve(max(self._lot, self._expected))
            self._expected = max(0, self._expected - self._reserved)
        self._reserved -= 1

    def refused(self, seconds: float) -> None:
        """Record that the vendor throttles: pause all calls for this long (0: for HOLD)
        and discard reserved calls."""
        self._reserved = 0
        self._services.rate_limiter.hold(self._current_limit(), seconds or HOLD)

    def _reserve(self, calls: int) -> int:
        limiter, rate_limit = self._services.rate_limiter, self._current_limit()
        lot = min(calls, rate_limit.burst)
        wait = limiter.take(rate_limit, lot)
        # Fewer calls are available sooner, and many are not granted together;
        # in the end a single one.
        for fewer in (int(rate_limit.rate * LOT_SECONDS), 1):
            if wait > 0.0 and 1 <= fewer < lot:
                lot, wait = fewer, limiter.take(rate_limit, fewer)
        while wait > 0.0:
            if wait > self._limit.left:
                text = (
                    f"our own pace for {rate_limit.key} (callsPerSecond sets it): the next call is "
                    f"due in {wait:.1f} s"
                )
                raise Throttled(text, code=OWN_PACE, retry_after=wait)
            self._limit.left -= wait
            self._services.sleep(wait)
            wait = limiter.take(rate_limit, lot)
        return lot

    def _current_limit(self) -> RateLimit:
        if self._rate_limit is None:
            self._rate_limit = RateLimit(
                self._key(), self._rate, max(self._lot, round(self._rate * self._burst))
            )
        return self._rate_limit
