"""Test for an audit finding: an unreadable memory row is an error that names cluster and
remedy, without a traceback."""

from __future__ import annotations

import pytest

from chalicelib.store.errors import StoreError
from chalicelib.store.tables import BREAKER, GROUPS, NODES, BlobRow, MemoryRow
from tests.unit.store.support import StoreFixture


@pytest.mark.parametrize(
    "row",
    [
        lambda cluster: MemoryRow(cluster, f"{GROUPS}g", text='{"size_wrong":[1]}', version="v"),
        lambda cluster: MemoryRow(cluster, BREAKER, text="{", version="v"),
        lambda cluster: BlobRow(cluster, f"{NODES}000", blob=b"rubbish", version="v", parts=1),
    ],
)
def test_memory_unreadable_row_error_names_cluster_and_remedy(
    bench: StoreFixture, row: object
) -> None:
    assert callable(row)
    bench.store.table.write(bench.store.table.put(row(bench.cluster)))
    with pytest.raises(StoreError, match=f"{bench.cluster}: what is remembered cannot be read"):
        bench.load()
