"""Decodes every call to AWS that passes an endpoint into service, operation and arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import botocore.session

from tests.functional.forwarding_endpoint import passing_on

_SCOPE = re.compile(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/aws4_request")


class AwsCall(NamedTuple):
    """One call. service: as botocore names it. given: the members of the request, including those
    of the path. verb and path: of HTTP, as used in API Gateway's permissions."""

    service: str
    operation: str
    given: dict[str, Any]
    verb: str
    path: str


@lru_cache(maxsize=32)
def _rest_routes(service: str) -> list[tuple[str, re.Pattern[str], str]]:
    """Verb, path pattern and operation; longer paths first."""
    model = botocore.session.get_session().get_service_model(service)
    routes = []
    for name in model.operation_names:
        http = model.operation_model(name).http
        plain = http["requestUri"].partition("?")[0].rstrip("/")
        pattern = re.sub(
            r"\\\{(\w+)(\\\+)?\\\}",
            lambda found: f"(?P<{found[1]}>.+)" if found[2] else f"(?P<{found[1]}>[^/]+)",
            re.escape(plain),
        )
        routes.append((http["method"], re.compile(pattern + "/?"), name))
    return sorted(routes, key=lambda route: -len(route[1].pattern))


def decoded(verb: str, target: str, headers: Any, body: bytes) -> AwsCall:
    """Decodes an HTTP request. Raises LookupError for an unknown operation."""
    service, path = _SCOPE.search(headers["Authorization"])[1], urlsplit(target).path  # type: ignore[index]
    service = {"monitoring": "cloudwatch"}.get(service, service)
    named = headers.get("X-Amz-Target", "")
    if named:
        return AwsCall(service, named.rpartition(".")[2], json.loads(body or b"{}"), verb, path)
    if service in ("iam", "cloudformation", "sts"):
        given = dict(parse_qsl(body.decode()))
        return AwsCall(service, given["Action"], given, verb, path)
    content: Any = json.loads(body) if body[:1] == b"{" else {}
    for method, pattern, name in _rest_routes(service):
        found = pattern.fullmatch(path) if method == verb else None
        if found is not None:
            return AwsCall(
                service,
                name,
                content | {key: unquote(value) for key, value in found.groupdict().items()},
                verb,
                path,
            )
    raise LookupError(f"{service} {verb} {path}")


@contextmanager
def recorded(endpoint: str) -> Iterator[tuple[str, list[AwsCall]]]:
    """An endpoint in front of another one, and the calls that passed it."""
    seen, odd = list[AwsCall](), list[str]()

    def admit(method: str, path: str, headers: Message, body: bytes) -> bool:
        try:
            seen.append(decoded(method, path, headers, body))
        except (LookupError, TypeError, ValueError) as error:
            odd.append(f"{method} {path}: {error}")
        return True

    with passing_on(endpoint, admit) as watched:
        yield watched, seen
    assert odd == []
