"""The simulated cluster's etcd and its write rules: objects by (group, plural, namespace, name),
one increasing resourceVersion, and a bounded log of writes.

Controllers, scheduler and kubelets use it directly; the HTTP server is another client. It maintains
metadata (uid, versions, generation, finalizers, graceful deletion of pods) and refuses stale
writes. It has no knowledge of HTTP, users, or schemas.

Stored objects are never changed in place: each write stores a new object. Readers
therefore need no copies, the log and paged lists stay consistent, and 150,000 pods can be
listed. The rule for callers:

    list(), events(), page()         the stored objects themselves: READ ONLY
    get(), create(), update()        a copy of your own: change it and pass it to update()
"""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import msgspec

from chalicelib.model.timestamps import format_time
from infra.emulators.kube import status
from infra.emulators.kube.defaults import fill
from infra.emulators.kube.objects import KubeObject, clone
from infra.emulators.kube.resources import Registry, ServedResource

Key = tuple[str, str]
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder "
    "of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were "
    "created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class HistoryEvent(msgspec.Struct, frozen=True, gc=False):
    """One write. type: ADDED, MODIFIED or DELETED. object: after the write (DELETED: its last state
    with the version of the deletion). previous: before it, None for ADDED. Both are READ ONLY."""

    version: int
    type: str
    object: KubeObject
    previous: KubeObject | None = None


class HistoryPage(msgspec.Struct, frozen=True):
    """Objects of a list (READ ONLY) as they were at `version`.

    last: the key to continue after, None at the end; remaining: number of keys
    after it, selected or not
    """

    items: list[KubeObject]
    version: int
    last: Key | None = None
    remaining: int = 0


class Collection:
    """The objects of one resource, their keys in order, and the last `history` writes. Not
    thread-safe; the store locks."""

    def __init__(self, history: int) -> None:
        self.objects: dict[Key, KubeObject] = {}
        self._keys: list[Key] = []
        self._all: list[KubeObject] | None = None  # in key order, valid until the next write
        self._log: list[HistoryEvent] = []
        self._history = history
        self._floor = 0  # events up to this version may have been dropped

    def keys(self, namespace: str | None = None) -> list[Key]:
        """Return the keys in order, of one namespace or (None or "") of all."""
        if not namespace:
            return list(self._keys)
        start = bisect_left(self._keys, (namespace, ""))
        return self._keys[start : bisect_left(self._keys, (namespace + "\0", ""))]

    def listed(self, namespace: str | None = None) -> list[KubeObject]:
        """Return the objects in key order, of one namespace or (None or "") of all, as a new
        list."""
        if namespace:
            return [self.objects[key] for key in self.keys(namespace)]
        if self._all is None:
            self._all = [*map(self.objects.__getitem__, self._keys)]
        return self._all[:]

    @property
    def latest(self) -> int:
        """Return the version of the last write, or the version up to which
        writes may have been dropped."""
        log = self._log  # read without the store's lock
        return max(self._floor, log[-1].version) if log else self._floor

    def put(self, version: int, key: Key, obj: KubeObject) -> None:
        previous = self.objects.get(key)
        if previous is None:
            insort(self._keys, key)
        self.objects[key] = obj
        self._record(
            HistoryEvent(version, "ADDED" if previous is None else "MODIFIED", obj, previous)
        )

    def drop(self, version: int, key: Key, last: KubeObject) -> None:
        """Remove an object. last: the state that watchers see."""
        previous = self.objects.pop(key)
        del self._keys[bisect_left(self._keys, key)]
        self._record(HistoryEvent(version, "DELETED", last, previous))

    def _record(self, event: HistoryEvent) -> None:
        self._all = None
        self._log.append(event)
        if len(self._log) > 2 * self._history:
            self._floor = self._log[-self._history - 1].version
            del self._log[: -self._history]

    def forget(self, version: int) -> None:
        """Compact: drop all writes up to `version`."""
        self._log, self._floor = [], version

    def written(self, version: int) -> bool:
        """Return whether there were writes after `version`, or may have been
        because they were dropped."""
        return version < self.latest

    def since(self, version: int) -> list[HistoryEvent]:
        """Return the writes after `version`. Raises 410 if some were dropped."""
        if version < self._floor:
            raise status.expired(f"too old resource version: {version} ({self._floor + 1})")
        if not self._log or self._log[-1].version <= version:
            return []
        return self._log[bisect_right(self._log, version, key=lambda event: event.version) :]

    def page(
        self,
        namespace: str | None,
        after: Key | None,
        limit: int,
        version: int,
        wanted: Callable[[KubeObject], bool] | None,
    ) -> HistoryPage:
        """Return up to `limit` (0: all) selected objects after key `after` as of `version`. Raises
        410 if that state is no longer known."""
        if version < self._floor:
            raise status.expired(_TOO_OLD)
        then = self._undone(version)
        keys = self.keys(namespace)
        gone = [
            key
            for key in then
            if key not in self.objects and (not namespace or key[0] == namespace)
        ]
        if gone:
            keys = sorted(keys + gone)
        items: list[KubeObject] = []
        index = bisect_right(keys, after) if after is not None else 0
        while index < len(keys) and (not limit or len(items) < limit):
            key = keys[index]
            index += 1
            found = then[key] if key in then else self.objects.get(key)
            if found is not None and (wanted is None or wanted(found)):
                items.append(found)
        rest = (
            sum(1 for key in keys[index:] if then.get(key, ...) is not None)
            if then
            else len(keys) - index
        )
        return HistoryPage(items, version, keys[index - 1] if rest else None, rest)

    def _undone(self, version: int) -> dict[Key, KubeObject | None]:
        """Return the state at `version` of the keys written after it; None for
        keys that did not exist."""
        then: dict[Key, KubeObject | None] = {}
        for event in reversed(self.since(version)):
            meta = event.object["metadata"]
            then[(meta.get("namespace", ""), meta["name"])] = event.previous
        return then


