"""API Gateway's part before the app: finds the route, checks the API key, and converts
the request to an event.

Requests that match no route are refused as API Gateway does, with 403 and
`Missing Authentication Token`.
"""

from __future__ import annotations

import hmac
import itertools
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote, urlsplit

import msgspec

from infra.emulators.http_server import LoopbackServer, QuietHandler
from infra.emulators.lambda_events import Json, http_event
from infra.emulators.live.lambda_processes import Ended, Worker, logged

if TYPE_CHECKING:
    from chalice.app import Chalice


class ApiGatewayRoute(msgspec.Struct, frozen=True):
    """resource: as in app.py, e.g. `/clusters/{name}`. guarded: requires a key (or,
    deployed with IAM, a signature)."""

    resource: str
    parameters: dict[str, str]
    guarded: bool

    def allows(self, headers: Mapping[str, str], api_key: str) -> bool:
        """Return whether a request is allowed. An empty key allows no guarded route."""
        given = next((value for name, value in headers.items() if name.lower() == "x-api-key"), "")
        return not self.guarded or (
            bool(api_key) and hmac.compare_digest(given.encode(), api_key.encode())
        )


def find(app: Chalice, method: str, target: str) -> ApiGatewayRoute | None:
    """Return the route of this request, None if there is none. target: path and query."""
    path = urlsplit(target).path.strip("/").split("/")
    for resource, methods in app.routes.items():
        parameters = _match(resource.strip("/").split("/"), path)
        entry: Any = methods.get(method)
        if parameters is not None and entry is not None:
            guarded = bool(entry.api_key_required or entry.authorizer)
            return ApiGatewayRoute(resource, parameters, guarded)
    return None


def _match(resource: list[str], path: list[str]) -> dict[str, str] | None:
    if len(resource) != len(path):
        return None
    parameters = {}
    for wanted, given in zip(resource, path, strict=True):
        if wanted.startswith("{"):
            parameters[wanted.strip("{}")] = unquote(given)
        elif wanted != given:
            return None
    return parameters


def proxy_event(
    route: ApiGatewayRoute,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    request: str,
) -> Json:
    return http_event(method, target, headers, body, route.resource, route.parameters, request)


def forbidden() -> Json:
    """Return API Gateway's response to a request that it does not allow."""
    body = json.dumps({"message": "Missing Authentication Token"})
    return {"statusCode": 403, "headers": {"Content-Type": "application/json"}, "body": body}


#: API Gateway's limit; the app's own limit is much lower.
MAX_BODY = 10 * 2**20

Answer = Callable[[Json], Json]
"""A proxy event -> the app's response (`statusCode`, `headers`, `body`)."""


class _GatewayHandler(QuietHandler):
    front: ClassVar[ApiGatewayFront]

    def serve(self) -> None:
        if int(self.headers.get("Content-Length") or 0) > MAX_BODY:
            self.close_connection = True
            made: Json = {"statusCode": 413, "body": json.dumps({"message": "Request Too Long"})}
        else:
            made = self.front.answer(
                self.command, self.path, dict(self.headers.items()), self.read_body()
            )
        headers = {"Content-Type": "application/json"} | made.get("headers", {})
        self.send(made["statusCode"], headers.items(), str(made.get("body", "")).encode())


class ApiGatewayFront:
    """answer_event: passes an event to the app's process. api_key: required by read routes."""

    def __init__(self, answer_event: Answer, api_key: str, ended: Ended = logged) -> None:
        self._ended = ended
        self._answer_event, self.api_key = answer_event, api_key
        self._numbers = itertools.count(1)
        self._server: LoopbackServer | None = None
        self.url = ""

    def start(self) -> str:
        """Start serving on 127.0.0.1 and return the URL."""
        self._server = LoopbackServer(type("Handler", (_GatewayHandler,), {"front": self}))
        self._server.start(lambda serve: Worker(serve, name="front", ended=self._ended))
        self.url = self._server.url
        return self.url

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Json:
        from app import app

        route = find(app, method, target)
        if route is None or not route.allows(headers, self.api_key):
            return forbidden()
        return self._answer_event(
            proxy_event(route, method, target, headers, body, f"http-{next(self._numbers)}")
        )
