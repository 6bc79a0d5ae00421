"""Connects the real client to the simulated API server in the same process, without socket and TLS.

The client gets what a network would deliver: status, headers and body, or one of the
exceptions of `requests`. Everything happens in the caller's thread, so a process can be killed
in the middle of a request.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import requests
from requests import exceptions
from requests.structures import CaseInsensitiveDict

from chalicelib.cluster.credentials import KubeCredential
from chalicelib.cluster.transport import KubeConnection, open_connection
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.request import Response
from infra.emulators.kube.server import ApiServer

Ask = Callable[[str, str], KubeFault | None]
"""Returns the fault of a request (method, path and query), if any."""


Edit = Callable[[bytes], bytes]
"""The body of a response with status 200 of the emulated server -> the body that the client
gets."""


def unchanged(body: bytes) -> bytes:
    return body


def nothing(method: str, target: str) -> KubeFault | None:
    del method, target
    return None


class DirectLine:
    """Connections to one server. Credentials of other servers get ordinary connections.

    passes: implements waiting. ask: set by tests; called for every request, in the order of the
    requests. `status`, `body`, `headers`, `truncate`, `close`, `late` and `delay` of a Fault have
    their usual meaning, except that a delay is virtual and becomes a time-out if it is longer than
    the client waits (with `late`, after the request was carried out). edit: set by tests of objects
    that no API server would store.
    """

    def __init__(self, server: ApiServer, passes: Callable[[float], None]) -> None:
        self.server, self.passes = server, passes
        self.ask: Ask = nothing
        self.edit: Edit = unchanged

    def dial(self, credential: KubeCredential) -> KubeConnection:
        if credential.server != self.server.url:
            return open_connection(credential)
        return KubeConnection(_Session(self), credential.server)

    def exchange(
        self, method: str, target: str, headers: dict[str, str], body: bytes, patience: float
    ) -> Response:
        """Exchange one request. patience: seconds that the client waits for a response.
        Raises requests' exceptions."""
        fault = self.ask(method, target)
        if fault is None:
            made = self.server.handle(method, target, headers, body)
            if made.status == 200:
                made.body = self.edit(made.body)
            return made
        in_time = self._wait(fault.delay, patience)
        early = fault.close or not in_time
        if early and not fault.late:
            raise _lost(in_time=in_time)
        made = Response(
            fault.status, {"Content-Type": "application/json", **fault.headers}, fault.body
        )
        if not fault.status:
            made = self.server.handle(method, target, headers, body)
        if early:
            raise _lost(in_time=in_time)
        made.truncate = fault.truncate
        return made

    def _wait(self, delay: float, patience: float) -> bool:
        if delay:
            self.passes(min(delay, patience))
        return delay <= patience


def _lost(*, in_time: bool) -> requests.RequestException:
    return _closed() if in_time else exceptions.ReadTimeout("no answer in time")


def _closed() -> requests.RequestException:
    return exceptions.ConnectionError("the server closed the connection")


class _Session(requests.Session):
    """A session with only the method that cluster/transport.py calls, and close."""

    def __init__(self, line: DirectLine) -> None:
        # does not call the base class, whose connection pools cost more than the exchanges
        self._direct = line

    def close(self) -> None:
        """Do nothing; nothing is open."""

    def request(
        self, method: str | bytes, url: str | bytes, *_: Any, **given: Any
    ) -> requests.Response:
        target = str(url).removeprefix(self._direct.server.url) + _query(
            tuple((given.get("params") or {}).items())
        )
        made = self._direct.exchange(
            str(method), target, given["headers"], given.get("data") or b"", given["timeout"][1]
        )
        if made.close:
            raise _closed()
        if 0 <= made.truncate < len(made.body):
            raise exceptions.ChunkedEncodingError("the answer was cut short")
        return _Answer(made)


@functools.lru_cache(maxsize=1024)
def _query(params: tuple[tuple[str, str], ...]) -> str:
    return f"?{urlencode(params)}" if params else ""


class _Answer(requests.Response):
    """What the client reads of a response. The base class's constructor
    costs more than the exchange."""

    def __init__(self, made: Response) -> None:
        self.status_code, self.raw = made.status, _Whole(made.body)
        self.headers = CaseInsensitiveDict(made.headers)

    def close(self) -> None:
        """Do nothing; nothing is open."""


class _Whole:
    """What the client reads of urllib3's response."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        yield self._body

    def release_conn(self) -> None:
        """Do nothing; nothing is open."""
