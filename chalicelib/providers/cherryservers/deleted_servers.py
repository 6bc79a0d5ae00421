"""Servers that we deleted a moment ago, so that none of them counts because a list still says `active` (§5, D17).

One row per project on the shelf that all functions share. It is written after the deletion: a crash in between leaves a
server that is asked to go once more, which is harmless; the other way round a server that lives would not be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chalicelib.providers.cached import TtlCache
from chalicelib.providers.services import Cache

KEPT = 3600.0  # seconds (§5)
_TRIES = 3


class DeletedServers:
    """The deleted servers of one project. now: epoch seconds."""

    def __init__(self, shelf: Cache, project: int, now: Callable[[], float]) -> None:
        self._shelf, self._key, self._now = shelf, f"cherryservers/deleted/{project}", now

    def among(self, servers: Iterable[int]) -> frozenset[int]:
        """Those of the ids that we have deleted within the hour."""
        return frozenset(int(each) for each in self._row().get(str(server) for server in servers))

    def add(self, servers: Iterable[int]) -> None:
        """Note them. Others write the same row, and the shelf lets the last one win, so it is looked at again. What
        gets lost all the same counts as running until the list says otherwise."""
        missing = frozenset(servers)
        for _ in range(_TRIES):
            if not missing:
                return
            self._row().put({str(each): True for each in sorted(missing)}, known=KEPT, unknown=0.0)
            missing -= self.among(missing)

    def _row(self) -> TtlCache[bool]:
        """Read anew each time: what somebody else has written since is part of it."""
        return TtlCache(self._shelf, lambda: self._key, bool, self._now)
