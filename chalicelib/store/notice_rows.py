"""The row with the state of a cluster's notifications (notify/notices.py), among them the messages that are to be sent.

The tick alone writes it. A write is based on the version that was read, so of two ticks at the same time one writes,
and the other one leaves the cluster to it.
"""

from __future__ import annotations

from pynamodb.expressions.update import Action

from chalicelib.store.codec import fingerprint, pack, unpack
from chalicelib.store.table_client import ConditionFailed, Table, readable
from chalicelib.store.tables import NOTICES, NoticesRow


class NoticeRows:
    """Reads and writes the rows. The content is opaque here."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def load(self, cluster: str) -> tuple[bytes, str]:
        """Return the content, b"" where there is none, and its version. Raises StoreError."""
        row = self._table.get(NoticesRow, cluster, NOTICES)
        if row is None or row.blob is None:
            return b"", ""
        with readable(cluster, NOTICES):
            return unpack((row.blob,)), row.version or ""

    def save(self, cluster: str, data: bytes, expected: str) -> str:
        """Replace the content that has the version `expected`, and return the new version; "" where another tick was
        faster. Raises StoreError."""
        version = fingerprint(data)
        as_read = NoticesRow.version == expected if expected else NoticesRow.version.does_not_exist()
        change: list[Action] = [NoticesRow.blob.set(pack(data)[0]), NoticesRow.version.set(version)]
        try:
            self._table.write(self._table.update(cluster, NOTICES, change, as_read))
        except ConditionFailed as refused:
            return version if refused.old.get("version", {}).get("S") == version else ""
        return version
