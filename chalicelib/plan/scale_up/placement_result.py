"""The result of planning for pending pods: the expected place of each pod, and the unplaced pods.

It is separate from the computation (plan/scale_up/final_placement.py) because the promised outcome
(plan/scale_up/worst_case.py) and the report (plan/scale_up/planner.py) need the result only.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chalicelib.model.pod import Pod
from chalicelib.plan.scale_up.estimator import PodRequest
from chalicelib.plan.state.pending_pods import PodBatch


class Contest(msgspec.Struct, frozen=True):
    """So many places, in the worst order, for the pods of these classes."""

    places: int
    classes: tuple[int, ...]


class FinalPlacement(msgspec.Struct, frozen=True):
    """places: (row, class, pods); left: unplaced pods; new: row -> (group, number from 1) of planned nodes. lost:
    classes of which the estimator placed more pods than the scheduler will. expected: row of an existing or upcoming
    node -> one of the pods, including uncounted ones, that will be placed on it. worth: number of placed pods per
    priority, highest priority first. small: placing all pods again is fast. choice: some pods are on existing nodes
    while others found no room."""

    places: tuple[tuple[int, int, tuple[Pod, ...]], ...]
    left: tuple[PodBatch, ...]
    new: dict[int, tuple[str, int]]
    lost: frozenset[int] = frozenset()
    expected: dict[int, str] = {}
    worth: tuple[int, ...] = ()
    small: bool = False
    choice: bool = False
    contests: tuple[Contest, ...] = ()  # classes of which no single pod has a guaranteed place


def asks_of(left: Sequence[PodBatch]) -> list[PodRequest]:
    """Return the unplaced pods, per class."""
    counts: dict[int, int] = {}
    first: dict[int, str] = {}
    for demand in left:
        counts[demand.cls] = counts.get(demand.cls, 0) + len(demand.pods)
        first.setdefault(demand.cls, demand.pods[0].key)
    return [PodRequest(cls, count, first[cls]) for cls, count in counts.items()]
