"""The one way out to a vendor's API over HTTP, so that every vendor is called with the same care.

A call is bounded in time, size and number of attempts. It is repeated only where the caller says that repeating does no
harm; whether a change got through after a lost answer is for the provider to find out, not for this module to assume.
Nothing of the environment is obeyed (no proxies, no .netrc, no REQUESTS_CA_BUNDLE) and no cookie is kept: what a call
does is decided by what it was given. Redirects are not followed, because credentials would follow them too.

No error carries a header, a query, a body that was sent, or a known secret: signatures live in all three.
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
from chalicelib.net.forbidden_addresses import is_loopback
from chalicelib.net.http_exchange import PLAIN, ExchangeBounds, NoReply, Request, exchange, media_type
from chalicelib.net.http_session import BoundedAdapter, BoundedSession, public_context
from chalicelib.net.json_repair import read_json
from chalicelib.providers.errors import InvalidRequest, ProviderError, Throttled, Transient, Unknown
from chalicelib.providers.http_statuses import class_for

T = TypeVar("T")

_METADATA = frozenset({"100.100.100.200"})  # a vendor's metadata service: on the machine's own link, never with TLS
_LONGEST_MESSAGE = 300
_LONGEST_WORD = 128  # characters of a vendor's code and of its name for a request
_LONGEST_ASKED = 3600.0  # seconds; who names a year, or a number without end, is asked again all the same


class VendorRequest(msgspec.Struct, frozen=True):
    """One request. url is absolute; body as it goes over the wire. safe: repeating it does no harm."""

    method: str
    url: str
    headers: dict[str, str] = {}
    params: dict[str, str] = {}
    body: bytes | None = None
    safe: bool = False

    @property
    def name(self) -> str:
        """The call as an error may show it: no query, no user part of the address."""
        parts = urlsplit(self.url)
        return f"{self.method} {parts.hostname or ''}{parts.path}"

    def __repr__(self) -> str:
        return f"Call({self.name})"  # headers, query and body carry keys, tokens and signatures


class VendorResponse(msgspec.Struct, frozen=True):
    """A whole answer; header names in lower case."""

    call: str
    status: int
    headers: dict[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Answer({self.call}: {self.status}, {self.described})"  # a body may hold a session

    @property
    def described(self) -> str:
        """Length and type of the body, for an error about a body that is not the vendor's and so is not repeated."""
        return f"{len(self.body)} bytes of {media_type(self.headers)}"

    def read(self, kind: type[T], shape: Callable[[Any], Any] = lambda document: document) -> T:
        """The JSON body as that type, values that no decoder takes as texts (net/json_repair.py). shape: what is made
        of the document before. Raises Transient for what is no JSON (a proxy's page, a body cut short), Unknown for
        JSON of another shape."""
        try:
            return msgspec.convert(read_json(self.body, shape), kind)
        except msgspec.ValidationError as error:
            raise Unknown(f"{self.call}: the answer has another shape than expected: {error}") from None
        except msgspec.DecodeError:
            raise Transient(f"{self.call}: the answer is not complete JSON") from None


class Limits(msgspec.Struct, frozen=True):
    """connect, read: seconds per wait on the socket. total: seconds for one attempt, apart from looking up the name.
    longest_pause: seconds slept between attempts at most; a vendor that asks for more gets Throttled passed on instead.
    bytes: of an answer."""

    connect: float = 3.05
    read: float = 20.0
    total: float = 30.0
    attempts: int = 3
    longest_pause: float = 5.0
    bytes: int = 16 * 2**20


