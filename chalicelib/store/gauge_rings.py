"""The row with a cluster's numbers of the last 24 hours (model/gauge_ring.py).

A pass writes it every five minutes: one read and one write. No decision depends on it.
"""

from __future__ import annotations

from chalicelib.model.gauge_ring import GaugePoint, added, packed, unpacked
from chalicelib.store.table_client import Table
from chalicelib.store.tables import GAUGES, GaugesRow

KEPT = 2 * 86400  # seconds after the last write that DynamoDB may delete the row


class GaugeRings:
    """Reads and extends the rows."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def add(self, cluster: str, at: float, nodes: int, pending: int) -> None:
        """Store the point of this instant (epoch seconds). Passes of a cluster follow each other, so a lost point is
        the worst that two writers can cause. Raises StoreError."""
        points = added(self.load(cluster), at, nodes, pending)
        self._table.write(self._table.put(GaugesRow(cluster, GAUGES, blob=packed(points), expires_at=int(at) + KEPT)))

    def load(self, cluster: str) -> tuple[GaugePoint, ...]:
        """Return the points, oldest first. Raises StoreError."""
        row = self._table.get(GaugesRow, cluster, GAUGES, consistent=False)
        return unpacked(row.blob) if row is not None else ()
