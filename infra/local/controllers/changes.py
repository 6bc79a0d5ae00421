"""Whether anything was written since the last look: what lets a quiet cluster cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from infra.local.kube.store import ObjectStore


class Changes:
    """A look at some resources of a store, each (plural, group); the first look always finds something."""

    def __init__(self, store: ObjectStore, watched: Iterable[tuple[str, str]]) -> None:
        self._store, self._watched = store, tuple(watched)
        self._seen = [-1] * len(self._watched)
        self._looked = -1

    def any(self) -> bool:
        """Whether one of them was written since the last call, by whomever."""
        if self._store.version == self._looked:
            return False
        self._looked = self._store.version
        found = False
        for index, where in enumerate(self._watched):
            found |= self._moved(index, *where)
        return found

    def _moved(self, index: int, plural: str, group: str) -> bool:
        if self._store.resources.find(plural, group) is None:
            return False
        since = self._seen[index]
        self._seen[index] = self._store.version
        return since < 0 or self._store.written(plural, since, group)


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