class Http:
    """A session with one vendor.

    explain: the vendor's own error codes as errors of the tree; None where it knows no better than the status.
    sign: called before every attempt, because signatures carry the time; returns the call to send.
    sleep, chance (uniform in [0, 1)) and clock (epoch seconds) are given from outside. monotonic: seconds of a clock
    that never goes back, for the total. vendor, deployment: whose hosts may be called (model/endpoints.py); a call to
    any other is never sent.
    """

    def __init__(
        self,
        *,
        vendor: str,
        deployment: Deployment,
        sleep: Callable[[float], None],
        chance: Callable[[], float],
        clock: Callable[[], float],
        secrets: tuple[Secret, ...] = (),
        explain: Callable[[VendorResponse], ProviderError | None] = lambda _: None,
        sign: Callable[[VendorRequest], VendorRequest] = lambda call: call,
        limits: Limits | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._vendor, self._deployment = vendor, deployment
        self._sleep, self._chance, self._clock = sleep, chance, clock
        self._secrets, self._explain, self._sign = secrets, explain, sign
        self._limits = limits or Limits()
        self._monotonic = monotonic
        self._session = BoundedSession()
        self._session.mount("https://", BoundedAdapter(public_context))
        self._session.mount("http://", BoundedAdapter(public_context, allowed=_without_tls))

    def send(self, call: VendorRequest) -> VendorResponse:
        """The answer, with a status below 300 and no HTML. Raises ProviderError, or BadInput for an address that is not
        one of the vendor's."""
        self._check_address(call.url)
        attempts = self._limits.attempts if call.safe else 1
        for attempt in range(1, attempts + 1):
            try:
                return self._once(self._sign(call), call.name)
            except (Transient, Throttled) as error:
                pause = self._pause(attempt, error)
                if attempt == attempts or pause > self._limits.longest_pause:
                    raise
                self._sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Let go of the connections."""
        self._session.close()

    def _check_address(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            root = f"{parts.scheme}://{parts.netloc}"
        except ValueError:
            root = ""
        if problem := refused(self._vendor, root, self._deployment):
            raise BadInput(f"{self._vendor}: endpoint", problem, "write https:// and one of the vendor's hosts")

    def _pause(self, attempt: int, error: ProviderError) -> float:
        """Exponential with half of it random, at least what the vendor asks for."""
        top = min(self._limits.longest_pause, 0.25 * 2.0 ** (attempt - 1))
        return max(error.retry_after, top * (0.5 + 0.5 * self._chance()))

    def _once(self, call: VendorRequest, name: str) -> VendorResponse:
        self._check_address(call.url)  # once more, as it was signed
        bounds = ExchangeBounds(self._limits.connect, self._limits.read, self._limits.total, self._limits.bytes)
        request = Request(call.method, call.url, call.headers, call.params, call.body)
        try:
            reply = exchange(self._session, request, bounds, self._monotonic)
        except NoReply as error:
            problem = _no_answer(error, name, bounds)
        else:
            return self._checked(VendorResponse(name, reply.status, reply.headers, reply.body))
        raise problem

    def _checked(self, answer: VendorResponse) -> VendorResponse:
        if answer.status < 300:
            if "text/html" in answer.headers.get("content-type", "").lower():
                raise Transient(f"{answer.call}: a web page came instead of the API's answer", code=str(answer.status))
            return answer
        error = self._explain(answer) or class_for(answer.status)(
            f"{answer.call}: HTTP {answer.status}", code=str(answer.status)
        )
        raise self._cleaned(error, retry_after(answer.headers.get("retry-after", ""), self._clock()))

    def _cleaned(self, error: ProviderError, asked: float) -> ProviderError:
        """The same error, short and without anything secret, whatever the vendor echoed."""
        message, code, request_id = error.message, error.code, error.request_id
        for secret in self._secrets:
            message, code, request_id = (secret.hidden_in(text) for text in (message, code, request_id))
        return type(error)(
            one_line(message)[:_LONGEST_MESSAGE],
            code=one_line(code)[:_LONGEST_WORD],
            request_id=one_line(request_id)[:_LONGEST_WORD],
            retry_after=error.retry_after or asked,
        )


def retry_after(text: str, now: float) -> float:
    """A Retry-After header as seconds from now: a whole number of seconds or an HTTP date; 0.0 for anything else. At
    most an hour: it ends up in rows and messages, where a gateway's nonsense would hold things up for ever."""
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


def _no_answer(error: NoReply, name: str, bounds: ExchangeBounds) -> ProviderError:
    """Only the kind of failure is shown: everything else that is known of it holds the address, with the query."""
    if not error.sent:
        return InvalidRequest(f"{name}: no answer ({error.kind})")  # an address or a header that cannot be
    if error.kind in PLAIN:
        return Transient(f"{name}: {PLAIN[error.kind].format(seconds=bounds.total, bytes=bounds.bytes)}")
    return Transient(f"{name}: no answer ({error.kind})")


def _without_tls(host: str) -> bool:
    """Whether that host or address is one that plain HTTP is allowed to."""
    return is_loopback(host) or host in _METADATA
