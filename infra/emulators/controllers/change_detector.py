"""Whether anything was written since the last look: what lets a quiet cluster cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from infra.emulators.kube.store import ObjectStore


class Changes:
    """A look at some resources of a store, each (plural, group); the first look always finds something."""

    def __init__(self, store: ObjectStore, watched: Iterable[tuple[str, str]]) -> None:
        self._store, self._watched = store, tuple(watched)
        self._seen = [-1] * len(self._watched)
        self._looked = -1

    def any(self) -> bool:
        """Whether one of them was written since the last call, by whomever."""
        version = self._store.version
        if version == self._looked:
            return False
        self._looked, found = version, False
        for index, (plural, group) in enumerate(self._watched):
            latest, since = self._store.latest(plural, group), self._seen[index]
            if latest >= 0:  # it is served
                self._seen[index] = version
                found = found or since < latest or since < 0
        return found


class Moved:
    """A controller that nothing but some resources of a store can move: while they stand still, so does it.

    step: one turn of it. It must neither heed the clock, apart from writing it down, nor keep work for another turn.
    """

    def __init__(self, step: Callable[[], None], store: ObjectStore, watched: Iterable[tuple[str, str]]) -> None:
        self._step, self._changes = step, Changes(store, watched)

    def step(self) -> None:
        """A turn, unless it would change nothing. What it writes itself is a reason for another."""
        if self._changes.any():
            self._step()