Objects = list[KubeObject]
Events = list[HistoryEvent]
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_KEPT = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)


class StoreBackup(msgspec.Struct, frozen=True):
    """All objects at one version, by (group, plural) and key."""

    version: int
    objects: dict[tuple[str, str], dict[Key, KubeObject]]


class Subscription:
    """A cursor in the log of one resource."""

    def __init__(self, store: ObjectStore, plural: str, group: str, version: int) -> None:
        self._store, self._plural, self._group, self.version = store, plural, group, version

    def poll(self) -> Events:
        """Return the writes since the last poll, oldest first. Raises ApiError 410 if some
        are no longer available."""
        with self._store.transaction():
            events = self._store.events(self._plural, self.version, self._group)
            self.version = max(self.version, self._store.version)
        return events

    def wait(self, timeout: float) -> Events:
        """Poll, and wait up to `timeout` wall seconds for the first write."""
        deadline = time.monotonic() + timeout
        while not (events := self.poll()):
            if not self._store.wait(self.version, deadline - time.monotonic()):
                break
        return events


class ObjectStore:
    """All objects of one simulated cluster. Thread-safe. Every method may raise status.ApiError.

    clock:   seconds since 1970 for creation and deletion times
    history: number of writes per resource that are kept for watches and for
    pages of an older version
    seed:    of uids and generated names
    """

    def __init__(self, clock: Callable[[], float], *, history: int = 50_000, seed: int = 0) -> None:
        self.clock = clock
        self.resources = Registry.builtin()
        self._history, self._random = history, random.Random(seed)
        self._collections: dict[tuple[str, str], Collection] = {}
        self._by_node: dict[str, set[Key]] = {}
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._version = 1

    # -- reading

    @property
    def version(self) -> int:
        # without the lock, because it is one number and read more often than anything else
        return self._version

    def list(self, plural: str, namespace: str | None = None, group: str = "") -> Objects:
        """Return all objects in key order. READ ONLY: the stored objects themselves.
        None or "": all namespaces."""
        with self._lock:
            return self._held(plural, group).listed(namespace)

    def get(
        self, plural: str, name: str, namespace: str = "", group: str = ""
    ) -> KubeObject | None:
        """Return a copy of the object, or None."""
        found = self.peek(plural, name, namespace, group)
        return None if found is None else clone(found)

    def peek(
        self, plural: str, name: str, namespace: str = "", group: str = ""
    ) -> KubeObject | None:
        """Return the stored object itself (READ ONLY), or None."""
        with self._lock:
            return self._held(plural, group).objects.get((namespace, name))

    def pods_on(self, node: str) -> Objects:
        """Return the pods bound to a node (READ ONLY), in key order, without reading all others."""
        with self._lock:
            pods = self._held("pods", "").objects
            return [pods[key] for key in sorted(self._by_node.get(node, ()))]

    def page(
        self,
        plural: str,
        group: str = "",
        namespace: str | None = None,
        *,
        after: Key | None = None,
        limit: int = 0,
        version: int | None = None,
        wanted: Callable[[KubeObject], bool] | None = None,
    ) -> HistoryPage:
        """Return up to `limit` (0: all) selected objects with keys after `after`, as
        of `version` (None: now).

        Raises 410 if the writes since that version are no longer completely available.
        """
        with self._lock:
            at = self._version if version is None else version
            return self._held(plural, group).page(namespace, after, limit, at, wanted)

    def events(self, plural: str, since: int, group: str = "") -> Events:
        """Return the writes to one resource after version `since`. Raises 410 if some
        are no longer available."""
        with self._lock:
            return self._held(plural, group).since(since)

    def written(self, plural: str, since: int, group: str = "") -> bool:
        """Return whether a resource was written after version `since`, or may have been
        because writes were dropped."""
        with self._lock:
            return self._held(plural, group).written(since)

    def latest(self, plural: str, group: str = "") -> int:
        """Return the version of the last write to a resource, 0 if there was
        none, -1 if it is not served."""
        if self.resources.find(plural, group) is None:
            return -1
        held = self._collections.get((group, plural))  # without the lock, as in `version`
        return held.latest if held is not None else 0

    def subscribe(self, plural: str, group: str = "") -> Subscription:
        """Return a cursor that starts now."""
        return Subscription(self, plural, group, self.version)

    def wait(
        self, since: int, timeout: float, *, stopped: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait up to `timeout` wall seconds for a write after version `since`, or for wake() while
        `stopped` is true. Returns False if neither happened."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version > since or stopped(), timeout)

    def wake(self) -> None:
        """End all waits early (the server stops)."""
        with self._changed:
            self._changed.notify_all()

    # -- writing

    def new_name(self, plural: str, prefix: str, namespace: str = "", group: str = "") -> str:
        """Return an unused name: generateName and five characters."""
        with self._lock:
            taken = self._held(plural, group).objects
            while (
                namespace,
                name := prefix + "".join(self._random.choices(_SUFFIX, k=5)),
            ) in taken:
                pass
            return name

    def create(
        self, plural: str, obj: KubeObject, group: str = "", *, dry_run: bool = False
    ) -> KubeObject:
        """Store a new object under metadata.namespace/name (or generateName) with new metadata.
        Raises 409 if it exists.

        apiVersion and kind may be omitted; built-in kinds get the real server's defaults.
        """
        resource = self.resources.stored(plural, group)
        made = clone(obj)
        with self._lock:
            meta = made.setdefault("metadata", {})
            namespace = meta.get("namespace", "") if resource.namespaced else ""
            taken = self._held(plural, group).objects
            if not meta.get("name"):
                meta["name"] = self.new_name(plural, meta.get("generateName", ""), namespace, group)
            key = (namespace, meta["name"])
            if key in taken:
                raise status.already_exists(plural, group, meta["name"])
            self._dress(resource, made)
            fill(self.peek, resource, made)
            return made if dry_run else clone(self._put(resource, key, made))

    def load(self, plural: str, objects: Iterable[KubeObject], group: str = "") -> None:
        """Store many objects unchanged and without copies; the caller must not use them afterwards.
        uid, creationTimestamp and status are kept, and an object with the same name is replaced.
        For captures and generated clusters."""
        resource = self.resources.stored(plural, group)
        with self._lock:
            now = format_time(self.clock())
            for obj in objects:
                meta = obj["metadata"]
                meta.setdefault("creationTimestamp", now)
                key = (meta.get("namespace", "") if resource.namespaced else "", meta["name"])
                self._dress(resource, obj, keep=True)
                self._put(resource, key, obj)

    def update(
        self, plural: str, obj: KubeObject, group: str = "", *, dry_run: bool = False
    ) -> KubeObject:
        """Replace an object, including its status. Raises 404 if it is absent, and 409 if
        metadata.resourceVersion or uid is given and differs. Removing the last finalizer of a
        deleted object removes it. Without a change nothing is written."""
        return clone(self.replace(plural, clone(obj), group, dry_run=dry_run))

    def replace(
        self, plural: str, obj: KubeObject, group: str = "", *, dry_run: bool = False
    ) -> KubeObject:
        """Like update, but without copies: the caller must not use the object afterwards, it may
        contain parts of stored objects, and the returned object is the stored one (READ ONLY)."""
        resource = self.resources.stored(plural, group)
        made = {**obj, "metadata": dict(obj.get("metadata") or {})}
        meta = made["metadata"]
        key = (meta.get("namespace", "") if resource.namespaced else "", meta["name"])
        with self._lock:
            old = self._expect(plural, group, key)
            self._agree(resource, meta, old["metadata"])
            for field in _KEPT:
                meta.pop(field, None)
                if field in old["metadata"]:
                    meta[field] = old["metadata"][field]
            meta["resourceVersion"] = old["metadata"]["resourceVersion"]
            made.setdefault("apiVersion", old["apiVersion"])
            made.setdefault("kind", old["kind"])
            if made == old:
                return made
            if resource.generation and made.get("spec") != old.get("spec"):
                meta["generation"] = old["metadata"].get("generation", 0) + 1
            if dry_run:
                return made
            held_back = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds")
            if "deletionTimestamp" in meta and not held_back:
                return self._drop(resource, key, made)
            return self._put(resource, key, made)

    def delete(
        self, plural: str, name: str, namespace: str = "", group: str = "", grace: int | None = None
    ) -> KubeObject | None:
        """Delete as the API does. Raises 404 if absent. Returns the object while it still
        exists, None once it is gone.

        grace: seconds, None for the pod's own terminationGracePeriodSeconds. A bound pod gets a
        deletionTimestamp and waits for its kubelet to call remove(). Finalizers block any deletion.
        A namespace is deleted with its content.
        """
        resource = self.resources.stored(plural, group)
        key = (namespace if resource.namespaced else "", name)
        with self._lock:
            old = self._expect(plural, group, key)
            period = _grace_period(old, grace) if plural == "pods" and not group else 0
            if not period and not old["metadata"].get("finalizers"):
                if plural == "namespaces":
                    self._empty(name)
                self._drop(
                    resource,
                    key,
                    terminating(old, self.clock(), 0) if plural == "pods" and not group else old,
                )
                return None
            meta = old["metadata"]
            if "deletionTimestamp" in meta and meta.get("deletionGracePeriodSeconds", 0) <= period:
                return clone(old)
            return clone(self._put(resource, key, terminating(old, self.clock(), period)))

    def remove(self, plural: str, name: str, namespace: str = "", group: str = "") -> None:
        """Remove an object at once, whatever blocks its deletion (used by kubelets at the end, and
        by tests). An absent object is not an error."""
        resource = self.resources.stored(plural, group)
        key = (namespace if resource.namespaced else "", name)
        with self._lock:
            old = self._held(plural, group).objects.get(key)
            if old is not None:
                self._drop(resource, key, old)

    def forget(self, plural: str | None = None, group: str = "") -> None:
        """Drop the log (compaction): watches and pages of older versions then get 410."""
        with self._changed:
            chosen = self._collections.values() if plural is None else [self._held(plural, group)]
            for held in chosen:
                held.forget(self._version)
            self._changed.notify_all()

    def restore(self, backup: StoreBackup) -> None:
        """Return to a backup, as `etcdctl snapshot restore` does: objects, versions, and no log."""
        with self._changed:
            self._collections, self._by_node = {}, {}
            for (group, plural), objects in backup.objects.items():
                resource = self.resources.stored(plural, group)
                held = self._held(plural, group)
                for key, obj in objects.items():
                    held.put(int(obj["metadata"]["resourceVersion"]), key, obj)
                    self._bind(resource, key, None, obj)
            self._version = backup.version
            self.forget()

    def backup(self) -> StoreBackup:
        with self._lock:
            return StoreBackup(
                self._version, {key: dict(held.objects) for key, held in self._collections.items()}
            )

    # -- internal

    def transaction(self) -> AbstractContextManager[bool]:
        """Return the store's lock, for a read and a write that must be atomic:
        `with store.transaction():`."""
        return self._lock

    def _held(self, plural: str, group: str) -> Collection:
        held = self._collections.get((group, plural))
        if held is None:
            self.resources.stored(plural, group)
            held = self._collections[(group, plural)] = Collection(self._history)
        return held

    def _expect(self, plural: str, group: str, key: Key) -> KubeObject:
        old = self._held(plural, group).objects.get(key)
        if old is None:
            raise status.not_found(plural, group, key[1])
        return old

    def _agree(self, resource: ServedResource, meta: KubeObject, old: KubeObject) -> None:
        if meta.get("uid", old["uid"]) != old["uid"]:
            why = (
                f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: "
                f"{old['uid']}"
            )
            raise status.conflict(resource.plural, resource.group, old["name"], why)
        if meta.get("resourceVersion") not in {None, "", old["resourceVersion"]}:
            raise status.conflict(resource.plural, resource.group, old["name"])

    def _dress(self, resource: ServedResource, obj: KubeObject, *, keep: bool = False) -> None:
        obj.setdefault("apiVersion", resource.api_version)
        obj.setdefault("kind", resource.kind)
        meta = obj["metadata"]
        if not keep:
            for field in (
                "uid",
                "creationTimestamp",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "generation",
            ):
                meta.pop(field, None)
        if "uid" not in meta:
            bits = f"{self._random.getrandbits(128):032x}"
            meta["uid"] = f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-a{bits[17:20]}-{bits[20:]}"
        if "creationTimestamp" not in meta:
            meta["creationTimestamp"] = format_time(self.clock())
        if resource.generation:
            meta.setdefault("generation", 1)

    def _put(self, resource: ServedResource, key: Key, obj: KubeObject) -> KubeObject:
        held = self._held(resource.plural, resource.group)
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self._bind(resource, key, held.objects.get(key), obj)
        held.put(self._version, key, obj)
        self._changed.notify_all()
        return obj

    def _drop(self, resource: ServedResource, key: Key, last: KubeObject) -> KubeObject:
        held = self._held(resource.plural, resource.group)
        self._version += 1
        gone = {**last, "metadata": {**last["metadata"], "resourceVersion": str(self._version)}}
        self._bind(resource, key, held.objects[key], None)
        held.drop(self._version, key, gone)
        self._changed.notify_all()
        return gone

    def _bind(
        self, resource: ServedResource, key: Key, old: KubeObject | None, new: KubeObject | None
    ) -> None:
        if resource.plural != "pods" or resource.group:
            return
        before = old.get("spec", {}).get("nodeName") if old else None
        after = new.get("spec", {}).get("nodeName") if new else None
        if before and before != after:
            self._by_node[before].discard(key)
        if after and before != after:
            self._by_node.setdefault(after, set()).add(key)

    def _empty(self, namespace: str) -> None:
        for (group, plural), held in list(self._collections.items()):
            resource = self.resources.find(plural, group)
            if resource is not None and resource.namespaced:
                for key in held.keys(namespace):
                    self._drop(resource, key, held.objects[key])


def terminating(obj: KubeObject, now: float, period: int) -> KubeObject:
    """Return an object in deletion: with the time at which it is due, and the next generation."""
    meta = dict(obj["metadata"])
    meta |= {"deletionTimestamp": format_time(now + period), "deletionGracePeriodSeconds": period}
    if "generation" in meta:
        meta["generation"] += 1
    return {**obj, "metadata": meta}


def _grace_period(pod: KubeObject, asked: int | None) -> int:
    """Return a pod's grace period in seconds, 0 if no kubelet has it or it is finished."""
    if not pod.get("spec", {}).get("nodeName") or pod.get("status", {}).get("phase") in {
        "Succeeded",
        "Failed",
    }:
        return 0
    own = pod["spec"].get("terminationGracePeriodSeconds", 30)
    return max(0, int(own if asked is None else asked))
