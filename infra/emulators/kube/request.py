"""Requests and responses of the simulated API server, and the parser of paths."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from infra.emulators.kube import status
from infra.emulators.kube.auth import Attributes, User
from infra.emulators.kube.listing import is_watch
from infra.emulators.kube.objects import KubeObject

_VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "GET": "get",
    "HEAD": "get",
}


class Response(msgspec.Struct):
    """A response. stream: pieces of a watch, sent as they are produced, instead of the body.

    truncate: send this number of bytes of the body and close, -1: all; close: close
    without a response (faults)
    """

    status: int
    headers: dict[str, str] = {}
    body: bytes = b""
    stream: Iterator[bytes] | None = None
    truncate: int = -1
    close: bool = False

    def json(self) -> Any:
        return json.loads(self.body)


def answer(code: int, document: KubeObject, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        code, {"Content-Type": "application/json", **(headers or {})}, msgspec.json.encode(document)
    )


class ResourcePath(msgspec.Struct, frozen=True):
    """The resource that a path names. name: "" for the collection."""

    group: str
    version: str
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Request(msgspec.Struct, frozen=True):
    """A request. headers: lower-case names. route: None for a path that
    does not name a resource."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    user: User
    route: ResourcePath | None = None

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def manager(self) -> str:
        return (
            self.query.get("fieldManager")
            or self.headers.get("user-agent", "").partition("/")[0]
            or "unknown"
        )

    @property
    def dry_run(self) -> bool:
        """Return whether the request must not store anything."""
        return self.query.get("dryRun") == "All"

    @property
    def watching(self) -> bool:
        return self.method == "GET" and is_watch(self.query)

    def object(self) -> KubeObject:
        """Return the body as an object. Raises ApiError 400, 415."""
        if self.content_type not in {"", "application/json"}:
            accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
            message = (
                "the body of the request was in an unknown format - accepted media types include: "
                f"{accepted}"
            )
            raise status.ApiError(415, "UnsupportedMediaType", message)
        try:
            found = json.loads(self.body)
        except ValueError:
            why = "couldn't get version/kind; json parse error: unexpected end of JSON input"
            raise status.bad_request(why) from None
        if not isinstance(found, dict):
            why = (
                "couldn't get version/kind; json parse error: json: cannot unmarshal into an object"
            )
            raise status.bad_request(why)
        return found

    def attributes(self) -> Attributes:
        route, verb = self.route, _VERBS.get(self.method, self.method.lower())
        if route is None or not route.plural:
            return Attributes(verb=verb, url=self.path)
        if not route.name:
            verb = {"get": "watch" if self.watching else "list", "delete": "deletecollection"}.get(
                verb, verb
            )
        namespace = (
            route.name if route.plural == "namespaces" and not route.group else route.namespace
        )
        return Attributes(
            verb=verb,
            group=route.group,
            resource=route.plural,
            subresource=route.subresource,
            namespace=namespace,
            name=route.name,
        )


def split(target: str) -> tuple[str, dict[str, str]]:
    path, query = _split(target)
    return path, dict(query)


@functools.lru_cache(maxsize=1024)  # clients request the same lists repeatedly
def _split(target: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    parts = urlsplit(target)
    return parts.path, tuple(parse_qsl(parts.query, keep_blank_values=True))


@functools.lru_cache(maxsize=1024)
def route_of(path: str) -> ResourcePath | None:
    """Return the resource that a path names (plural "" for a group version's
    discovery), None for other paths."""
    segments = [unquote(each) for each in path.strip("/").split("/")]
    if segments[0] == "api" and len(segments) >= 2:
        group, version, rest = "", segments[1], segments[2:]
    elif segments[0] == "apis" and len(segments) >= 3:
        group, version, rest = segments[1], segments[2], segments[3:]
    else:
        return None
    namespace = ""
    of_namespace = not group and len(rest) == 3 and rest[2] in {"status", "finalize"}
    if len(rest) >= 3 and rest[0] == "namespaces" and not of_namespace:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    return ResourcePath(group, version, plural, namespace, name, subresource)
