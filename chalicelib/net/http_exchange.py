"""One exchange over a session: returns a status, headers and a body within the limits, or
raises why there is none.

Both transports (cluster/transport.py, providers/kit/http.py) use this module and add their own
error messages. Exceptions of `requests` and urllib3 stay inside, because they contain the request,
and with it the credential.
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

from chalicelib.net.connection_problem import connection_problem, wrapped_errors
from chalicelib.net.sockets import Breach, ExchangeLimit, allowance, within
from chalicelib.net.time_limit import time_left

_CHUNK = 2**18
_HEAD = 2**20  # bytes before the body; http.client allows 100 headers
_FRAMING = 2**20  # bytes that chunk sizes, trailers and trailing data may add
# bytes of an error's body; a longer one does not come from an API and is not read
LONGEST_ERROR = 2**20
_GZIP, _GZIP_STREAM = "gzip", zlib.MAX_WBITS | 16
_MEDIA_TYPE = re.compile(r"[a-z0-9.+-]{1,40}/[a-z0-9.+-]{1,60}")


class ExchangeBounds(msgspec.Struct, frozen=True):
    """connect, read: seconds per wait on the socket. total: seconds for the whole exchange, up to
    the last byte of the body. bytes: of the body of a successful response."""

    connect: float
    read: float
    total: float
    bytes: int


class Request(msgspec.Struct, frozen=True):
    """A request. url: absolute; params: added to it as a query. gzip: whether the
    response may be compressed.

    on_piece: called with each piece of a successful body as it arrives, uncompressed, and before
    that once with b"" when the head has arrived. keep_body: whether the reply has the body, too.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    params: Mapping[str, str] = {}
    body: bytes | None = None
    gzip: bool = False
    on_piece: Callable[[bytes], None] | None = None
    keep_body: bool = True

    def __repr__(self) -> str:
        # every other field may contain a key, a token or a signature
        return f"Request({self.method})"


class Reply(msgspec.Struct, frozen=True):
    """A response. headers: names in lower case. unread: why the body of an error was not read;
    empty where it is complete."""

    status: int
    headers: dict[str, str]
    body: bytes
    unread: str = ""

    def __repr__(self) -> str:
        return f"Reply({self.described()})"

    def described(self) -> str:
        """Return the response without its body, which may be of any origin:
        status, length and media type."""
        size = self.unread or f"{len(self.body)} bytes"
        return f"HTTP {self.status} ({size} of {media_type(self.headers)})"


def media_type(headers: Mapping[str, str]) -> str:
    """Return the type of a body in a form that is safe in a message.
    headers: names in lower case."""
    match = _MEDIA_TYPE.match(headers.get("content-type", "").strip().lower())
    return match.group() if match else "an unknown type"


class NoReply(Exception):
    """There is no usable response.

    kind: a key of PLAIN, or the name of the exception from `requests`. certificate: OpenSSL's
    verdict on the server's certificate, empty if that was not the cause. sent: False where nothing
    can have been sent, because the address or a header is invalid. why: the connection failed, ""
    where that is not known. seconds: that the exchange was allowed to take.
    """

    def __init__(
        self, kind: str, *, certificate: str = "", sent: bool = True, why: str = ""
    ) -> None:
        super().__init__(kind)
        self.kind, self.certificate, self.sent, self.seconds = kind, certificate, sent, 0.0
        self.why = why or _TIMES.get(kind, "")

    @property
    def words(self) -> str:
        """Return `no answer (ConnectionError: DNS does not know its name)`, for a message that
        names the host."""
        why = f"its certificate is refused: {self.certificate}" if self.certificate else self.why
        return f"no answer ({self.kind}{f': {why}' if why else ''})"


_TIMES = {
    "ConnectTimeout": "it did not accept a connection in time",
    "ReadTimeout": "it did not answer in time",
}

# Messages for the kinds that do not come from `requests`. {seconds}, {bytes}: of the bounds.
PLAIN: Mapping[str, str] = {
    "Time": "the answer took longer than {seconds:.3g} s in all",
    "Task": "the time for all requests of this step was over",
    "Size": "the answer is larger than {bytes} bytes",
    "Address": "the host's address is not allowed (link-local, metadata or loopback)",
    "Encoding": "the answer is compressed, which was not asked for",
    "Damaged": "the compressed answer is cut short or damaged",
    "Interim": "an interim answer came in place of an answer",
    "Malformed": "the answer is not proper HTTP",
}

_BREACHES = {
    Breach.TIME: "Time",
    Breach.TASK: "Task",
    Breach.SIZE: "Size",
    Breach.ADDRESS: "Address",
}

