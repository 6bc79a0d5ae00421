"""The objects of one resource and a bounded log of writes to them, for watches and consistent pages.

Objects are replaced, never changed. An event can therefore refer to the object before and after a write without copies,
and the state at an older version is the current state with later events undone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable

import msgspec

from infra.emulators.kube import status
from infra.emulators.kube.objects import KubeObject

Key = tuple[str, str]
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class HistoryEvent(msgspec.Struct, frozen=True, gc=False):
    """One write. type: ADDED, MODIFIED or DELETED. object: after the write (DELETED: its last state with the version of
    the deletion). previous: before it, None for ADDED. Both are READ ONLY."""

    version: int
    type: str
    object: KubeObject
    previous: KubeObject | None = None


class HistoryPage(msgspec.Struct, frozen=True):
    """Objects of a list (READ ONLY) as they were at `version`.

    last: the key to continue after, None at the end; remaining: number of keys after it, selected or not
    """

    items: list[KubeObject]
    version: int
    last: Key | None = None
    remaining: int = 0


class Collection:
    """The objects of one resource, their keys in order, and the last `history` writes. Not thread-safe; the store
    locks."""

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
        """Return the objects in key order, of one namespace or (None or "") of all, as a new list."""
        if namespace:
            return [self.objects[key] for key in self.keys(namespace)]
        if self._all is None:
            self._all = [*map(self.objects.__getitem__, self._keys)]
        return self._all[:]

    @property
    def latest(self) -> int:
        """Return the version of the last write, or the version up to which writes may have been dropped."""
        log = self._log  # read without the store's lock
        return max(self._floor, log[-1].version) if log else self._floor

    def put(self, version: int, key: Key, obj: KubeObject) -> None:
        """Store an object, new or as a replacement."""
        previous = self.objects.get(key)
        if previous is None:
            insort(self._keys, key)
        self.objects[key] = obj
        self._record(HistoryEvent(version, "ADDED" if previous is None else "MODIFIED", obj, previous))

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
        """Return whether there were writes after `version`, or may have been because they were dropped."""
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
        """Return up to `limit` (0: all) selected objects after key `after` as of `version`. Raises 410 if that state is
        no longer known."""
        if version < self._floor:
            raise status.expired(_TOO_OLD)
        then = self._undone(version)
        keys = self.keys(namespace)
        gone = [key for key in then if key not in self.objects and (not namespace or key[0] == namespace)]
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
        rest = sum(1 for key in keys[index:] if then.get(key, ...) is not None) if then else len(keys) - index
        return HistoryPage(items, version, keys[index - 1] if rest else None, rest)

    def _undone(self, version: int) -> dict[Key, KubeObject | None]:
        """Return the state at `version` of the keys written after it; None for keys that did not exist."""
        then: dict[Key, KubeObject | None] = {}
        for event in reversed(self.since(version)):
            meta = event.object["metadata"]
            then[(meta.get("namespace", ""), meta["name"])] = event.previous
        return then
