"""A person lets go of the brake for a while (plan/brake.py, `outscaler release`).

The word is a row of its own, beside the brake that passes write: a person does not wait for a lease, and a pass that
plans meanwhile must neither lose the word nor be made stale by it. It comes with the query that loads memory.
"""

from __future__ import annotations

from chalicelib.store.table_client import Table
from chalicelib.store.tables import RELEASE, ReleaseRow

TIDY_AFTER = 86400  # seconds after its end that the row may be deleted by DynamoDB


class BreakerOverrides:
    """Writing the word. Reading it is part of loading memory: Memory.released_until."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def release(self, cluster: str, until: float) -> None:
        """The brake is let go until that instant (epoch seconds); the last word counts, also if it is the shorter."""
        self._table.write(
            self._table.put(ReleaseRow(cluster, RELEASE, until=until, expires_at=int(until) + TIDY_AFTER))
        )
