"""Reads: how an object is shown in a response, lists in pages, and watches.

A continue token contains the version of the first page and the last key, so all pages show the same
state. When that state is no longer known, the response is 410 with a token for an inconsistent
rest, as in the real server. A watch is the log of a resource as lines of JSON; selectors are
applied before and after each write. Custom resources change versions as with conversion strategy
None: fields that the other version's schema does not contain are lost.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from infra.emulators.kube import status
from infra.emulators.kube.defaults import fill
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.resources import ServedResource, Version
from infra.emulators.kube.selectors import Selection, selection
from infra.emulators.kube.store import HistoryEvent, HistoryPage, Key, ObjectStore
from infra.emulators.kube.validation import prune

_EVENT_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_CORE_NAMES = {new: old for old, new in _EVENT_NAMES.items()}


def show(resource: ServedResource, version: Version, obj: KubeObject) -> KubeObject:
    """Return a stored object in this version. Both objects are READ ONLY."""
    api_version = resource.at(version.name)
    if resource.alias:
        renamed = {_EVENT_NAMES.get(key, key): value for key, value in obj.items()}
        return {**renamed, "apiVersion": api_version}
    if obj.get("apiVersion") == api_version:
        return obj
    shown: KubeObject = prune(version.schema, obj) if version.schema else dict(obj)
    shown["apiVersion"] = api_version
    return shown


def item(resource: ServedResource, version: Version, obj: KubeObject) -> KubeObject:
    """Return it as an item of a list: built-in items have no kind and
    apiVersion, custom ones have them."""
    shown = show(resource, version, obj)
    if not resource.native:
        return shown
    return {key: value for key, value in shown.items() if key not in {"kind", "apiVersion"}}


def wants_metadata(accept: str, *, form: str) -> bool:
    """Return whether the first media type that a client accepts is metadata alone. form:
    PartialObjectMetadata for a watch or PartialObjectMetadataList for a list, which the
    real server distinguishes."""
    kind, *parameters = [each.strip() for each in accept.partition(",")[0].split(";")]
    return kind == "application/json" and {f"as={form}", "g=meta.k8s.io", "v=v1"} <= set(parameters)


def metadata_of(obj: KubeObject) -> KubeObject:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def taken_in(resource: ServedResource, obj: KubeObject) -> KubeObject:
    if resource.alias:
        return {
            **{_CORE_NAMES.get(key, key): value for key, value in obj.items()},
            "apiVersion": "v1",
        }
    return {**obj, "apiVersion": resource.api_version, "kind": resource.kind}


def _token(version: int, last: Key, *, namespaced: bool) -> str:
    start = f"{last[0]}/{last[1]}" if namespaced else f"/{last[1]}"
    text = json.dumps(
        {"v": "meta.k8s.io/v1", "rv": version, "start": f"{start}\0"}, separators=(",", ":")
    )
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _continued(token: str) -> tuple[int, Key]:
    """Return the version and the last key of a token. Raises ApiError 400."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _bad_token("illegal base64 data at input byte 0") from None
    try:
        found = json.loads(raw)
        namespace, _, name = found["start"].rstrip("\0").rpartition("/")
        return int(found["rv"]), (namespace, name)
    except (ValueError, UnicodeDecodeError):
        first = raw[:1].decode("latin-1")
        shown = first if first.isprintable() else f"\\u{ord(first or chr(0)):04x}"
        raise _bad_token(f"invalid character '{shown}' looking for beginning of value") from None
    except (KeyError, TypeError, AttributeError):
        raise _bad_token("incorrect start key") from None


def _bad_token(why: str) -> status.ApiError:
    return status.bad_request(f"invalid continue token: continue key is not valid: {why}")


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    if not text:
        return 0
    try:
        return int(text)
    except ValueError:
        if name == "resourceVersion":
            raise status.invalid(
                "ListOptions",
                "meta.k8s.io",
                "",
                [
                    status.cause(
                        "FieldValueInvalid",
                        (
                            f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": '
                            "invalid syntax"
                        ),
                        "resourceVersion",
                    ),
                ],
            ) from None
        raise status.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _check_match(query: Mapping[str, str]) -> None:
    """Refuse what a real server refuses. Raises ApiError 422."""
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    if not match:
        return
    why = ""
    if query.get("continue"):
        why = "resourceVersionMatch is forbidden when continue is provided"
    elif not version:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif match == "Exact" and version == "0":
        why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    elif match not in ("Exact", "NotOlderThan"):
        why = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
    if why:
        cause = status.cause("FieldValueForbidden", f"Forbidden: {why}", "resourceVersionMatch")
        raise status.invalid("ListOptions", "meta.k8s.io", "", [cause])


