"""One exchange over a session: a status, headers and a body within the bounds, or why there is none.

Both transports (kube/transport.py, providers/http.py) send through here and add their own words for what went wrong.
What `requests` and urllib3 raise stays inside: their exceptions carry the request, and with it the credential.
"""

from __future__ import annotations

import re
import ssl
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import HTTPException

import msgspec
import requests
from requests import exceptions
from urllib3 import exceptions as below

from chalicelib.net.exchange_limits import Breach, ExchangeLimit, within

_CHUNK = 2**18
_HEAD = 2**20  # bytes until the body begins; http.client stops at 100 headers
_FRAMING = 2**20  # bytes that chunk sizes, trailers and what lies behind the body may add to it
LONGEST_ERROR = 2**20  # bytes of an error's body; what is longer is no error of an API, and is not read
_GZIP, _GZIP_STREAM = "gzip", zlib.MAX_WBITS | 16
_MEDIA_TYPE = re.compile(r"[a-z0-9.+-]{1,40}/[a-z0-9.+-]{1,60}")


class ExchangeBounds(msgspec.Struct, frozen=True):
    """connect, read: seconds per wait on the socket. total: seconds for the whole exchange, up to the last byte of the
    body. bytes: of the body of a success."""

    connect: float
    read: float
    total: float
    bytes: int


class Request(msgspec.Struct, frozen=True):
    """What is sent. url: absolute; params: what is added to it as a query. gzip: whether the answer may be
    compressed."""

    method: str
    url: str
    headers: Mapping[str, str]
    params: Mapping[str, str] = {}
    body: bytes | None = None
    gzip: bool = False

    def __repr__(self) -> str:
        return f"Request({self.method})"  # all else may carry a key, a token or a signature


class Reply(msgspec.Struct, frozen=True):
    """What came. headers: names in lower case. unread: why the body of an error was not read; empty where it is
    whole."""

    status: int
    headers: dict[str, str]
    body: bytes
    unread: str = ""

    def __repr__(self) -> str:
        return f"Reply({self.described()})"

    def described(self) -> str:
        """The answer without a word of its body, which may be of any origin: status, length and media type."""
        size = self.unread or f"{len(self.body)} bytes"
        return f"HTTP {self.status} ({size} of {media_type(self.headers)})"


def media_type(headers: Mapping[str, str]) -> str:
    """The type of a body, as a message may show it. headers: names in lower case."""
    found = _MEDIA_TYPE.match(headers.get("content-type", "").strip().lower())
    return found.group() if found else "an unknown type"


class NoReply(Exception):
    """There is no usable answer.

    kind: a key of PLAIN, or the name of what `requests` raised. certificate: OpenSSL's verdict on the server's
    certificate, empty if that was not the cause. sent: False where nothing can have been sent, because the address or
    a header is not one.
    """

    def __init__(self, kind: str, *, certificate: str = "", sent: bool = True) -> None:
        super().__init__(kind)
        self.kind, self.certificate, self.sent = kind, certificate, sent


# The kinds that do not come from `requests`, in words. {seconds}, {bytes}: of the bounds.
PLAIN: Mapping[str, str] = {
    "Time": "the answer took longer than {seconds:g} s in all",
    "Size": "the answer is larger than {bytes} bytes",
    "Address": "the host's address is one that is never connected to (link-local, metadata or this machine)",
    "Encoding": "the answer is compressed, which was not asked for",
    "Damaged": "the compressed answer is cut short or damaged",
    "Interim": "an interim answer came in place of an answer",
    "Malformed": "the answer is not proper HTTP",
}

_BREACHES = {Breach.TIME: "Time", Breach.SIZE: "Size", Breach.ADDRESS: "Address"}

# The first that matches. urllib3's own exceptions come from reading the body, requests' from everything before.
_KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (exceptions.ConnectTimeout, "ConnectTimeout"),
    (exceptions.ReadTimeout, "ReadTimeout"),
    (below.ReadTimeoutError, "ReadTimeout"),
    (exceptions.ProxyError, "ProxyError"),
    (exceptions.SSLError, "SSLError"),
    (below.SSLError, "SSLError"),
    (below.InvalidHeader, "Malformed"),
    (exceptions.ConnectionError, "ConnectionError"),
    (exceptions.ChunkedEncodingError, "ChunkedEncodingError"),
    (below.ProtocolError, "ChunkedEncodingError"),
    (below.HTTPError, "Malformed"),
    (HTTPException, "Malformed"),
    (OSError, "ConnectionError"),
)


