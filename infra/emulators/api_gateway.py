"""API Gateway's part before the app: finds the route, checks the API key, and converts the request to an event.

Requests that match no route are refused as API Gateway does, with 403 and `Missing Authentication Token`.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from infra.emulators.lambda_events import Json, http_event

if TYPE_CHECKING:
    from chalice.app import Chalice


class ApiGatewayRoute(msgspec.Struct, frozen=True):
    """resource: as in app.py, e.g. `/clusters/{name}`. guarded: requires a key (or, deployed with IAM, a signature)."""

    resource: str
    parameters: dict[str, str]
    guarded: bool

    def allows(self, headers: Mapping[str, str], api_key: str) -> bool:
        """Return whether a request is allowed. An empty key allows no guarded route."""
        given = next((value for name, value in headers.items() if name.lower() == "x-api-key"), "")
        return not self.guarded or (bool(api_key) and hmac.compare_digest(given.encode(), api_key.encode()))


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
    route: ApiGatewayRoute, method: str, target: str, headers: Mapping[str, str], body: bytes, request: str
) -> Json:
    """Return the event of this request."""
    return http_event(method, target, headers, body, route.resource, route.parameters, request)


def forbidden() -> Json:
    """Return API Gateway's response to a request that it does not allow."""
    body = json.dumps({"message": "Missing Authentication Token"})
    return {"statusCode": 403, "headers": {"Content-Type": "application/json"}, "body": body}
