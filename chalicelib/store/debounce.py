"""Events that count once: the first wake-up in a window, the first use of a signature.

    first wake ► True            again ► False              until             wake ► True
    ──┬──────────────────────────────┬────────────────────────┬──────────────────┬─────►

A refused conditional write costs as much as a successful one. A plain read therefore comes first
and decides all but the first few calls of a storm; the conditional write decides the race among
those. A row that was written for an action that then failed can be taken back, but only by its
writer.

Wake-ups of events are limited as well: BURST at once, then one in EACH seconds, as a token bucket
that is stored as the instant at which it is full again. Events beyond that are gathered in a longer
window, so none is lost. All of it is one row per cluster, and each wake-up is one write of it.

The function behind the public HTTP API records wake-ups and signatures in a partition of their own,
so that its role needs write access to no other row of the table. A wake-up that ends later than any
correct clock can have set it is ignored, because it would block the other functions.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from contextlib import suppress

import msgspec
from pynamodb.expressions.condition import Condition

from chalicelib.store.table_client import ConditionFailed, Table
from chalicelib.store.tables import DEBOUNCE, WEB, DebounceRow

SIGNATURE, WAKE = "signature", "wake"
WINDOW, PROMPT = "", "prompt"
"""Keys of wake-ups: of those that are gathered in a window, and of those that are not."""
LONGEST_WINDOW = 60.0  # seconds; the policy permits no longer window
BURST, EACH = 20, 10.0
"""Wake-ups of events that a cluster may have at once, and seconds for each
further one: 360 an hour."""
DIFFERENCE = 60.0  # seconds by which two correct clocks differ at most
_TRIES = 3  # writes of one wake-up, of which all but the last were outrun
TIDY_AFTER = 3600  # seconds after its end that a row may be deleted by DynamoDB


class OpenWakes(msgspec.Struct, frozen=True):
    """Windows of a cluster's wake-ups. keys: of those that are open. pause: seconds until the limit
    leaves room for a further wake-up of an event."""

    keys: frozenset[str] = frozenset()
    pause: float = 0.0


class Debounce:
    """Decides which call is the first in its window, per cluster."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def wakes(self, cluster: str) -> OpenWakes:
        """Return which windows are open, and how long a further wake-up of an event has to wait. A
        plain read, which decides no race."""
        return self._open(self._table.get(DebounceRow, *_row_key(WAKE, cluster, WINDOW)))

    def wake(
        self, cluster: str, window: float, *, key: str = WINDOW, by: str = "", limited: bool = False
    ) -> bool:
        """Return True for the first call in window seconds, which is the one that queues a
        reconcile. key: of the window. limited: whether it counts for the limit, which the caller
        has found to leave room."""
        for _ in range(_TRIES):
            row = self._table.get(DebounceRow, *_row_key(WAKE, cluster, WINDOW))
            if key in self._open(row).keys:
                return False
            try:
                self._table.write(
                    self._table.put(
                        self._woken(row, cluster, window, key, by, EACH if limited else 0.0),
                        _is_still(row),
                    )
                )
            except ConditionFailed as refused:
                if by and refused.old.get("by") == {"S": by}:
                    return True  # the first attempt succeeded, and only its response was lost
            else:
                return True
        return False  # other writers were faster each time: their wake-ups count

    def forget_wake(self, cluster: str, *, key: str = WINDOW, by: str) -> None:
        """Close the window that this writer opened, because its reconcile was not queued."""
        row = self._table.get(DebounceRow, *_row_key(WAKE, cluster, WINDOW))
        if row is None or row.by != by:
            return
        is_still = _is_still(row)
        if key == PROMPT:
            row.prompt_until = None
        else:
            row.until = 0.0
        with suppress(ConditionFailed):  # another writer has opened one since
            self._table.write(self._table.put(row, is_still))

    def _open(self, row: DebounceRow | None) -> OpenWakes:
        if row is None:
            return OpenWakes()
        now, ends = self._clock(), {WINDOW: row.until, PROMPT: row.prompt_until or 0.0}
        keys = frozenset(key for key, end in ends.items() if now < end <= now + _furthest(WAKE))
        return OpenWakes(keys, max(0.0, self._full_at(row, now) + EACH - BURST * EACH - now))

    @staticmethod
    def _full_at(row: DebounceRow | None, now: float) -> float:
        """Return when the burst is full again; now where no correct clock can
        have set the stored instant."""
        full_at = row.full_at or 0.0 if row is not None else 0.0
        return full_at if now < full_at <= now + (BURST + 1) * EACH + DIFFERENCE else now

    def _woken(
        self, row: DebounceRow | None, cluster: str, window: float, key: str, by: str, cost: float
    ) -> DebounceRow:
        """Return the row after a wake-up. cost: seconds that it takes from the burst."""
        now = self._clock()
        until, prompt_until = (row.until, row.prompt_until) if row is not None else (0.0, None)
        full_at = self._full_at(row, now) + cost
        return DebounceRow(
            *_row_key(WAKE, cluster, WINDOW),
            until=until if key == PROMPT else now + window,
            prompt_until=now + window if key == PROMPT else prompt_until,
            full_at=full_at if full_at > now else None,
            by=by or None,
            expires_at=int(max(now + window, full_at)) + TIDY_AFTER,
        )

    def first_use(
        self, cluster: str, key: str, ttl: float, *, kind: str = SIGNATURE, by: str = ""
    ) -> bool:
        """Return True if this key was not used within ttl seconds, and record the use. Only a
        digest of the key is stored."""
        return not self.used(cluster, key, kind=kind) and self.note(
            cluster, key, ttl, kind=kind, by=by
        )

    def used(self, cluster: str, key: str, *, kind: str = SIGNATURE) -> bool:
        """Return whether the key is in use now. A plain read, which decides no race."""
        return self._counts(self._table.get(DebounceRow, *_row_key(kind, cluster, key)), kind)

    def used_before(self, cluster: str, key: str) -> bool:
        """Return whether a release that stored signatures in the cluster's own
        partition has recorded this one."""
        return self._counts(self._table.get(DebounceRow, cluster, _item(SIGNATURE, key)), SIGNATURE)

    def _counts(self, seen: DebounceRow | None, kind: str) -> bool:
        now = self._clock()
        return seen is not None and now < seen.until <= now + _furthest(kind)

    def note(
        self, cluster: str, key: str, ttl: float, *, kind: str = SIGNATURE, by: str = ""
    ) -> bool:
        """Do the same as first_use without the preceding read. by: a name for this one use, with
        which it can be removed."""
        now = self._clock()
        never_used = DebounceRow.until.does_not_exist()
        use_is_forgotten = DebounceRow.until <= now
        row = DebounceRow(
            *_row_key(kind, cluster, key),
            until=now + ttl,
            expires_at=int(now + ttl) + TIDY_AFTER,
            by=by or None,
        )
        try:
            self._table.write(self._table.put(row, never_used | use_is_forgotten))
        except ConditionFailed as refused:
            return bool(by) and refused.old.get("by") == {"S": by}
        return True

    def forget(self, cluster: str, key: str, *, by: str, kind: str = SIGNATURE) -> None:
        """Take back a use by this writer; a use by another writer is unchanged. The row is written
        over, because the function behind the public API has no right to delete."""
        over = DebounceRow(
            *_row_key(kind, cluster, key), until=0.0, expires_at=int(self._clock()) + TIDY_AFTER
        )
        with suppress(ConditionFailed):
            self._table.write(self._table.put(over, DebounceRow.by == by))


def _is_still(row: DebounceRow | None) -> Condition:
    """Return the condition that the row of a cluster's wake-ups was not
    written since it was read."""
    if row is None:
        absent: Condition = DebounceRow.until.does_not_exist()
        return absent
    values = ((DebounceRow.by, row.by), (DebounceRow.prompt_until, row.prompt_until))
    still: Condition = DebounceRow.until == row.until
    for attribute, value in values:
        still = still & (attribute == value if value is not None else attribute.does_not_exist())
    return still


def _furthest(kind: str) -> float:
    """Return the seconds ahead of the clock after which a use of this kind is invalid."""
    return LONGEST_WINDOW + DIFFERENCE if kind == WAKE else math.inf


def _row_key(kind: str, cluster: str, key: str) -> tuple[str, str]:
    if kind not in (WAKE, SIGNATURE):
        return cluster, _item(kind, key)
    return WEB, f"{DEBOUNCE}{kind}#{cluster}#{_item(kind, key).rpartition('#')[2]}"


def _item(kind: str, key: str) -> str:
    return f"{DEBOUNCE}{kind}#{hashlib.sha256(key.encode()).hexdigest()[:40]}"
