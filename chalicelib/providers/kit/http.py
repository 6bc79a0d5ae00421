"""The only HTTP client for vendor APIs, so that the same limits and precautions apply to all
of them: one caller that signs, limits the rate, repeats and cleans errors.

A call is bounded in time, size and number of attempts. It is repeated only if the caller declares
that safe. Whether a change took effect after a lost response is determined by the provider, not
assumed here. The environment is ignored (no proxies, no .netrc, no REQUESTS_CA_BUNDLE) and no
cookie is stored. Redirects are not followed, because credentials would follow them.

No error contains a header, a query, a request body or a known secret, because
signatures occur in all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import Secret, one_line
from chalicelib.net.addresses import is_loopback
from chalicelib.net.http_exchange import (
    PLAIN,
    ExchangeBounds,
    NoReply,
    Request,
    exchange,
    media_type,
)
from chalicelib.net.http_session import BoundedAdapter, BoundedSession, public_context
from chalicelib.net.json_repair import read_json
from chalicelib.net.time_limit import time_left
from chalicelib.net.vendor_hosts import refused
from chalicelib.providers.kit.credential_source import SecretSource
from chalicelib.providers.kit.errors import (
    InvalidRequest,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
    Unknown,
    class_for,
    shape_error,
)
from chalicelib.providers.kit.rate_limit import CallPace
from chalicelib.providers.kit.services import ProviderServices

T = TypeVar("T")

# a vendor's metadata service: link-local, never with TLS
_METADATA = frozenset({"100.100.100.200"})
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
        # a body may contain a session
        return f"Answer({self.call}: {self.status}, {self.described})"

    @property
    def described(self) -> str:
        """Return length and type of the body, for an error about a body of unknown origin,
        which must not be quoted."""
        return f"{len(self.body)} bytes of {media_type(self.headers)}"

    def read(self, kind: type[T], shape: Callable[[Any], Any] = lambda document: document) -> T:
        """Decode the JSON body as that type; values that no decoder accepts are repaired to texts
        (net/json_repair.py). shape: transforms the document first. Raises Transient for a body that
        is not JSON (a proxy's page, a truncated body), Unknown for JSON of another structure."""
        try:
            return msgspec.convert(read_json(self.body, shape), kind)
        except msgspec.ValidationError as error:
            raise shape_error(self.call, error) from None
        except msgspec.DecodeError:
            raise Transient(f"{self.call}: the answer is not complete JSON") from None

    def read_object(
        self, shape: Callable[[Any], Any] = lambda document: document
    ) -> dict[str, Any]:
        """Return the body's JSON object. Raises Transient for a body that is not JSON, Unknown for
        JSON of another type. shape: as in `read`."""
        body = self.read(object, shape)
        if not isinstance(body, dict):
            raise self.shape_error("it is not an object")
        return body

    def shape_error(self, problem: str) -> Unknown:
        """Return the error for a body of another structure than the vendor documents."""
        return shape_error(self.call, problem, code="Shape")


class Limits(msgspec.Struct, frozen=True):
    """connect, read: seconds per wait on the socket. total: seconds for one attempt, without name
    resolution. longest_pause: maximum seconds slept between attempts; if a vendor requests more,
    Throttled is raised instead. bytes: of a response."""

    connect: float = 3.0
    read: float = 10.0
    total: float = 20.0
    attempts: int = 3
    longest_pause: float = 5.0
    bytes: int = 16 * 2**20


LIMITS = Limits()


class Http:
    """One vendor's API, for one provider object. vendor, services.deployment: whose hosts may be
    called (net/vendor_hosts.py). clock: epoch seconds. source: a credential that may be replaced
    while it is in use. sign: called before every attempt, because signatures contain the time;
    returns the call to send. secrets: hidden in errors. explain: maps the vendor's own error codes
    to errors of the tree; None if only the status is known. pace: the rate limit that all
    functions share. monotonic: a clock in seconds that never goes back, for the total. Not
    thread-safe: each further thread uses a `clone`."""

    def __init__(
        self,
        vendor: str,
        services: ProviderServices,
        clock: Callable[[], float],
        *,
        source: SecretSource[Any] | None = None,
        sign: Callable[[VendorRequest], VendorRequest] = lambda call: call,
        secrets: Callable[[], tuple[Secret, ...]] = tuple,
        explain: Callable[[VendorResponse], ProviderError | None] = lambda _: None,
        pace: CallPace | None = None,
        limits: Limits = LIMITS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._vendor, self._services, self._clock = vendor, services, clock
        self._source, self._sign, self._secrets, self._explain = source, sign, secrets, explain
        self._pace, self._limits, self._monotonic = pace, limits, monotonic
        self._session: BoundedSession | None = None

    def clone(self) -> Http:
        """Return the same API over its own connections, for another thread. It reserves nothing.
        Its caller has called `reserve` before, in the thread that owns the pace, and has made a
        first call, so that the credential has been read."""
        client = copy(self)
        client._session = None
        return client

    def close(self) -> None:
        """Close the connections, if any; the next call opens new ones."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def announce_calls(self, calls: int) -> None:
        """Announce the number of calls that will follow soon (rate_limit.py)."""
        if self._pace is not None:
            self._pace.expect(calls)

    def reserve(self) -> None:
        """Wait until one call is allowed; raises Throttled."""
        if self._pace is not None:
            self._pace.take()

    def refused(self, seconds: float) -> None:
        """Record that the vendor throttles: pause all calls for this long
        (0: for the default pause)."""
        if self._pace is not None:
            self._pace.refused(seconds)

    def send(self, request: VendorRequest, *, booked: bool = False) -> VendorResponse:
        """Return the response, with a status below 300 and not HTML. Raises ProviderError, or
        BadInput for an address that is not one of the vendor's.

        A refused credential is read once more, because it may have been replaced. A pause that the
        vendor requests applies to every function; it is also slept here if it is short. booked: the
        call has been reserved already, and if the vendor throttles, the caller must call
        `refused`."""
        source = self._source
        used = source.current() if source is not None else None
        renewed, attempt = False, 1
        if not booked:
            self.reserve()
        self._check_address(request.url)
        bounds = ExchangeBounds(
            self._limits.connect, self._limits.read, self._limits.total, self._limits.bytes
        )
        while True:
            call = self._sign(request)
            self._check_address(call.url)  # checked once more, as it was signed
            wire = Request(call.method, call.url, call.headers, call.params, call.body)
            try:
                reply = exchange(self._open_session(), wire, bounds, self._monotonic)
            except NoReply as no_reply:
                error = self._unanswered(request.name, urlsplit(call.url).hostname, no_reply)
            else:
                response = VendorResponse(request.name, reply.status, reply.headers, reply.body)
                if (refusal := self._refusal(response)) is None:
                    return response
                error = refusal
            if (
                isinstance(error, Unauthorized)
                and not renewed
                and self._source is not None
                and self._source.renewed(used)
            ):
                renewed, attempt = True, 1
                if not booked:
                    self.reserve()
                continue
            pause = self._pause(error, attempt) if request.safe else None
            if isinstance(error, Throttled) and not booked and (error.retry_after or pause is None):
                self.refused(error.retry_after)
            if pause is None:
                raise error
            self._services.sleep(pause)
            attempt += 1

    def _pause(self, error: ProviderError, attempt: int) -> float | None:
        """Return the seconds until the next attempt: exponential, half of it random, and at least
        what the vendor requests. None if there is no further one."""
        if attempt == self._limits.attempts or not isinstance(error, Transient | Throttled):
            return None
        longest = min(self._limits.longest_pause, 0.25 * 2.0 ** (attempt - 1))
        pause = max(error.retry_after, longest * (0.5 + 0.5 * self._services.chance()))
        return None if pause > self._limits.longest_pause or pause >= time_left() else pause

    def _open_session(self) -> BoundedSession:
        if self._session is None:
            self._session = BoundedSession()
            self._session.mount("https://", BoundedAdapter(public_context))
            self._session.mount("http://", BoundedAdapter(public_context, allowed=_without_tls))
        return self._session

    def _check_address(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            root = f"{parts.scheme}://{parts.netloc}"
        except ValueError:
            root = ""
        if problem := refused(self._vendor, root, self._services.deployment):
            raise BadInput(
                f"{self._vendor}: endpoint", problem, "write https:// and one of the vendor's hosts"
            )

    def _unanswered(self, name: str, host: str | None, error: NoReply) -> ProviderError:
        """Return the error of a call without a response. It names only the host and the kind of
        failure, because all other details contain the URL."""
        text = f"{host}: {error.words}"
        if error.sent and error.kind in PLAIN:
            text = PLAIN[error.kind].format(seconds=error.seconds, bytes=self._limits.bytes)
        # not sent: an invalid address or header
        return self._cleaned((Transient if error.sent else InvalidRequest)(f"{name}: {text}"), 0.0)

    def _refusal(self, response: VendorResponse) -> ProviderError | None:
        """Return the error of a response; None for a success."""
        call, status = response.call, str(response.status)
        if response.status >= 300:
            error = self._explain(response) or class_for(response.status)(
                f"{call}: HTTP {status}", code=status
            )
            return self._cleaned(
                error, retry_after(response.headers.get("retry-after", ""), self._clock())
            )
        if "text/html" not in response.headers.get("content-type", "").lower():
            return None
        return self._cleaned(
            Transient(f"{call}: a web page came instead of the API's answer", code=status), 0.0
        )

    def _cleaned(self, error: ProviderError, pause: float) -> ProviderError:
        """Return the same error, shortened and without any secret that the vendor echoed."""
        message, code, request_id = error.message, error.code, error.request_id
        for secret in self._secrets():
            message, code, request_id = (
                secret.hidden_in(text) for text in (message, code, request_id)
            )
        return type(error)(
            one_line(message)[:_LONGEST_MESSAGE],
            code=one_line(code)[:_LONGEST_WORD],
            request_id=one_line(request_id)[:_LONGEST_WORD],
            retry_after=error.retry_after or pause,
        )


def retry_after(text: str, now: float) -> float:
    """Return a Retry-After header as seconds from now: an integer of seconds or an HTTP date; 0.0
    for anything else. At most an hour: the value is stored in rows and messages, where an absurd
    value from a gateway would block work forever."""
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
