"""One authenticated connection to one cluster's API: bytes in, bytes out.

Responses stay bytes because the caller decodes them into the few fields that are used, and never
into full objects. The `kubernetes` package is not used, because importing it alone takes longer
than the rest of a cold start.

Only reads are retried, and only here: after a network error, a 5xx, a 429 or a truncated body. A
write is sent once. It may have succeeded although its response got lost, so the caller checks
before it repeats. After 401 and 403 the server has done nothing, so any call may be repeated with a
renewed credential; for 403 only once in the life of the object, because the credential may only
lack a permission.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import structs

from chalicelib.cluster.credentials import (
    CredentialProvider,
    KubeCredential,
    access_of,
    identity_of,
)
from chalicelib.cluster.errors import (
    ClusterError,
    Expired,
    Forbidden,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    clean,
)
from chalicelib.cluster.list_page import (
    AT_A_TERMINAL,
    ListHead,
    Page,
    ReadBounds,
    TypedList,
    TypedPage,
    decoded,
    typed_page,
)
from chalicelib.cluster.transport import (
    JSON,
    Dial,
    KubeConnection,
    KubeRequest,
    body_of,
    open_connection,
    server_date,
    wire_request,
)
from chalicelib.model.errors import OutscalerError
from chalicelib.model.secret import SecretUnavailable
from chalicelib.net.addresses import are_private
from chalicelib.net.http_exchange import NoReply, Reply, exchange
from chalicelib.net.time_limit import time_left

T = TypeVar("T")

_ATTEMPTS = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 4.0  # seconds; doubled per attempt, half of it jitter
# for a longer Retry-After the function does not wait; the error says when
_LONGEST_RETRY_AFTER = 10.0
_RESTARTS = 3  # of a list whose continue token expired
_SAFE = frozenset({"GET", "HEAD"})
# not allowed with a continue token
_OF_FIRST_PAGE_ONLY = frozenset({"resourceVersion", "resourceVersionMatch"})
_TIMEOUT = (3.05, 20.0)
# seconds that the process of a watch may be frozen, beyond which its connection is given up
_FROZEN = 150.0


def path_segment(name: str) -> str:
    """Quote a name as part of a path."""
    return quote(name, safe="")


class KubeClient:
    """A cluster's API. Safe to share between threads. Every method raises ClusterError
    (errors.py) and nothing else.

    sleep and jitter (uniform in [0, 1)) are injected, so that a test is fast and deterministic.
    dial: opens a connection for a credential. bounds: limits of time and size. monotonic: seconds
    of a clock that never goes back.
    """

    def __init__(
        self,
        provider: CredentialProvider,
        *,
        sleep: Callable[[float], None],
        jitter: Callable[[], float],
        dial: Dial = open_connection,
        bounds: ReadBounds | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._login, self._sleep, self._jitter, self._dial = provider, sleep, jitter, dial
        self._bounds, self._monotonic = bounds or AT_A_TERMINAL, monotonic
        self._lists_began: float | None = None
        self._looked_again = False
        self._lock = threading.Lock()
        credential = provider.current()
        self._line, self._identity = dial(credential), identity_of(credential)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
        timeout: tuple[float, float] = _TIMEOUT,
        attempts: int = _ATTEMPTS,
    ) -> bytes:
        """Send a request and return the response's body. body: bytes as they are, anything else as
        JSON; timeout: (connect, read) in seconds, per attempt; an attempt with a timeout of its own
        takes no longer than both together; attempts: of a read, 1 for optional data."""
        payload = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        total = math.inf if timeout == _TIMEOUT else sum(timeout)
        request = KubeRequest(
            method.upper(), path, dict(query or {}), payload, content_type, timeout, total
        )
        return self._persist(request, bytes, attempts)

    def get(self, path: str, *, query: Mapping[str, str] | None = None) -> bytes:
        """Return one object, or one List that is known to be short; complete JSON, read
        again if it was truncated."""
        # msgspec.Raw validates without creating objects.
        return self._persist(_get(path, query), lambda body: decoded(body, msgspec.Raw)[1])

    def read(self, path: str, kind: type[T], *, query: Mapping[str, str] | None = None) -> T:
        """Return one object, decoded into a msgspec.Struct that names the fields wanted."""
        return self._persist(_get(path, query), lambda body: decoded(body, kind)[0])

    def list_pages(
        self, path: str, *, query: Mapping[str, str] | None = None, limit: int = 500
    ) -> Iterator[Page]:
        """Read a List, `limit` items at a time. If a continue token expires in between (410), the
        list starts over: first=True.

        Raises Expired if that happens more than a few times: the list takes longer to read
        than the server keeps a token. Raises Unavailable for a list of more pages, bytes or
        seconds than the limits allow.
        """
        first_query = {**(query or {}), "limit": str(limit)}
        page_query, restarts, pages, size = first_query, 0, 0, 0
        while True:
            request = structs.replace(_get(path, page_query), gzip=True)
            try:
                head, body = self._persist(
                    request, lambda body: decoded(body, ListHead), within=self._list_seconds(path)
                )
            except Expired:
                if page_query is first_query or restarts == _RESTARTS:
                    raise
                page_query, restarts = first_query, restarts + 1
                continue
            next_page = head.metadata.next_page
            pages, size = pages + 1, size + len(body)
            if pages > self._bounds.pages or size > self._bounds.volume:
                raise Unavailable(
                    f"{path}: the list does not end: {pages} pages, {size} bytes", lasting=True
                )
            yield Page(body, first=page_query is first_query)
            if not next_page:
                return
            if next_page == page_query.get("continue"):
                raise Unavailable(
                    f"{path}: the server gives the same page again and again", lasting=True
                )
            page_query = {
                key: value for key, value in first_query.items() if key not in _OF_FIRST_PAGE_ONLY
            }
            page_query["continue"] = next_page

    def list_page(
        self,
        path: str,
        query: Mapping[str, str],
        decode: Callable[[bytes], TypedList],
        *,
        accept: str = JSON,
        on_piece: Callable[[bytes], None] | None = None,
        gzip: bool = True,
    ) -> TypedPage:
        """Read one page of a List. on_piece: called with the pieces of its body as they arrive, and
        with b"" before the first one of each attempt. gzip: whether it may be compressed. Raises
        Expired for a continue token that is too old."""
        request = structs.replace(_get(path, query), gzip=gzip, accept=accept, on_piece=on_piece)
        return self._persist(
            request, lambda body: typed_page(body, decode), within=self._list_seconds(path)
        )

    def watch(
        self,
        path: str,
        query: Mapping[str, str],
        on_piece: Callable[[bytes], None],
        *,
        accept: str = JSON,
        longest: int,
    ) -> None:
        """Read a watch to its end, which the server makes after the query's
        timeoutSeconds. Not repeated.

        Lambda may freeze the process before that end, until the next pass. The rest is then read,
        so that the connection can be used again.

        on_piece: as in list_page; the pieces are lines of JSON, cut anywhere. longest: bytes.
        """
        total = float(query.get("timeoutSeconds", "1")) + _FROZEN
        request = structs.replace(
            _get(path, query), accept=accept, on_piece=on_piece, keep_body=False
        )
        self._ask(structs.replace(request, total=total, longest=longest))

    def begin_lists(self) -> None:
        """Start the time for all lists anew: a client that is kept serves several passes."""
        self._lists_began, self._looked_again = None, False

    def pause(self, attempt: int) -> None:
        """Wait before attempt number `attempt` + 1: exponential, half of it random."""
        top = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1))
        self._sleep(top * (0.5 + 0.5 * self._jitter()))

    @property
    def identity(self) -> str:
        """Return which cluster this is, independent of the connection: a digest of the CA that must
        have signed its certificate or, where the credential has no CA, of the server's URL. It is
        the same for every address, account and secret of a cluster; only the owner of the CA's key
        can give another server the same identity."""
        return self._identity

    def access(self) -> str:
        """Return a digest of the server and of the account with which it is asked: what is
        read may depend on both. The tokens that are signed anew for every use do not
        count. Raises ClusterError."""
        return access_of(self._ready()[1])

    def is_local(self) -> bool:
        """Return whether the server has private addresses only, and no proxy is in
        between. Raises ClusterError."""
        credential = self._ready()[1]
        return not credential.proxy and are_private(urlsplit(credential.server).hostname or "")

    def server(self) -> tuple[str, bytes, str]:
        """Return the server's URL, the CA in PEM and the name in its certificate, where it
        differs. Raises ClusterError."""
        credential = self._ready()[1]
        return credential.server, credential.ca, credential.server_name

    def server_time(self) -> float | None:
        """Return the server's clock in epoch seconds, to the second; None where it does not say."""
        from email.utils import parsedate_to_datetime

        try:
            return parsedate_to_datetime(server_date(self._ready()[0])).timestamp()
        except (TypeError, ValueError):
            return None

    def close(self) -> None:
        """Close the connections."""
        self._line.session.close()

    def _list_seconds(self, path: str) -> float:
        """Return the seconds that remain for all lists. Raises Unavailable."""
        if self._lists_began is None:
            self._lists_began = self._monotonic()
        seconds = self._lists_began + self._bounds.lists - self._monotonic()
        if seconds <= 0:
            raise Unavailable(
                f"{path}: the cluster's lists took longer than {self._bounds.lists:g} s",
                lasting=True,
            )
        return seconds

    def _persist(
        self,
        request: KubeRequest,
        read: Callable[[bytes], T],
        attempts: int = _ATTEMPTS,
        *,
        within: float = math.inf,
    ) -> T:
        """Make one call, with reads repeated as the module says. read turns the body into
        the result or raises DecodeError. within: seconds for all of it, where they are
        fewer than the limits allow."""
        until = self._monotonic() + min(within, self._bounds.call)
        for attempt in range(1, attempts + 1):
            total = min(request.total, self._bounds.exchange, until - self._monotonic())
            try:
                body = self._ask(structs.replace(request, total=total, longest=self._bounds.body))
            except (Unavailable, TooManyRequests) as error:
                problem: Unavailable | TooManyRequests = error
            else:
                try:
                    return read(body)
                except msgspec.DecodeError:
                    problem = Unavailable(
                        f"{request.path}: the answer is cut short or not what was asked for",
                        status=200,
                    )
            late = self._monotonic() >= until or time_left() <= max(
                problem.retry_after, _FIRST_PAUSE
            )
            hopeless = problem.lasting or problem.retry_after > _LONGEST_RETRY_AFTER or late
            if request.method not in _SAFE or hopeless or attempt == attempts:
                raise problem
            if problem.retry_after:
                self._sleep(problem.retry_after)
            else:
                self.pause(attempt)
            if self._monotonic() >= until:
                raise problem
        raise AssertionError("the last attempt returns or raises")

    def _ask(self, request: KubeRequest) -> bytes:
        """Make one call; on 401 again with the credential read anew, on 403 if it has changed. Its
        error names the request and the credential."""
        repeated = False
        try:
            while True:
                line, credential = self._ready()
                wire, bounds = wire_request(line, credential, request)
                try:
                    answer: Reply | NoReply = exchange(line.session, wire, bounds, self._monotonic)
                except NoReply as error:
                    answer = error
                try:
                    return body_of(answer, request, credential)
                except (Forbidden, Unauthorized) as refused:
                    if repeated or not self._is_worth_another(refused, credential):
                        raise
                repeated = True
        except ClusterError as error:
            error.asked = f"{request.method} {request.path}"
            try:
                credential = self._login.current()
            except OutscalerError:
                raise error from None
            error.server = urlsplit(credential.server).netloc
            error.asked += f" with {credential.user_place}" if credential.user_place else ""
            raise

    def _is_worth_another(
        self, forbidden: Forbidden | Unauthorized, credential: KubeCredential
    ) -> bool:
        """Return whether the credential is another one by now. Raises
        Unauthorized if it cannot be read."""
        if isinstance(forbidden, Forbidden):
            return self._is_replaced(credential)
        if problem := self._renew(credential):
            text = f"{forbidden.message}; reading the credential again: {problem}"
            raise Unauthorized(text, status=401, reason=forbidden.reason) from None
        return True

    def _ready(self) -> tuple[KubeConnection, KubeCredential]:
        """Return the connection and a credential with a fresh token. A mistake that an operator
        must correct is Unauthorized."""
        with self._lock:
            try:
                return self._line, self._login.current()
            except SecretUnavailable as error:
                raise Unavailable(clean(str(error))) from None
            except OutscalerError as error:
                raise Unauthorized(clean(str(error)), status=401) from None

    def _is_replaced(self, refused_credential: KubeCredential) -> bool:
        """Return whether there is another credential by now than the one that lacks a permission.
        Read once; several threads may have been refused at the same time."""
        with self._lock:
            try:
                current = self._login.current()
                if current is refused_credential and not self._looked_again:
                    self._looked_again = True
                    self._login.renew()
                    current = self._login.current()
                    if current != refused_credential:
                        self._line, self._identity = self._dial(current), identity_of(current)
            except OutscalerError:
                return False
            return current != refused_credential

    def _renew(self, refused_credential: KubeCredential) -> str:
        """Read the credential again unless another thread has; return the problem
        in one line if that fails."""
        with self._lock:
            try:
                if self._login.current() is not refused_credential:
                    return ""
                self._login.renew()
                credential = self._login.current()
                self._line, self._identity = self._dial(credential), identity_of(credential)
            except OutscalerError as error:
                return clean(str(error))
        return ""


def _get(path: str, query: Mapping[str, str] | None) -> KubeRequest:
    return KubeRequest("GET", path, dict(query or {}), None, "", _TIMEOUT)


class LazyKubeClient:
    """A connection that is opened at its first use, because many messages find nothing to do and
    must not pay for it. connect: called once, when `connected` is first read."""

    def __init__(self, connect: Callable[[], KubeClient]) -> None:
        self._connect = connect
        self._cluster: KubeClient | None = None

    @property
    def connected(self) -> KubeClient:
        """Return the connection, opened now if there was none. Raises what connecting raises."""
        if self._cluster is None:
            self._cluster = self._connect()
        return self._cluster
