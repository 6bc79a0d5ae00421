"""Pauses of clusters, one row per cluster in the policy table (model/pause.py, `outscaler pause`).

Operators write this row and functions only read it, as with policies: a function that was taken over cannot end a
pause. Two operators may pause different parts at the same time, so each write is based on the version that was read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from chalicelib.model.pause import MOST, Pause, in_force
from chalicelib.store.codec import encode, fingerprint
from chalicelib.store.errors import RowUnreadable, StaleWrite, StoreError
from chalicelib.store.policies import StoredPolicy, stored
from chalicelib.store.table_client import ConditionFailed, Raw, Table, row_of, value_or_error
from chalicelib.store.tables import PAUSES, POLICIES, SORT_KEY, PauseRow

TIDY_AFTER = 86400  # seconds after the last end that the row may be deleted by DynamoDB
_TRIES = 5

Change = Callable[[tuple[Pause, ...]], tuple[Pause, ...]]


class Pauses:
    """Reads and changes the pauses of clusters."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def current(self, cluster: str) -> tuple[Pause, ...]:
        """Return the pauses in force, the one that ends last first. One read. Raises StoreError, also for a row that
        cannot be read: to act in spite of a pause would be worse than not to act."""
        row = self._table.get(PauseRow, PAUSES, cluster)
        return in_force(_pauses(cluster, row), self._clock()) if row is not None else ()

    def with_policy(self, cluster: str) -> tuple[StoredPolicy | None, tuple[Pause, ...]]:
        """Return the version in force and the pauses in force; one read."""
        rows = self._table.get_many([(POLICIES, cluster), (PAUSES, cluster)])
        policy, pauses = rows.get((POLICIES, cluster)), rows.get((PAUSES, cluster))
        found = _pauses(cluster, row_of(PauseRow, pauses)) if pauses is not None else ()
        return (stored(policy) if policy is not None else None), in_force(found, self._clock())

    def all_current(self) -> dict[str, tuple[Pause, ...] | StoreError]:
        """Return the pauses in force of every cluster that has some, or why they cannot be read; one query, eventually
        consistent, for display."""
        raws = self._table.query(PAUSES, "", consistent=False)
        found = {raw[SORT_KEY]["S"]: value_or_error(partial(self._in_force, raw)) for raw in raws}
        return {cluster: pauses for cluster, pauses in found.items() if pauses}

    def _in_force(self, raw: Raw) -> tuple[Pause, ...]:
        row = row_of(PauseRow, raw)
        return in_force(_pauses(row.item, row), self._clock())

    def change(self, cluster: str, change: Change) -> tuple[Pause, ...]:
        """Replace the pauses in force by what `change` makes of them, and return these. Raises StaleWrite where others
        wrote during every attempt; StoreError for more than MOST pauses."""
        for _ in range(_TRIES):
            row = self._table.get(PauseRow, PAUSES, cluster)
            before = in_force(_pauses(cluster, row), self._clock()) if row is not None else ()
            after = in_force(change(before), self._clock())
            if len(after) > MOST:
                raise StoreError(f"{cluster}: more than {MOST} pauses; end some with outscaler resume {cluster}")
            if after == before:
                return before
            try:
                self._write(cluster, row.version if row is not None else "", after)
            except ConditionFailed as refused:
                if _version(refused.old) == fingerprint(encode(after)):
                    return after  # the first attempt succeeded, and only its response was lost
                continue
            return after
        raise StaleWrite(cluster, (PAUSES,))

    def _write(self, cluster: str, seen: str, after: tuple[Pause, ...]) -> None:
        as_seen = PauseRow.version == seen if seen else PauseRow.version.does_not_exist()
        if not after:
            self._table.write(self._table.delete(PAUSES, cluster, as_seen))
            return
        data = encode(after)
        row = PauseRow(
            PAUSES,
            cluster,
            text=data.decode(),
            version=fingerprint(data),
            expires_at=int(max(each.until for each in after)) + TIDY_AFTER,
        )
        self._table.write(self._table.put(row, as_seen))


def _pauses(cluster: str, row: PauseRow) -> tuple[Pause, ...]:
    try:
        return msgspec.json.decode(row.text or "[]", type=tuple[Pause, ...])
    except (msgspec.MsgspecError, ValueError) as error:
        raise RowUnreadable(
            f"{cluster}: its pauses cannot be read ({error}); "
            f"run the release that wrote them, or outscaler resume {cluster}"
        ) from error


def _version(raw: Raw) -> str:
    return str(raw.get("version", {}).get("S", ""))
