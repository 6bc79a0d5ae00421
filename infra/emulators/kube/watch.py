"""Watches: the log of a resource as a stream of JSON lines.

Selectors are applied before and after each write, so a watcher gets DELETED for an object that leaves the selection.
For a version that is too old, the stream contains an ERROR event with the 410 Status, as in the real server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import msgspec

from infra.emulators.kube import status
from infra.emulators.kube.defaults import fill
from infra.emulators.kube.history import HistoryEvent
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.resources import ServedResource, Version
from infra.emulators.kube.selectors import Selection, selection
from infra.emulators.kube.serialization import metadata_of, show
from infra.emulators.kube.store import ObjectStore

_BEFORE_END = 2.0  # wall seconds before its end at which a watch gets a bookmark, as from the real server
_SLICE = 0.5  # wall seconds between checks whether the client is still connected
LONGEST = 1800.0
"""Wall seconds of a watch that states no timeoutSeconds."""
_TRUE = frozenset({"1", "true", "True"})


def is_watch(query: Mapping[str, str]) -> bool:
    """Return whether a list request is a watch."""
    return query.get("watch") in _TRUE


class WatchStream:
    """One watch request.

    metadata_only: show objects without spec and status; stopped: returns whether the server is stopping;
    bookmark_interval: wall seconds between bookmarks, if allowed
    longest: wall seconds after which the watch ends at the latest; 0 to end it when it has sent what there is
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
        self._store, self._resource, self._version, self._namespace = store, resource, version, namespace
        self._group, self._plural = resource.alias or (resource.group, resource.plural)
        self._chosen: Selection = selection(query, resource.group, resource.plural)
        self._asked = query.get("resourceVersion", "")
        if self._asked and not self._asked.isdigit():
            why = f'Invalid value: "{self._asked}": strconv.ParseUint: parsing "{self._asked}": invalid syntax'
            raise status.invalid(
                "ListOptions", "meta.k8s.io", "", [status.cause("FieldValueInvalid", why, "resourceVersion")]
            )
        self._initial_end = query.get("sendInitialEvents") in _TRUE
        self._bookmarks = query.get("allowWatchBookmarks") in _TRUE
        self._timeout = min(float(query.get("timeoutSeconds") or LONGEST), longest)
        self._stopped, self._interval = stopped, bookmark_interval
        self._metadata_only = metadata_only

    def lines(self) -> Iterator[bytes]:
        """Yield the stream. About twice a second an empty piece lets the caller check whether the client is still
        connected."""
        deadline = time.monotonic() + self._timeout
        try:
            since = int(self._asked or 0)
            if self._initial_end or not since:
                page = self._store.page(self._plural, self._group, self._namespace, wanted=self._chosen.wants)
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
            fill(self._store.peek, self._resource, obj)  # the real one is an empty Node with all its zero values
        return _encoded("BOOKMARK", obj)


def _encoded(type_: str, obj: KubeObject) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"
