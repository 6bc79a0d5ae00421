"""What planning for the pending pods comes to: where each pod is expected, and who is left.

It is apart from how it is found (plan/settle.py), because what is promised of it (plan/worst.py) and what is reported
(plan/growth.py) need the result only.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chalicelib.model.pod import Pod
from chalicelib.plan.scale_up.estimator import PodRequest
from chalicelib.plan.scale_up.pod_competition import Contest
from chalicelib.plan.state.pending_pods import PodBatch


class FinalPlacement(msgspec.Struct, frozen=True):
    """places: (row, class, pods); left: pods without a place; new: row -> (group, number from 1) of planned nodes.
    lost: classes of which packing had placed more than the scheduler will. expected: row of a node that exists or is on
    its way -> one of the pods, also of those that do not count, that will come to it. worth: how many pods of each
    priority have a place, the highest first.
    small: placing everybody again is cheap. choice: some pods are on nodes that exist while others found no room."""

    places: tuple[tuple[int, int, tuple[Pod, ...]], ...]
    left: tuple[PodBatch, ...]
    new: dict[int, tuple[str, int]]
    lost: frozenset[int] = frozenset()
    expected: dict[int, str] = {}
    worth: tuple[int, ...] = ()
    small: bool = False
    choice: bool = False
    contests: tuple[Contest, ...] = ()  # classes of which no single pod is sure of a place


def asks_of(left: Sequence[PodBatch]) -> list[PodRequest]:
    """Pods that found no place, per class."""
    counts: dict[int, int] = {}
    first: dict[int, str] = {}
    for demand in left:
        counts[demand.cls] = counts.get(demand.cls, 0) + len(demand.pods)
        first.setdefault(demand.cls, demand.pods[0].key)
    return [PodRequest(cls, count, first[cls]) for cls, count in counts.items()]
