"""Counts the units that requests take from each partition of the tables, second by second.

DynamoDB serves 3,000 read units and 1,000 write units a second from one partition key
(https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

import msgspec

MOST_READ, MOST_WRITTEN = 3_000, 1_000
"""Units a second of one partition key."""


class BusyKey(msgspec.Struct, frozen=True):
    """A partition key. reads, writes: units in its busiest second. requests: of the whole time."""

    key: str
    reads: float
    writes: float
    requests: int

    @property
    def share(self) -> float:
        """Return the share of what DynamoDB serves from one key, of reads or writes, whichever is larger."""
        return max(self.reads / MOST_READ, self.writes / MOST_WRITTEN)


class KeyedRequests:
    """Counts. clock: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Count from 0."""
        self._seconds: dict[str, dict[tuple[int, str], float]] = defaultdict(lambda: defaultdict(float))
        self._requests: Counter[str] = Counter()

    def note(self, key: str, kind: str, units: float) -> None:
        """Count units of a request. kind: read or write."""
        self._seconds[key][int(self._clock()), kind] += units
        self._requests[key] += 1

    def busiest(self) -> tuple[BusyKey, ...]:
        """Return the keys that all clusters share, and the busiest one of a cluster, the busiest first."""
        found = [self._busy(key) for key in self._seconds]
        shared = [each for each in found if each.key.startswith("!")]
        own = sorted((each for each in found if not each.key.startswith("!")), key=lambda each: -each.share)[:1]
        return tuple(sorted([*shared, *own], key=lambda each: -each.share))

    def _busy(self, key: str) -> BusyKey:
        seconds = self._seconds[key]

        def most(kind: str) -> float:
            return max((units for (_, each), units in seconds.items() if each == kind), default=0.0)

        return BusyKey(key, most("read"), most("write"), self._requests[key])
