"""The comparison of a cluster in mode shadow with the autoscaler that acts in it: one row of the passes, and one row of
the operators.

The rows are separate, so that an operator neither waits for a pass nor loses to one. No decision depends on either. A
row that cannot be read counts as missing, and the comparison begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from pynamodb.expressions.operand import Path

from chalicelib.shadow.records import KEPT, Ledger
from chalicelib.store.codec import decode, encode, pack, unpack
from chalicelib.store.errors import RowUnreadable
from chalicelib.store.table_client import ConditionFailed, Table, readable
from chalicelib.store.tables import SHADOW, SHADOW_ACCEPTED, RowKey, ShadowRow

_ACCEPTED = "a "  # prefix of the attributes that are results


class ShadowRows:
    """Reads and writes the comparison, per cluster. Raises StoreError."""

    def __init__(self, table: Table, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def load(self, cluster: str) -> Ledger | None:
        """Return the comparison; None where there is none, or none that can be read. One read."""
        try:
            row = self._table.get(ShadowRow, cluster, SHADOW)
            if row is None or (row.expires_at or 0) <= self._clock():
                return None
            with readable(cluster, SHADOW):
                return decode(unpack((row.blob,)), Ledger)
        except RowUnreadable:
            return None

    def save(self, cluster: str, ledger: Ledger, token: int) -> None:
        """Replace the comparison, unless a later holder of the lease has written it. token: the lease's. One write."""
        blob = next(pieces[0] for pieces in map(pack, map(encode, _smaller(ledger))) if len(pieces) == 1)
        row = ShadowRow(cluster, SHADOW, blob=blob, token=token, expires_at=int(self._clock() + KEPT))
        try:
            self._table.write(self._table.put(row, ShadowRow.token.does_not_exist() | (ShadowRow.token <= token)))
        except ConditionFailed:
            return

    def accept(self, cluster: str, name: str, at: float) -> None:
        """Record that an operator has looked at a result (its id), or at all results of a node until now."""
        actions = [Path([_ACCEPTED + name]).set(at), RowKey.expires_at.set(int(at + KEPT))]
        self._table.write(self._table.update(cluster, SHADOW_ACCEPTED, actions))

    def accepted(self, cluster: str) -> dict[str, float]:
        """Return node or id -> when it was accepted."""
        raw = self._table.get_many([(cluster, SHADOW_ACCEPTED)]).get((cluster, SHADOW_ACCEPTED), {})
        return {
            name.removeprefix(_ACCEPTED): float(value["N"])
            for name, value in raw.items()
            if name.startswith(_ACCEPTED) and "N" in value
        }


def _smaller(ledger: Ledger) -> Iterator[Ledger]:
    """Yield the comparison, and smaller ones for a cluster whose row would be too large; the last one always fits."""
    replace = msgspec.structs.replace
    yield ledger
    yield replace(ledger, matches=ledger.matches[-200:])
    short = replace(ledger, matches=(), seen=replace(ledger.seen, soft={}, refusals={}))
    yield short
    yield replace(Ledger(ledger.first, replace(short.seen, nodes={}, targets={})), days=ledger.days)
    yield Ledger(ledger.seen.at, replace(short.seen, nodes={}, targets={}))
