"""Serves an emulated vendor in the same process or on a loopback port, over HTTP or TLS;
independent of the vendor.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Self, TypeVar
from urllib.parse import urlsplit

import msgspec
import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from chalicelib.net.http_session import BoundedAdapter
from infra.emulators.certificates import Pair, server_context
from infra.emulators.http_server import LoopbackServer, QuietHandler
from infra.emulators.vendor_common.dispatcher import Logged, VendorDispatcher
from infra.emulators.vendor_common.fault_injection import VendorFault, VendorFaults, VendorThrottle
from infra.emulators.vendor_common.http_messages import Answer, Incoming

_ANSWERS: dict[str, Callable[[Incoming], Answer]] = {}


def connect(host: str, answer: Callable[[Incoming], Answer]) -> None:
    """Let `answer` handle every request of this process to the host (with its port)."""
    _ANSWERS[host] = answer
    BoundedAdapter.send = _send  # type: ignore[method-assign, assignment]


def disconnect(host: str) -> None:
    """End that. A host that is not connected is ignored."""
    _ANSWERS.pop(host, None)
    if not _ANSWERS and "send" in vars(BoundedAdapter):
        del BoundedAdapter.send


def _send(
    adapter: BoundedAdapter, request: requests.PreparedRequest, *others: Any, **named: Any
) -> requests.Response:
    host = urlsplit(str(request.url)).netloc
    if host not in _ANSWERS:
        return HTTPAdapter.send(adapter, request, *others, **named)
    headers = {"host": host} | {name.lower(): str(value) for name, value in request.headers.items()}
    body = request.body.encode() if isinstance(request.body, str) else request.body or b""
    answer = _ANSWERS[host](Incoming(str(request.method), request.path_url, headers, body))
    if answer.hang_up:
        raise requests.exceptions.ConnectionError("the connection was closed")
    told = {
        "Content-Type": "application/json;charset=utf-8",
        **answer.headers,
        "Content-Length": str(len(answer.body)),
    }
    raw = HTTPResponse(
        io.BytesIO(answer.body[: len(answer.body) - answer.cut]),
        {name: value for name, value in told.items() if value},
        answer.status,
        preload_content=False,
        decode_content=False,
        request_method=request.method,
    )
    return adapter.build_response(request, raw)


_Front = TypeVar("_Front", bound=VendorDispatcher[Any])
Edit = Callable[[bytes], bytes]
"""The body of a response with status 200 of the emulated vendor -> the body that is sent
instead."""


def unchanged(body: bytes) -> bytes:
    return body


class _VendorHandler(QuietHandler):
    vendor: ClassVar[VendorServer[Any, Any]]

    def serve(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.vendor.answer(Incoming(self.command, self.path, headers, self.read_body()))
        if answer.hang_up:
            self.close_connection = True
            return
        told = {"Content-Type": "application/json;charset=utf-8", **answer.headers}
        self.send(
            answer.status,
            [(name, value) for name, value in told.items() if value],
            answer.body,
            answer.cut,
        )


Scripted = Answer | Callable[[Incoming], Answer] | VendorFault | None
"""An answer, or a function that returns it, although the vendor never receives the request; or a
fault that the vendor's own answer meets; or None for the vendor's own answer."""
_PORTS = itertools.cycle(range(1024, 32768))  # below those that the system gives to sockets


class VendorServer(Generic[_Front, Logged]):
    """Serves a front, the API of a vendor. As a context manager it starts on entry and stops on
    exit; the front's state is kept.

    tls: the server's certificate and key, which make `url` an https one. in_process: the program's
    HTTP client reaches it without a socket, and no other client does. edit: set by tests of
    responses that no vendor documents. requests: all that arrived.
    """

    def __init__(self, front: _Front, *, tls: Pair | None = None, in_process: bool = False) -> None:
        self.front, self._tls, self._in_process = front, tls, in_process
        self.url = ""
        # of this machine; set another one before `start` for clients that refuse loopback
        self.address = "127.0.0.1"
        self.edit: Edit = unchanged
        self.requests: list[Incoming] = []
        self._script: list[tuple[re.Pattern[str], list[Scripted], bool]] = []
        self._server: LoopbackServer | None = None

    @property
    def host(self) -> str:
        """Return `127.0.0.1:port`, as in an SDK's endpoint."""
        return self.url.partition("://")[2]

    @property
    def faults(self) -> VendorFaults:
        return self.front.faults

    @property
    def throttle(self) -> VendorThrottle:
        return self.front.throttle

    @property
    def log(self) -> list[Logged]:
        return list(self.front.log)

    def reply(self, on: str, *answers: Scripted, always: bool = False) -> None:
        """Script the answers to the next requests. on: a pattern of their lines (Incoming.line).
        always: the last answer is repeated; otherwise each is sent once."""
        self._script.append((re.compile(on), list(answers), always))

    def unscript(self) -> None:
        self._script.clear()

    def answer(self, incoming: Incoming) -> Answer:
        self.requests.append(incoming)
        for pattern, answers, always in self._script:
            if answers and pattern.search(incoming.line):
                answer = answers[0] if always and len(answers) == 1 else answers.pop(0)
                if isinstance(answer, Answer):
                    return answer
                if isinstance(answer, VendorFault):
                    self.faults.next(answer)
                elif answer is not None:
                    return answer(incoming)
                break
        made = self.front.served(incoming)
        return (
            msgspec.structs.replace(made, body=self.edit(made.body)) if made.status == 200 else made
        )

    def start(self, port: int = 0) -> str:
        """Start serving on the address and return the URL. port 0: any free port."""
        if self._in_process:
            self.url = f"http://{self.address}:{next(_PORTS)}"
            connect(self.host, self.answer)
            return self.url
        handler = type("Handler", (_VendorHandler,), {"vendor": self})
        context = server_context(self._tls) if self._tls is not None else None
        self._server = LoopbackServer(handler, address=self.address, port=port, context=context)
        self._server.start()
        self.url = self._server.url
        return self.url

    def stop(self) -> None:
        """Stop serving. Raises RuntimeError if the emulator failed on a request, which is an error
        of the emulator and not of the client."""
        disconnect(self.host)
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self.front.crashes:
            raise RuntimeError("\n".join(self.front.crashes))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


_Cloud = TypeVar("_Cloud")
_Server = TypeVar("_Server", bound=VendorServer[Any, Any])


class AttachedAccount(Generic[_Cloud, _Server]):
    """Base of the vendors' accounts. A subclass sets _cloud and _server when
    it is attached to a clock."""

    _cloud: _Cloud | None = None
    _server: _Server | None = None

    @property
    def cloud(self) -> _Cloud:
        """The account. AssertionError before it is attached."""
        assert self._cloud is not None, "attach the account first"
        return self._cloud

    @property
    def server(self) -> _Server:
        """The server of the account's API. AssertionError before it is attached."""
        assert self._server is not None, "attach the account first"
        return self._server

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        """Stop serving; harmless if it never began."""
        if self._server is not None:
            self._server.stop()
