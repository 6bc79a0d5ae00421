"""The connection to an API server, what is sent over it, what an answer means, and what is tried
again.

Only reads are retried, and only here: after a network error, a 5xx, a 429 or a truncated body. A
write is sent once. It may have succeeded although its response got lost, so the caller checks
before it repeats. After 401 and 403 the server has done nothing, so any call may be repeated with a
renewed credential; for 403 only once in the life of the object, because the credential may only
lack a permission.

An exchange is bounded in time and size (net/http_exchange.py). Exceptions of `requests` never leave
that module, not even as an exception's context, because each of them contains the whole request,
and with it the bearer token.

TLS trusts only the cluster's own CA. `requests` lets REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE replace
`session.verify`, and adds its own CA bundle to any SSLContext it is given. The SSLContext is
therefore created here, and the adapter prevents requests from changing it (net/http_session.py).
"""

from __future__ import annotations

import contextlib
import math
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
import requests
from msgspec import structs
from requests.structures import CaseInsensitiveDict

from chalicelib.cluster.credentials import (
    CredentialProvider,
    KubeCredential,
    access_of,
    identity_of,
)
from chalicelib.cluster.errors import (
    ClusterError,
    Forbidden,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    clean,
    from_answer,
)
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.secret import Secret, SecretUnavailable
from chalicelib.net.addresses import are_private, is_loopback, never
from chalicelib.net.http_exchange import PLAIN, ExchangeBounds, NoReply, Reply, Request, exchange
from chalicelib.net.http_session import BoundedAdapter, BoundedSession
from chalicelib.net.time_limit import time_left

T = TypeVar("T")

# A page of the largest objects that an API server stores, 1.5 MB each, may be longer; it is
# then read in smaller ones.
LONGEST_BODY = 192 * 2**20
TOO_LARGE = "TooLarge"
"""Reason of a ClusterError: the response has more bytes than may be read."""
_ATTEMPTS = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 4.0  # seconds; doubled per attempt, half of it jitter
# for a longer Retry-After the function does not wait; the error says when
_LONGEST_RETRY_AFTER = 10.0
_SAFE = frozenset({"GET", "HEAD"})
TIMEOUT = (3.05, 20.0)
"""Seconds to connect, and of a wait for bytes."""
TOTAL = 30.0  # seconds for one exchange of a function
JSON = "application/json"
METADATA_ONLY = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
"""Lists of objects without spec and status; a server that does not know the form
answers with whole objects."""
METADATA_ONLY_CHANGES = METADATA_ONLY.replace("MetadataList", "Metadata")
"""The same for watches."""