# The first match counts. urllib3's own exceptions come from reading the body,
# requests' from everything before.
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
    session: requests.Session,
    request: Request,
    bounds: ExchangeBounds,
    monotonic: Callable[[], float] = time.monotonic,
) -> Reply:
    """Send once. Raises NoReply, which contains nothing of the request, neither itself nor in its
    context, and what the allowance of this context raises (net/sockets.py).

    monotonic: seconds of a clock that never goes back, for bounds.total.
    """
    bounds = _allowed(bounds)
    limit, answered = ExchangeLimit(bounds.total, _HEAD, monotonic), False
    try:
        with within(limit):
            response = session.request(
                request.method,
                request.url,
                params=dict(request.params),
                data=request.body,
                headers={
                    **request.headers,
                    "Accept-Encoding": _GZIP if request.gzip else "identity",
                },
                timeout=(bounds.connect, bounds.read),
                allow_redirects=False,
                stream=True,
            )
            answered = True
            return _reply(response, request, bounds, limit)
    except NoReply as error:
        problem = error
    except (
        requests.RequestException,
        below.HTTPError,
        HTTPException,
        OSError,
        ValueError,
    ) as error:
        problem = _no_reply(error, limit, answered=answered)
    problem.seconds = bounds.total
    raise problem


def _allowed(bounds: ExchangeBounds) -> ExchangeBounds:
    """Return the bounds, shortened to what this context allows. Raises NoReply
    where it allows nothing."""
    ask = allowance()
    seconds = ask() if ask is not None else bounds.total
    if min(seconds, time_left()) <= 0.0:
        raise NoReply("Task", sent=False)
    return msgspec.structs.replace(
        bounds,
        connect=min(bounds.connect, seconds),
        read=min(bounds.read, seconds),
        total=min(bounds.total, seconds),
    )


def _reply(
    response: requests.Response, request: Request, bounds: ExchangeBounds, limit: ExchangeLimit
) -> Reply:
    """Read the body. The connection is reused for the next exchange only
    where all of it was read."""
    try:
        status = response.status_code
        headers = {name.lower(): value for name, value in response.headers.items()}
        success, unread = status < 300, ""
        if status < 200:
            raise NoReply("Interim")
        longest = bounds.bytes if success else min(bounds.bytes, LONGEST_ERROR)
        body = b""
        encoding = headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity") and not (
            request.gzip and success and encoding == _GZIP
        ):
            unread = "Encoding"
        elif (
            read := _body(
                response, longest, limit, request if success else None, packed=encoding == _GZIP
            )
        ) is None:
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


def _body(
    response: requests.Response,
    longest: int,
    limit: ExchangeLimit,
    request: Request | None,
    *,
    packed: bool,
) -> bytes | None:
    """Return the whole body, uncompressed; None for one that is too long. request: if it asks for
    pieces. Raises NoReply for one that cannot be decompressed."""
    announced = response.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:20]) > longest:
        return None
    limit.allow(longest + _FRAMING)
    parts, size = [], 0
    pieces: Iterable[bytes] = response.raw.stream(_CHUNK, decode_content=False)
    on_piece, keep = (request.on_piece, request.keep_body) if request is not None else (None, True)
    if on_piece is not None:
        on_piece(b"")
    for piece in _unpacked(pieces, longest) if packed else pieces:
        if keep:
            parts.append(piece)
        if on_piece is not None:
            on_piece(piece)
        size += len(piece)
        if size > longest:
            return None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unpacked(pieces: Iterable[bytes], longest: int) -> Iterator[bytes]:
    """Yield the content of one gzip stream in pieces of a bounded size, because a few bytes may
    decompress to any length. Stops when more than `longest` bytes were yielded. Raises NoReply."""
    unpacker, size = zlib.decompressobj(_GZIP_STREAM), 0
    try:
        for piece in pieces:
            rest = piece
            while rest and size <= longest:
                content = unpacker.decompress(rest, _CHUNK)
                size += len(content)
                yield content
                if unpacker.eof and unpacker.unused_data:
                    raise NoReply("Damaged")  # bytes after the stream
                rest = unpacker.unconsumed_tail
            if size > longest:
                return
    except zlib.error:
        raise NoReply("Damaged") from None
    if not unpacker.eof:
        raise NoReply("Damaged")


def _no_reply(error: Exception, limit: ExchangeLimit, *, answered: bool) -> NoReply:
    """Return why there is no response, without the exception, which contains the request."""
    if limit.breach is not None:
        return NoReply(_BREACHES[limit.breach])
    inner = wrapped_errors(error)
    for cause in inner:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return NoReply("SSLError", certificate=str(cause.verify_message))
    # about an address or a header: the request's, unless there is a response
    if isinstance(error, ValueError):
        answered = answered or any(isinstance(cause, below.InvalidHeader) for cause in inner)
        return NoReply("Malformed") if answered else NoReply(type(error).__name__, sent=False)
    kind = next((kind for cls, kind in _KINDS if isinstance(error, cls)), type(error).__name__)
    return NoReply(kind, why=connection_problem(inner))
