"""The simulated API server without a network: maps a request to a response.

It authenticates, authorizes, finds the resource, and delegates to the other modules of
this package. Every request is logged (method, path, user, status; never a header), so
that tests can count calls.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from infra.emulators.kube import crds, disruption, openapi, resources, status
from infra.emulators.kube.auth import ANONYMOUS, KubeAuthority, RbacRule, User
from infra.emulators.kube.faults import Faults, KubeFault, edited
from infra.emulators.kube.listing import (
    LONGEST,
    WatchStream,
    item,
    list_objects,
    metadata_of,
    wants_metadata,
)
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.request import Request, ResourcePath, Response, answer, route_of, split
from infra.emulators.kube.resources import ServedResource
from infra.emulators.kube.selectors import selection
from infra.emulators.kube.store import ObjectStore
from infra.emulators.kube.write_path import Target, Writer

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


class ApiLoggedRequest(msgspec.Struct, frozen=True):
    """One answered request. path: with its query. status 0: the connection was closed
    without a response. gzip:
    whether the client takes compressed responses."""

    method: str
    path: str
    user: str
    status: int
    gzip: bool = False


class Api:
    """The behaviour of one API server. Thread-safe.

    users, rbac: see auth.Authority; crd_directory: definitions to serve in addition to the
    built-in resources bookmark_interval: wall seconds between the bookmarks of a watch;
    longest_watch: see watch.WatchStream
    """

    def __init__(
        self,
        store: ObjectStore,
        users: Iterable[User],
        rbac: Mapping[str, Iterable[RbacRule]],
        crd_directory: Path | None,
        *,
        bookmark_interval: float = 60.0,
        longest_watch: float = LONGEST,
    ) -> None:
        self.store, self.faults = store, Faults()
        self.requests: deque[ApiLoggedRequest] = deque(maxlen=100_000)
        self.authority = KubeAuthority(users, rbac)
        self.stopping = threading.Event()
        self._writer = Writer(store)
        self._bookmark_interval, self._longest_watch = bookmark_interval, longest_watch
        if crd_directory is not None:
            crds.load(store, crd_directory)
        for name in _NAMESPACES:
            if store.peek("namespaces", name) is None:
                store.create("namespaces", {"metadata": {"name": name}})

    def handle(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        certificate: User | None = None,
    ) -> Response:
        """Answer a request. target: path and query. certificate: the user that a verified
        client certificate names."""
        given = {name.lower(): value for name, value in (headers or {}).items()}
        fault = self.faults.take(method, target) or KubeFault()
        if fault.delay:
            self.stopping.wait(fault.delay)
        user = User(ANONYMOUS)
        try:
            if fault.status or (fault.close and not fault.late):
                made = Response(
                    fault.status, {"Content-Type": "application/json", **fault.headers}, fault.body
                )
            else:
                user = self.authority.identify(given.get("authorization", ""), certificate)
                path, query = split(target)
                made = self._answered(
                    Request(method, path, query, given, body, user, route_of(path))
                )
        except status.ApiError as error:
            made = answer(error.code, error.body(), error.headers)
        except Exception as error:
            # as in the real server, an internal error must not look like a lost connection
            text = f"Internal error occurred: {type(error).__name__}: {error}"
            causes = {"causes": [{"message": f"{type(error).__name__}: {error}"}]}
            made = answer(500, status.ApiError(500, "InternalError", text, causes).body())
        made.truncate, made.close = fault.truncate, fault.close
        if made.stream is not None and fault.edit is not None:
            made.stream = edited(made.stream, fault.edit)
        gzip = "gzip" in given.get("accept-encoding", "")
        self.requests.append(
            ApiLoggedRequest(method, target, user.name, 0 if made.close else made.status, gzip)
        )
        return made

    def _answered(self, request: Request) -> Response:
        self.authority.demand(request.user, request.attributes())
        if request.route is None or not request.route.plural:
            return self._document(request)
        route = request.route
        if not self.store.resources.serves(route.group, route.version):
            return _not_served()
        resource = self.store.resources.find(route.plural, route.group)
        version = resource.version(route.version) if resource else None
        if resource is None or version is None or (route.namespace and not resource.namespaced):
            raise status.no_such_path()
        return self._resource(request, Target(self.store, resource, version, route))

    def _document(self, request: Request) -> Response:
        registry, parts = self.store.resources, request.path.strip("/").split("/")
        if request.path in {"/healthz", "/livez", "/readyz"}:
            return Response(200, dict(_TEXT), b"ok")
        document: KubeObject | None = None
        if parts == ["version"]:
            document = resources.VERSION
        elif parts == ["api"]:
            document = resources.api_versions()
        elif parts == ["apis"]:
            document = resources.group_list(registry)
        elif len(parts) == 2 and parts[0] == "apis":
            document = resources.group(registry, parts[1])
        elif parts[0] == "openapi":
            document = openapi.document(registry, parts)
        elif request.route is not None:
            document = resources.resource_list(registry, request.route.group, request.route.version)
        return answer(200, document) if document is not None else _not_served()

    def _resource(self, request: Request, target: Target) -> Response:
        route = request.route or ResourcePath("", "")
        if route.subresource:
            return self._subresource(request, target)
        if target.resource.group in _REVIEWS:
            return self._review(request, target.resource)
        actions: dict[str, Callable[[], Response]]
        if route.name:
            actions = {
                "GET": lambda: answer(200, target.show(target.stored())),
                "PUT": lambda: self._writer.update(request, target),
                "PATCH": lambda: self._writer.patch(request, target),
                "DELETE": lambda: self._writer.delete(
                    target, _options(request), dry_run=_dry(request)
                ),
            }
        else:
            actions = {
                "GET": lambda: self._listed(request, target),
                "POST": lambda: self._writer.create(request, target),
                "DELETE": lambda: self._deleted_all(request, target),
            }
        return _chosen(actions, request.method)

    def _listed(self, request: Request, target: Target) -> Response:
        resource, version, namespace = target.resource, target.version, target.route.namespace
        accept = request.headers.get("accept", "")
        if not request.watching:
            listed = list_objects(self.store, resource, version, namespace, request.query)
            if wants_metadata(accept, form="PartialObjectMetadataList"):
                kind = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
                listed = {
                    **listed,
                    **kind,
                    "items": [metadata_of(each) for each in listed["items"]],
                }
            return answer(200, listed)
        watch = WatchStream(
            self.store,
            resource,
            version,
            namespace,
            request.query,
            metadata_only=wants_metadata(accept, form="PartialObjectMetadata"),
            stopped=self.stopping.is_set,
            bookmark_interval=self._bookmark_interval,
            longest=self._longest_watch,
        )
        return Response(200, {"Content-Type": "application/json"}, stream=watch.lines())

    def _deleted_all(self, request: Request, target: Target) -> Response:
        chosen, options = (
            selection(request.query, target.resource.group, target.resource.plural),
            _options(request),
        )
        found = [
            obj
            for obj in self.store.list(target.plural, target.route.namespace, target.group)
            if chosen.wants(obj)
        ]
        for obj in found:
            meta = obj["metadata"]
            route = msgspec.structs.replace(
                target.route, name=meta["name"], namespace=meta.get("namespace", "")
            )
            one = Target(self.store, target.resource, target.version, route)
            self._writer.delete(one, options, dry_run=_dry(request))
        return answer(
            200,
            {
                "kind": target.resource.list_kind,
                "apiVersion": target.resource.at(target.version.name),
                "metadata": {"resourceVersion": str(self.store.version)},
                "items": [item(target.resource, target.version, obj) for obj in found],
            },
        )

    def _subresource(self, request: Request, target: Target) -> Response:
        route, pods = target.route, (target.group, target.plural) == ("", "pods")
        served = {"status": target.version.status, "scale": target.version.scale is not None}
        if served.get(route.subresource):
            return _chosen(
                {
                    "GET": lambda: answer(200, target.show(target.stored())),
                    "PUT": lambda: self._writer.update(request, target),
                    "PATCH": lambda: self._writer.patch(request, target),
                },
                request.method,
            )
        if not pods or route.subresource not in {"eviction", "binding"}:
            raise status.no_such_path()
        if request.method != "POST":
            raise _not_allowed()
        where = (self.store, route.namespace, route.name, request.object())
        if route.subresource == "eviction":
            return answer(201, disruption.evict(*where, dry_run=request.dry_run))
        return answer(201, disruption.bind(*where))

    def _review(self, request: Request, resource: ServedResource) -> Response:
        if request.method != "POST":
            raise _not_allowed()
        sent, user = request.object(), request.user
        spec: dict[str, Any] = sent.get("spec") or {}
        review: KubeObject = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": {},
        }
        if resource.plural == "selfsubjectaccessreviews":
            return answer(
                201, {**review, "spec": spec, "status": self.authority.access_review(user, spec)}
            )
        if resource.plural == "selfsubjectrulesreviews":
            shown = self.authority.rules_review(user, spec.get("namespace", ""))
            return answer(201, {**review, "spec": {}, "status": shown})
        return answer(
            201,
            {
                **review,
                "status": {"userInfo": {"username": user.name, "groups": list(user.groups)}},
            },
        )


_REVIEWS = frozenset({"authorization.k8s.io", "authentication.k8s.io"})


def _not_served() -> Response:
    return Response(404, dict(_TEXT), b"404 page not found\n")


def _not_allowed() -> status.ApiError:
    message = "the server does not allow this method on the requested resource"
    return status.ApiError(405, "MethodNotAllowed", message, {})


def _chosen(actions: Mapping[str, Callable[[], Response]], method: str) -> Response:
    action = actions.get(method)
    if action is None:
        raise _not_allowed()
    return action()


def _options(request: Request) -> dict[str, Any]:
    options = request.object() if request.body.strip() else {}
    seconds = request.query.get("gracePeriodSeconds")
    if seconds is not None and seconds.isdigit():
        options.setdefault("gracePeriodSeconds", int(seconds))
    return options


def _dry(request: Request) -> bool:
    return request.dry_run or (
        bool(request.body.strip()) and "All" in (request.object().get("dryRun") or ())
    )
