"""The objects of one resource and the bounded log of writes to them: what makes watches and consistent pages possible.

Objects are replaced, never changed, so an event can hold what was there before and what is there now without copies,
and the state at an older version is the present one with the later events undone.
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
    """One write. type: ADDED, MODIFIED or DELETED; object: after the write (DELETED: its last state with the version of
    the deletion); previous: before it, None for ADDED. Both are READ ONLY."""

    version: int
    type: str
    object: KubeObject
    previous: KubeObject | None = None


class HistoryPage(msgspec.Struct, frozen=True):
    """Some objects of a list (READ ONLY) as they were at `version`.

    last: the key to go on after, None at the end; remaining: keys after it, wanted or not
    """

    items: list[KubeObject]
    version: int
    last: Key | None = None
    remaining: int = 0


class Collection:
    """The objects of one resource, their keys in order, and the last `history` writes to them. Not thread-safe: the
    store holds its lock."""

    def __init__(self, history: int) -> None:
        self.objects: dict[Key, KubeObject] = {}
        self._keys: list[Key] = []
        self._all: list[KubeObject] | None = None  # in key order, until the next write
        self._log: list[HistoryEvent] = []
        self._history = history
        self._floor = 0  # events up to this version may have been forgotten

    def keys(self, namespace: str | None = None) -> list[Key]:
        """The keys in order, of one namespace or (None or "") of all."""
        if not namespace:
            return list(self._keys)
        start = bisect_left(self._keys, (namespace, ""))
        return self._keys[start : bisect_left(self._keys, (namespace + "\0", ""))]

    def listed(self, namespace: str | None = None) -> list[KubeObject]:
        """The objects in key order, of one namespace or (None or "") of all; the list is the caller's own."""
        if namespace:
            return [self.objects[key] for key in self.keys(namespace)]
        if self._all is None:
            self._all = [*map(self.objects.__getitem__, self._keys)]
        return self._all[:]

    @property
    def latest(self) -> int:
        """The version of the last write, or up to which there may have been some that are no longer kept."""
        log = self._log  # looked at without the store's lock
        return max(self._floor, log[-1].version) if log else self._floor

    def put(self, version: int, key: Key, obj: KubeObject) -> None:
        """Stores an object, new or in place of the one there."""
        previous = self.objects.get(key)
        if previous is None:
            insort(self._keys, key)
        self.objects[key] = obj
        self._record(HistoryEvent(version, "ADDED" if previous is None else "MODIFIED", obj, previous))

    def drop(self, version: int, key: Key, last: KubeObject) -> None:
        """Removes an object; `last` is what watchers see of it."""
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
        """Compaction: nothing up to `version` is known any more."""
        self._log, self._floor = [], version

    def written(self, version: int) -> bool:
        """Whether there were writes after `version`, or there may have been: they are no longer kept."""
        return version < self.latest

    def since(self, version: int) -> list[HistoryEvent]:
        """The writes after `version`; 410 when some are no longer kept."""
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
        """Up to `limit` (0: all) wanted objects after `after` as they were at `version`; 410 when that is forgotten."""
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
        """What the keys written after `version` held at that version; None: nothing."""
        then: dict[Key, KubeObject | None] = {}
        for event in reversed(self.since(version)):
            meta = event.object["metadata"]
            then[(meta.get("namespace", ""), meta["name"])] = event.previous
        return then
