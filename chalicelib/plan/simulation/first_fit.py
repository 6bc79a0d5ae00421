"""First-fit selection of rows. Pods and headroom are distributed by the same rule."""

from __future__ import annotations

import numpy as np

from chalicelib.plan.tables.array_types import Ints


def first_fit(quota: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the first rows that take `count` pods in total under these quotas, and how many each takes."""
    rows = quota.nonzero()[0]
    total = np.cumsum(quota[rows])
    if not len(rows) or total[-1] <= count:
        return rows, quota[rows]
    last = int(np.searchsorted(total, count))
    here = quota[rows[: last + 1]].copy()
    here[last] -= total[last] - count
    return rows[: last + 1], here
