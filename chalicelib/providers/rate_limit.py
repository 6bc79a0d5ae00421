"""How often we call: a budget that all functions share, drawn in lots, so that a quiet pass costs one write for it.

The vendor limits calls per account, product and window, and publishes no numbers (alicloud.md §3.1); its limits have
the form "200 in 60 s". So 200 calls may be made at once, which is a pass over 190 groups, and ten a second after that:
enough for many clusters, and soon corrected where it is too much, because everybody keeps still for as long as the
vendor asks once it throttles. Whoever has another quota says so by `callsPerSecond`.
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.providers.errors import Throttled
from chalicelib.providers.services import ProviderServices, RateLimit

LOT = 10  # calls booked at a time
BURST = 20.0  # seconds' worth of calls that may be made at once
HOLD = 5.0  # seconds of silence after a refusal that names none
OWN_PACE = "OwnPace"  # the code of a Throttled that no call was made for
LONGEST_WAIT = 2.0  # seconds that one provider object sleeps in all before it says Throttled instead


class WaitLimit:
    """The seconds of sleep that are left to one provider object, over all its budgets."""

    def __init__(self, seconds: float = LONGEST_WAIT) -> None:
        self.left = seconds


class CallBudget:
    """Calls of one product in one region with one account, for one pass.

    account: a short text for whose limit it is, never a secret; asked for at the first call (raises ProviderError).
    burst: seconds' worth of calls at once; lot: calls booked at a time, and the least that a burst is. A vendor whose
    limit is so many calls in every second gets burst 0 and lot 1: calls in even distances, for a bucket that may be
    emptied at once and fills up meanwhile lets twice as many through in its first second.
    """

    def __init__(
        self,
        means: ProviderServices,
        key: Callable[[], str],
        rate: float,
        patience: WaitLimit,
        *,
        burst: float = BURST,
        lot: int = LOT,
    ) -> None:
        self._means, self._key, self._rate, self._patience = means, key, rate, patience
        self._burst, self._lot = burst, lot
        self._booked, self._expected = 0, 0
        self._held: RateLimit | None = None

    def expect(self, calls: int) -> None:
        """So many calls will come soon: worth one larger lot. No promise."""
        self._expected = calls

    def take(self) -> None:
        """One call may be made now. Raises Throttled where that would take longer than there is patience for."""
        if not self._booked:
            self._booked = self._draw(max(self._lot, self._expected))
            self._expected = 0
        self._booked -= 1

    def refused(self, seconds: float) -> None:
        """The vendor throttles: nobody calls for so long (0: for HOLD), and what was booked here is void."""
        self._booked = 0
        self._means.rate_limiter.hold(self._pace(), seconds or HOLD)

    def _draw(self, wanted: int) -> int:
        pace = self._pace()
        lot = min(wanted, pace.burst)
        wait = self._means.rate_limiter.take(pace, lot)
        if wait > 0.0 and lot > 1:
            lot, wait = 1, self._means.rate_limiter.take(pace, 1)  # a single call is had sooner than a lot
        while wait > 0.0:
            if wait > self._patience.left:
                raise Throttled(
                    f"our own pace for {pace.key} (callsPerSecond sets it): the next call is due in {wait:.1f} s",
                    code=OWN_PACE,
                    retry_after=wait,
                )
            self._patience.left -= wait
            self._means.sleep(wait)
            wait = self._means.rate_limiter.take(pace, lot)
        return lot

    def _pace(self) -> RateLimit:
        if self._held is None:
            self._held = RateLimit(self._key(), self._rate, max(self._lot, round(self._rate * self._burst)))
        return self._held