def _too_large(asked: int, current: int) -> status.ApiError:
    message = f"Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return status.ApiError(
        504,
        "Timeout",
        f"Timeout: {message}",
        {"causes": causes, "retryAfterSeconds": 1},
        {"Retry-After": "1"},
    )


def _page(
    store: ObjectStore,
    resource: ServedResource,
    namespace: str,
    query: Mapping[str, str],
    chosen: Selection,
) -> tuple[HistoryPage, int]:
    group, plural = resource.alias or (resource.group, resource.plural)
    limit, asked = _number(query, "limit"), _number(query, "resourceVersion")
    wanted = chosen.wants if chosen else None
    _check_match(query)
    if query.get("continue"):
        if query.get("resourceVersion"):
            raise status.bad_request(
                "specifying resource version is not allowed when using continue"
            )
        version, after = _continued(query["continue"])
        try:
            page = store.page(
                plural,
                group,
                namespace,
                after=after,
                limit=limit,
                wanted=wanted,
                version=version if version > 0 else None,
            )
        except status.ApiError as error:
            error.meta = {"continue": _token(-1, after, namespaced=resource.namespaced)}
            raise
        return page, limit
    if asked > store.version:
        raise _too_large(asked, store.version)
    if asked == 0 and query.get("resourceVersion"):
        limit = 0  # answered from the watch cache, which ignores limits (recorded)
    exact = query.get("resourceVersionMatch") == "Exact" or (
        limit and asked and "resourceVersionMatch" not in query
    )
    node = chosen.exactly("spec.nodeName") if plural == "pods" and not group else None
    if node and not limit and not exact:
        pods = [pod for pod in store.pods_on(node) if chosen.wants(pod)]
        mine = [pod for pod in pods if not namespace or pod["metadata"]["namespace"] == namespace]
        return HistoryPage(mine, store.version), 0
    version_wanted = asked if exact else None
    try:
        return store.page(
            plural, group, namespace, limit=limit, wanted=wanted, version=version_wanted
        ), limit
    except status.ApiError:
        raise status.expired("The resourceVersion for the provided list is too old.") from None


def list_objects(
    store: ObjectStore,
    resource: ServedResource,
    version: Version,
    namespace: str,
    query: Mapping[str, str],
) -> KubeObject:
    """Return the List object for a request; its items are READ ONLY. Raises ApiError 400, 410,
    504."""
    chosen = selection(query, resource.group, resource.plural)
    page, limit = _page(store, resource, namespace, query, chosen)
    meta: dict[str, Any] = {"resourceVersion": str(page.version)}
    if not resource.native:
        meta["continue"] = ""
    if limit and page.last is not None:
        meta["continue"] = _token(page.version, page.last, namespaced=resource.namespaced)
        if not chosen:
            meta["remainingItemCount"] = page.remaining
    return {
        "kind": resource.list_kind,
        "apiVersion": resource.at(version.name),
        "metadata": meta,
        "items": [item(resource, version, obj) for obj in page.items],
    }


# wall seconds before its end at which a watch gets a bookmark, as from the real server
_BEFORE_END = 2.0
_SLICE = 0.5  # wall seconds between checks whether the client is still connected
LONGEST = 1800.0
"""Wall seconds of a watch that states no timeoutSeconds."""
_TRUE = frozenset({"1", "true", "True"})


def is_watch(query: Mapping[str, str]) -> bool:
    return query.get("watch") in _TRUE


