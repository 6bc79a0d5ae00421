"""What API Gateway does in front of the app: finds the route, asks for its key, and makes an event of the request.

Requests that match no route are refused as API Gateway refuses them, with 403 and `Missing Authentication Token`.
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
    """resource: as app.py has it, `/clusters/{name}`. guarded: only with a key (or, deployed with IAM, signed)."""

    resource: str
    parameters: dict[str, str]
    guarded: bool

    def allows(self, headers: Mapping[str, str], api_key: str) -> bool:
        """Whether a request may pass; an empty key opens nothing that is guarded."""
        given = next((value for name, value in headers.items() if name.lower() == "x-api-key"), "")
        return not self.guarded or (bool(api_key) and hmac.compare_digest(given.encode(), api_key.encode()))


def find(app: Chalice, method: str, target: str) -> ApiGatewayRoute | None:
    """The route of this request, None if there is none. target: path and query."""
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
    """The event of this request."""
    return http_event(method, target, headers, body, route.resource, route.parameters, request)


def forbidden() -> Json:
    """API Gateway's answer to what it does not let through."""
    body = json.dumps({"message": "Missing Authentication Token"})
    return {"statusCode": 403, "headers": {"Content-Type": "application/json"}, "body": body}
