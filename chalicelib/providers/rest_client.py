"""A client for a vendor's REST API, with a credential from a secret and a rate limit shared by all functions.

Each attempt gets a new signature. A refused credential is read once more, because it may have been replaced. Parts of
it that the vendor echoes are removed from errors, and a pause that the vendor requests applies to every function.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Generic, TypeVar

from chalicelib.model.secret import Secret
from chalicelib.providers.credential_source import SecretSource
from chalicelib.providers.errors import ProviderError, Throttled, Unauthorized
from chalicelib.providers.http import Http, Limits, VendorRequest, VendorResponse, retry_after
from chalicelib.providers.rate_limit import CallBudget
from chalicelib.providers.services import ProviderServices

C = TypeVar("C")

_TOO_MANY = 429
LIMITS = Limits(connect=3.0, read=10.0, total=20.0, attempts=3)


class RestClient(Generic[C]):
    """One vendor's API, for one provider object. vendor: whose hosts may be called. sign: returns the call with the
    credential; secrets: the parts of the credential that must be hidden; explain: the vendor's own errors, None if only
    the status is known. Not thread-safe: each further thread uses a `clone`."""

    def __init__(
        self,
        vendor: str,
        source: SecretSource[C],
        *,
        sign: Callable[[VendorRequest, C], VendorRequest],
        secrets: Callable[[C], tuple[Secret, ...]],
        explain: Callable[[VendorResponse], ProviderError | None],
        budget: CallBudget,
        services: ProviderServices,
        now: Callable[[], float],
        limits: Limits = LIMITS,
    ) -> None:
        self._vendor = vendor
        self._source, self._sign, self._secrets, self._explain = source, sign, secrets, explain
        self._budget, self._services, self._now, self._limits = budget, services, now, limits
        self._http: Http | None = None
        self._owns_budget = True  # whether the current call belongs to the thread that owns the budget

    def clone(self) -> RestClient[C]:
        """Return the same API over its own connections, for another thread. It reserves nothing. Its caller has called
        `reserve` before, in the thread that owns the budget, and has made a first call, so that the credential has been
        read."""
        client = copy(self)
        client._http, client._owns_budget = None, True
        return client

    def close(self) -> None:
        """Close the connections, if any; the next call opens new ones."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def announce_calls(self, calls: int) -> None:
        """Announce the number of calls that will follow soon (rate_limit.py)."""
        self._budget.expect(calls)

    def reserve(self) -> None:
        """Wait until one call is allowed; raises Throttled."""
        self._source.current()
        self._budget.take()

    def send(self, request: VendorRequest, *, booked: bool = False) -> VendorResponse:
        """Return the response; raises ProviderError. booked: the call has been reserved already, and if the vendor
        throttles, the caller must call `refused`."""
        used = self._source.current()
        try:
            return self._once(request, booked=booked)
        except Unauthorized:
            if not self._source.renewed(used):
                raise
            return self._once(request, booked=booked)

    def refused(self, seconds: float) -> None:
        """Record that the vendor throttles: pause all calls for this long (0: for the default pause)."""
        self._budget.refused(seconds)

    def _once(self, request: VendorRequest, *, booked: bool) -> VendorResponse:
        self._owns_budget = not booked
        if not booked:
            self.reserve()
        if self._http is None:
            self._http = Http(
                vendor=self._vendor,
                deployment=self._services.deployment,
                sleep=self._services.sleep,
                chance=self._services.chance,
                clock=self._now,
                secrets=lambda: self._secrets(self._source.current()),
                sign=lambda request: self._sign(request, self._source.current()),
                explain=self._explained,
                limits=self._limits,
            )
        try:
            return self._http.send(request)
        except Throttled as error:
            if not booked and not error.retry_after:
                self.refused(0.0)  # a pause that was named counts from the arrival of its response
            raise

    def _explained(self, response: VendorResponse) -> ProviderError | None:
        """Return the vendor's error. A pause that it names applies to every function from now on; the transport also
        sleeps if it is short."""
        error = self._explain(response)
        throttled = (error is None and response.status == _TOO_MANY) or isinstance(error, Throttled)
        if throttled and self._owns_budget:
            seconds = retry_after(response.headers.get("retry-after", ""), self._now())
            if seconds := seconds or (error.retry_after if error is not None else 0.0):
                self.refused(seconds)
        return error
