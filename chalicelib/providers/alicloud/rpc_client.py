"""The signed RPC client of one product in one region.

Each call is a POST with all parameters in the query and an empty body, and each attempt gets a new signature. Temporary
errors are tried three times. One more attempt follows if the key or session has been replaced or a time or nonce was
refused. Repeating is safe: reads have no effect, and writes carry a ClientToken that stays the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

from chalicelib.providers.alicloud.credentials import AlicloudCredential, AlicloudCredentialSource
from chalicelib.providers.alicloud.decoding import decode
from chalicelib.providers.alicloud.endpoints import VERSIONS, Service
from chalicelib.providers.alicloud.error_mapping import Sense, error_for, sense_of
from chalicelib.providers.alicloud.signing import canonical_query, signed_headers, unsigned_headers
from chalicelib.providers.errors import ProviderError, Throttled
from chalicelib.providers.http import Http, Limits, VendorRequest, VendorResponse
from chalicelib.providers.rate_limit import CallBudget
from chalicelib.providers.services import ProviderServices

T = TypeVar("T")

VENDOR = "alicloud"
LIMITS = Limits(connect=3.0, read=10.0, total=20.0, attempts=3)
_RENEWABLE = frozenset({Sense.KEY, Sense.SESSION})


def new_nonce() -> str:
    """Return 32 random hex digits."""
    return uuid.uuid4().hex


@dataclass
class Line:
    """url: the service's root. budget: None for calls that are too rare to count (STS)."""

    service: Service
    url: str
    source: AlicloudCredentialSource
    means: ProviderServices
    now: Callable[[], float]
    budget: CallBudget | None = None
    new_nonce: Callable[[], str] = new_nonce
    _http: Http | None = field(default=None, init=False, repr=False)
    _used: AlicloudCredential | None = field(default=None, init=False, repr=False)
    _looked_again: bool = field(default=False, init=False, repr=False)  # hint for a credential that lacks a permission

    def call(self, action: str, params: Mapping[str, str], kind: type[T]) -> T:
        """Return the response to one action. Raises ProviderError whose message begins with the action."""
        call = VendorRequest("POST", f"{self.url}/", headers={"x-acs-action": action}, params=dict(params), safe=True)
        try:
            try:
                return self._once(call, kind)
            except ProviderError as error:
                if not self._worth_another(error):
                    raise
                return self._once(call, kind)
        except ProviderError as error:
            raise self._told(error, action) from None

    def expect(self, calls: int) -> None:
        """Announce the number of calls that will follow soon (rate_limit.py)."""
        if self.budget is not None:
            self.budget.expect(calls)

    def _once(self, request: VendorRequest, kind: type[T]) -> T:
        self.source.current()  # this client retries, not the transport, because every attempt needs a new signature
        if self.budget is not None:
            self.budget.take()
        if self._http is None:
            self._http = Http(
                vendor=VENDOR,
                deployment=self.means.deployment,
                sleep=self.means.sleep,
                chance=self.means.chance,
                clock=self.now,
                sign=self._signed,
                explain=self._explained,
                limits=LIMITS,
            )
        try:
            answer = self._http.send(request)
        except Throttled as error:
            if self.budget is not None:
                self.budget.refused(error.retry_after)
            raise
        return decode(answer, kind)

    def _signed(self, request: VendorRequest) -> VendorRequest:
        """Return the request with the query in its URL exactly as signed.

        A library in between may encode `*` or a space differently. The name of the call is taken from the original URL.
        """
        credential = self._used = self.source.current()
        query = canonical_query(request.params)
        headers = unsigned_headers(
            host=urlsplit(self.url).netloc,
            action=request.headers["x-acs-action"],
            version=VERSIONS[self.service],
            now=self.now(),
            nonce=self.new_nonce(),
        ) | {"accept": "application/json"}
        signed = signed_headers(
            headers, query, key_id=credential.key_id.reveal(), key_secret=credential.key_secret, secret=credential.token
        )
        return VendorRequest(request.method, f"{request.url}?{query}", signed, {}, b"", request.safe)

    def _explained(self, response: VendorResponse) -> ProviderError | None:
        """Return the vendor's error. A pause that it names applies to all functions; the transport also sleeps if it is
        short."""
        error = error_for(response)
        if self.budget is not None and isinstance(error, Throttled) and error.retry_after:
            self.budget.refused(error.retry_after)
        return self._clean(error, error.message) if error is not None else None

    def _worth_another(self, error: ProviderError) -> bool:
        """Whether another attempt may succeed, with a different key or with a new time and nonce."""
        sense = sense_of(error.code)
        lacks_a_right = sense is Sense.DENIED and not self._looked_again
        if (sense in _RENEWABLE or lacks_a_right) and self._used is not None:
            self._looked_again = self._looked_again or lacks_a_right
            return self.source.renewed(self._used) is not None
        return sense is Sense.CLOCK

    def _told(self, error: ProviderError, action: str) -> ProviderError:
        """Return the same error with the action in its message."""
        named = error.message.startswith(f"{action}: ")
        return self._clean(error, error.message if named else f"{action}: {error.message}")

    def _clean(self, error: ProviderError, message: str) -> ProviderError:
        """Return the same error with this message and without any part of the credential."""
        code, request_id = error.code, error.request_id
        if self._used is not None:
            message, code, request_id = (self._used.hidden_in(text) for text in (message, code, request_id))
        return type(error)(message, code=code, request_id=request_id, retry_after=error.retry_after)
