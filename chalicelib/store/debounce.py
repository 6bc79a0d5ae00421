"""Things that count once: the first wake-up in a window, the first use of a signature.

A storm of a thousand events is a thousand calls but one row, and a refused conditional write costs as much as a
successful one. So a plain read comes first and answers all but the first few; the conditional write decides the race
among those.

A row that was written for something that then failed can be forgotten, by whoever wrote it and by nobody else: `by`
names the writer. It also tells a write whose answer got lost, and which was therefore sent twice, from somebody else's.

Wake-ups and signatures are noted by the function behind the HTTP API, which anybody on the Internet can reach. They lie
in a partition of their own, so that its role need not write any other row of the table. Executors note wake-ups there
too. A wake-up that ends later than any honest clock can have put it does not count: it would silence other functions.

    first wake ► True            again ► False              until             wake ► True
    ──┬──────────────────────────────┬────────────────────────┬──────────────────┬─────►
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

from chalicelib.store.table_client import ConditionFailed, Table
from chalicelib.store.tables import SEEN, WEB, SeenRow

SIGNATURE, WAKE = "signature", "wake"
LONGEST_WINDOW = 60.0  # seconds; the policy allows no longer one
DIFFERENCE = 60.0  # seconds by which two honest clocks differ at most
TIDY_AFTER = 3600  # seconds after its end that a row may be deleted by DynamoDB


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
        return self._counts(self._table.get(SeenRow, *_row_key(kind, cluster, key)), kind)

    def used_before(self, cluster: str, key: str) -> bool:
        """Whether a release that kept signatures in the cluster's own partition has noted this one."""
        return self._counts(self._table.get(SeenRow, cluster, _item(SIGNATURE, key)), SIGNATURE)

    def _counts(self, seen: SeenRow | None, kind: str) -> bool:
        now = self._clock()
        return seen is not None and now < seen.until <= now + _furthest(kind)

    def note(self, cluster: str, key: str, ttl: float, *, kind: str = SIGNATURE, by: str = "") -> bool:
        """As first_use, without the read before it. by: a name for this one use, with which it can be forgotten."""
        now = self._clock()
        never_used = SeenRow.until.does_not_exist()
        use_is_forgotten = SeenRow.until <= now
        if kind == WAKE:
            it_is_rubbish = SeenRow.until > now + _furthest(kind)
            use_is_forgotten = use_is_forgotten | it_is_rubbish
        row = SeenRow(
            *_row_key(kind, cluster, key), until=now + ttl, expires_at=int(now + ttl) + TIDY_AFTER, by=by or None
        )
        try:
            self._table.write(self._table.put(row, never_used | use_is_forgotten))
        except ConditionFailed as refused:
            return bool(by) and refused.old.get("by") == {"S": by}
        return True

    def forget(self, cluster: str, key: str, *, by: str, kind: str = SIGNATURE) -> None:
        """Take back a use by this writer; another's, or none, is left as it is."""
        try:
            self._table.write(self._table.delete(*_row_key(kind, cluster, key), SeenRow.by == by))
        except ConditionFailed:
            return


def _furthest(kind: str) -> float:
    """Seconds ahead of the clock after which a use of this kind is rubbish."""
    return LONGEST_WINDOW + DIFFERENCE if kind == WAKE else math.inf


def _row_key(kind: str, cluster: str, key: str) -> tuple[str, str]:
    if kind not in (WAKE, SIGNATURE):
        return cluster, _item(kind, key)
    return WEB, f"{SEEN}{kind}#{cluster}#{_item(kind, key).rpartition('#')[2]}"


def _item(kind: str, key: str) -> str:
    return f"{SEEN}{kind}#{hashlib.sha256(key.encode()).hexdigest()[:40]}"
