"""A vendor's REST API with a credential from a secret and a pace that all functions keep: what every call needs.

Each attempt is signed anew. A credential that is refused is looked up once more, for it may have been replaced. What
the vendor echoes of it is taken out of errors, and a pause that the vendor asks for is kept by every function.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """One vendor's API, for one provider object.

    vendor: whose hosts may be called. sign: the call with the credential in it; secrets: what of the credential nobody
    may see; explain: the vendor's own errors, None where it knows no better than the status. Not for several threads:
    each takes a `twin`.
    """

    def __init__(
        self,
        vendor: str,
        source: SecretSource[C],
        *,
        sign: Callable[[VendorRequest, C], VendorRequest],
        secrets: Callable[[C], tuple[Secret, ...]],
        explain: Callable[[VendorResponse], ProviderError | None],
        budget: CallBudget,
        means: ProviderServices,
        now: Callable[[], float],
        limits: Limits = LIMITS,
    ) -> None:
        self._vendor = vendor
        self._source, self._sign, self._secrets, self._explain = source, sign, secrets, explain
        self._budget, self._means, self._now, self._limits = budget, means, now, limits
        self._http: Http | None = None
        self._owns_budget = True  # whether the call under way is of the thread that the budget belongs to

    def clone(self) -> RestClient[C]:
        """The same API over connections of its own, for another thread. It books nothing: who sends through it has
        called `book` before, in the thread that owns the budget, and has made a first call, so that the credential has
        been read."""
        return RestClient(
            self._vendor,
            self._source,
            sign=self._sign,
            secrets=self._secrets,
            explain=self._explain,
            budget=self._budget,
            means=self._means,
            now=self._now,
            limits=self._limits,
        )

    def close(self) -> None:
        """Let go of the connections, where there are any; the next call makes new ones."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def announce_calls(self, calls: int) -> None:
        """So many calls will follow soon (budget.py)."""
        self._budget.expect(calls)

    def reserve(self) -> None:
        """Wait for the turn of one call; raises Throttled."""
        self._source.current()
        self._budget.take()

    def send(self, call: VendorRequest, *, booked: bool = False) -> VendorResponse:
        """The answer. booked: its turn has come already, and if the vendor throttles, `refused` is for the caller to
        call. Raises ProviderError."""
        used = self._source.current()
        try:
            return self._once(call, booked=booked)
        except Unauthorized:
            if not self._source.renewed(used):
                raise
            return self._once(call, booked=booked)

    def refused(self, seconds: float) -> None:
        """The vendor throttles: nobody calls for so long (0: for a while)."""
        self._budget.refused(seconds)

    def _once(self, call: VendorRequest, *, booked: bool) -> VendorResponse:
        self._owns_budget = not booked
        if not booked:
            self.reserve()
        if self._http is None:
            self._http = Http(
                vendor=self._vendor,
                deployment=self._means.deployment,
                sleep=self._means.sleep,
                chance=self._means.chance,
                clock=self._now,
                sign=self._signed,
                explain=self._cleanly,
                limits=self._limits,
            )
        try:
            return self._http.send(call)
        except Throttled as error:
            if not booked and not error.retry_after:
                self.refused(0.0)  # a pause that was named is kept since its answer came
            raise self._clean(error) from None
        except ProviderError as error:
            raise self._clean(error) from None

    def _signed(self, call: VendorRequest) -> VendorRequest:
        return self._sign(call, self._source.current())

    def _cleanly(self, answer: VendorResponse) -> ProviderError | None:
        """Cleaned before the transport shortens it: half a secret could not be found any more. A pause that the vendor
        names is everybody's from now on; the transport keeps it, too, if it is short."""
        error = self._explain(answer)
        throttled = (error is None and answer.status == _TOO_MANY) or isinstance(error, Throttled)
        if throttled and self._owns_budget:
            asked = retry_after(answer.headers.get("retry-after", ""), self._now())
            if asked := asked or (error.retry_after if error is not None else 0.0):
                self.refused(asked)
        return None if error is None else self._clean(error)

    def _clean(self, error: ProviderError) -> ProviderError:
        """The same error without anything of the credential in it."""
        texts = error.message, error.code, error.request_id
        for secret in self._secrets(self._source.current()):
            texts = secret.hidden_in(texts[0]), secret.hidden_in(texts[1]), secret.hidden_in(texts[2])
        message, code, request_id = texts
        return type(error)(message, code=code, request_id=request_id, retry_after=error.retry_after)
