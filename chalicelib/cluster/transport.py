"""The connection to an API server, what is sent over it, and what an answer means.
Stateless, without retries.

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
import time
from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

import msgspec
import requests
from requests.structures import CaseInsensitiveDict

from chalicelib.cluster.credentials import KubeCredential
from chalicelib.cluster.errors import Unavailable, from_answer
from chalicelib.model.errors import BadInput
from chalicelib.model.secret import Secret
from chalicelib.net.addresses import is_loopback, never
from chalicelib.net.http_exchange import PLAIN, ExchangeBounds, NoReply, Reply, Request, exchange
from chalicelib.net.http_session import BoundedAdapter, BoundedSession

# A page of the largest objects that an API server stores, 1.5 MB each, may be longer; it is
# then read in smaller ones.
LONGEST_BODY = 192 * 2**20
TOO_LARGE = "TooLarge"
"""Reason of a ClusterError: the response has more bytes than may be read."""
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
            f"{what}: the server's certificate is refused: {error.certificate}",
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
        return Unavailable(
            f"{what}: {_NO_ANSWER[error.kind].format(host=host)}; {remedy}", reason="Network"
        )
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
