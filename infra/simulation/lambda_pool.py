"""Processes of one Lambda function behind a queue, on virtual time.

A message is given to any idle process, each with the same chance; Lambda prefers those that it used last, so this is
the worst case for what a process keeps of clusters. A process without work for IDLE_FOR ends.
"""

from __future__ import annotations

import random
from collections import OrderedDict

import msgspec

IDLE_FOR = 420.0
"""Seconds until Lambda ends an idle process. AWS does not document it; five to ten minutes are common."""
KEPT_FOR = 600.0
"""Seconds for which lists are followed (chalicelib/snapshot/live_cluster.py)."""
FRESH_FOR = 75.0
"""Seconds after which a process asks for the lists of others (chalicelib/snapshot/live_cluster.py)."""


class SeenLists(msgspec.Struct, frozen=True):
    """When a cluster's lists were read in full, and when they were last up to date; seconds."""

    read_at: float
    followed_at: float

    def usable(self, now: float) -> bool:
        """Return whether they may still be followed."""
        return now - self.read_at < KEPT_FOR


class PoolProcess:
    """One process. room: clusters whose lists it has memory for."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._lists: OrderedDict[str, SeenLists] = OrderedDict()
        self.idle_since = 0.0

    def lists(self, cluster: str) -> SeenLists | None:
        """Return what it keeps of a cluster."""
        return self._lists.get(cluster)

    def keep(self, cluster: str, lists: SeenLists) -> None:
        """Keep lists in place of those used longest ago."""
        self._lists[cluster] = lists
        self._lists.move_to_end(cluster)
        while len(self._lists) > self._room:
            self._lists.popitem(last=False)


class LambdaPool:
    """The processes. most: at the same time."""

    def __init__(self, most: int, room: int, draws: random.Random) -> None:
        self._most, self._room, self._draws = most, room, draws
        self._idle: list[PoolProcess] = []
        self._busy = 0
        self.peak = self.started = 0

    @property
    def size(self) -> int:
        """Return the number of processes now."""
        return self._busy + len(self._idle)

    def take(self, now: float) -> tuple[PoolProcess, bool] | None:
        """Return a process for a message, and whether it has to start first; None where all are busy."""
        if self._busy >= self._most:
            return None
        self._idle = [each for each in self._idle if now - each.idle_since < IDLE_FOR]
        self._busy += 1
        self.peak = max(self.peak, self._busy)
        if self._idle:
            return self._idle.pop(self._draws.randrange(len(self._idle))), False
        self.started += 1
        return PoolProcess(self._room), True

    def give_back(self, process: PoolProcess, now: float) -> None:
        """End the work of a process."""
        process.idle_since = now
        self._busy -= 1
        self._idle.append(process)
