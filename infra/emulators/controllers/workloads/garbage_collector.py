"""The garbage collector: deletes objects whose controller was deleted, and old events.

It reacts to deletions that it observes and does not search for objects whose owner is missing. A capture that contains
only pods can therefore be loaded and stays.
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.model.timestamps import parse_time
from infra.emulators.controllers.object_writes import controller_of, erase, listed
from infra.emulators.kube.status import ApiError
from infra.emulators.kube.store import ObjectStore, Subscription

CLUSTER_API = "cluster.x-k8s.io"
# Owner kind -> the kind that it controls; both as (plural, group).
_CHILDREN = (
    (("deployments", "apps"), ("replicasets", "apps")),
    (("replicasets", "apps"), ("pods", "")),
    (("daemonsets", "apps"), ("pods", "")),
    (("statefulsets", "apps"), ("pods", "")),
    (("jobs", "batch"), ("pods", "")),
    (("machinedeployments", CLUSTER_API), ("machinesets", CLUSTER_API)),
    (("machinesets", CLUSTER_API), ("machines", CLUSTER_API)),
)


class Garbage:
    """The garbage collector of one store. event_seconds: retention of an event after its last occurrence."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float], event_seconds: float = 3600.0) -> None:
        self._store, self._clock, self._keep = store, clock, event_seconds
        self._cursors: dict[tuple[str, str], Subscription] = {}
        self._swept = clock()
        self._seen = -1

    def step(self) -> None:
        """Follow the deletions since the last step."""
        if self._store.version != self._seen:
            self._seen = self._store.version
            self._follow()
        self._forget_events()

    def _follow(self) -> None:
        for owner, (plural, group) in _CHILDREN:
            gone = self._removed(*owner)
            if not gone:
                continue
            for child in listed(self._store, plural, group):
                if (controller_of(child) or {}).get("uid") in gone and "deletionTimestamp" not in child["metadata"]:
                    erase(self._store, plural, child, group)

    def _removed(self, plural: str, group: str) -> set[str]:
        if self._store.resources.find(plural, group) is None:
            return set()
        cursor = self._cursors.get((plural, group))
        try:
            if cursor is not None:
                if self._store.latest(plural, group) <= cursor.version:
                    return set()
                return {e.object["metadata"]["uid"] for e in cursor.poll() if e.type == "DELETED"}
        except ApiError:  # more deletions than the log keeps: continue from now
            pass
        self._cursors[(plural, group)] = self._store.subscribe(plural, group)
        return set()

    def _forget_events(self) -> None:
        now = self._clock()
        if now - self._swept < self._keep / 10:
            return
        self._swept = now
        for event in self._store.list("events"):
            last = event.get("lastTimestamp")
            if last and now - parse_time(last) > self._keep:
                self._store.remove("events", event["metadata"]["name"], event["metadata"]["namespace"])
