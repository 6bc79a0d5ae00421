"""What a pass leaves to the next one, where it is too large for the lease's row: a row of its own.

The lease's row has precedence: a release before this row knows the lease's row only, writes into it, and is then the
newer one. So who writes this row takes `left` off the lease's row afterwards. A process that dies in between leaves the
older value in force, which costs the counts of one pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.store.client import Refused, Table
from chalicelib.store.tables import LEFT, LeftRow

LARGEST_INSIDE = 512
"""Bytes of `left` in the lease's row. Its keys and its other attributes are 400 bytes at most while passes succeed, so
that the row stays within 1 KB."""


def read(table: Table, cluster: str) -> bytes:
    """What the row has, b"" where there is none."""
    row = table.get(LeftRow, cluster, LEFT)
    return (row.left or b"") if row is not None else b""


def read_many(table: Table, clusters: Sequence[str]) -> dict[str, bytes]:
    """The same for several clusters, in one read for a hundred of them; those without a row are left out."""
    rows = table.get_many([(cluster, LEFT) for cluster in clusters]) if clusters else {}
    return {cluster: LeftRow.from_raw_data(raw).left or b"" for (cluster, _), raw in rows.items()}


def write(table: Table, cluster: str, left: bytes, token: int) -> None:
    """Replace it, unless a later holder of the lease has written it. token: the lease's."""
    nobody_wrote_it = LeftRow.token.does_not_exist()
    an_earlier_pass_did = LeftRow.token <= token
    try:
        table.write(table.put(LeftRow(cluster, LEFT, left=left, token=token), nobody_wrote_it | an_earlier_pass_did))
    except Refused:
        return