class KubeRequest(msgspec.Struct, frozen=True):
    """One request. path: under the server's URL, with a leading slash; timeout: (connect, read) in
    seconds per wait; total: seconds for the whole exchange; longest: bytes of the response's body,
    uncompressed; gzip: it may be compressed; accept: the form of the response; on_piece, keep_body:
    see net/http_exchange.Request."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes | None
    content_type: str
    timeout: tuple[float, float]
    total: float = math.inf
    longest: int = LONGEST_BODY
    gzip: bool = False
    accept: str = JSON
    on_piece: Callable[[bytes], None] | None = None
    keep_body: bool = True

    def __repr__(self) -> str:
        return f"KubeRequest({self.method} {self.path})"  # a body may contain a bootstrap token


class KubeConnection(msgspec.Struct, frozen=True):
    """A session made for one credential, without its token."""

    session: requests.Session
    server: str


class ReadBounds(msgspec.Struct, frozen=True):
    """exchange: seconds for one attempt. call: seconds in which attempts at one call are started,
    and for the first attempt. lists: seconds from the first page of the first list to the last page
    of the last one. body: bytes of one response. page: bytes of one page of several objects; a
    longer one is read again with fewer. pages, volume: of one list, the latter in bytes."""

    exchange: float
    call: float
    lists: float
    body: int = LONGEST_BODY
    page: int = 48 * 2**20
    pages: int = 10_000
    volume: int = 8 * 2**30


AT_A_TERMINAL = ReadBounds(exchange=300.0, call=600.0, lists=3600.0)
# A pass has 120 s, and its decision must still be saved. 150,000 pods take 300 pages.
HOSTED = ReadBounds(exchange=TOTAL, call=45.0, lists=75.0)


Dial = Callable[[KubeCredential], KubeConnection]
"""Opens one connection to the API server of a credential."""


def client_context(credential: KubeCredential) -> ssl.SSLContext:
    """Return the SSLContext for this credential. Raises BadInput naming the
    field whose PEM is unusable."""
    # trusts no CA yet; never the machine's bundle
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Python 3.13 enables this by default; CAs made by kubeadm and EKS lack
    # the extensions it requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if credential.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif credential.ca:
        try:
            context.load_verify_locations(cadata=credential.ca.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError):
            place = f"{credential.cluster_place}.certificate-authority-data"
            raise BadInput(
                place, "is not a PEM certificate", "write the base64 of the cluster's CA in PEM"
            ) from None
    else:
        context.load_verify_locations(cafile=requests.utils.DEFAULT_CA_BUNDLE_PATH)
    if credential.certificate:
        _load_certificate(context, credential)
    return context


def _load_certificate(context: ssl.SSLContext, credential: KubeCredential) -> None:
    """Load the client certificate. OpenSSL reads files only, so a temporary file
    private to this user is used."""
    # created with mode 0600
    descriptor, path = tempfile.mkstemp(prefix="outscaler-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(credential.certificate.rstrip() + b"\n" + credential.key.reveal().encode())
        # The callable prevents OpenSSL from prompting on a terminal for the pass
        # phrase of an encrypted key.
        context.load_cert_chain(path, password=lambda: "-")
    except (ssl.SSLError, ValueError):
        place = f"{credential.user_place}.client-certificate-data and client-key-data"
        problem = "are not a PEM certificate and the key that belongs to it"
        raise BadInput(
            place, problem, "write the base64 of each in PEM, the key without a pass phrase"
        ) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def proxies_of(credential: KubeCredential) -> Mapping[str, str]:
    """Return the proxy for the server: the kubeconfig's own; otherwise, but not in a function, the
    one that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name, as in kubectl.

    Evaluated once per connection, because a session that ignores the environment
    does not evaluate it itself.
    """
    if credential.proxy:
        return {"http": credential.proxy.reveal(), "https": credential.proxy.reveal()}
    if credential.hosted:
        return {}
    proxies = requests.utils.get_environ_proxies(credential.server)
    return {str(scheme): str(url) for scheme, url in proxies.items()}


def open_connection(credential: KubeCredential) -> KubeConnection:
    """Create a session for this server, CA and client certificate; connects at the first
    exchange. Raises BadInput."""
    session = BoundedSession()
    session.proxies.update(proxies_of(credential))
    # Created immediately where it is needed, so that an invalid certificate is a BadInput
    # and not a failed exchange.
    context = client_context(credential) if credential.server.startswith("https:") else None
    session.mount(
        credential.server,
        BoundedAdapter(
            lambda: context or client_context(credential),
            server_name=credential.server_name,
            unverified=context is not None and context.verify_mode == ssl.CERT_NONE,
            allowed=lambda address: (
                not never(address) and not (credential.hosted and is_loopback(address))
            ),
        ),
    )
    return KubeConnection(session, credential.server)


def wire_request(
    connection: KubeConnection, credential: KubeCredential, request: KubeRequest
) -> tuple[Request, ExchangeBounds]:
    """Return the request as it is sent, with the credential, and its limits."""
    headers = {"Accept": request.accept}
    if request.body is not None:
        headers["Content-Type"] = request.content_type
    if credential.token:
        bearer = "" if credential.token_header else "Bearer "
        headers[credential.token_header or "Authorization"] = f"{bearer}{credential.token.reveal()}"
    connect, read = request.timeout
    wire = Request(
        request.method,
        connection.server + request.path,
        headers,
        request.query,
        request.body,
        gzip=request.gzip,
        on_piece=request.on_piece,
        keep_body=request.keep_body,
    )
    return wire, ExchangeBounds(connect, read, request.total, request.longest)


def body_of(reply: Reply | NoReply, request: KubeRequest, credential: KubeCredential) -> bytes:
    """Return the body of a 2xx; raises ClusterError for any other answer, and for none."""
    if isinstance(reply, NoReply):
        raise _no_answer(reply, request, credential)
    if reply.status < 300:
        return reply.body
    raise from_answer(
        reply.status,
        reply.body,
        CaseInsensitiveDict(reply.headers),
        _secrets(credential),
        described=reply.described(),
    )


def server_date(connection: KubeConnection) -> str:
    """Return the header Date of the server's answer, whatever its status; "" without
    one or without an answer."""
    connect, read = 5.0, 10.0
    try:
        answer = exchange(
            connection.session,
            Request(
                "GET", f"{connection.server}/version", {"Accept": "application/json"}, {}, None
            ),
            ExchangeBounds(connect, read, connect + read, 2**20),
            time.monotonic,
        )
    except NoReply:
        return ""
    return answer.headers.get("date", "")


def _secrets(credential: KubeCredential) -> tuple[Secret, ...]:
    """Return the secrets that a server or a proxy has received and may repeat."""
    password = urlsplit(credential.proxy.reveal()).password or ""
    return credential.token, Secret(unquote(password))


def _no_answer(error: NoReply, request: KubeRequest, credential: KubeCredential) -> Unavailable:
    """Describe a failure below HTTP and the server, in words that cannot quote a header."""
    what, host = f"{request.method} {request.path}", urlsplit(credential.server).netloc
    if error.certificate:
        return Unavailable(
            f"{what}: {host}: the server's certificate is refused: {error.certificate}",
            reason="Tls",
            lasting=True,
        )
    remedy = (
        f"check the server of {credential.cluster_place or 'the cluster'}, and the network path to "
        "it"
    )
    if error.kind in PLAIN:
        words = PLAIN[error.kind].format(seconds=error.seconds, bytes=request.longest)
        reason = TOO_LARGE if error.kind == "Size" else "Network"
        return Unavailable(
            f"{what}: {words} ({host}); {remedy}", reason=reason, lasting=error.kind in _LASTING
        )
    if error.kind in _NO_ANSWER:
        words = _NO_ANSWER[error.kind].format(host=host)
        why = f": {error.why}" if error.why and "in time" not in words else ""
        return Unavailable(f"{what}: {words}{why}; {remedy}", reason="Network")
    words = f"the request could not be sent ({error.kind})"
    return Unavailable(f"{what}: {words}", reason="Network", lasting=True)


# Failures that would occur again at the next attempt.
_LASTING = frozenset({"Size", "Address", "Encoding", "Task"})

_NO_ANSWER = {
    "ConnectTimeout": "no connection to {host} in time",
    "ReadTimeout": "no answer from {host} in time",
    "ProxyError": "the proxy did not connect to {host}",
    "SSLError": "TLS with {host} failed",
    "ConnectionError": "the connection to {host} failed",
    "ChunkedEncodingError": "the answer of {host} was cut short",
}


class KubeTransport:
    """The connection to one API server, kept for many requests. Only reads are retried, as the
    module says.

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
        timeout: tuple[float, float] = TIMEOUT,
        attempts: int = _ATTEMPTS,
    ) -> bytes:
        """Send a request and return the response's body. body: bytes as they are, anything else as
        JSON; timeout: (connect, read) in seconds, per attempt; an attempt with a timeout of its own
        takes no longer than both together; attempts: of a read, 1 for optional data."""
        payload = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        total = math.inf if timeout == TIMEOUT else sum(timeout)
        request = KubeRequest(
            method.upper(), path, dict(query or {}), payload, content_type, timeout, total
        )
        return self._persist(request, bytes, attempts)

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
