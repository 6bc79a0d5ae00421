"""Things that count once: the first wake-up in a window, the first use of a signature.

A storm of a thousand events is a thousand calls but one row, and a refused conditional write costs as much as a
successful one. So a plain read comes first and answers all but the first few; the conditional write decides the race
among those.

    first wake ► True            again ► False              until             wake ► True
    ──┬──────────────────────────────┬────────────────────────┬──────────────────┬─────►
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from chalicelib.store.client import Refused, Table
from chalicelib.store.tables import SEEN, SeenRow

TIDY_AFTER = 3600   # seconds after its end that a row may be deleted by DynamoDB


class Debounce:
    """First-in-the-window decisions, per cluster."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def wake(self, cluster: str, window: float) -> bool:
        """True for the first call in window seconds, which is the one that queues a reconcile."""
        return self.first_use(cluster, "", window, kind="wake")

    def first_use(self, cluster: str, key: str, ttl: float, *, kind: str = "signature") -> bool:
        """True if this key was not used within ttl seconds; it is used now. Only a digest of the key is kept."""
        now, item = self._clock(), f"{SEEN}{kind}#{hashlib.sha256(key.encode()).hexdigest()[:40]}"
        seen = self._table.get(SeenRow, cluster, item)
        if seen is not None and seen.until > now:
            return False
        never_used = SeenRow.until.does_not_exist()
        use_is_forgotten = SeenRow.until <= now
        row = SeenRow(cluster, item, until=now + ttl, expires_at=int(now + ttl) + TIDY_AFTER)
        try:
            self._table.write(self._table.put(row, never_used | use_is_forgotten))
        except Refused:
            return False
        return True
