"""Things that count once: the first wake-up in a window, the first use of a signature.

A storm of a thousand events is a thousand calls but one row, and a refused conditional write costs as much as a
successful one. So a plain read comes first and answers all but the first few; the conditional write decides the race
among those.

A row that was written for something that then failed can be forgotten, by whoever wrote it and by nobody else: `by`
names the writer. It also tells a write whose answer got lost, and which was therefore sent twice, from somebody else's.

    first wake ► True            again ► False              until             wake ► True
    ──┬──────────────────────────────┬────────────────────────┬──────────────────┬─────►
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from chalicelib.store.client import Refused, Table
from chalicelib.store.tables import SEEN, SeenRow

SIGNATURE, WAKE = "signature", "wake"
TIDY_AFTER = 3600   # seconds after its end that a row may be deleted by DynamoDB


class Debounce:
    """First-in-the-window decisions, per cluster."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def wake(self, cluster: str, window: float, *, by: str = "") -> bool:
        """True for the first call in window seconds, which is the one that queues a reconcile."""
        return self.first_use(cluster, "", window, kind=WAKE, by=by)

    def forget_wake(self, cluster: str, *, by: str) -> None:
        """Close the window that this writer opened: its reconcile was not queued."""
        self.forget(cluster, "", kind=WAKE, by=by)

    def first_use(self, cluster: str, key: str, ttl: float, *, kind: str = SIGNATURE, by: str = "") -> bool:
        """True if this key was not used within ttl seconds; it is used now. Only a digest of the key is kept."""
        return not self.used(cluster, key, kind=kind) and self.note(cluster, key, ttl, kind=kind, by=by)

    def used(self, cluster: str, key: str, *, kind: str = SIGNATURE) -> bool:
        """Whether it is in use now. A read, which decides no race."""
        seen = self._table.get(SeenRow, cluster, _item(kind, key))
        return seen is not None and seen.until > self._clock()

    def note(self, cluster: str, key: str, ttl: float, *, kind: str = SIGNATURE, by: str = "") -> bool:
        """As first_use, without the read before it. by: a name for this one use, with which it can be forgotten."""
        now = self._clock()
        never_used = SeenRow.until.does_not_exist()
        use_is_forgotten = SeenRow.until <= now
        row = SeenRow(cluster, _item(kind, key), until=now + ttl, expires_at=int(now + ttl) + TIDY_AFTER,
                      by=by or None)
        try:
            self._table.write(self._table.put(row, never_used | use_is_forgotten))
        except Refused as refused:
            return bool(by) and refused.old.get("by") == {"S": by}
        return True

    def forget(self, cluster: str, key: str, *, by: str, kind: str = SIGNATURE) -> None:
        """Take back a use by this writer; another's, or none, is left as it is."""
        try:
            self._table.write(self._table.delete(cluster, _item(kind, key), SeenRow.by == by))
        except Refused:
            return


def _item(kind: str, key: str) -> str:
    return f"{SEEN}{kind}#{hashlib.sha256(key.encode()).hexdigest()[:40]}"
