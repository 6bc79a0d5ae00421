"""Connects the program's HTTP client to emulated vendors in the same process, without sockets.

The client gets what a network would deliver: status, headers and body, or one of the exceptions of `requests`. Its
session, limits and errors are the real ones.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from chalicelib.net.http_session import BoundedAdapter
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


def _send(adapter: BoundedAdapter, request: requests.PreparedRequest, *others: Any, **named: Any) -> requests.Response:
    """Do what HTTPAdapter.send does."""
    host = urlsplit(str(request.url)).netloc
    if host not in _ANSWERS:
        return HTTPAdapter.send(adapter, request, *others, **named)
    headers = {"host": host} | {name.lower(): str(value) for name, value in request.headers.items()}
    body = request.body.encode() if isinstance(request.body, str) else request.body or b""
    answer = _ANSWERS[host](Incoming(str(request.method), request.path_url, headers, body))
    if answer.hang_up:
        raise requests.exceptions.ConnectionError("the connection was closed")
    told = {"Content-Type": "application/json;charset=utf-8", **answer.headers, "Content-Length": str(len(answer.body))}
    raw = HTTPResponse(
        io.BytesIO(answer.body[: len(answer.body) - answer.cut]),
        {name: value for name, value in told.items() if value},
        answer.status,
        preload_content=False,
        decode_content=False,
        request_method=request.method,
    )
    return adapter.build_response(request, raw)
