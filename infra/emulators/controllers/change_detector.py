"""Detects writes to a store, so that a quiet cluster causes no work."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from infra.emulators.kube.store import ObjectStore


class Changes:
    """Observes some resources of a store, each (plural, group). The first check always reports a change."""

    def __init__(self, store: ObjectStore, watched: Iterable[tuple[str, str]]) -> None:
        self._store, self._watched = store, tuple(watched)
        self._seen = [-1] * len(self._watched)
        self._looked = -1

    def any(self) -> bool:
        """Return whether one of them was written since the last call."""
        version = self._store.version
        if version == self._looked:
            return False
        self._looked, found = version, False
        for index, (plural, group) in enumerate(self._watched):
            latest, since = self._store.latest(plural, group), self._seen[index]
            if latest >= 0:  # the resource is served
                self._seen[index] = version
                found = found or since < latest or since < 0
        return found


class Moved:
    """A controller that runs only after changes of some resources of a store.

    step: one run of it. It must not depend on the clock, except to record the time, and must not defer work to a later
    run.
    """

    def __init__(self, step: Callable[[], None], store: ObjectStore, watched: Iterable[tuple[str, str]]) -> None:
        self._step, self._changes = step, Changes(store, watched)

    def step(self) -> None:
        """Run, unless nothing has changed. The controller's own writes cause another run."""
        if self._changes.any():
            self._step()
