"""Events that count once: the first wake-up in a window, the first use of a signature.

    first wake ► True            again ► False              until             wake ► True
    ──┬──────────────────────────────┬────────────────────────┬──────────────────┬─────►

A refused conditional write costs as much as a successful one. A plain read therefore comes first and decides all but
the first few calls of a storm; the conditional write decides the race among those. A row that was written for an action
that then failed can be removed, but only by its writer.

The function behind the public HTTP API records wake-ups and signatures in a partition of their own, so that its role
needs write access to no other row of the table. A wake-up that ends later than any correct clock can have set it is
ignored, because it would block the other functions.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

from chalicelib.store.table_client import ConditionFailed, Table
from chalicelib.store.tables import DEBOUNCE, WEB, DebounceRow

SIGNATURE, WAKE = "signature", "wake"
WINDOW, PROMPT = "", "prompt"
"""Keys of wake-ups: of those that are gathered in a window, and of those that are not."""
LONGEST_WINDOW = 60.0  # seconds; the policy permits no longer window
DIFFERENCE = 60.0  # seconds by which two correct clocks differ at most
TIDY_AFTER = 3600  # seconds after its end that a row may be deleted by DynamoDB


class Debounce:
    """Decides which call is the first in its window, per cluster."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def wake(self, cluster: str, window: float, *, key: str = WINDOW, by: str = "") -> bool:
        """Return True for the first call in window seconds, which is the one that queues a reconcile. key: of the
        window."""
        return self.first_use(cluster, key, window, kind=WAKE, by=by)

    def forget_wake(self, cluster: str, *, key: str = WINDOW, by: str) -> None:
        """Close the window that this writer opened, because its reconcile was not queued."""
        self.forget(cluster, key, kind=WAKE, by=by)

    def first_use(self, cluster: str, key: str, ttl: float, *, kind: str = SIGNATURE, by: str = "") -> bool:
        """Return True if this key was not used within ttl seconds, and record the use. Only a digest of the key is
        stored."""
        return not self.used(cluster, key, kind=kind) and self.note(cluster, key, ttl, kind=kind, by=by)

    def used(self, cluster: str, key: str, *, kind: str = SIGNATURE) -> bool:
        """Return whether the key is in use now. A plain read, which decides no race."""
        return self._counts(self._table.get(DebounceRow, *_row_key(kind, cluster, key)), kind)

    def used_before(self, cluster: str, key: str) -> bool:
        """Return whether a release that stored signatures in the cluster's own partition has recorded this one."""
        return self._counts(self._table.get(DebounceRow, cluster, _item(SIGNATURE, key)), SIGNATURE)

    def _counts(self, seen: DebounceRow | None, kind: str) -> bool:
        now = self._clock()
        return seen is not None and now < seen.until <= now + _furthest(kind)

    def note(self, cluster: str, key: str, ttl: float, *, kind: str = SIGNATURE, by: str = "") -> bool:
        """Do the same as first_use without the preceding read. by: a name for this one use, with which it can be
        removed."""
        now = self._clock()
        never_used = DebounceRow.until.does_not_exist()
        use_is_forgotten = DebounceRow.until <= now
        if kind == WAKE:
            it_is_rubbish = DebounceRow.until > now + _furthest(kind)
            use_is_forgotten = use_is_forgotten | it_is_rubbish
        row = DebounceRow(
            *_row_key(kind, cluster, key), until=now + ttl, expires_at=int(now + ttl) + TIDY_AFTER, by=by or None
        )
        try:
            self._table.write(self._table.put(row, never_used | use_is_forgotten))
        except ConditionFailed as refused:
            return bool(by) and refused.old.get("by") == {"S": by}
        return True

    def forget(self, cluster: str, key: str, *, by: str, kind: str = SIGNATURE) -> None:
        """Remove a use by this writer; a use by another writer is unchanged."""
        try:
            self._table.write(self._table.delete(*_row_key(kind, cluster, key), DebounceRow.by == by))
        except ConditionFailed:
            return


def _furthest(kind: str) -> float:
    """Return the seconds ahead of the clock after which a use of this kind is invalid."""
    return LONGEST_WINDOW + DIFFERENCE if kind == WAKE else math.inf


def _row_key(kind: str, cluster: str, key: str) -> tuple[str, str]:
    if kind not in (WAKE, SIGNATURE):
        return cluster, _item(kind, key)
    return WEB, f"{DEBOUNCE}{kind}#{cluster}#{_item(kind, key).rpartition('#')[2]}"


def _item(kind: str, key: str) -> str:
    return f"{DEBOUNCE}{kind}#{hashlib.sha256(key.encode()).hexdigest()[:40]}"
