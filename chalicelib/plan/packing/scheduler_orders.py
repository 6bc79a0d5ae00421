"""Orders in which the scheduler may place pods, and how pods of one class are spread over rows.

The scheduler may place evicted pods in another order and on other nodes than a plan expects. What
finds room in all four orders here, the largest and the smallest pods first, into the fullest and
into the emptiest nodes (LeastAllocated, the scheduler's default), hardly depends on it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from chalicelib.plan.tables import Floats, Ints


class SchedulerOrder(msgspec.Struct, frozen=True):
    """One order of the scheduler."""

    largest_first: bool
    fullest_first: bool

    @property
    def text(self) -> str:
        """Describe it."""
        pods = "largest" if self.largest_first else "smallest"
        nodes = "fullest" if self.fullest_first else "emptiest"
        return f"the {pods} pods first, into the {nodes} nodes"


ORDERS = tuple(
    SchedulerOrder(largest_first=largest, fullest_first=fullest)
    for largest, fullest in ((True, True), (False, False), (True, False), (False, True))
)

EMPTIEST = tuple(at for at, order in enumerate(ORDERS) if not order.fullest_first)
"""Positions of the orders that a scheduler may follow which fills the emptiest nodes first."""


def emptiest_first(left: Floats, share: Floats, most: Ints, count: int) -> Ints:
    """Return how many of `count` pods each row gets if every pod goes to the row that has most left
    afterwards. share: what a pod takes of a row; most: pods that a row takes."""
    rows = np.sort(lowest(share - left, count))  # no other row is ever the emptiest
    most_of_rows = np.minimum(most[rows], count)
    row_of = np.repeat(rows, most_of_rows)
    first_of_row = np.repeat(np.cumsum(most_of_rows) - most_of_rows, most_of_rows)
    number = np.arange(len(row_of)) - first_of_row
    taken = (number + 1) * share[row_of] - left[row_of]
    chosen = np.argsort(taken, kind="stable")[:count]
    pods: Ints = np.bincount(row_of[chosen], minlength=len(left)).astype(np.int64)
    return pods


def lowest(values: Floats, count: int) -> Ints:
    """Return the positions of the lowest values, lowest first, equal ones by position."""
    if count < len(values) // 4:
        bound = np.partition(values, count - 1)[count - 1]
        near = np.flatnonzero(values <= bound)
        return near[np.argsort(values[near], kind="stable")][:count]
    order: Ints = np.argsort(values, kind="stable")[:count]
    return order
