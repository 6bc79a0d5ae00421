"""One exchange over the wire: a request out, a body or a ClusterError back. No memory, no second attempt.

What `requests` raises never leaves this module, not even as an exception's context: each of its exceptions carries the
whole request, and with it the bearer token.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec
import requests

from chalicelib.kube.credentials import Credential
from chalicelib.kube.errors import ClusterError, Unavailable, from_answer
from chalicelib.kube.tls import ClusterAdapter, client_context, environment_proxies


class Call(msgspec.Struct, frozen=True):
    """One request. path: under the server's URL, with a leading slash; timeout: (connect, read) in seconds."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes | None
    content_type: str
    timeout: tuple[float, float]


class Line(msgspec.Struct, frozen=True):
    """A session made for one credential, apart from its token."""

    session: requests.Session
    server: str


Dial = Callable[[Credential], Line]
"""What opens a line."""


def open_line(credential: Credential) -> Line:
    """A session for this server, CA and client certificate; connects at the first exchange. Raises BadInput."""
    session = requests.Session()
    session.trust_env = False    # neither a CA bundle nor a ~/.netrc of the environment may take part
    session.proxies.update(environment_proxies(credential.server, credential.proxy))
    context = client_context(credential) if credential.server.startswith("https:") else None
    session.mount(credential.server, ClusterAdapter(context, credential.server_name))
    return Line(session, credential.server)


def exchange(line: Line, credential: Credential, call: Call, encoding: str) -> bytes:
    """Send once, follow nothing. encoding: what to accept. Returns the body of a 2xx; raises ClusterError."""
    headers = {"Accept": "application/json", "Accept-Encoding": encoding, "User-Agent": "outscaler"}
    if call.body is not None:
        headers["Content-Type"] = call.content_type
    if credential.token:
        bearer = "" if credential.token_header else "Bearer "
        headers[credential.token_header or "Authorization"] = f"{bearer}{credential.token.reveal()}"
    problem: ClusterError | None = None
    try:
        answer = line.session.request(
            call.method, line.server + call.path, params=call.query, data=call.body, headers=headers,
            timeout=call.timeout, allow_redirects=False,
        )
    except requests.RequestException as error:
        problem = _no_answer(error, call, credential)
    if problem is not None:
        raise problem
    if answer.status_code >= 300:
        raise from_answer(answer.status_code, answer.content, answer.headers, (credential.token,))
    return answer.content


def _no_answer(error: requests.RequestException, call: Call, credential: Credential) -> Unavailable:
    """What went wrong below HTTP, and with whom, in words that cannot quote a header."""
    what, host = f"{call.method} {call.path}", urlsplit(credential.server).netloc
    refused = _certificate_problem(error)
    if refused:
        return Unavailable(f"{what}: the server's certificate is refused: {refused}", reason="Tls", lasting=True)
    for cls, words in _NO_ANSWER:
        if isinstance(error, cls):
            remedy = f"check the server of {credential.cluster_place or 'the cluster'}, and the way to it"
            return Unavailable(f"{what}: {words.format(host=host)}; {remedy}", reason="Network")
    words = f"the request could not be sent ({type(error).__name__})"
    return Unavailable(f"{what}: {words}", reason="Network", lasting=True)


# The first that matches: ConnectTimeout and ProxyError are ConnectionErrors too.
_NO_ANSWER: tuple[tuple[type[requests.RequestException], str], ...] = (
    (requests.exceptions.ConnectTimeout, "no connection to {host} in time"),
    (requests.exceptions.ReadTimeout, "no answer from {host} in time"),
    (requests.exceptions.ProxyError, "the proxy did not connect to {host}"),
    (requests.exceptions.SSLError, "TLS with {host} failed"),
    (requests.exceptions.ConnectionError, "the connection to {host} failed"),
    (requests.exceptions.ChunkedEncodingError, "the answer of {host} was cut short"),
    (requests.exceptions.ContentDecodingError, "the answer of {host} could not be decompressed"),
)


def _certificate_problem(error: BaseException) -> str:
    """OpenSSL's verdict on the certificate, from however deep it was wrapped; empty if that is not the trouble."""
    seen: list[BaseException] = [error]
    for current in seen:
        if isinstance(current, ssl.SSLCertVerificationError):
            return str(current.verify_message)
        inner = [*current.args, current.__cause__, current.__context__, getattr(current, "reason", None)]
        seen.extend(e for e in inner if isinstance(e, BaseException) and e not in seen and len(seen) < 20)
    return ""
