"""An operator's temporary override of the circuit breaker (plan/scale_down/circuit_breaker.py, `outscaler release`).

The override is a row of its own, separate from the breaker state that passes write: an operator does not wait for a
lease, and a concurrent pass must neither lose the override nor become stale because of it. It is read with the query
that loads memory.
"""

from __future__ import annotations

from chalicelib.store.table_client import Table
from chalicelib.store.tables import RELEASE, ReleaseRow

TIDY_AFTER = 86400  # seconds after its end that the row may be deleted by DynamoDB


class BreakerOverrides:
    """Writes the override. Loading memory reads it: Memory.released_until."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def release(self, cluster: str, until: float) -> None:
        """Override the circuit breaker until that instant; the last call counts, even if it ends earlier."""
        self._table.write(
            self._table.put(ReleaseRow(cluster, RELEASE, until=until, expires_at=int(until) + TIDY_AFTER))
        )
