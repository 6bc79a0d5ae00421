"""Records recently deleted servers, so that they do not count while a list still reports them as `active`.

One row per project in the cache shared by all functions. It is written after the deletion: a crash in between leaves a
server that is deleted once more, which is harmless. The reverse order could leave out a running server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chalicelib.providers.cached import TtlCache
from chalicelib.providers.services import Cache

KEPT = 3600.0  # seconds
_TRIES = 3


class DeletedServers:
    """The deleted servers of one project. now: epoch seconds."""

    def __init__(self, cache: Cache, project: int, now: Callable[[], float]) -> None:
        self._shelf, self._key, self._now = cache, f"cherryservers/deleted/{project}", now

    def among(self, servers: Iterable[int]) -> frozenset[int]:
        """Return those of the ids that Outscaler has deleted within the hour."""
        return frozenset(int(each) for each in self._row().get(str(server) for server in servers))

    def add(self, servers: Iterable[int]) -> None:
        """Add ids to the row.

        Other functions write the same row and the last write wins, so it is read again afterwards. An id that is still
        lost counts as running until the list reports otherwise."""
        missing = frozenset(servers)
        for _ in range(_TRIES):
            if not missing:
                return
            self._row().put({str(each): True for each in sorted(missing)}, known=KEPT, unknown=0.0)
            missing -= self.among(missing)

    def _row(self) -> TtlCache[bool]:
        """Return the row, read each time to include writes by other functions."""
        return TtlCache(self._shelf, lambda: self._key, bool, self._now)
