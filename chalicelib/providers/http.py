"""The only HTTP client for vendor APIs, so that the same limits and precautions apply to all of them.

A call is bounded in time, size and number of attempts. It is repeated only if the caller declares that safe. Whether a
change took effect after a lost response is determined by the provider, not assumed here. The environment is ignored (no
proxies, no .netrc, no REQUESTS_CA_BUNDLE) and no cookie is stored. Redirects are not followed, because credentials
would follow them.

No error contains a header, a query, a request body or a known secret, because signatures occur in all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import Deployment
from chalicelib.model.secret import Secret, one_line
from chalicelib.model.vendor_hosts import refused
from chalicelib.net.addresses import is_loopback
from chalicelib.net.http_exchange import PLAIN, ExchangeBounds, NoReply, Request, exchange, media_type
from chalicelib.net.http_session import BoundedAdapter, BoundedSession, public_context
from chalicelib.net.json_repair import read_json
from chalicelib.net.time_limit import time_left
from chalicelib.providers.errors import InvalidRequest, ProviderError, Throttled, Transient, Unknown, class_for

T = TypeVar("T")

_METADATA = frozenset({"100.100.100.200"})  # a vendor's metadata service: link-local, never with TLS
_LONGEST_MESSAGE = 300
_LONGEST_WORD = 128  # maximum length of a vendor's error code and request id
_LONGEST_ASKED = 3600.0  # seconds; cap for vendors that name a year or an absurd number


class VendorRequest(msgspec.Struct, frozen=True):
    """One request. url is absolute; body is sent as it is. safe: the request may be repeated."""

    method: str
    url: str
    headers: dict[str, str] = {}
    params: dict[str, str] = {}
    body: bytes | None = None
    safe: bool = False

    @property
    def name(self) -> str:
        """The call in a form that is safe for errors: without query and user part of the URL."""
        parts = urlsplit(self.url)
        return f"{self.method} {parts.hostname or ''}{parts.path}"

    def __repr__(self) -> str:
        return f"Call({self.name})"  # headers, query and body contain keys, tokens and signatures


class VendorResponse(msgspec.Struct, frozen=True):
    """A complete response; header names in lower case."""

    call: str
    status: int
    headers: dict[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Answer({self.call}: {self.status}, {self.described})"  # a body may contain a session

    @property
    def described(self) -> str:
        """Return length and type of the body, for an error about a body of unknown origin, which must not be quoted."""
        return f"{len(self.body)} bytes of {media_type(self.headers)}"

    def read(self, kind: type[T], shape: Callable[[Any], Any] = lambda document: document) -> T:
        """Decode the JSON body as that type; values that no decoder accepts are repaired to texts (net/json_repair.py).
        shape: transforms the document first. Raises Transient for a body that is not JSON (a proxy's page, a truncated
        body), Unknown for JSON of another structure."""
        try:
            return msgspec.convert(read_json(self.body, shape), kind)
        except msgspec.ValidationError as error:
            raise Unknown(f"{self.call}: the answer has another shape than expected: {error}") from None
        except msgspec.DecodeError:
            raise Transient(f"{self.call}: the answer is not complete JSON") from None


class Limits(msgspec.Struct, frozen=True):
    """connect, read: seconds per wait on the socket. total: seconds for one attempt, without name resolution.
    longest_pause: maximum seconds slept between attempts; if a vendor requests more, Throttled is raised instead.
    bytes: of a response."""

    connect: float = 3.05
    read: float = 20.0
    total: float = 30.0
    attempts: int = 3
    longest_pause: float = 5.0
    bytes: int = 16 * 2**20


class Http:
    """A session with one vendor. explain: maps the vendor's own error codes to errors of the tree; None if only the
    status is known. sign: called before every attempt, because signatures contain the time; returns the call to send.
    secrets: hidden in errors. sleep, chance (uniform in [0, 1)) and clock (epoch seconds) are injected. monotonic: a
    clock in seconds that never goes back, for the total. vendor, deployment: whose hosts may be called
    (model/vendor_hosts.py)."""

    def __init__(
        self,
        *,
        vendor: str,
        deployment: Deployment,
        sleep: Callable[[float], None],
        chance: Callable[[], float],
        clock: Callable[[], float],
        secrets: Callable[[], tuple[Secret, ...]] = tuple,
        explain: Callable[[VendorResponse], ProviderError | None] = lambda _: None,
        sign: Callable[[VendorRequest], VendorRequest] = lambda call: call,
        limits: Limits | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._vendor, self._deployment = vendor, deployment
        self._sleep, self._chance, self._clock = sleep, chance, clock
        self._secrets, self._explain, self._sign = secrets, explain, sign
        self._limits, self._monotonic = limits or Limits(), monotonic
        self._session = BoundedSession()
        self._session.mount("https://", BoundedAdapter(public_context))
        self._session.mount("http://", BoundedAdapter(public_context, allowed=_without_tls))

    def send(self, request: VendorRequest) -> VendorResponse:
        """Return the response, with a status below 300 and not HTML. Raises ProviderError, or BadInput for an address
        that is not one of the vendor's."""
        self._check_address(request.url)
        attempts = self._limits.attempts if request.safe else 1
        for attempt in range(1, attempts + 1):
            try:
                return self._once(self._sign(request), request.name)
            except (Transient, Throttled) as error:
                # exponential, half of it random, and at least what the vendor requests
                longest = min(self._limits.longest_pause, 0.25 * 2.0 ** (attempt - 1))
                pause = max(error.retry_after, longest * (0.5 + 0.5 * self._chance()))
                if attempt == attempts or pause > self._limits.longest_pause or pause >= time_left():
                    raise
                self._sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _check_address(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            root = f"{parts.scheme}://{parts.netloc}"
        except ValueError:
            root = ""
        if problem := refused(self._vendor, root, self._deployment):
            raise BadInput(f"{self._vendor}: endpoint", problem, "write https:// and one of the vendor's hosts")

    def _once(self, call: VendorRequest, name: str) -> VendorResponse:
        self._check_address(call.url)  # checked once more, as it was signed
        bounds = ExchangeBounds(self._limits.connect, self._limits.read, self._limits.total, self._limits.bytes)
        request = Request(call.method, call.url, call.headers, call.params, call.body)
        try:
            reply = exchange(self._session, request, bounds, self._monotonic)
        except NoReply as error:  # it names only the kind of failure, because all other details contain the URL
            text = f"no answer ({error.kind})"
            if error.sent and error.kind in PLAIN:
                text = PLAIN[error.kind].format(seconds=error.seconds, bytes=bounds.bytes)
            # not sent: an invalid address or header
            problem = (Transient if error.sent else InvalidRequest)(f"{name}: {text}")
        else:
            return self._checked(VendorResponse(name, reply.status, reply.headers, reply.body))
        raise self._cleaned(problem, 0.0)

    def _checked(self, response: VendorResponse) -> VendorResponse:
        call, status = response.call, str(response.status)
        if response.status < 300:
            if "text/html" in response.headers.get("content-type", "").lower():
                problem = Transient(f"{call}: a web page came instead of the API's answer", code=status)
                raise self._cleaned(problem, 0.0)
            return response
        error = self._explain(response) or class_for(response.status)(f"{call}: HTTP {status}", code=status)
        raise self._cleaned(error, retry_after(response.headers.get("retry-after", ""), self._clock()))

    def _cleaned(self, error: ProviderError, pause: float) -> ProviderError:
        """Return the same error, shortened and without any secret that the vendor echoed."""
        message, code, request_id = error.message, error.code, error.request_id
        for secret in self._secrets():
            message, code, request_id = (secret.hidden_in(text) for text in (message, code, request_id))
        return type(error)(
            one_line(message)[:_LONGEST_MESSAGE],
            code=one_line(code)[:_LONGEST_WORD],
            request_id=one_line(request_id)[:_LONGEST_WORD],
            retry_after=error.retry_after or pause,
        )


def retry_after(text: str, now: float) -> float:
    """Return a Retry-After header as seconds from now: an integer of seconds or an HTTP date; 0.0 for anything else. At
    most an hour: the value is stored in rows and messages, where an absurd value from a gateway would block work
    forever."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(_LONGEST_ASKED, float(text))
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return min(_LONGEST_ASKED, max(0.0, when.timestamp() - now))


def _without_tls(host: str) -> bool:
    return is_loopback(host) or host in _METADATA