def exchange(
    session: requests.Session, request: Request, bounds: ExchangeBounds, monotonic: Callable[[], float] = time.monotonic
) -> Reply:
    """Send once. Raises NoReply, with nothing of the request in it or in its context.

    monotonic: seconds of a clock that never goes back, for bounds.total.
    """
    bound, answered = ExchangeLimit(bounds.total, _HEAD, monotonic), False
    try:
        with within(bound):
            response = _sent(session, request, bounds)
            answered = True
            return _reply(response, bounds, bound, unpack=request.gzip)
    except NoReply as error:
        problem = error
    except (requests.RequestException, below.HTTPError, HTTPException, OSError, ValueError) as error:
        problem = _no_reply(error, bound, answered=answered)
    raise problem


def _sent(session: requests.Session, request: Request, bounds: ExchangeBounds) -> requests.Response:
    return session.request(
        request.method,
        request.url,
        params=dict(request.params),
        data=request.body,
        headers={**request.headers, "Accept-Encoding": _GZIP if request.gzip else "identity"},
        timeout=(bounds.connect, bounds.read),
        allow_redirects=False,
        stream=True,
    )


def _reply(response: requests.Response, bounds: ExchangeBounds, bound: ExchangeLimit, *, unpack: bool) -> Reply:
    """Read the body. The connection is kept for the next exchange only where all of it was read."""
    try:
        status = response.status_code
        headers = {name.lower(): value for name, value in response.headers.items()}
        success, unread = status < 300, ""
        if status < 200:
            raise NoReply("Interim")
        longest = bounds.bytes if success else min(bounds.bytes, LONGEST_ERROR)
        body = b""
        encoding = headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity") and not (unpack and success and encoding == _GZIP):
            unread = "Encoding"
        elif (read := _body(response, longest, bound, packed=encoding == _GZIP)) is None:
            unread = "Size"
        else:
            body = read
        if unread and success:
            raise NoReply(unread)
    except BaseException:
        response.close()
        raise
    if unread:
        response.close()
    else:
        response.raw.release_conn()
    return Reply(status, headers, body, _UNREAD[unread])


_UNREAD = {"": "", "Encoding": "compressed", "Size": f"more than {LONGEST_ERROR} bytes"}


def _body(response: requests.Response, longest: int, bound: ExchangeLimit, *, packed: bool) -> bytes | None:
    """The whole body, unpacked; None for one that is longer. Raises NoReply for one that cannot be unpacked."""
    announced = response.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:20]) > longest:
        return None
    bound.allow(longest + _FRAMING)
    parts, size = [], 0
    pieces: Iterable[bytes] = response.raw.stream(_CHUNK, decode_content=False)
    for piece in _unpacked(pieces, longest) if packed else pieces:
        parts.append(piece)
        size += len(piece)
        if size > longest:
            return None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unpacked(pieces: Iterable[bytes], longest: int) -> Iterator[bytes]:
    """The content of one gzip stream, in pieces of a bounded size: a few bytes may unpack to any length. It ends when
    more than `longest` bytes were given. Raises NoReply."""
    unpacker, given = zlib.decompressobj(_GZIP_STREAM), 0
    try:
        for piece in pieces:
            left = piece
            while left and given <= longest:
                made = unpacker.decompress(left, _CHUNK)
                given += len(made)
                yield made
                if unpacker.eof and unpacker.unused_data:
                    raise NoReply("Damaged")  # bytes behind the stream
                left = unpacker.unconsumed_tail
            if given > longest:
                return
    except zlib.error:
        raise NoReply("Damaged") from None
    if not unpacker.eof:
        raise NoReply("Damaged")


def _no_reply(error: Exception, bound: ExchangeLimit, *, answered: bool) -> NoReply:
    """Why there is no answer, without the exception, which holds the request."""
    if bound.breach is not None:
        return NoReply(_BREACHES[bound.breach])
    inner = _all_of(error)
    for each in inner:
        if isinstance(each, ssl.SSLCertVerificationError):
            return NoReply("SSLError", certificate=str(each.verify_message))
    if isinstance(error, ValueError):  # about an address or a header: the request's, unless there is an answer
        answered = answered or any(isinstance(each, below.InvalidHeader) for each in inner)
        return NoReply("Malformed") if answered else NoReply(type(error).__name__, sent=False)
    return NoReply(next((kind for cls, kind in _KINDS if isinstance(error, cls)), type(error).__name__))


def _all_of(error: BaseException) -> list[BaseException]:
    """The exception and those it was made of, however deep they were wrapped."""
    seen: list[BaseException] = [error]
    for current in seen:
        wrapped = [*current.args, current.__cause__, current.__context__, getattr(current, "reason", None)]
        seen.extend(each for each in wrapped if isinstance(each, BaseException) and each not in seen and len(seen) < 20)
    return seen