class WatchStream:
    """One watch request.

    metadata_only: show objects without spec and status; stopped: returns whether the server is
    stopping; bookmark_interval: wall seconds between bookmarks, if allowed
    longest: wall seconds after which the watch ends at the latest; 0 to end it when
    it has sent what there is
    """

    def __init__(
        self,
        store: ObjectStore,
        resource: ServedResource,
        version: Version,
        namespace: str,
        query: Mapping[str, str],
        *,
        metadata_only: bool = False,
        stopped: Callable[[], bool] = lambda: False,
        bookmark_interval: float = 60.0,
        longest: float = LONGEST,
    ) -> None:
        self._store, self._resource, self._version, self._namespace = (
            store,
            resource,
            version,
            namespace,
        )
        self._group, self._plural = resource.alias or (resource.group, resource.plural)
        self._chosen: Selection = selection(query, resource.group, resource.plural)
        self._asked = query.get("resourceVersion", "")
        if self._asked and not self._asked.isdigit():
            why = (
                f'Invalid value: "{self._asked}": strconv.ParseUint: parsing "{self._asked}": '
                "invalid syntax"
            )
            raise status.invalid(
                "ListOptions",
                "meta.k8s.io",
                "",
                [status.cause("FieldValueInvalid", why, "resourceVersion")],
            )
        self._initial_end = query.get("sendInitialEvents") in _TRUE
        self._bookmarks = query.get("allowWatchBookmarks") in _TRUE
        self._timeout = min(float(query.get("timeoutSeconds") or LONGEST), longest)
        self._stopped, self._interval = stopped, bookmark_interval
        self._metadata_only = metadata_only

    def lines(self) -> Iterator[bytes]:
        """Yield the stream. About twice a second an empty piece lets the caller check whether the
        client is still connected."""
        deadline = time.monotonic() + self._timeout
        try:
            since = int(self._asked or 0)
            if self._initial_end or not since:
                page = self._store.page(
                    self._plural, self._group, self._namespace, wanted=self._chosen.wants
                )
                since = page.version
                yield b"".join(self._line("ADDED", obj) for obj in page.items)
                if self._initial_end:
                    yield self._bookmark(since, {"k8s.io/initial-events-end": "true"})
            yield from self._follow(since, deadline)
        except status.ApiError as error:
            yield _encoded("ERROR", error.body())

    def _follow(self, since: int, deadline: float) -> Iterator[bytes]:
        began, last = time.monotonic(), since
        next_bookmark = began + self._interval if self._bookmarks else float("inf")
        if began <= deadline - _BEFORE_END < next_bookmark and self._bookmarks:
            next_bookmark = deadline - _BEFORE_END
        while not self._stopped():
            with self._store.transaction():
                events = self._store.events(self._plural, since, self._group)
                since = max(since, self._store.version)
            if events:
                last = events[-1].version
                yield b"".join(line for event in events if (line := self._event(event)))
            now = time.monotonic()
            if now >= deadline:
                return
            if now >= next_bookmark:
                next_bookmark = now + self._interval
                if since > last:  # the real server sends none that says no more than the last event
                    yield self._bookmark(since, {})
            pause = min(_SLICE, deadline - now, max(0.0, next_bookmark - now))
            if not self._store.wait(since, pause, stopped=self._stopped):
                yield b""

    def _event(self, event: HistoryEvent) -> bytes:
        if self._namespace and event.object["metadata"].get("namespace") != self._namespace:
            return b""
        before = event.previous is not None and self._chosen.wants(event.previous)
        after = event.type != "DELETED" and self._chosen.wants(event.object)
        if before and after:
            return self._line("MODIFIED", event.object)
        if after:
            return self._line("ADDED", event.object)
        if before:
            return self._line("DELETED", event.object)
        return b""

    def _line(self, type_: str, obj: KubeObject) -> bytes:
        shown = show(self._resource, self._version, obj)
        return _encoded(type_, metadata_of(shown) if self._metadata_only else shown)

    def _bookmark(self, version: int, annotations: dict[str, str]) -> bytes:
        meta: KubeObject = {"resourceVersion": str(version)}
        if annotations:
            meta["annotations"] = annotations
        obj: KubeObject = {
            "kind": self._resource.kind,
            "apiVersion": self._resource.at(self._version.name),
            "metadata": meta,
        }
        if self._resource.plural == "nodes":
            # the real one is an empty Node with all its zero values
            fill(self._store.peek, self._resource, obj)
        return _encoded("BOOKMARK", obj)


def _encoded(type_: str, obj: KubeObject) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"
